// A device's memory: the host's, with what torch's own allocator counts, and a limit.
#pragma once
#include "devices.h"

namespace stand_in {

using c10::CachingDeviceAllocator::DeviceStats;

inline size_t total_memory = 0;  // bytes of each device

// As torch's allocator for CUDA rounds (CUDACachingAllocator.cpp): blocks of 512 bytes, out of segments of 2 MiB.
constexpr size_t BLOCK = 512, SEGMENT = 2 << 20, SMALL = 1 << 20;
inline size_t rounded(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

inline std::string in_words(size_t bytes) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(2);
  if (bytes <= 1024) text << bytes << " bytes";
  else if (bytes <= 1 << 20) text << bytes / 1024.0 << " KiB";
  else if (bytes <= 1 << 30) text << bytes / 1048576.0 << " MiB";
  else text << bytes / 1073741824.0 << " GiB";
  return text.str();
}

struct Memory final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override { return allocate_on(current, bytes); }

  c10::DataPtr allocate_on(DeviceIndex device, size_t bytes) {
    require_device(device);
    require_alive(device);
    if (bytes == 0) return nothing(device);
    count(device, bytes);  // before the host is asked: its memory may be less than the device is said to have
    try {
      auto memory = c10::GetCPUAllocator()->allocate(bytes);
      std::memset(memory.get(), 0xfb, std::min(bytes, size_t(1) << 16));  // who reads empty memory gets no zeros
      return kept(new Kept{std::move(memory), c10::Storage(), device, bytes});
    } catch (...) {
      uncount(device, bytes);
      throw;
    }
  }

  // The memory of a storage of the host becomes the device's.
  c10::DataPtr adopt(DeviceIndex device, c10::Storage storage) {
    size_t bytes = storage.nbytes();
    if (bytes == 0) return nothing(device);
    count(device, bytes);
    return kept(new Kept{c10::DataPtr(), std::move(storage), device, bytes});
  }

  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
  bool initialized() override { return true; }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}  // what a kernel uses is not freed before its call ends
  void emptyCache(c10::MempoolId_t = {0, 0}) override {
    std::lock_guard<std::mutex> hold(lock_);
    for (auto& stats : stats_)
      for (int kind : {0, 1, 2}) {
        auto& reserved = stats.reserved_bytes[kind];
        reserved.decrease(reserved.current - rounded(stats.allocated_bytes[kind].current, SEGMENT));
      }
  }
  DeviceStats getDeviceStats(DeviceIndex device) override {
    std::lock_guard<std::mutex> hold(lock_);
    return stats_.at(device);
  }
  void resetAccumulatedStats(DeviceIndex device) override { of_each(device, [](auto& stat) { stat.reset_accumulated(); }); }
  void resetPeakStats(DeviceIndex device) override { of_each(device, [](auto& stat) { stat.reset_peak(); }); }
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override {
    require_device(device);
    require_alive(device);
    std::lock_guard<std::mutex> hold(lock_);
    return {free(device, stats_[device].reserved_bytes[0].current), total_memory};
  }
  void set_fraction(DeviceIndex device, double fraction) {
    std::lock_guard<std::mutex> hold(lock_);
    fraction_.at(device) = fraction;
  }
  // (address, bytes, device) of all that is allocated
  std::vector<std::tuple<uintptr_t, size_t, int>> live() {
    std::lock_guard<std::mutex> hold(lock_);
    std::vector<std::tuple<uintptr_t, size_t, int>> all;
    for (auto& [address, kept] : live_) all.emplace_back(address, kept->bytes, kept->device);
    return all;
  }
  double fraction(DeviceIndex device) {
    std::lock_guard<std::mutex> hold(lock_);
    return fraction_.at(device);
  }

 private:
  struct Kept {
    c10::DataPtr memory;   // of the host's allocator, or
    c10::Storage storage;  // of a storage that was adopted
    DeviceIndex device;
    size_t bytes;
    uintptr_t address = 0;
  };
  static c10::DataPtr nothing(DeviceIndex device) {
    return c10::DataPtr(nullptr, nullptr, &c10::detail::deleteNothing, Device(DeviceType::CUDA, device));
  }
  c10::DataPtr kept(Kept* kept) {
    void* data = kept->memory ? kept->memory.get() : kept->storage.mutable_data();
    std::lock_guard<std::mutex> hold(lock_);
    live_[kept->address = reinterpret_cast<uintptr_t>(data)] = kept;
    return c10::DataPtr(data, kept, &drop, Device(DeviceType::CUDA, kept->device));
  }
  static void drop(void* kept);

  size_t free(DeviceIndex device, int64_t taken) const {
    auto left = int64_t(total_memory * (1 - conditions.of(device).used)) - taken;
    return left > 0 ? left : 0;
  }
  void count(DeviceIndex device, size_t bytes) {
    std::lock_guard<std::mutex> hold(lock_);
    auto& stats = stats_[device];
    size_t block = rounded(bytes, BLOCK), taken = stats.allocated_bytes[0].current;
    if (block > free(device, taken) || taken + block > total_memory * fraction_[device]) {
      stats.num_alloc_retries++;
      stats.num_ooms++;
      TORCH_CHECK_WITH(
          OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", in_words(block), ". GPU ", (int)device,
          " has a total capacity of ", in_words(total_memory), " of which ", in_words(free(device, taken)),
          " is free. Of the allocated memory ", in_words(taken), " is allocated by PyTorch.");
    }
    for (int kind : {0, bytes < SMALL ? 1 : 2}) {
      stats.allocation[kind].increase(1);
      stats.active[kind].increase(1);
      stats.allocated_bytes[kind].increase(block);
      stats.active_bytes[kind].increase(block);
      stats.requested_bytes[kind].increase(bytes);
      auto& reserved = stats.reserved_bytes[kind];
      auto wanted = int64_t(rounded(stats.allocated_bytes[kind].current, SEGMENT));
      if (wanted > reserved.current) {
        reserved.increase(wanted - reserved.current);
        stats.segment[kind].increase(1);
        if (kind == 0) stats.num_device_alloc++;
      }
    }
  }
  void forget(uintptr_t address) {
    std::lock_guard<std::mutex> hold(lock_);
    live_.erase(address);
  }
  void uncount(DeviceIndex device, size_t bytes) {
    std::lock_guard<std::mutex> hold(lock_);
    auto& stats = stats_[device];
    for (int kind : {0, bytes < SMALL ? 1 : 2}) {
      stats.allocation[kind].decrease(1);
      stats.active[kind].decrease(1);
      stats.allocated_bytes[kind].decrease(rounded(bytes, BLOCK));
      stats.active_bytes[kind].decrease(rounded(bytes, BLOCK));
      stats.requested_bytes[kind].decrease(bytes);
    }
  }
  template <class F>
  void of_each(DeviceIndex device, F change) {
    std::lock_guard<std::mutex> hold(lock_);
    auto& stats = stats_.at(device);
    for (auto* several : {&stats.allocation, &stats.segment, &stats.active, &stats.inactive_split, &stats.allocated_bytes,
                          &stats.reserved_bytes, &stats.active_bytes, &stats.inactive_split_bytes, &stats.requested_bytes})
      for (auto& stat : *several) change(stat);
  }

  mutable std::mutex lock_;
  std::unordered_map<uintptr_t, Kept*> live_;
  std::array<DeviceStats, MOST> stats_;
  std::array<double, MOST> fraction_ = filled(1.0);
  static std::array<double, MOST> filled(double value) {
    std::array<double, MOST> all;
    all.fill(value);
    return all;
  }
};
inline Memory* memory = nullptr;

inline void Memory::drop(void* pointer) {
  auto* kept = static_cast<Kept*>(pointer);
  memory->forget(kept->address);
  memory->uncount(kept->device, kept->bytes);
  delete kept;
}

}  // namespace stand_in

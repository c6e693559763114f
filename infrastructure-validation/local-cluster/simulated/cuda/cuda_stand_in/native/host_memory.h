// Pinned memory of the host, and copies to it that have not arrived yet.
//
// A copy from a device to pinned memory returns at once when nobody asked it to block. Until an event behind it has
// passed, or the device was waited for, the bytes there are 0xff, which is NaN in every floating type: who reads too
// early sees it, where on a GPU it might go well for months.
#pragma once
#include "memory.h"

namespace stand_in {

struct Arriving {
  double ready;
  at::Tensor host, bytes;
};
inline std::mutex arriving_lock;
inline std::deque<Arriving>& arriving = *new std::deque<Arriving>();

inline void arrive(double until) {
  std::deque<Arriving> due;
  {
    std::lock_guard<std::mutex> hold(arriving_lock);
    while (!arriving.empty() && arriving.front().ready <= until) {
      due.push_back(std::move(arriving.front()));
      arriving.pop_front();
    }
  }
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (auto& each : due) each.host.copy_(each.bytes);
}

// `host` holds what was copied from the device; it shall hold that later.
inline void arrive_later(const at::Tensor& host, DeviceIndex from) {
  at::Tensor bytes = host.clone();
  if (host.is_non_overlapping_and_dense()) std::memset(host.data_ptr(), 0xff, host.nbytes());
  std::lock_guard<std::mutex> hold(arriving_lock);
  arriving.push_back({busy(from), host, bytes});
}

class PinnedMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    auto* kept = new Kept{this, c10::GetCPUAllocator()->allocate(bytes)};
    void* data = kept->memory.get();
    std::lock_guard<std::mutex> hold(lock_);
    if (data) places_[reinterpret_cast<uintptr_t>(data)] = bytes;
    return c10::DataPtr(data, kept, &drop, Device(DeviceType::CPU));
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }

  bool holds(const void* data) {
    std::lock_guard<std::mutex> hold(lock_);
    auto at = reinterpret_cast<uintptr_t>(data);
    auto next = places_.upper_bound(at);
    if (next == places_.begin()) return false;
    --next;
    return at < next->first + std::max<size_t>(next->second, 1);
  }

 private:
  struct Kept {
    PinnedMemory* of;
    c10::DataPtr memory;
  };
  static void drop(void* pointer) {
    auto* kept = static_cast<Kept*>(pointer);
    {
      std::lock_guard<std::mutex> hold(kept->of->lock_);
      kept->of->places_.erase(reinterpret_cast<uintptr_t>(kept->memory.get()));
    }
    delete kept;
  }
  std::mutex lock_;
  std::map<uintptr_t, size_t> places_;  // begin -> bytes
};
inline PinnedMemory* pinned_memory = nullptr;

inline bool is_pinned(const at::Tensor& tensor) { return pinned_memory->holds(tensor.storage().data()); }

}  // namespace stand_in

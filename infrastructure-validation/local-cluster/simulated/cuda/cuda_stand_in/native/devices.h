// Devices, streams and events. A kernel has ended when its call returns, so streams have nothing to order; but the host
// learns of it as from a GPU: an event has passed LAG after it was recorded, and not before.
#pragma once
#include "condition.h"

namespace stand_in {

inline int n_devices = 0;
inline double lag_s = 0;
inline int sync_debug = 0;  // of torch.cuda.set_sync_debug_mode: 0, 1 warn, 2 error

inline thread_local DeviceIndex current = 0;
inline thread_local std::array<c10::StreamId, MOST> streams{};  // the current one of each device
inline std::atomic<c10::StreamId> next_stream{1};
inline std::array<std::atomic<double>, MOST> busy_until{};      // of each device

inline void require_device(DeviceIndex index) {
  TORCH_CHECK(
      index >= 0 && index < n_devices,
      "CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs?");
}

inline DeviceIndex or_current(DeviceIndex index) { return index < 0 ? current : index; }

// The moment at which what was launched on the device until now will have ended.
inline double busy(DeviceIndex index) {
  double until = now_s() + lag_s;
  busy_until[index] = until;
  return until;
}

inline void arrive(double until);  // host_memory.h: copies to the host that have ended by then

inline void wait_until(DeviceIndex index, double moment) {
  wait_while_it_hangs(index);
  double left = moment - now_s();
  if (left > 0) std::this_thread::sleep_for(std::chrono::duration<double>(left));
  arrive(moment);
}

inline void wait_for_device(DeviceIndex index) { wait_until(index, busy_until[index]); }

// What torch says before it waits for a stream on behalf of an operation.
inline void say_that_it_waits() {
  if (sync_debug == 1) TORCH_WARN("called a synchronizing CUDA operation");
  TORCH_CHECK(sync_debug != 2, "called a synchronizing CUDA operation");
}

struct WithDevice {
  DeviceIndex before = current;
  explicit WithDevice(DeviceIndex index) { current = index; }
  ~WithDevice() { current = before; }
};

struct Recorded {
  DeviceIndex device;
  double passed;
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static c10::Stream stream(DeviceIndex index, c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, Device(DeviceType::CUDA, index), id);
  }
  DeviceType type() const override { return DeviceType::CUDA; }
  Device getDevice() const override { return Device(DeviceType::CUDA, current); }
  Device exchangeDevice(Device to) const override {
    Device before = getDevice();
    setDevice(to);
    return before;
  }
  void setDevice(Device to) const override {
    if (to.index() < 0) return;
    require_device(to.index());
    current = to.index();
  }
  void uncheckedSetDevice(Device to) const noexcept override {
    if (to.index() >= 0) current = to.index();
  }
  DeviceIndex deviceCount() const noexcept override { return n_devices; }

  c10::Stream getStream(Device of) const override {
    auto index = or_current(of.index());
    return stream(index, streams[index]);
  }
  c10::Stream getDefaultStream(Device of) const override { return stream(or_current(of.index()), 0); }
  c10::Stream getNewStream(Device of, int) const override { return stream(or_current(of.index()), next_stream++); }
  c10::Stream getStreamFromGlobalPool(Device of, bool) const override { return getNewStream(of, 0); }
  c10::Stream exchangeStream(c10::Stream to) const override {
    auto before = streams[to.device_index()];
    streams[to.device_index()] = to.id();
    return stream(to.device_index(), before);
  }
  void* getStreamNativeHandle(const c10::Stream of) const override { return reinterpret_cast<void*>(of.id()); }
  bool queryStream(const c10::Stream& of) const override { return now_s() >= busy_until[of.device_index()]; }
  void synchronizeStream(const c10::Stream& of) const override {
    say_that_it_waits();
    wait_for_device(of.device_index());
  }
  void synchronizeDevice(const DeviceIndex index) const override { wait_for_device(or_current(index)); }

  void record(void** event, const c10::Stream& on, const DeviceIndex index, const c10::EventFlag) const override {
    TORCH_CHECK(index == -1 || index == on.device_index(), "Event device index ", (int)index,
                " does not match recording stream's device index ", (int)on.device_index(), ".");
    if (!*event) *event = new Recorded();
    *static_cast<Recorded*>(*event) = {on.device_index(), busy(on.device_index())};
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void* event) const override {
    if (!event) return true;
    auto* recorded = static_cast<Recorded*>(event);
    require_alive(recorded->device);
    if (now_s() < recorded->passed || conditions.of(recorded->device).hang_s > 0) return false;
    arrive(recorded->passed);
    return true;
  }
  void synchronizeEvent(void* event) const override {
    if (auto* recorded = static_cast<Recorded*>(event)) wait_until(recorded->device, recorded->passed);
  }
  double elapsedTime(void* from, void* to, const DeviceIndex) const override {
    return 1000 * (static_cast<Recorded*>(to)->passed - static_cast<Recorded*>(from)->passed);
  }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override { delete static_cast<Recorded*>(event); }
};
inline const Guard* guard = nullptr;

}  // namespace stand_in

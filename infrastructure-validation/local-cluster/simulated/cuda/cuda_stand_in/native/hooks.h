// Random numbers of a device, and the hooks through which torch asks for all of it.
#pragma once
#include "host_memory.h"

namespace stand_in {

// A seed and an offset, as Philox has: a state of 16 bytes. The numbers themselves are those of the CPU's generator.
struct Random final : c10::GeneratorImpl {
  explicit Random(DeviceIndex device)
      : c10::GeneratorImpl(Device(DeviceType::CUDA, device), c10::DispatchKeySet(c10::DispatchKey::CUDA)) {}
  void set_current_seed(uint64_t seed) override { seed_ = seed, offset_ = 0; }
  uint64_t current_seed() const override { return seed_; }
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom(true));
    return seed_;
  }
  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK(state.numel() == 16 && state.dtype() == at::kByte && state.device().is_cpu(), "RNG state is wrong size");
    auto* words = static_cast<const uint64_t*>(state.data());
    seed_ = words[0], offset_ = words[1];
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    auto state = at::detail::empty_cpu({16}, at::kByte, std::nullopt, std::nullopt, std::nullopt, std::nullopt);
    auto* words = static_cast<uint64_t*>(state.mutable_data_ptr());
    words[0] = seed_, words[1] = offset_;
    return state.getIntrusivePtr();
  }
  Random* clone_impl() const override {
    auto* other = new Random(device().index());
    other->seed_ = seed_, other->offset_ = offset_;
    return other;
  }
  // For the CPU's generator, for one operation. An operation takes a multiple of 4 from Philox.
  uint64_t next() {
    uint64_t mixed = seed_ * 0x9E3779B97F4A7C15ULL + (offset_ += 4);
    return (mixed ^ mixed >> 31) * 0xBF58476D1CE4E5B9ULL;
  }

 private:
  uint64_t seed_ = c10::default_rng_seed_val, offset_ = 0;
};
inline std::vector<at::Generator>* generators = nullptr;
inline Random* generator_of(DeviceIndex device) { return (*generators)[device].get<Random>(); }

}  // namespace stand_in

namespace at {
struct CUDAHooks final : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return stand_in::n_devices > 0; }
  bool hasCUDA() const override { return stand_in::n_devices > 0; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return stand_in::n_devices; }
  int getNumGPUs() const override { return stand_in::n_devices; }
  void setCurrentDevice(DeviceIndex index) const override { stand_in::guard->setDevice(Device(kCUDA, index)); }
  DeviceIndex getCurrentDevice() const override { return stand_in::current; }
  DeviceIndex current_device() const override { return stand_in::current; }
  DeviceIndex exchangeDevice(DeviceIndex index) const override {
    return stand_in::guard->exchangeDevice(Device(kCUDA, index)).index();
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex index) const override { return exchangeDevice(index); }
  Device getDeviceFromPtr(void*) const override { return Device(kCUDA, stand_in::current); }
  void deviceSynchronize(DeviceIndex index) const override { stand_in::wait_for_device(index); }
  bool isPinnedPtr(const void* data) const override { return stand_in::pinned_memory->holds(data); }
  Allocator* getPinnedMemoryAllocator() const override { return stand_in::pinned_memory; }
  Allocator* getCUDADeviceAllocator() const override { return stand_in::memory; }
  const Generator& getDefaultGenerator(DeviceIndex index) const override {
    return (*stand_in::generators)[stand_in::or_current(index)];
  }
  Generator getNewGenerator(DeviceIndex index) const override {
    return make_generator<stand_in::Random>(stand_in::or_current(index));
  }
  std::string showConfig() const override { return "CUDA stand-in of a simulated node"; }
};
C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, CUDAHooks)
}  // namespace at

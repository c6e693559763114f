// The kernels of CUDA: those of the CPU, on the same memory. One boxed fallback runs every operation that has no kernel
// of its own here; what it checks and waits for is what the CUDA build checks and waits for.
#pragma once
#include "aliases.h"

namespace stand_in {

using torch::jit::Stack;

// They take tensors of the host and of a device.
inline const std::set<std::string>& mixes() {
  static const std::set<std::string> names = {
      "aten::copy_", "aten::_foreach_copy_", "aten::index", "aten::index_put_", "aten::_index_put_impl_",
      "aten::_unsafe_index", "aten::_unsafe_index_put", "aten::set_", "aten::_copy_from_and_resize"};
  return names;
}

// The host needs their values, or the size of their result, before it can go on.
inline const std::set<std::string>& waiting() {
  static const std::set<std::string> names = {
      "aten::_local_scalar_dense", "aten::nonzero", "aten::equal", "aten::masked_select", "aten::_unique2",
      "aten::unique_dim", "aten::unique_consecutive", "aten::bincount"};
  return names;
}

inline const std::set<std::string>& products() {
  static const std::set<std::string> names = {"aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm"};
  return names;
}

// One call of one operation: its arguments become the host's, and its results the device's.
class Call {
 public:
  Call(const c10::OperatorHandle& op, Stack* stack)
      : op_(op), name_(op.schema().name()), stack_(stack), first_(stack->size() - op.schema().arguments().size()) {}

  void run() {
    wait_where_needed();
    for (size_t i = 0; i < op_.schema().arguments().size(); ++i) take(i);
    on_ = requested_.value_or(device_.value_or(Device(DeviceType::CUDA, current))).index();
    require_device(on_);
    require_one_device();
    require_alive(on_);
    Condition condition = conditions.of(on_);
    double begun = now_s();
    with_random_numbers([&] { op_.callBoxed(stack_); });
    aliases_.settle();
    spoil(condition);
    bool counts = !products().count(name_) && name_ != "aten::copy_";
    double of_kind = copies_ ? condition.copy_slow : counts ? condition.memory_slow : 1;
    take_longer(std::max(condition.slow, of_kind), begun);
    if (arrives_.defined()) arrive_later(arrives_, on_);
    for (size_t i = stack_->size() - op_.schema().returns().size(); i < stack_->size(); ++i) give(i);
  }

 private:
  c10::IValue& argument(size_t i) { return (*stack_)[first_ + i]; }

  void wait_where_needed() {
    if (name_ == "aten::copy_") return wait_for_copy(argument(0).toTensor(), argument(1).toTensor(), argument(2).toBool());
    bool waits = waiting().count(name_) > 0;
    if (name_ == "aten::index" || name_ == "aten::index_put_" || name_ == "aten::_index_put_impl_")
      for (const std::optional<at::Tensor>& each : argument(1).toOptionalTensorVector())  // a mask has to be counted
        waits |= each && each->defined() && (each->scalar_type() == at::kBool || each->scalar_type() == at::kByte);
    if (!waits) return;
    say_that_it_waits();
    wait_for_device(argument(0).isTensor() ? or_current(argument(0).toTensor().device().index()) : current);
  }

  // As ATen/native/cuda/Copy.cu: without non_blocking both directions wait. To pageable memory the driver waits anyway.
  void wait_for_copy(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
    copies_ = to.is_cuda() != from.is_cuda();
    if (!copies_) return;
    if (!non_blocking) say_that_it_waits();
    auto index = (to.is_cuda() ? to : from).device().index();
    if (!non_blocking || (from.is_cuda() && !is_pinned(to))) wait_for_device(index);
    else if (from.is_cuda()) arrives_ = to;
    from_host_ = to.is_cuda();
  }

  void take(size_t i) {
    auto& value = argument(i);
    const auto& declared = op_.schema().arguments()[i];
    if (value.isTensor()) {
      value = on_host(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> made;
      for (const at::Tensor& each : value.toTensorList().vec()) made.push_back(on_host(each));
      value = made;
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> made;
      for (const std::optional<at::Tensor>& each : value.toOptionalTensorVector())
        made.push_back(each ? std::optional<at::Tensor>(on_host(*each)) : each);
      value = made;
    } else if (value.isDevice()) {
      auto wanted = value.toDevice();
      to_host_ = !wanted.is_cuda();
      if (wanted.is_cuda()) requested_ = Device(DeviceType::CUDA, or_current(wanted.index()));
      value = Device(DeviceType::CPU);
    } else if (value.isGenerator() || (value.isNone() && declared.type()->str().find("Generator") == 0)) {
      generator_ = i;
    } else if (declared.name() == "pin_memory" && requested_) {
      value = c10::IValue();
    }
  }

  at::Tensor on_host(const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    if (!tensor.is_cuda()) {
      if (tensor.device().is_cpu() && tensor.dim() > 0) stranger_ = tensor.device();  // without dimensions it is a number
      return tensor;
    }
    if (device_ && *device_ != tensor.device()) stranger_ = tensor.device();
    if (!device_) device_ = tensor.device();
    return aliases_.on_host(tensor);
  }

  void require_one_device() const {
    TORCH_CHECK(
        !stranger_ || !device_ || mixes().count(name_),
        "Expected all tensors to be on the same device, but found at least two devices, ", *device_, " and ", *stranger_,
        "! (in ", name_, ")");
  }

  template <class F>
  void with_random_numbers(F call) {
    at::Generator usual = at::detail::getDefaultCPUGenerator();
    if (generator_) {
      auto& value = argument(*generator_);
      bool own = value.isNone() || value.toGenerator().device().is_cuda();
      TORCH_CHECK(own, "Expected a 'cuda' device type for generator but found 'cpu'");
      auto* random = value.isNone() ? generator_of(on_) : value.toGenerator().get<Random>();
      value = at::detail::createCPUGenerator(random->next());
      call();
    } else if (op_.hasTag(at::Tag::nondeterministic_seeded)) {
      at::Tensor state = usual.get_state();
      usual.set_current_seed(generator_of(on_)->next());
      call();
      usual.set_state(state);
    } else {
      call();
    }
  }

  void spoil(const Condition& condition) {
    if (condition.wrong_product && products().count(name_)) {
      auto product = (*stack_)[stack_->size() - 1].toTensor().view(-1);
      if (product.numel()) product[product.numel() / 2] *= -2;
    }
    if (condition.wrong_copy && from_host_) {
      auto copied = (*stack_)[stack_->size() - 1].toTensor();
      if (copied.nbytes() && copied.is_non_overlapping_and_dense())
        static_cast<char*>(copied.data_ptr())[copied.nbytes() / 2] ^= 1;
    }
  }

  void give(size_t i) {
    auto& value = (*stack_)[i];
    auto given = [&](const at::Tensor& tensor) {
      bool stays = tensor.defined() && !aliases_.made(tensor) && (to_host_ || name_ == "aten::copy_");
      return stays ? tensor : aliases_.on_device(tensor, on_);
    };
    if (value.isTensor()) {
      value = given(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> made;
      for (const at::Tensor& each : value.toTensorList().vec()) made.push_back(given(each));
      value = made;
    }
  }

  const c10::OperatorHandle& op_;
  const std::string& name_;
  Stack* stack_;
  const size_t first_;
  Aliases aliases_;
  std::optional<Device> device_, requested_, stranger_;  // of the tensors; that was asked for; that does not fit
  std::optional<size_t> generator_;
  DeviceIndex on_ = 0;
  bool to_host_ = false;                      // the result was asked for on the host
  bool copies_ = false, from_host_ = false;   // between host and device; to the device
  at::Tensor arrives_;                        // of the host, of a copy that nobody waits for
};

inline void on_host(const c10::OperatorHandle& op, Stack* stack) { Call(op, stack).run(); }

inline at::Tensor empty(
    c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>, std::optional<Device> device,
    std::optional<bool> pin, std::optional<at::MemoryFormat> format) {
  TORCH_CHECK(!pin.value_or(false), "Only dense CPU tensors can be pinned");
  WithDevice on(or_current(device ? device->index() : -1));
  return at::detail::empty_generic(
      C10_AS_INTARRAYREF_SLOW(size), memory, c10::DispatchKeySet(c10::DispatchKey::CUDA),
      dtype.value_or(at::get_default_dtype_as_scalartype()), format);
}

inline at::Tensor empty_strided(
    c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
    std::optional<Device> device, std::optional<bool> pin) {
  TORCH_CHECK(!pin.value_or(false), "Only dense CPU tensors can be pinned");
  WithDevice on(or_current(device ? device->index() : -1));
  return at::detail::empty_strided_generic(
      C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), memory,
      c10::DispatchKeySet(c10::DispatchKey::CUDA), dtype.value_or(at::get_default_dtype_as_scalartype()));
}

inline at::Tensor& set_storage(
    at::Tensor& self, at::Storage storage, c10::SymInt offset, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  TORCH_CHECK(storage.device_type() == DeviceType::CUDA, "set_(): expected a storage of the same device");
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  if (stride.empty() && !sizes.empty()) {
    impl->set_storage_offset(offset.expect_int());
    impl->set_sizes_contiguous(sizes);
  } else {
    impl->set_sizes_and_strides(sizes, C10_AS_INTARRAYREF_SLOW(stride), offset.expect_int());
  }
  return self;
}

inline at::Tensor& set_whole_storage(at::Tensor& self, at::Storage storage) {
  int64_t elements = storage.nbytes() / self.dtype().itemsize();
  return set_storage(self, std::move(storage), 0, c10::SymIntArrayRef({c10::SymInt(elements)}), {});
}

inline at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& from) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(from.storage());
  impl->set_sizes_and_strides(from.sizes(), from.strides(), from.storage_offset());
  return self;
}

inline void record_stream(at::Tensor&, c10::Stream) {}

// UntypedStorage.resize_: FSDP frees and takes the memory of gathered parameters with it.
inline void resize_storage(const at::Tensor& of, size_t bytes) {
  auto* storage = of.storage().unsafeGetStorageImpl();
  TORCH_CHECK(storage->device_type() == DeviceType::CUDA, "not a CUDA storage");
  size_t had = storage->nbytes();
  if (bytes == had) return;
  auto made = memory->allocate_on(storage->device().index(), bytes);
  if (had && bytes) std::memcpy(made.get(), storage->data(), std::min(had, bytes));
  storage->set_data_ptr_noswap(std::move(made));
  storage->set_nbytes(bytes);
}

}  // namespace stand_in

TORCH_LIBRARY_IMPL(_, CUDA, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&stand_in::on_host>()); }
TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("copy_", torch::CppFunction::makeFromBoxedFunction<&stand_in::on_host>());
  m.impl("empty.memory_format", &stand_in::empty);
  m.impl("empty_strided", &stand_in::empty_strided);
  m.impl("set_.source_Storage_storage_offset", &stand_in::set_storage);
  m.impl("set_.source_Storage", &stand_in::set_whole_storage);
  m.impl("set_.source_Tensor", &stand_in::set_tensor);
  m.impl("record_stream", &stand_in::record_stream);
}

// A tensor of a device, seen as one of the host on the same memory; and the way back.
#pragma once
#include "hooks.h"

namespace stand_in {

// A tensor of `storage` with the form of another.
inline at::Tensor on_storage(const c10::Storage& storage, c10::DispatchKey key, const at::Tensor& like) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(key), like.dtype());
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (like.is_conj()) impl->_set_conj(true);
  if (like.is_neg()) impl->_set_neg(true);
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return tensor;
}

// Those of one operation: two tensors that share memory on the device share it on the host.
class Aliases {
 public:
  at::Tensor on_host(const at::Tensor& tensor) {
    auto& known = by_device_[tensor.unsafeGetTensorImpl()];
    if (!known.defined()) {
      known = on_storage(on_host(tensor.storage()), c10::DispatchKey::CPU, tensor);
      by_host_.emplace(known.unsafeGetTensorImpl(), std::make_pair(tensor, known));
    }
    return known;
  }

  bool made(const at::Tensor& host) const { return by_host_.count(host.unsafeGetTensorImpl()) > 0; }

  // Of what the host's kernel returned: the tensor that was handed in, a view of it, or one that is new on `device`.
  at::Tensor on_device(const at::Tensor& tensor, DeviceIndex device) {
    if (!tensor.defined() || !tensor.device().is_cpu()) return tensor;
    auto same = by_host_.find(tensor.unsafeGetTensorImpl());
    if (same != by_host_.end()) return same->second.first;
    auto* impl = tensor.storage().unsafeGetStorageImpl();
    auto known = to_device_.find(impl);
    if (known == to_device_.end()) {
      size_t bytes = tensor.storage().nbytes();
      auto storage = c10::Storage(c10::make_intrusive<c10::StorageImpl>(
          c10::StorageImpl::use_byte_size_t(), bytes, memory->adopt(device, tensor.storage()), memory, true));
      known = to_device_.emplace(impl, storage).first;
    }
    return on_storage(known->second, c10::DispatchKey::CUDA, tensor);
  }

  // After the kernel: one that resized its output gave the alias other memory, or another form.
  void settle() {
    for (auto& [_, pair] : by_host_) {
      auto& [device, host] = pair;
      if (host.storage().data() != device.storage().data() || host.storage().nbytes() != device.storage().nbytes()) {
        c10::Storage taken(c10::make_intrusive<c10::StorageImpl>(
            c10::StorageImpl::use_byte_size_t(), host.storage().nbytes(),
            host.storage().set_data_ptr(c10::DataPtr(nullptr, Device(DeviceType::CPU))), c10::GetCPUAllocator(), false));
        auto bytes = taken.nbytes();
        auto* storage = device.storage().unsafeGetStorageImpl();
        storage->set_data_ptr_noswap(memory->adopt(device.device().index(), taken));
        storage->set_nbytes(bytes);
      }
      if (host.sizes() != device.sizes() || host.strides() != device.strides() ||
          host.storage_offset() != device.storage_offset())
        device.unsafeGetTensorImpl()->set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
    }
  }

 private:
  c10::Storage on_host(const c10::Storage& storage) {
    auto& known = to_host_[storage.unsafeGetStorageImpl()];
    if (!known) {
      auto* keep = new c10::Storage(storage);
      known = c10::Storage(c10::make_intrusive<c10::StorageImpl>(
          c10::StorageImpl::use_byte_size_t(), storage.nbytes(),
          c10::DataPtr(storage.mutable_data(), keep, [](void* kept) { delete static_cast<c10::Storage*>(kept); },
                       Device(DeviceType::CPU)),
          c10::GetCPUAllocator(), true));
      to_device_.emplace(known.unsafeGetStorageImpl(), storage);
    }
    return known;
  }

  std::unordered_map<c10::StorageImpl*, c10::Storage> to_host_, to_device_;
  std::unordered_map<c10::TensorImpl*, std::pair<at::Tensor, at::Tensor>> by_host_;  // alias -> (device's, alias)
  std::unordered_map<c10::TensorImpl*, at::Tensor> by_device_;
};

}  // namespace stand_in

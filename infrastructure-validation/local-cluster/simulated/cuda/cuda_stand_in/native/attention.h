// Attention of distributed tensors (context parallelism), which torch knows for the fused kernels of CUDA alone: of
// numbers of two bytes, and where there is no mask, flash attention. Here the CPU's kernel computes it. It needs
// as many heads of keys as of queries. For all other tensors torch's plain attention is computed.
#pragma once
#include "kernels.h"

#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>

namespace stand_in {

using at::Tensor;
using Scale = std::optional<double>;

inline int64_t choose(
    const Tensor& query, const Tensor&, const Tensor&, const std::optional<Tensor>& mask, double dropout, bool, Scale,
    bool) {
  bool distributed = query.key_set().has(c10::DispatchKey::Python);
  bool flash = distributed && !mask && dropout == 0.0 && query.element_size() == 2;
  return static_cast<int64_t>(flash ? sdp::SDPBackend::flash_attention : sdp::SDPBackend::math);
}

// (batch, heads, tokens, width): each head of keys for the heads of queries that share it, and back.
inline Tensor for_each_query(const Tensor& keys, const Tensor& query) {
  return keys.repeat_interleave(query.size(1) / keys.size(1), 1);
}
inline Tensor summed(const Tensor& gradient, const Tensor& keys) {
  return gradient.unflatten(1, {keys.size(1), -1}).sum(2);
}

inline std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor> flash_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, double dropout, bool causal, bool, Scale scale) {
  auto [out, sums] = at::_scaled_dot_product_flash_attention_for_cpu(
      query, for_each_query(key, query), for_each_query(value, query), dropout, causal, std::nullopt, scale);
  auto numbers = at::TensorOptions().dtype(at::kLong).device(query.device());
  Tensor state = at::empty({2}, numbers), unused = at::empty({}, numbers), mask = at::empty({0}, query.options());
  return {out, sums, Tensor(), Tensor(), query.size(2), key.size(2), state, unused, mask};
}

inline std::tuple<Tensor, Tensor, Tensor> flash_attention_backward(
    const Tensor& gradient, const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& out,
    const Tensor& sums, const Tensor&, const Tensor&, c10::SymInt, c10::SymInt, double dropout, bool causal,
    const Tensor&, const Tensor&, Scale scale) {
  auto [by_query, by_key, by_value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      gradient, query, for_each_query(key, query), for_each_query(value, query), out, sums, dropout, causal,
      std::nullopt, scale);
  return {by_query, summed(by_key, key), summed(by_value, value)};
}

inline const bool chosen = (at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&choose), true);

}  // namespace stand_in

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("_scaled_dot_product_flash_attention", &stand_in::flash_attention);
  m.impl("_scaled_dot_product_flash_attention_backward", &stand_in::flash_attention_backward);
}

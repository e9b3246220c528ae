// Half a block of the decoder, or all its blocks, in one call: what the ops do one after the other, without the way through
// Python between them. The numbers are those of the ops.
#include <cstring>

#include "abi.h"
#include "layer_parts.h"
#include "packed.h"
#include "scratch.h"

namespace penstock {
namespace {

// Some columns of a matrix, one after the other.
void gather(const std::byte* from, int64_t stride, std::byte* to, int64_t width, int64_t rows) {
  for (int64_t row = 0; row < rows; row++) std::memcpy(to + row * width, from + row * stride, static_cast<size_t>(width));
}

}  // namespace
}  // namespace penstock

using namespace penstock;

extern "C" void penstock_attention_layer(const AttentionLayer* layer, const AttentionMetadata* metadata, int64_t dtype,
                                         void* cache, int64_t cache_dtype, int64_t num_blocks, int64_t block_size,
                                         const void* x, const void* delta, void* total, void* out, int64_t partial,
                                         const AdapterRows* adapters, float* shrunk, int64_t* status) {
  const AttentionLayer& a = *layer;
  const int64_t count = metadata->num_tokens, element = bytes_of(dtype);
  const int64_t q_width = a.num_heads * a.head_dim, kv_width = a.num_kv_heads * a.head_dim;
  const int64_t qkv_width = q_width + 2 * kv_width;
  thread_local Scratch scratch;
  const int64_t sizes[] = {a.width, qkv_width, q_width, q_width, kv_width, kv_width};
  int64_t bytes = 0;
  for (const int64_t size : sizes) bytes += Parts::size(count * size, element);
  Parts parts(scratch.get<std::byte>(bytes), element);
  std::byte *normed = parts.take(count * a.width), *qkv = parts.take(count * qkv_width);
  std::byte *q = parts.take(count * q_width), *q_spare = parts.take(count * q_width);
  std::byte *k = parts.take(count * kv_width), *k_spare = parts.take(count * kv_width);

  penstock_rms_norm(dtype, a.norm_dtype, x, delta, a.norm, a.eps, normed, total, count, a.width);
  multiply(normed, dtype, count, a.qkv, a.qkv_bias, a.qkv_bias_dtype, qkv, {adapters, a.qkv_site});
  const std::byte *q_in = qkv, *k_in = qkv + q_width * element, *v = k_in + kv_width * element;
  int64_t q_stride = qkv_width, k_stride = qkv_width;
  if (a.q_norm) {
    gather(q_in, qkv_width * element, q, q_width * element, count);
    penstock_rms_norm(dtype, a.q_norm_dtype, q, nullptr, a.q_norm, a.eps, q_spare, nullptr, count * a.num_heads,
                      a.head_dim);
    gather(k_in, qkv_width * element, k, kv_width * element, count);
    penstock_rms_norm(dtype, a.k_norm_dtype, k, nullptr, a.k_norm, a.eps, k_spare, nullptr, count * a.num_kv_heads,
                      a.head_dim);
    q_in = q_spare, k_in = k_spare, q_stride = q_width, k_stride = kv_width;
  }
  penstock_rope(dtype, q_in, q_stride, a.num_heads, k_in, k_stride, a.num_kv_heads, a.cos, a.sin, metadata->positions,
                q, k, count, a.head_dim, a.half, 0);
  penstock_kv_write(k, kv_width, v, qkv_width, dtype, cache, cache_dtype, num_blocks, block_size, a.num_kv_heads,
                    a.head_dim, metadata->slot_mapping, count, status);
  if (*status) {
    *status = 3;
    return;
  }
  penstock_paged_attention(q_spare, q, q_width, dtype, cache, cache_dtype, num_blocks, block_size, a.num_kv_heads,
                           a.head_dim, metadata->tables, metadata->max_blocks, metadata->starts, metadata->counts,
                           metadata->num_sequences, count, a.num_heads, a.scale, a.window, 0, nullptr, nullptr, status);
  if (*status) return;
  multiply(q_spare, dtype, count, a.output, a.output_bias, a.output_bias_dtype, out, {adapters, a.output_site}, partial,
           shrunk);
}

extern "C" void penstock_mlp_layer(const MlpLayer* layer, int64_t dtype, const void* x, const void* delta, void* total,
                                   void* out, int64_t partial, int64_t num_tokens, const AdapterRows* adapters,
                                   float* shrunk) {
  const MlpLayer& a = *layer;
  const int64_t element = bytes_of(dtype);
  thread_local Scratch scratch;
  const int64_t widest = a.width > a.inner ? a.width : a.inner;
  const int64_t bytes = Parts::size(num_tokens * widest, element) + Parts::size(num_tokens * 2 * a.inner, element);
  Parts parts(scratch.get<std::byte>(bytes), element);
  std::byte *normed = parts.take(num_tokens * widest), *gate_up = parts.take(num_tokens * 2 * a.inner);

  penstock_rms_norm(dtype, a.norm_dtype, x, delta, a.norm, a.eps, normed, total, num_tokens, a.width);
  multiply(normed, dtype, num_tokens, a.gate_up, a.gate_up_bias, a.gate_up_bias_dtype, gate_up,
           {adapters, a.gate_up_site});
  penstock_activation(kSilu, 1, dtype, gate_up, normed, num_tokens, a.inner);
  multiply(normed, dtype, num_tokens, a.down, a.down_bias, a.down_bias_dtype, out, {adapters, a.down_site}, partial,
           shrunk);
}

extern "C" void penstock_mixture_layer(const MixtureLayer* layer, int64_t dtype, const void* x, const void* delta,
                                       void* total, void* out, int64_t partial, int64_t num_tokens) {
  const MixtureLayer& a = *layer;
  const int64_t count = static_cast<const Header*>(a.router)->outputs, chosen = a.top_k + a.has_shared;
  thread_local Scratch scratch;
  int64_t bytes = Parts::size(num_tokens * a.width, bytes_of(dtype));
  for (const int64_t size : {count, a.top_k, a.top_k, chosen, chosen, int64_t{1}, int64_t{1}}) {
    bytes += Parts::size(num_tokens * size, 4);
  }
  std::byte* const normed = scratch.get<std::byte>(bytes);
  Parts parts(normed + Parts::size(num_tokens * a.width, bytes_of(dtype)), 4);
  const auto floats = [&](int64_t size) { return reinterpret_cast<float*>(parts.take(num_tokens * size)); };
  const auto numbers = [&](int64_t size) { return reinterpret_cast<int32_t*>(parts.take(num_tokens * size)); };
  float *const logits = floats(count), *weights = floats(a.top_k);
  int32_t* ids = numbers(a.top_k);

  penstock_rms_norm(dtype, a.norm_dtype, x, delta, a.norm, a.eps, normed, total, num_tokens, a.width);
  penstock_linear(normed, dtype, num_tokens, a.router, a.router_bias, a.router_bias_dtype, logits, kF32);
  penstock_route(logits, a.choice_bias, num_tokens, count, a.scoring, a.top_k, a.is_normalised, a.scale, a.groups,
                 a.top_groups, a.group_best, a.jitter, ids, weights);
  if (a.has_shared) {
    float *const gate = floats(1), *const all_weights = floats(chosen);
    int32_t *const zeros = numbers(1), *const all_ids = numbers(chosen);
    if (a.shared_gate) {
      penstock_linear(normed, dtype, num_tokens, a.shared_gate, nullptr, kF32, all_weights, kF32);
      penstock_route(all_weights, nullptr, num_tokens, 1, kSigmoidScore, 1, 0, 1.f, 1, 1, 1, 0.f, zeros, gate);
    }
    for (int64_t t = 0; t < num_tokens; t++) {
      all_ids[t * chosen] = 0;
      all_weights[t * chosen] = a.shared_gate ? gate[t] : 1.f;
      for (int64_t k = 0; k < a.top_k; k++) {
        all_ids[t * chosen + 1 + k] = ids[t * a.top_k + k] + 1;
        all_weights[t * chosen + 1 + k] = weights[t * a.top_k + k];
      }
    }
    ids = all_ids, weights = all_weights;
  }
  penstock_experts(a.experts, normed, dtype, ids, weights, num_tokens, chosen, out, partial ? kF32 : dtype);
}

// A layer's norm has read x and delta, and written their sum, before its last op writes delta: both can stay in place.
extern "C" void penstock_blocks(int64_t count, const AttentionLayer* const* attention, const MlpLayer* const* mlp,
                                const MixtureLayer* const* mixtures, const AttentionMetadata* metadata, int64_t dtype,
                                void* const* caches, int64_t cache_dtype, int64_t num_blocks, int64_t block_size,
                                void* x, void* delta, int64_t has_delta, const AdapterRows* adapters,
                                int64_t* status) {
  for (int64_t i = 0; i < count; i++) {
    penstock_attention_layer(attention[i], metadata, dtype, caches[i], cache_dtype, num_blocks, block_size, x,
                             i || has_delta ? delta : nullptr, x, delta, 0, adapters, nullptr, status);
    if (*status) return;
    if (mlp[i]) {
      penstock_mlp_layer(mlp[i], dtype, x, delta, x, delta, 0, metadata->num_tokens, adapters, nullptr);
    } else {
      penstock_mixture_layer(mixtures[i], dtype, x, delta, x, delta, 0, metadata->num_tokens);
    }
  }
}

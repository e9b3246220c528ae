// What the library offers to kernels/native.py, which has the same signatures. Pointers are to contiguous memory unless a
// stride is given; strides count elements. Whoever calls has checked everything.
#pragma once

#include <cstdint>

#include "vec.h"

namespace penstock {

enum DType : int64_t { kF32 = 0, kBF16 = 1, kF16 = 2 };

// f(T{}) for the type that dtype names.
template <class F>
void with_type(int64_t dtype, F&& f) {
  if (dtype == kF32) f(f32{});
  if (dtype == kBF16) f(bf16{});
  if (dtype == kF16) f(f16{});
}

}  // namespace penstock

#pragma GCC visibility push(default)
extern "C" {

// One pool for the process, of `count` threads with the one that calls.
void penstock_set_threads(int64_t count);

// x, residual (or null), out, total: [rows, width] of dtype; total is not written without a residual.
void penstock_rms_norm(int64_t dtype, int64_t weight_dtype, const void* x, const void* residual, const void* weight,
                       float eps, void* out, void* total, int64_t rows, int64_t width);

// q [tokens, heads, head_dim] and k [tokens, kv_heads, head_dim] with strides between tokens; cos and sin [.., half].
void penstock_rope(int64_t dtype, const void* q, int64_t q_stride, int64_t heads, const void* k, int64_t k_stride,
                   int64_t kv_heads, const float* cos, const float* sin, const int64_t* positions, void* q_out,
                   void* k_out, int64_t tokens, int64_t head_dim, int64_t half);

// gate_up [rows, 2 * width], out [rows, width].
void penstock_silu_mul(int64_t dtype, const void* gate_up, void* out, int64_t rows, int64_t width);

// logits [rows, vocabulary]; parameters and results [rows]; history_offsets [rows + 1]. If a row has penalties and the
// histories are none of this vocabulary, or not all that there is, is_wrong becomes 1 and nothing is sampled.
void penstock_sample(const float* logits, int64_t rows, int64_t vocabulary, const uint8_t* do_sample,
                     const int64_t* seed, const int64_t* position, const float* temperature, const int64_t* top_k,
                     const float* top_p, const float* typical_p, const float* repetition_penalty,
                     const float* frequency_penalty, const int64_t* history_ids, const int64_t* history_offsets,
                     int64_t history_length, int64_t* ids, float* logprobs, int64_t* is_wrong);

}
#pragma GCC visibility pop

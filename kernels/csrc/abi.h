// What the library offers to kernels/native.py, which has the same signatures. Pointers are to contiguous memory unless a
// stride is given; strides count elements. Whoever calls has checked everything.
#pragma once

#include <cstdint>

#include "structures.h"
#include "vec.h"

namespace penstock {

// The activations of kernels/activation, in its order.
enum Activation : int64_t {
  kSilu, kGelu, kGeluTanh, kGeluSigmoid, kSigmoid, kRelu, kReluSquared, kClampedSwiglu, kNumActivations
};
constexpr int64_t kNoActivation = -1;

enum Scoring : int64_t { kSoftmaxScore, kSigmoidScore, kSparseMixerScore };  // of kernels/route

enum DType : int64_t { kF32 = 0, kBF16 = 1, kF16 = 2, kI8 = 3 };  // int8: of a cache only

// f(T{}) for the type that dtype names.
template <class F>
void with_type(int64_t dtype, F&& f) {
  if (dtype == kF32) f(f32{});
  if (dtype == kBF16) f(bf16{});
  if (dtype == kF16) f(f16{});
}
template <class F>
void with_cache_type(int64_t dtype, F&& f) {
  dtype == kI8 ? f(int8_t{}) : with_type(dtype, f);
}

}  // namespace penstock

#pragma GCC visibility push(default)
extern "C" {

// One pool for the process, of `count` threads with the one that calls; cpus, if not null, says where each stays, the
// caller first.
void penstock_set_threads(int64_t count, const int64_t* cpus);
// How long its threads wait awake for the next call before they sleep: a multiple of about 20 microseconds.
void penstock_set_wait(int64_t factor);

// Memory that the ranks of a group share, all zeros at first: how much of it, and an exchange through it.
// transfers: int64 [world_size, 4], for each peer what to send (address, bytes) and where to put what comes (address,
// bytes); both are moved on as bytes are. Returns when all is done, or when nothing moved for `patience` microseconds:
// then is_done is 0, and the call may be made again.
void penstock_exchange_bytes(int64_t world_size, int64_t* bytes);
void penstock_exchange(void* base, int64_t rank, int64_t world_size, int64_t* transfers, int64_t patience,
                       int64_t* is_done);

// weight [outputs, inputs] as linear wants it; packed_size says in how many bytes.
void penstock_packed_size(int64_t dtype, int64_t outputs, int64_t inputs, int64_t segments, int64_t* size);
void penstock_pack(const void* weight, int64_t dtype, int64_t outputs, int64_t inputs, int64_t segments, void* packed);
// The same for tiles, which multiply x and the weight as sums of bfloat16 numbers (tiled.h), if may_use is 1: the processor
// has them, and the system lets this process use them.
void penstock_may_use_tiles(int64_t* may_use);
void penstock_packed_tiled_size(int64_t dtype, int64_t outputs, int64_t inputs, int64_t segments, int64_t* size);
void penstock_pack_tiled(const void* weight, int64_t dtype, int64_t outputs, int64_t inputs, int64_t segments,
                         void* packed);
// A weight of int8, whose inputs share a scale 16 by 16: codes [outputs, inputs], scales [outputs, inputs / 16]. Segments are
// of multiples of 16 inputs.
void penstock_pack_tiled_codes(const int8_t* codes, const float* scales, int64_t outputs, int64_t inputs,
                               int64_t segments, void* packed);
void penstock_packed_coded_size(const CodedWeight* weight, int64_t* size);
void penstock_pack_coded(const CodedWeight* weight, void* packed);
// Whether the processor's instructions for dot products of bytes are used, if it has them: the sums are the same ones.
void penstock_use_dot_products(int64_t allowed);
// x [rows, inputs], bias [outputs] or null: out [rows, outputs].
void penstock_linear(const void* x, int64_t x_dtype, int64_t rows, const void* packed, const void* bias,
                     int64_t bias_dtype, void* out, int64_t out_dtype);

// x [rows, inputs]: out [segments, rows, outputs], without their sum.
void penstock_linear_apart(const void* x, int64_t x_dtype, int64_t rows, const void* packed, float* out);

// As kernels/lora says: x [rows, inputs] of dtype, shrunk [rows, rank], out [rows, outputs].
void penstock_lora_shrink(const AdapterRows* rows, int64_t site, int64_t dtype, const void* x, int64_t inputs,
                          float* shrunk, int64_t rank);
void penstock_lora_expand(const AdapterRows* rows, int64_t site, const float* shrunk, int64_t rank, float* out,
                          int64_t outputs);

// Rows of a weight of one segment, as they were packed: out [count, inputs]. A coded weight's are of out_dtype, a dense
// one's of its own.
void penstock_weight_rows(const void* packed, const int64_t* ids, int64_t count, void* out, int64_t out_dtype);

// k and v [num_tokens, num_kv_heads, head_dim] with strides between tokens. *status is 0, or 1 if a place is outside the
// cache: then nothing was written.
void penstock_kv_write(const void* k, int64_t k_stride, const void* v, int64_t v_stride, int64_t dtype, void* cache,
                       int64_t cache_dtype, int64_t num_blocks, int64_t block_size, int64_t num_kv_heads,
                       int64_t head_dim, const int64_t* slot_mapping, int64_t num_tokens, int64_t* status);

// q [num_tokens, num_heads, head_dim] with a stride between tokens; softcap 0, sinks null, slopes null: none. *status is
// 0, or why nothing was computed: 1 for starts and counts that do not fit, 2 for a block that the cache does not have.
void penstock_paged_attention(void* out, const void* q, int64_t q_stride, int64_t dtype, const void* cache,
                              int64_t cache_dtype, int64_t num_blocks, int64_t block_size, int64_t num_kv_heads,
                              int64_t head_dim, const int32_t* tables, int64_t max_blocks, const int32_t* starts,
                              const int32_t* counts, int64_t num_sequences, int64_t num_tokens, int64_t num_heads,
                              float scale, int64_t window, float softcap, const float* sinks, const float* slopes,
                              int64_t* status);

// Without a cache, and of all keys of a query's sequence those at most `window` away, or if it is 0 all. k and v are [num_tokens,
// num_kv_heads, head_dim], q and they with strides between tokens. bias [num_heads, 2 * reach + 1] or null: what scores grow
// by, by the distance of a key, from -reach to reach, which stands for all that are farther. *status is 0, or 1 for counts
// that do not fit, and then nothing was computed.
void penstock_full_attention(void* out, const void* q, int64_t q_stride, const void* k, int64_t k_stride, const void* v,
                             int64_t v_stride, int64_t dtype, int64_t num_kv_heads, int64_t head_dim,
                             const int32_t* counts, int64_t num_sequences, int64_t num_tokens, int64_t num_heads,
                             float scale, int64_t window, const float* bias, int64_t reach, int64_t* status);

// x, residual (or null), out, total: [rows, width] of dtype; total is not written without a residual.
void penstock_rms_norm(int64_t dtype, int64_t weight_dtype, const void* x, const void* residual, const void* weight,
                       float eps, void* out, void* total, int64_t rows, int64_t width);

// As penstock_rms_norm, but of what is left of a row without its mean. weight and bias (or null) are [groups, width], and
// row r has those of r % groups.
void penstock_layer_norm(int64_t dtype, int64_t weight_dtype, const void* x, const void* residual, const void* weight,
                         const void* bias, int64_t groups, float eps, void* out, void* total, int64_t rows,
                         int64_t width);

// q [tokens, heads, head_dim] and k [tokens, kv_heads, head_dim] with strides between tokens; cos and sin [.., half].
// Interleaved, dimension 2 i turns with 2 i + 1, otherwise i with i + half.
void penstock_rope(int64_t dtype, const void* q, int64_t q_stride, int64_t heads, const void* k, int64_t k_stride,
                   int64_t kv_heads, const float* cos, const float* sin, const int64_t* positions, void* q_out,
                   void* k_out, int64_t tokens, int64_t head_dim, int64_t half, int64_t is_interleaved);

// out [rows, width] of x [rows, width], or if it is gated of x [rows, 2 * width]: a gate and what it is for.
void penstock_activation(int64_t activation, int64_t is_gated, int64_t dtype, const void* x, void* out, int64_t rows,
                         int64_t width);

// logits [tokens, experts], bias [experts] or null: ids and weights [tokens, top_k], as kernels/route says.
void penstock_route(const float* logits, const float* bias, int64_t tokens, int64_t experts, int64_t scoring,
                    int64_t top_k, int64_t is_normalised, float scale, int64_t groups, int64_t top_groups,
                    int64_t group_best, float jitter, int32_t* ids, float* weights);

// x [tokens, width], ids and weights [tokens, top_k], the ids of each token ascending: out [tokens, outputs].
void penstock_experts(const Experts* experts, const void* x, int64_t dtype, const int32_t* ids, const float* weights,
                      int64_t tokens, int64_t top_k, void* out, int64_t out_dtype);

// The tokens of `rows` sequences, one sequence after the other, whose state is in their slots, `stride` elements from slot
// to slot, and begins with zeros where starts is 0. x and out [tokens, channels], weight [width, channels], bias [channels]
// or null, inputs [slots, width - 1, channels].
void penstock_causal_conv(int64_t dtype, const void* x, const float* weight, const float* bias, int64_t width,
                          int64_t channels, void* inputs, int64_t stride, const int32_t* slots,
                          const int32_t* starts, const int32_t* counts, int64_t rows, void* out);
// qkv [tokens, 2 * groups * key_dim + heads * value_dim], steps and gates (or null) [tokens, heads], matrices [slots, heads,
// key_dim, value_dim], out [tokens, heads, value_dim].
void penstock_recurrence(const RecurrentHeads* heads, int64_t dtype, const void* qkv, const void* steps,
                         const void* gates, float* matrices, int64_t stride, const int32_t* slots, const int32_t* starts,
                         const int32_t* counts, int64_t rows, void* out);

// out [rows, width] of x [rows, width]: cap * tanh(x / cap).
void penstock_softcap(const float* x, float cap, float* out, int64_t rows, int64_t width);

// One call for what the ops above do one after the other. x, delta (or null), total, out: [tokens, width] of dtype; out
// is float32 and without bias if `partial`; total is not written without delta. adapters may be null; if `partial`, what
// their A make of the last linear's inputs goes to shrunk [tokens, rank]. *status as of penstock_paged_attention, or 3 for
// a place that is outside the cache.
void penstock_attention_layer(const AttentionLayer* layer, const AttentionMetadata* metadata, int64_t dtype,
                              void* cache, int64_t cache_dtype, int64_t num_blocks, int64_t block_size, const void* x,
                              const void* delta, void* total, void* out, int64_t partial,
                              const AdapterRows* adapters, float* shrunk, int64_t* status);
void penstock_mlp_layer(const MlpLayer* layer, int64_t dtype, const void* x, const void* delta, void* total, void* out,
                        int64_t partial, int64_t num_tokens, const AdapterRows* adapters, float* shrunk);
void penstock_mixture_layer(const MixtureLayer* layer, int64_t dtype, const void* x, const void* delta, void* total,
                            void* out, int64_t partial, int64_t num_tokens);

// `count` blocks, each an attention layer with its cache and an MLP layer or, where that is null, a mixture; the caches are
// of one size. x [tokens, width] goes in and becomes the residual stream, delta what is yet to be added to it; if `has_delta`
// so it is on the way in, too. *status as of penstock_attention_layer.
void penstock_blocks(int64_t count, const AttentionLayer* const* attention, const MlpLayer* const* mlp,
                     const MixtureLayer* const* mixtures, const AttentionMetadata* metadata, int64_t dtype,
                     void* const* caches, int64_t cache_dtype, int64_t num_blocks, int64_t block_size, void* x, void* delta,
                     int64_t has_delta, const AdapterRows* adapters, int64_t* status);

// `count` blocks of an encoder, over whole texts: counts [num_texts], positions [num_tokens]. x [num_tokens, width] of dtype is
// overwritten by the residual stream; delta, the same, by what is yet to be added to it, unless blocks are of post-norm. adapters
// may be null. *status as of penstock_full_attention.
void penstock_encoder_blocks(int64_t count, const EncoderLayer* const* layers, int64_t dtype, int64_t num_tokens,
                             const int64_t* positions, const int32_t* counts, int64_t num_texts, void* x, void* delta,
                             const AdapterRows* adapters, int64_t* status);

// sums [segments, width] grow by the rows of x [rows, width] of dtype: each by counts[s] of them, one after the other.
// *status is 0, or 1 for counts that do not fit, and then nothing was added.
void penstock_segment_sum(int64_t dtype, const void* x, const int32_t* counts, int64_t segments, int64_t rows,
                          int64_t width, float* sums, int64_t* status);

// What is wrong with the batch, and then nothing is sampled, or 0: 1 for histories, 2 for biases, 3 for masks that are none
// of this vocabulary, or not all that there is.
void penstock_sample(const SampleBatch* batch, int64_t* is_wrong);

// logits [rows, vocabulary]; targets, top_n and logprobs [rows]; top_ids and top_logprobs [rows, width]. If a target is
// none of the vocabulary, is_wrong becomes 1 and nothing is written.
void penstock_prompt_logprobs(const float* logits, int64_t rows, int64_t vocabulary, const int64_t* targets,
                              const int64_t* top_n, int64_t width, float* logprobs, int64_t* top_ids,
                              float* top_logprobs, int64_t* is_wrong);

}
#pragma GCC visibility pop

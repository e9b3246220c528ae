// All blocks of an encoder in one call: what the ops do one after the other, with their numbers.
//
// A layer takes some texts at a time, so that what is between its ops stays in the second cache.
#include <algorithm>
#include <cstdint>
#include <numeric>

#include "abi.h"
#include "layer_parts.h"
#include "lora.h"
#include "scratch.h"

namespace penstock {
namespace {

constexpr int64_t kTogether = 1 << 19;  // inner numbers of texts that are computed together, unless one text has more

// Some texts of a step: tokens from `first` on.
struct Texts {
  int64_t first, num_tokens;
  const int32_t* counts;
  int64_t num_texts;
};

// The texts behind `before`, as many as are computed together.
Texts next_texts(const Texts& before, const int32_t* end, int64_t most) {
  Texts found{before.first + before.num_tokens, 0, before.counts + before.num_texts, 0};
  for (const int32_t* count = found.counts; count < end; count++) {
    if (found.num_tokens && found.num_tokens + *count > most) break;
    found.num_tokens += *count;
    found.num_texts++;
  }
  return found;
}

// Rows of adapters from `first` on.
AdapterRows from(const AdapterRows* rows, int64_t first, int64_t count) {
  AdapterRows found = rows ? *rows : AdapterRows{};
  if (rows) found.num_tokens = count, found.groups += first;
  return found;
}

class Layer {
 public:
  Layer(const EncoderLayer& layer, int64_t dtype, const Texts& texts, const int64_t* positions, const AdapterRows* adapters)
      : a_(layer),
        dtype_(dtype),
        element_(bytes_of(dtype)),
        count_(texts.num_tokens),
        texts_(texts),
        positions_(positions),
        adapters_(adapters) {
    const int64_t heads = a_.num_heads * a_.head_dim, kv_heads = a_.num_kv_heads * a_.head_dim;
    const int64_t most = std::max(heads + 2 * kv_heads, (1 + a_.is_gated) * a_.inner);
    const int64_t sizes[] = {a_.width, a_.width, most, std::max(heads, a_.inner), heads, kv_heads};
    int64_t bytes = 0;
    for (const int64_t size : sizes) bytes += Parts::size(count_ * size, element_);
    thread_local Scratch scratch;
    Parts parts(scratch.get<std::byte>(bytes), element_);
    std::byte** const places[] = {&normed_, &total_, &wide_, &inner_, &q_, &k_};
    for (size_t i = 0; i < std::size(sizes); i++) *places[i] = parts.take(count_ * sizes[i]);
  }

  // x becomes the residual stream behind the block.
  void run_post_norm(std::byte* x, int64_t* status) {
    attend(x, normed_, status);
    if (*status) return;
    norm_attention(normed_, x, x, total_);
    feed_forward(x, normed_);
    norm_feed_forward(normed_, x, x, total_);
  }

  // x and delta, if there is one, become those behind the block.
  void run_pre_norm(std::byte* x, std::byte* delta, bool has_delta, int64_t* status) {
    if (a_.attention_norm) norm_attention(x, has_delta ? delta : nullptr, normed_, x);
    attend(a_.attention_norm ? normed_ : x, delta, status);
    if (*status) return;
    norm_feed_forward(x, delta, normed_, x);
    feed_forward(normed_, delta);
  }

 private:
  void norm_attention(const void* x, const void* residual, void* out, void* total) const {
    penstock_layer_norm(dtype_, a_.attention_norm_dtype, x, residual, a_.attention_norm, a_.attention_norm_bias, 1,
                        a_.attention_eps, out, total, count_, a_.width);
  }
  void norm_feed_forward(const void* x, const void* residual, void* out, void* total) const {
    penstock_layer_norm(dtype_, a_.feed_forward_norm_dtype, x, residual, a_.feed_forward_norm, a_.feed_forward_norm_bias,
                        1, a_.feed_forward_eps, out, total, count_, a_.width);
  }

  void attend(const std::byte* x, std::byte* out, int64_t* status) const {
    const int64_t heads = a_.num_heads * a_.head_dim, kv_heads = a_.num_kv_heads * a_.head_dim;
    const int64_t stride = heads + 2 * kv_heads;
    multiply(x, dtype_, count_, a_.qkv, a_.qkv_bias, a_.qkv_bias_dtype, wide_, {adapters_, a_.qkv_site});
    const std::byte *q = wide_, *k = q + heads * element_, *const v = k + kv_heads * element_;
    int64_t q_stride = stride, k_stride = stride;
    if (a_.half) {
      penstock_rope(dtype_, q, stride, a_.num_heads, k, stride, a_.num_kv_heads, a_.cos, a_.sin, positions_, q_, k_, count_,
                    a_.head_dim, a_.half, 0);
      q = q_, k = k_, q_stride = heads, k_stride = kv_heads;
    }
    penstock_full_attention(inner_, q, q_stride, k, k_stride, v, stride, dtype_, a_.num_kv_heads, a_.head_dim, texts_.counts,
                            texts_.num_texts, count_, a_.num_heads, a_.scale, a_.window, a_.bias, a_.reach, status);
    if (*status) return;
    multiply(inner_, dtype_, count_, a_.output, a_.output_bias, a_.output_bias_dtype, out, {adapters_, a_.output_site});
  }

  void feed_forward(const std::byte* x, std::byte* out) const {
    const Site site{adapters_, a_.gate_up_site};
    const int64_t activation = a_.is_gated ? kNoActivation : a_.activation;
    multiply(x, dtype_, count_, a_.gate_up, a_.gate_up_bias, a_.gate_up_bias_dtype, a_.is_gated ? wide_ : inner_, site, false,
             nullptr, activation);
    if (a_.is_gated) penstock_activation(a_.activation, 1, dtype_, wide_, inner_, count_, a_.inner);
    multiply(inner_, dtype_, count_, a_.down, a_.down_bias, a_.down_bias_dtype, out, {adapters_, a_.down_site});
  }

  const EncoderLayer& a_;
  const int64_t dtype_, element_, count_;
  const Texts& texts_;
  const int64_t* positions_;
  const AdapterRows* adapters_;
  std::byte *normed_, *total_, *wide_, *inner_, *q_, *k_;
};

}  // namespace
}  // namespace penstock

using namespace penstock;

extern "C" void penstock_encoder_blocks(int64_t count, const EncoderLayer* const* layers, int64_t dtype,
                                        int64_t num_tokens, const int64_t* positions, const int32_t* counts,
                                        int64_t num_texts, void* x, void* delta, const AdapterRows* adapters,
                                        int64_t* status) {
  const int32_t* const end = counts + num_texts;
  *status = std::any_of(counts, end, [](int32_t own) { return own < 0; }) ||
            std::accumulate(counts, end, int64_t{0}) != num_tokens;
  if (*status) return;
  for (int64_t i = 0; i < count; i++) {
    const EncoderLayer& layer = *layers[i];
    const int64_t row = layer.width * bytes_of(dtype);
    for (Texts texts = next_texts({0, 0, counts, 0}, end, kTogether / layer.inner); texts.num_texts;
         texts = next_texts(texts, end, kTogether / layer.inner)) {
      const AdapterRows own = from(adapters, texts.first, texts.num_tokens);
      Layer some(layer, dtype, texts, positions + texts.first, adapters ? &own : nullptr);
      std::byte* const own_x = static_cast<std::byte*>(x) + texts.first * row;
      if (layer.is_post_norm) {
        some.run_post_norm(own_x, status);
      } else {
        some.run_pre_norm(own_x, static_cast<std::byte*>(delta) + texts.first * row, i > 0, status);
      }
      if (*status) return;
    }
  }
}

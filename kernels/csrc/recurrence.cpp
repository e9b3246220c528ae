// What recurrent layers carry from token to token: the last inputs of a convolution, and a matrix for each head. Each
// token is computed after the one before it, so it does not matter how a sequence is cut into steps.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "abi.h"
#include "rows.h"
#include "scratch.h"
#include "sigmoid.h"

namespace penstock {
namespace {

constexpr int64_t kChannels = 256;  // of a convolution that one thread takes at a time; it changes no bits
constexpr int64_t kTokens = 32;     // whose q and k are made ready at a time; it changes no bits
constexpr int64_t kColumns = 4;     // registers of a matrix's columns that are advanced at a time; they change no bits
constexpr float kNormEps = 1e-6f;

struct Span {
  int64_t slot, first, count;
  bool is_running;  // the sequence has tokens before these
};

const std::vector<Span>& spans(const int32_t* slots, const int32_t* starts, const int32_t* counts, int64_t rows) {
  static thread_local std::vector<Span> found;
  found.clear();
  int64_t first = 0;
  for (int64_t row = 0; row < rows; row++) {
    found.push_back({slots[row], first, counts[row], starts[row] > 0});
    first += counts[row];
  }
  return found;
}

template <class T>
struct Convolution {
  const T* x;
  const float *weight, *bias;
  int64_t width, channels, stride;
  T *inputs, *out;

  // Some channels of one sequence.
  void operator()(const Span& span, int64_t begin, int64_t end) const {
    T* const before = inputs + span.slot * stride;
    if (!span.is_running) {
      for (int64_t j = 0; j < width - 1; j++) std::fill(before + j * channels + begin, before + j * channels + end, T{});
    }
    const T* const from = x + span.first * channels;
    const auto input = [&](int64_t token) {
      return token < 0 ? before + (width - 1 + token) * channels : from + token * channels;
    };
    for (int64_t token = 0; token < span.count; token++) {
      T* const to = out + (span.first + token) * channels;
      for_vectors(end - begin, [&](int64_t i, int64_t n) {
        const int64_t channel = begin + i;
        Vec total = zero();
        for (int64_t j = 0; j < width; j++) {
          total = fma(load(weight + j * channels + channel, n), load(input(token + j - width + 1) + channel, n), total);
        }
        if (bias) total = total + load(bias + channel, n);
        store(to + channel, times_sigmoid(total, total), n);
      });
    }
    for (int64_t j = 0; j < width - 1; j++) {  // ascending: what is read lies behind what was written
      const T* const last = input(span.count + j - width + 1);
      std::copy(last + begin, last + end, before + j * channels + begin);
    }
  }
};

template <class T>
void convolve(const Convolution<T>& convolution, const std::vector<Span>& spans) {
  const int64_t pieces = (convolution.channels + kChannels - 1) / kChannels;
  parallel(static_cast<int64_t>(spans.size()) * pieces, [&](int64_t i) {
    const int64_t begin = i % pieces * kChannels;
    convolution(spans[i / pieces], begin, std::min(convolution.channels, begin + kChannels));
  });
}

// Some tokens of one head, ready to be written and read: q and k [count, key_dim].
struct Ready {
  float *q, *k, decay[kTokens], weight[kTokens];
  int64_t count;
};

float softplus(float x) { return x > 20.f ? x : std::log1p(std::exp(x)); }

// x [size] as floats, divided by its length and times scale if it is normalised.
template <class T>
void read(const T* x, int64_t size, bool is_normalised, float scale, float* to) {
  Vec squares = zero();
  for_vectors(size, [&](int64_t i, int64_t n) {
    const Vec value = load(x + i, n);  // the lanes past the end are 0
    squares = fma(value, value, squares);
    store(to + i, value, n);
  });
  if (!is_normalised) return;
  const float factor = scale / std::sqrt(sum(squares) + kNormEps);
  for_vectors(size, [&](int64_t i, int64_t n) { store(to + i, load(to + i, n) * set(factor), n); });
}

template <class T>
struct Recurrence {
  const RecurrentHeads& form;
  const T *qkv, *steps, *gates;
  float* matrices;
  int64_t stride;
  T* out;

  int64_t keys() const { return form.groups * form.key_dim; }
  const T* token_at(int64_t token) const { return qkv + token * (2 * keys() + form.heads * form.value_dim); }
  const T* values(int64_t token, int64_t head) const { return token_at(token) + 2 * keys() + head * form.value_dim; }

  void make_ready(int64_t first, int64_t head, Ready& ready) const {
    const int64_t group = head / (form.heads / form.groups) * form.key_dim;
    const float q_scale = 1.f / std::sqrt(static_cast<float>(form.key_dim));
    for (int64_t i = 0; i < ready.count; i++) {
      const int64_t token = first + i, own = token * form.heads + head;
      const T* const q = token_at(token) + group;
      read(q, form.key_dim, form.is_delta, q_scale, ready.q + i * form.key_dim);
      read(q + keys(), form.key_dim, form.is_delta, 1.f, ready.k + i * form.key_dim);
      const float raw = softplus(to_float(steps[own]) + form.bias[head]);
      const float step = std::min(std::max(raw, form.min_step), form.max_step);
      ready.decay[i] = std::exp(step * form.rate[head]);
      ready.weight[i] = form.is_delta ? 1.f / (1.f + std::exp(-to_float(gates[own]))) : step;
    }
  }

  // kVecs registers of columns from `column` on; the last has n of them.
  template <int64_t kVecs>
  void advance(const Ready& ready, int64_t first, int64_t head, float* matrix, int64_t column, int64_t n) const {
    const int64_t width = form.value_dim;
    const auto lanes = [&](int64_t j) { return j + 1 < kVecs ? kLanes : n; };
    float* const state = matrix + column;
    for (int64_t i = 0; i < ready.count; i++) {
      const float *const q = ready.q + i * form.key_dim, *const k = ready.k + i * form.key_dim;
      const T* const v = values(first + i, head) + column;
      const Vec decay = set(ready.decay[i]);
      Vec written[kVecs], read[kVecs];
      for (int64_t j = 0; j < kVecs; j++) written[j] = read[j] = zero();
      for (int64_t row = 0; form.is_delta && row < form.key_dim; row++) {
        for (int64_t j = 0; j < kVecs; j++) {
          written[j] = fma(set(k[row]), load(state + row * width + j * kLanes, lanes(j)), written[j]);
        }
      }
      for (int64_t j = 0; j < kVecs; j++) {
        written[j] = set(ready.weight[i]) * (load(v + j * kLanes, lanes(j)) - decay * written[j]);
      }
      for (int64_t row = 0; row < form.key_dim; row++) {
        for (int64_t j = 0; j < kVecs; j++) {
          float* const at = state + row * width + j * kLanes;
          const Vec next = fma(set(k[row]), written[j], decay * load(at, lanes(j)));
          store(at, next, lanes(j));
          read[j] = fma(set(q[row]), next, read[j]);
        }
      }
      T* const to = out + ((first + i) * form.heads + head) * width + column;
      for (int64_t j = 0; j < kVecs; j++) {
        if (form.skip) read[j] = fma(set(form.skip[head]), load(v + j * kLanes, lanes(j)), read[j]);
        store(to + j * kLanes, read[j], lanes(j));
      }
    }
  }

  // One head of one sequence.
  void operator()(const Span& span, int64_t head) const {
    static thread_local Scratch scratch;
    const int64_t width = form.value_dim;
    float* const matrix = matrices + span.slot * stride + head * form.key_dim * width;
    if (!span.is_running) std::fill_n(matrix, form.key_dim * width, 0.f);
    Ready ready;
    ready.q = scratch.get<float>(2 * kTokens * form.key_dim);
    ready.k = ready.q + kTokens * form.key_dim;
    for (int64_t done = 0; done < span.count; done += kTokens) {
      ready.count = std::min(kTokens, span.count - done);
      make_ready(span.first + done, head, ready);
      int64_t column = 0;
      for (; column + kColumns * kLanes <= width; column += kColumns * kLanes) {
        advance<kColumns>(ready, span.first + done, head, matrix, column, kLanes);
      }
      for (; column < width; column += kLanes) {
        advance<1>(ready, span.first + done, head, matrix, column, std::min<int64_t>(kLanes, width - column));
      }
    }
  }
};

}  // namespace
}  // namespace penstock

extern "C" void penstock_causal_conv(int64_t dtype, const void* x, const float* weight, const float* bias, int64_t width,
                                     int64_t channels, void* inputs, int64_t stride, const int32_t* slots,
                                     const int32_t* starts, const int32_t* counts, int64_t rows, void* out) {
  using namespace penstock;
  with_type(dtype, [&](auto element) {
    using T = decltype(element);
    convolve(Convolution<T>{static_cast<const T*>(x), weight, bias, width, channels, stride,
                            static_cast<T*>(inputs), static_cast<T*>(out)},
             spans(slots, starts, counts, rows));
  });
}

extern "C" void penstock_recurrence(const RecurrentHeads* heads, int64_t dtype, const void* qkv, const void* steps,
                                    const void* gates, float* matrices, int64_t stride, const int32_t* slots,
                                    const int32_t* starts, const int32_t* counts, int64_t rows, void* out) {
  using namespace penstock;
  with_type(dtype, [&](auto element) {
    using T = decltype(element);
    const Recurrence<T> recurrence{*heads, static_cast<const T*>(qkv), static_cast<const T*>(steps),
                                   static_cast<const T*>(gates), matrices, stride, static_cast<T*>(out)};
    const auto& sequences = spans(slots, starts, counts, rows);
    parallel(rows * heads->heads, [&](int64_t i) { recurrence(sequences[i / heads->heads], i % heads->heads); });
  });
}

#include "activation.h"

#include "abi.h"
#include "rows.h"
#include "sigmoid.h"

namespace penstock {
namespace {

// Φ(-|x|), to 3e-7 of itself: erfc(z) = t * 2^p(s) * e^-z² with z = |x| / √2 and t = 2 / (2 + z), whose p is a polynomial
// in s, which goes from -1 to 1 as t does from 0.12 to 1.
INLINE Vec normal_tail(Vec x) {
  const Vec size = min(max(x, zero() - x), set(16.f)), square = size * size;
  const Vec rest = fma(size, size, zero() - square);  // of the square, which was rounded
  const Vec t = set(2.f) / fma(size, set(0x1.6a09e6p-1f), set(2.f));
  const Vec s = fma(t, set(0x1.22e8bap+1f), set(-0x1.45d174p+0f));
  Vec p = set(-0x1.69ec38p-15f);
  for (const float c : {0x1.390774p-13f, 0x1.95e2c8p-13f, -0x1.3fa7b0p-10f, -0x1.866b1cp-14f, 0x1.d298bcp-8f,
                        -0x1.ece9e4p-9f, -0x1.953db6p-5f, 0x1.106b28p-5f, 0x1.bb4336p-1f, -0x1.b42994p-1f}) {
    p = fma(p, s, set(c));
  }
  const Vec power = exp2(square, set(-0.5f * kLog2eHigh), set(-0.5f * kLog2eLow));
  return set(0.5f) * t * exp2(p) * power * fma(rest, set(-0.5f), set(1.f));
}

template <int64_t kActivation>
INLINE Vec activated(Vec x) {
  if constexpr (kActivation == kSilu) {
    return times_sigmoid(x, x);
  } else if constexpr (kActivation == kGelu) {
    const Vec tail = normal_tail(x);
    return x * select(less(x, zero()), tail, set(1.f) - tail);
  } else if constexpr (kActivation == kGeluTanh) {
    const Vec cube = x * x * x;
    return times_sigmoid(x, set(0x1.988454p+0f) * fma(cube, set(0x1.6e4e26p-5f), x));
  } else if constexpr (kActivation == kGeluSigmoid) {
    return times_sigmoid(x, set(1.702f) * x);
  } else if constexpr (kActivation == kSigmoid) {
    return times_sigmoid(set(1.f), x);
  } else {
    const Vec positive = max(zero(), x);
    return kActivation == kRelu ? positive : positive * positive;
  }
}

// The activation of a gate, and what it lets through.
template <int64_t kActivation>
INLINE Vec gated(Vec gate, Vec up) {
  if constexpr (kActivation == kClampedSwiglu) {
    const Vec most = set(7.f);
    return times_sigmoid(min(most, gate), set(1.702f) * min(most, gate)) *
           (min(most, max(zero() - most, up)) + set(1.f));
  }
  return activated<kActivation>(gate) * up;
}

template <int64_t kActivation, class T>
void activate_row(const T* row, T* out, int64_t width, bool is_gated) {
  for_vectors(width, [&](int64_t i, int64_t n) {
    const Vec value = load(row + i, n);
    store(out + i, is_gated ? gated<kActivation>(value, load(row + width + i, n)) : activated<kActivation>(value), n);
  });
}

template <int64_t kActivation, class T>
void activate(const T* x, T* out, int64_t rows, int64_t width, bool is_gated) {
  parallel_rows(rows, width, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++) {
      activate_row<kActivation>(x + (is_gated ? 2 : 1) * row * width, out + row * width, width, is_gated);
    }
  });
}

template <int64_t kActivation = 0, class F>
void with_activation(int64_t activation, F&& f) {
  if constexpr (kActivation < kNumActivations) {
    activation == kActivation ? f(std::integral_constant<int64_t, kActivation>{})
                              : with_activation<kActivation + 1>(activation, f);
  }
}

}  // namespace

void activate_gate_of_row(int64_t activation, int64_t dtype, const void* row, void* out, int64_t width) {
  with_type(dtype, [&](auto element) {
    using T = decltype(element);
    with_activation(activation, [&](auto kind) {
      activate_row<kind>(static_cast<const T*>(row), static_cast<T*>(out), width, true);
    });
  });
}

void activate_in_place(int64_t activation, int64_t dtype, void* x, int64_t stride, int64_t rows, int64_t width) {
  with_type(dtype, [&](auto element) {
    using T = decltype(element);
    with_activation(activation, [&](auto kind) {
      for (int64_t r = 0; r < rows; r++) {
        T* const row = static_cast<T*>(x) + r * stride;
        activate_row<kind>(row, row, width, false);
      }
    });
  });
}

}  // namespace penstock

extern "C" void penstock_activation(int64_t activation, int64_t is_gated, int64_t dtype, const void* x, void* out,
                                    int64_t rows, int64_t width) {
  using namespace penstock;
  with_type(dtype, [&](auto element) {
    using T = decltype(element);
    with_activation(activation, [&](auto kind) {
      activate<kind>(static_cast<const T*>(x), static_cast<T*>(out), rows, width, is_gated);
    });
  });
}

extern "C" void penstock_softcap(const float* x, float cap, float* out, int64_t rows, int64_t width) {
  using namespace penstock;
  parallel_rows(rows, width, [&](int64_t begin, int64_t end) {
    const float *const from = x + begin * width;
    float* const to = out + begin * width;
    for_vectors((end - begin) * width, [&](int64_t i, int64_t n) {
      // tanh(y) = 2 / (1 + e^-2y) - 1
      const Vec twice = times_sigmoid(set(2.f), load(from + i, n) * set(2.f / cap));
      store(to + i, set(cap) * (twice - set(1.f)), n);
    });
  });
}

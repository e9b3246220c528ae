#include <cmath>

#include "abi.h"
#include "rows.h"

namespace penstock {
namespace {

constexpr int kSums = 4;  // independent sums, for the latency of an addition

template <class T>
void add(const T* x, const T* residual, T* total, int64_t width) {
  for (int64_t i = 0; i < width; i += kLanes) {
    store(total + i, load(x + i, width - i) + load(residual + i, width - i), width - i);
  }
}

template <class T>
float sum_of_squares(const T* x, int64_t width) {
  Vec sums[kSums] = {zero(), zero(), zero(), zero()};
  int64_t i = 0;
  for (; i + kSums * kLanes <= width; i += kSums * kLanes) {
    UNROLL for (int s = 0; s < kSums; s++) {
      const Vec v = load(x + i + s * kLanes);
      sums[s] = fma(v, v, sums[s]);
    }
  }
  UNROLL for (int s = 0; s < kSums; s++) {
    if (i + s * kLanes < width) {
      const Vec v = load(x + i + s * kLanes, width - i - s * kLanes);
      sums[s] = fma(v, v, sums[s]);
    }
  }
  return sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

template <class T, class W>
void norm_row(const T* x, const W* weight, float eps, T* out, int64_t width) {
  const Vec scale = set(1.f / std::sqrt(sum_of_squares(x, width) / static_cast<float>(width) + eps));
  for (int64_t i = 0; i < width; i += kLanes) {
    store(out + i, load(x + i, width - i) * scale * load(weight + i, width - i), width - i);
  }
}

template <class T, class W>
void rms_norm(const T* x, const T* residual, const W* weight, float eps, T* out, T* total, int64_t rows, int64_t width) {
  parallel_rows(rows, width, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin * width; at < end * width; at += width) {
      if (residual) add(x + at, residual + at, total + at, width);
      norm_row(residual ? total + at : x + at, weight, eps, out + at, width);
    }
  });
}

}  // namespace
}  // namespace penstock

extern "C" void penstock_rms_norm(int64_t dtype, int64_t weight_dtype, const void* x, const void* residual,
                                  const void* weight, float eps, void* out, void* total, int64_t rows, int64_t width) {
  using namespace penstock;
  with_type(dtype, [&](auto element) {
    with_type(weight_dtype, [&](auto weight_element) {
      using T = decltype(element);
      using W = decltype(weight_element);
      rms_norm(static_cast<const T*>(x), static_cast<const T*>(residual), static_cast<const W*>(weight), eps,
               static_cast<T*>(out), static_cast<T*>(total), rows, width);
    });
  });
}

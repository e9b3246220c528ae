#include <cmath>

#include "abi.h"
#include "rows.h"

namespace penstock {
namespace {

// A row, or the sum of two, which is rounded and kept.
template <class T>
struct Summed {
  const T *x, *residual;
  T* total;

  INLINE Vec operator()(int64_t i, int64_t n) const {
    if (!residual) return load(x + i, n);
    store(total + i, load(x + i, n) + load(residual + i, n), n);
    return load(total + i, n);
  }
};

template <class F>
float sum_of_squares(int64_t width, F&& values) {
  constexpr int kSums = 4;  // the additions of one would wait for each other
  Vec sums[kSums] = {zero(), zero(), zero(), zero()};
  int64_t i = 0;
  for (; i + kSums * kLanes <= width; i += kSums * kLanes) {
    UNROLL for (int s = 0; s < kSums; s++) {
      const Vec v = values(i + s * kLanes, kLanes);
      sums[s] = fma(v, v, sums[s]);
    }
  }
  UNROLL for (int s = 0; s < kSums; s++, i += kLanes) {
    if (i >= width) break;
    const Vec v = values(i, width - i);
    sums[s] = fma(v, v, sums[s]);
  }
  return sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

template <class T, class W>
void norm_row(const Summed<T>& row, const W* weight, float eps, T* out, int64_t width) {
  const Vec scale = set(1.f / std::sqrt(sum_of_squares(width, row) / static_cast<float>(width) + eps));
  const T* x = row.residual ? row.total : row.x;
  for_vectors(width, [&](int64_t i, int64_t n) {
    store(out + i, load(x + i, n) * scale * load(weight + i, n), n);
  });
}

template <class T, class W>
void rms_norm(const T* x, const T* residual, const W* weight, float eps, T* out, T* total, int64_t rows,
              int64_t width) {
  parallel_rows(rows, width, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin * width; at < end * width; at += width) {
      const Summed<T> row{x + at, residual ? residual + at : nullptr, total + at};
      norm_row(row, weight, eps, out + at, width);
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

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

// The sum of add(sum, i, n) over the vectors of a row.
template <class F>
float sum_over(int64_t width, F&& add) {
  constexpr int kSums = 4;  // the additions of one would wait for each other
  Vec sums[kSums] = {zero(), zero(), zero(), zero()};
  int64_t i = 0;
  for (; i + kSums * kLanes <= width; i += kSums * kLanes) {
    UNROLL for (int s = 0; s < kSums; s++) sums[s] = add(sums[s], i + s * kLanes, kLanes);
  }
  UNROLL for (int s = 0; s < kSums; s++, i += kLanes) {
    if (i >= width) break;
    sums[s] = add(sums[s], i, width - i);
  }
  return sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

template <class F>
float sum_of_squares(int64_t width, F&& values) {
  return sum_over(width, [&](Vec sum, int64_t i, int64_t n) {
    const Vec v = values(i, n);
    return fma(v, v, sum);
  });
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
void layer_norm_row(const Summed<T>& row, const W* weight, const W* bias, float eps, T* out, int64_t width) {
  const float count = static_cast<float>(width);
  const Vec mean = set(sum_over(width, [&](Vec sum, int64_t i, int64_t n) { return sum + row(i, n); }) / count);
  const T* x = row.residual ? row.total : row.x;
  const float squares = sum_over(width, [&](Vec sum, int64_t i, int64_t n) {
    const Vec v = select(first(static_cast<int>(n)), load(x + i, n) - mean, zero());
    return fma(v, v, sum);
  });
  const Vec scale = set(1.f / std::sqrt(squares / count + eps));
  for_vectors(width, [&](int64_t i, int64_t n) {
    const Vec normed = (load(x + i, n) - mean) * scale * load(weight + i, n);
    store(out + i, bias ? normed + load(bias + i, n) : normed, n);
  });
}

// f(a row, where its norm goes, its number), for all rows.
template <class T, class F>
void each_row(const T* x, const T* residual, T* out, T* total, int64_t rows, int64_t width, F&& f) {
  parallel_rows(rows, width, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++) {
      const int64_t at = row * width;
      f(Summed<T>{x + at, residual ? residual + at : nullptr, total + at}, out + at, row);
    }
  });
}

// f of the types that the two dtypes name.
template <class F>
void with_types(int64_t dtype, int64_t weight_dtype, F&& f) {
  with_type(dtype, [&](auto element) { with_type(weight_dtype, [&](auto weight) { f(element, weight); }); });
}

}  // namespace
}  // namespace penstock

using namespace penstock;

extern "C" void penstock_rms_norm(int64_t dtype, int64_t weight_dtype, const void* x, const void* residual,
                                  const void* weight, float eps, void* out, void* total, int64_t rows, int64_t width) {
  with_types(dtype, weight_dtype, [&]<class T, class W>(T, W) {
    each_row(static_cast<const T*>(x), static_cast<const T*>(residual), static_cast<T*>(out), static_cast<T*>(total),
             rows, width, [&](const Summed<T>& row, T* to, int64_t) {
               norm_row(row, static_cast<const W*>(weight), eps, to, width);
             });
  });
}

extern "C" void penstock_layer_norm(int64_t dtype, int64_t weight_dtype, const void* x, const void* residual,
                                    const void* weight, const void* bias, int64_t groups, float eps, void* out,
                                    void* total, int64_t rows, int64_t width) {
  with_types(dtype, weight_dtype, [&]<class T, class W>(T, W) {
    each_row(static_cast<const T*>(x), static_cast<const T*>(residual), static_cast<T*>(out), static_cast<T*>(total),
             rows, width, [&](const Summed<T>& row, T* to, int64_t number) {
               const int64_t own = number % groups * width;
               const W* const added = static_cast<const W*>(bias);
               layer_norm_row(row, static_cast<const W*>(weight) + own, added ? added + own : nullptr, eps, to, width);
             });
  });
}

// The inputs of a linear over coded weights, as its tiles read them.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "quantised.h"

namespace penstock {

constexpr float kMost = 127.f;       // the largest whole number that an input becomes
constexpr float kLeast = 0x1p-100f;  // a largest input below this is 0: its inverse may be no float32

// A row's numbers, and of each piece the scale, the sum, and what its whole sums begin with.
template <class X>
struct Row {
  X* numbers;
  float* scales;
  float* sums;
  int32_t* starts;
};

// Rows of x in X, each piece padded to whole steps.
template <class X>
struct Rows {
  std::byte* memory;
  int64_t padded, num_pieces;

  int64_t numbers_bytes() const { return (padded * static_cast<int64_t>(sizeof(X)) + 63) / 64 * 64; }
  int64_t stride() const { return numbers_bytes() + (12 * num_pieces + 63) / 64 * 64; }
  Row<X> operator[](int64_t index) const {
    std::byte* const row = memory + index * stride();
    float* const scales = reinterpret_cast<float*>(row + numbers_bytes());
    return {reinterpret_cast<X*>(row), scales, scales + num_pieces, reinterpret_cast<int32_t*>(scales + 2 * num_pieces)};
  }
};

INLINE Vec magnitude(Vec a) { return max(a, zero() - a); }

// The largest magnitude of a piece; NaN if there is one, or an infinity.
template <class T>
INLINE float largest_of(const T* x, int64_t width) {
  Vec top = zero();
  uint32_t nans = 0;
  for (int64_t k = 0; k < width; k += kLanes) {
    const Vec v = load(x + k, width - k);
    top = max(top, magnitude(v));
    nans |= bits(is_nan(v));
  }
  const float most = largest(top);
  return nans || std::isinf(most) ? std::numeric_limits<float>::quiet_NaN() : most;
}

template <class T>
void write_row(const Coded& w, const T* x, Row<int8_t> row) {
  const int32_t zero_of_all = static_cast<int32_t>(w.header.has_zeros ? 1 : w.header.zero);
  const Piece* const pieces = w.pieces;
  for (int64_t i = 0, count = w.header.num_pieces; i < count; i++) {
    const int64_t begin = pieces[i].begin, width = pieces[i].width, padded = pieces[i].steps * kStepInputs;
    int8_t* const to = row.numbers + pieces[i].padded;
    const float most = largest_of(x + begin, width);
    const bool is_some = most >= kLeast;
    row.scales[i] = is_some || std::isnan(most) ? most / kMost : 0.f;
    const Vec inverse = set(is_some ? kMost / most : 0.f);
    Vec total = zero();
    for (int64_t k = 0; k < padded; k += kLanes) {
      Vec v = k < width ? load(x + begin + k, width - k) : zero();
      v = is_some ? round(v * inverse) : zero();
      total = total + v;
      store(to + k, v, padded - k);
    }
    row.sums[i] = sum(total);  // exact: whole numbers below 2^24
    row.starts[i] = -zero_of_all * static_cast<int32_t>(row.sums[i]);
  }
}

template <class T>
void write_row(const Coded& w, const T* x, Row<float> row) {
  for (int64_t i = 0; i < w.header.num_pieces; i++) {
    const Piece piece = w.pieces[i];
    const int64_t padded = piece.steps * kStepInputs;
    Vec total = zero();
    for (int64_t k = 0; k < padded; k += kLanes) {
      const Vec v = k < piece.width ? load(x + piece.begin + k, piece.width - k) : zero();
      total = total + v;
      store(row.numbers + piece.padded + k, v, padded - k);
    }
    row.sums[i] = sum(total);
  }
}

}  // namespace penstock

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

// Rows of x in X, each piece padded to whole steps. Behind a row's numbers are the scale of each piece, then the sum of
// each, then what the whole sum of each begins with (int32).
template <class X>
struct Rows {
  std::byte* memory;
  int64_t padded, num_pieces;

  int64_t numbers_bytes() const { return (padded * static_cast<int64_t>(sizeof(X)) + 63) / 64 * 64; }
  int64_t stride() const { return numbers_bytes() + (12 * num_pieces + 63) / 64 * 64; }
  X* numbers(int64_t row) const { return reinterpret_cast<X*>(memory + row * stride()); }
  float* scales(int64_t row) const { return reinterpret_cast<float*>(memory + row * stride() + numbers_bytes()); }
  float* sums(int64_t row) const { return scales(row) + num_pieces; }
  int32_t* starts(int64_t row) const { return reinterpret_cast<int32_t*>(scales(row) + 2 * num_pieces); }
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
void write_row(const Coded& w, const T* x, const Rows<int8_t>& rows, int64_t row) {
  const int32_t zero_of_all = static_cast<int32_t>(w.header.has_zeros ? 1 : w.header.zero);
  for (int64_t i = 0; i < w.header.num_pieces; i++) {
    const Piece& piece = w.pieces[i];
    const float most = largest_of(x + piece.begin, piece.width);
    const bool is_some = most >= kLeast;
    rows.scales(row)[i] = is_some || std::isnan(most) ? most / kMost : 0.f;
    const Vec inverse = set(is_some ? kMost / most : 0.f);
    Vec total = zero();
    for (int64_t k = 0; k < piece.steps * kStepInputs; k += kLanes) {
      Vec v = k < piece.width ? load(x + piece.begin + k, piece.width - k) : zero();
      v = is_some ? round(v * inverse) : zero();
      total = total + v;
      store(rows.numbers(row) + piece.padded + k, v, piece.steps * kStepInputs - k);
    }
    rows.sums(row)[i] = sum(total);  // exact: whole numbers below 2^24
    rows.starts(row)[i] = -zero_of_all * static_cast<int32_t>(rows.sums(row)[i]);
  }
}

template <class T>
void write_row(const Coded& w, const T* x, const Rows<float>& rows, int64_t row) {
  for (int64_t i = 0; i < w.header.num_pieces; i++) {
    const Piece& piece = w.pieces[i];
    Vec total = zero();
    for (int64_t k = 0; k < piece.steps * kStepInputs; k += kLanes) {
      const Vec v = k < piece.width ? load(x + piece.begin + k, piece.width - k) : zero();
      total = total + v;
      store(rows.numbers(row) + piece.padded + k, v, piece.steps * kStepInputs - k);
    }
    rows.sums(row)[i] = sum(total);
  }
}

}  // namespace penstock

// Where the sums of a linear go.
#pragma once

#include <algorithm>
#include <cstdint>

#include "abi.h"
#include "activation.h"
#include "lora.h"
#include "packed.h"
#include "units.h"

namespace penstock {

// Columns of a matrix, to which a linear writes.
struct Output {
  void* data;
  int64_t dtype, stride;  // stride: of its rows
  const void* bias;       // of the whole matrix, or null
  int64_t bias_dtype;
  int64_t skip, width;    // the first column, and how many there are
  const Deltas* deltas = nullptr;  // of the whole matrix, or null
  int64_t activation = kNoActivation;  // of what is written

  Output columns(int64_t first, int64_t count) const {
    return {data, dtype, stride, bias, bias_dtype, skip + first, count, deltas, activation};
  }

  // Adds deltas and the bias of `columns` registers of outputs from `first` on to the sums of a tile's rows, and rounds.
  void write(const float* sums, int64_t row, int64_t rows, int64_t first, int columns) const {
    alignas(64) float biases[kGroup] = {};  // zeros, where there is none: no sum leaves as -0
    const int64_t count = std::min<int64_t>(columns * kLanes, width - first);
    alignas(64) float changed[kRows * kGroup];
    if (deltas) sums = deltas->add(sums, row, rows, skip + first, count, columns, changed);
    if (bias) {
      with_type(bias_dtype, [&](auto type) { widen(static_cast<const decltype(type)*>(bias) + skip + first, count, biases); });
    }
    with_type(dtype, [&](auto type) {
      for (int64_t r = 0; r < rows; r++) {
        auto* out = static_cast<decltype(type)*>(data) + (row + r) * stride + skip + first;
        for (int64_t i = 0; i < count; i += kLanes) {
          store(out + i, load(sums + r * columns * kLanes + i) + load(biases + i), count - i);
        }
      }
      if (activation != kNoActivation) {  // while it is near
        auto* const first_row = static_cast<decltype(type)*>(data) + row * stride + skip + first;
        activate_in_place(activation, dtype, first_row, stride, rows, count);
      }
    });
  }

  // What `write` will read for some rows besides their sums.
  Fetch fetch(int64_t row, int64_t rows, int64_t first, int columns) const {
    Fetch found;
    if (deltas) deltas->collect(row, rows, skip + first, columns, found);
    return found;
  }

 private:
  template <class T>
  static void widen(const T* from, int64_t count, float* to) {
    for (int64_t i = 0; i < count; i += kLanes) store(to + i, load(from + i, count - i));
  }
};

}  // namespace penstock

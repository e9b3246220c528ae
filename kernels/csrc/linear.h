// What multiplies rows by a packed weight, whatever its form.
#pragma once

#include <cstdint>

#include "output.h"
#include "units.h"
#include "vec.h"

namespace penstock {

// Rows of x as a weight that is not stacked wants them, `prepared_bytes` apart.
int64_t prepared_bytes(const void* packed, int64_t x_dtype);
void prepare_row(const void* packed, const void* x, int64_t x_dtype, void* prepared);

// Prepared rows, the weight that they are to be multiplied by, and where its outputs go.
struct Product {
  const void* packed;
  const void* prepared;
  int64_t rows;
  Output output;
};

// x [rows, inputs] by a weight, whose outputs go where `output` says.
void multiply_any(const void* x, int64_t x_dtype, int64_t rows, const void* packed, const Output& output);
// Many products as one piece of work.
void multiply_each(const Product* products, int64_t count, int64_t x_dtype);

// Where the sums of segments are added, each times its row's weight: those of row r `rows[r] - first_row` strides behind
// `sums`, kGroup for each segment.
struct Totals {
  float* sums;
  int64_t first_row, stride;
  const int64_t* rows;
  const float* weights;

  // The sums of a segment [count, columns registers], from the row and the output `lane` of a group on.
  void add(const float* from, int64_t first, int64_t count, int64_t segment, int64_t lane, int64_t columns) const {
    for (int64_t r = first; r < first + count; r++) {
      const Vec weight = set(weights[r]);
      float* const to = sums + (rows[r] - first_row) * stride + segment * kGroup + lane;
      for (int64_t i = 0; i < columns * kLanes; i += kLanes, from += kLanes) {
        store(to + i, fma(weight, load(from), load(to + i)));
      }
    }
  }
};

// Adds prepared rows times the outputs of a group to the totals, each segment's apart.
void add_apart(const void* packed, int64_t x_dtype, const void* prepared, int64_t rows, int64_t group,
               const Totals& totals);

// What multiply_any does for tiled weights.
void multiply_tiled(const void* x, int64_t x_dtype, int64_t rows, const void* packed, const Output& output);

// What the above do for coded weights.
void multiply_coded(const void* x, int64_t x_dtype, int64_t rows, const void* packed, const Output& output);
int64_t prepared_bytes_of_coded(const void* packed);
void prepare_row_of_coded(const void* packed, const void* x, int64_t x_dtype, void* prepared);
void add_apart_of_coded(const void* packed, const void* prepared, int64_t rows, int64_t group, const Totals& totals);
Units units_of_coded(const void* packed, int64_t rows);
const char* panel_of_coded(const void* packed, int64_t panel);
void multiply_piece_of_coded(const Product& product, const Units& units, int64_t begin, int64_t end, const char* next);

}  // namespace penstock

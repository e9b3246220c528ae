// What multiplies rows by a packed weight, whatever its form.
#pragma once

#include <cstdint>

#include "output.h"

namespace penstock {

// x [rows, inputs] by a weight, whose outputs go where `output` says.
void multiply_any(const void* x, int64_t x_dtype, int64_t rows, const void* packed, const Output& output);

// Rows of x as a weight that is not stacked wants them, `prepared_bytes` apart, and their products with the outputs of a
// group: sums [segments, rows, kGroup], each segment's apart.
int64_t prepared_bytes(const void* packed, int64_t x_dtype);
void prepare_row(const void* packed, const void* x, int64_t x_dtype, void* prepared);
void multiply_apart(const void* packed, int64_t x_dtype, const void* prepared, int64_t rows, int64_t group, float* sums);

void multiply_coded(const void* x, int64_t x_dtype, int64_t rows, const void* packed, const Output& output);
int64_t prepared_bytes_of_coded(const void* packed);
void prepare_row_of_coded(const void* packed, const void* x, int64_t x_dtype, void* prepared);
void multiply_apart_coded(const void* packed, const void* prepared, int64_t rows, int64_t group, float* sums);

}  // namespace penstock

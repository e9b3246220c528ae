#pragma once

#include <cstdint>

namespace penstock {

// out [width] of a row [2 * width]: a gate and what it is for.
void activate_gate_of_row(int64_t activation, int64_t dtype, const void* row, void* out, int64_t width);

// Of `rows` rows of `width` numbers, `stride` apart.
void activate_in_place(int64_t activation, int64_t dtype, void* x, int64_t stride, int64_t rows, int64_t width);

}  // namespace penstock

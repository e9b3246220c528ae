// Work over the rows of a matrix.
#pragma once

#include <algorithm>
#include <cstdint>

#include "pool.h"

namespace penstock {

// f(begin, end) for pieces of [0, rows). A piece has some microseconds of work, so few rows wake no thread.
template <class F>
void parallel_rows(int64_t rows, int64_t width, F&& f) {
  constexpr int64_t kElements = 1 << 14;
  const int64_t step = std::max<int64_t>(1, kElements / std::max<int64_t>(1, width));
  parallel((rows + step - 1) / step, [&](int64_t i) { f(i * step, std::min(rows, (i + 1) * step)); });
}

}  // namespace penstock

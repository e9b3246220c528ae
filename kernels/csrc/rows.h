// Work over the rows of a matrix, and over a row.
#pragma once

#include <algorithm>
#include <cstdint>

#include "pool.h"
#include "vec.h"

namespace penstock {

// f(begin, end) for pieces of [0, rows). A piece has some microseconds of work, so few rows wake no thread.
template <class F>
void parallel_rows(int64_t rows, int64_t width, F&& f) {
  constexpr int64_t kElements = 1 << 14;
  const int64_t step = std::max<int64_t>(1, kElements / std::max<int64_t>(1, width));
  parallel((rows + step - 1) / step, [&](int64_t i) { f(i * step, std::min(rows, (i + 1) * step)); });
}

// f(i, n) for the vectors of a row, whose n values begin at i.
template <class F>
INLINE void for_vectors(int64_t width, F&& f) {
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) f(i, kLanes);
  if (i < width) f(i, width - i);
}

}  // namespace penstock

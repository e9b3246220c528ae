// Sums of rows, one row after the other.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "abi.h"
#include "rows.h"

namespace penstock {
namespace {

// The columns [begin, end) of a segment. Those of a panel wait in registers.
template <class T>
void add_rows(const T* x, int64_t rows, int64_t width, int64_t begin, int64_t end, float* sums) {
  for_vectors(end - begin, [&](int64_t i, int64_t n) {
    Vec total = load(sums + begin + i, n);
    for (int64_t r = 0; r < rows; r++) total = total + load(x + r * width + begin + i, n);
    store(sums + begin + i, total, n);
  });
}

}  // namespace
}  // namespace penstock

using namespace penstock;

extern "C" void penstock_segment_sum(int64_t dtype, const void* x, const int32_t* counts, int64_t segments, int64_t rows,
                                     int64_t width, float* sums, int64_t* status) {
  const int32_t* const end = counts + segments;
  *status = std::any_of(counts, end, [](int32_t count) { return count < 0; }) ||
            std::accumulate(counts, end, int64_t{0}) != rows;
  if (*status) return;
  constexpr int64_t kColumns = 64;
  std::vector<int64_t> firsts(static_cast<size_t>(segments));
  std::exclusive_scan(counts, end, firsts.begin(), int64_t{0});
  const int64_t parts = (width + kColumns - 1) / kColumns, all = segments * parts;
  const int64_t step = std::max<int64_t>(1, all * (1 << 14) / std::max<int64_t>(1, rows * width));  // as parallel_rows
  with_type(dtype, [&]<class T>(T) {
    parallel((all + step - 1) / step, [&](int64_t piece) {
      for (int64_t i = piece * step; i < std::min(all, (piece + 1) * step); i++) {
        const size_t s = static_cast<size_t>(i / parts);
        const int64_t begin = i % parts * kColumns;
        add_rows(static_cast<const T*>(x) + firsts[s] * width, counts[s], width, begin, std::min(width, begin + kColumns),
                 sums + static_cast<int64_t>(s) * width);
      }
    });
  });
}

// Work that is best done in order: each thread has a range of it to itself and helps with the others' when it is done.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "pool.h"

namespace penstock {

// Calls f(begin, end, next) for pieces that make up [0, n). cut(i) is where a piece that begins at i ends at the latest;
// pieces end at the ends of ranges too. The thread most likely goes on at `next`, which is `begin` if nothing is left. A
// thread that the system holds up leaves its range to the others.
template <class Cut, class F>
void parallel_ranges(int64_t n, Cut&& cut, F&& f) {
  constexpr int64_t kMaxRanges = 64;
  struct alignas(64) Range {
    std::atomic<int64_t> taken;
    int64_t end;
  };
  Range ranges[kMaxRanges];
  const int64_t count = std::min({n, int64_t{num_threads()}, kMaxRanges});
  for (int64_t r = 0; r < count; r++) {
    ranges[r].taken.store(n * r / count, std::memory_order_relaxed);
    ranges[r].end = n * (r + 1) / count;
  }
  parallel(count, [&](int64_t own) {
    for (int64_t other = 0; other < count; other++) {
      Range& range = ranges[(own + other) % count];
      for (int64_t begin = range.taken.load(std::memory_order_relaxed); begin < range.end;) {
        const int64_t end = std::min<int64_t>(cut(begin), range.end);
        if (!range.taken.compare_exchange_weak(begin, end, std::memory_order_relaxed)) continue;
        f(begin, end, end < range.end ? end : begin);
        begin = range.taken.load(std::memory_order_relaxed);
      }
    }
  });
}

}  // namespace penstock

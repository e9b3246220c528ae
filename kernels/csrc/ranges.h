// Work that is best done in order: each thread has a range of it to itself and helps with the others' when it is done.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "pool.h"

namespace penstock {

// Calls f(i, next) once for each i in [0, n). `next` is what the same thread most likely gets after i, or i if nothing
// comes after it. A thread that the system holds up leaves its range to the others.
template <class F>
void parallel_ranges(int64_t n, F&& f) {
  constexpr int64_t kMaxRanges = 64;
  struct alignas(64) Range {
    std::atomic<int64_t> next;
    int64_t end;
  };
  Range ranges[kMaxRanges];
  const int64_t count = std::min({n, int64_t{num_threads()}, kMaxRanges});
  for (int64_t r = 0; r < count; r++) {
    ranges[r].next.store(n * r / count, std::memory_order_relaxed);
    ranges[r].end = n * (r + 1) / count;
  }
  parallel(count, [&](int64_t own) {
    for (int64_t other = 0; other < count; other++) {
      Range& range = ranges[(own + other) % count];
      for (int64_t i; (i = range.next.fetch_add(1, std::memory_order_relaxed)) < range.end;) {
        f(i, std::min(i + 1, range.end - 1));
      }
    }
  });
}

}  // namespace penstock

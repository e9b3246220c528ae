// One row of scores over the vocabulary, and how work over it is divided.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "pool.h"
#include "vec.h"

namespace penstock {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Sums of floats over the vocabulary are made for eight segments, each of whole vectors but for the last token's, and
// meet in a tree. So it makes no difference whether one thread takes all segments.
constexpr int64_t kSegments = 8;

template <class T>
T tree_sum(const T (&parts)[kSegments]) {
  return ((parts[0] + parts[1]) + (parts[2] + parts[3])) + ((parts[4] + parts[5]) + (parts[6] + parts[7]));
}

struct Row {
  const float* scores;
  int64_t size;
  bool is_split;  // the segments are for all threads; if not, for the calling one

  int64_t begin(int64_t segment) const {
    const int64_t width = (size + kSegments * kLanes - 1) / (kSegments * kLanes) * kLanes;
    return std::min(size, segment * width);
  }
  template <class F>
  void for_segments(F&& f) const {
    if (is_split) return parallel(kSegments, [&](int64_t segment) { f(segment); });
    for (int64_t segment = 0; segment < kSegments; segment++) f(segment);
  }
  // f(i, scores) for each vector of a segment; scores behind the end are -inf.
  template <class F>
  INLINE void for_vectors(int64_t segment, F&& f) const {
    const int64_t end = begin(segment + 1);
    int64_t i = begin(segment);
    for (; i + kLanes <= end; i += kLanes) f(i, load(scores + i));
    if (i < end) f(i, select(first(static_cast<int>(end - i)), load(scores + i, end - i), set(-kInfinity)));
  }
};

constexpr int64_t kSplitVocabulary = 1 << 14;  // smaller rows are not worth more than one thread

// f(index, is_split) for each row: rows are shared out among the threads or, if they are few, their segments are.
template <class F>
void for_rows(int64_t rows, int64_t vocabulary, F&& f) {
  if (rows >= num_threads() || vocabulary < kSplitVocabulary) {
    return parallel(rows, [&](int64_t row) { f(row, false); });
  }
  const FlushDenormals flush;
  for (int64_t row = 0; row < rows; row++) f(row, true);
}

}  // namespace penstock

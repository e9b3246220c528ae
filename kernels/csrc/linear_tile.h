// A tile of a dense linear layer: a few rows of x by the outputs of a panel, with their sums in registers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "packed.h"
#include "vec.h"

namespace penstock {

constexpr int kColumns = kGroup / kLanes;  // registers of outputs in a group
constexpr int64_t kAhead = 16 << 10;       // bytes that a panel is read ahead of its use

#if HAS_WIDE_VEC
constexpr int columns_of(int) { return kColumns; }
#else
constexpr int columns_of(int rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }
#endif

// bfloat16 pairs in float32 arithmetic: the low k of each pair, then the high one.
struct FusePairs {
  using X = float;
  using W = bf16;
  template <int R, int C>
  static INLINE void step(Vec (&sums)[R][C], const X* x, int64_t x_stride, const W* w, int64_t column_stride) {
    UNROLL for (int half = 0; half < 2; half++) {
      Vec column[C];
      UNROLL for (int c = 0; c < C; c++) {
        const bf16* pairs = w + c * column_stride;
        column[c] = half ? load_high<C>(pairs) : load_low(pairs);
      }
      UNROLL for (int r = 0; r < R; r++) {
        const Vec a = set(x[r * x_stride + half]);
        UNROLL for (int c = 0; c < C; c++) sums[r][c] = fma(a, column[c], sums[r][c]);
        asm volatile("" ::: "memory");  // loads stay where they are needed: hoisted, they drive sums out of registers
      }
    }
  }

 private:
  static INLINE Vec load_low(const bf16* w) {
    Vec low, high;
    load_pairs(w, low, high);
    return low;
  }
  template <int C>
  static INLINE Vec load_high(const bf16* w) {
#if !HAS_WIDE_VEC
    if (C == 1) return penstock::load_high(w);  // six rows leave no register for the mask of load_pairs
#endif
    Vec low, high;
    load_pairs(w, low, high);
    return high;
  }
};

template <class Weight>
struct Fuse {
  using X = float;
  using W = Weight;
  template <int R, int C>
  static INLINE void step(Vec (&sums)[R][C], const X* x, int64_t x_stride, const W* w, int64_t column_stride) {
    Vec column[C];
    UNROLL for (int c = 0; c < C; c++) column[c] = load(w + c * column_stride);
    UNROLL for (int r = 0; r < R; r++) {
      const Vec a = set(x[r * x_stride]);
      UNROLL for (int c = 0; c < C; c++) sums[r][c] = fma(a, column[c], sums[r][c]);
    }
  }
};

#if HAS_DOT_PAIRS
struct DotPairs {
  using X = bf16;
  using W = bf16;
  template <int R, int C>
  static INLINE void step(Vec (&sums)[R][C], const X* x, int64_t x_stride, const W* w, int64_t column_stride) {
    Pairs column[C];
    UNROLL for (int c = 0; c < C; c++) column[c] = load_pairs(w + c * column_stride);
    UNROLL for (int r = 0; r < R; r++) {
      int pair;
      std::memcpy(&pair, x + r * x_stride, 4);
      const Pairs a = set_pairs(pair);
      UNROLL for (int c = 0; c < C; c++) sums[r][c] = dot_pairs(sums[r][c], a, column[c]);
    }
  }
};
#endif

// A run of steps within one segment, for the rows and columns of one tile.
template <class Kernel>
struct Run {
  const typename Kernel::X* x;
  int64_t x_stride;
  const typename Kernel::W* w;
  int64_t column_stride;
  int64_t steps;
  int64_t next;       // bytes from w to what is to come into the second cache meanwhile, or 0
  float* sums;        // [R][C][16], behind the sums that wait for this one
  bool is_continued;  // sums has the segment's sum so far
  int merges;         // waiting sums to add at the end
};

template <class Kernel, int R, int C>
[[gnu::noinline]] void run_tile(const Run<Kernel>& run) {
  using W = typename Kernel::W;
  constexpr int64_t kStep = Layout<W>::kStep;
  constexpr int kStepBytes = kStep * sizeof(W);
  float* saved = run.sums;
  Vec sums[R][C];
  UNROLL for (int r = 0; r < R; r++) {
    UNROLL for (int c = 0; c < C; c++) sums[r][c] = run.is_continued ? load(saved + (r * C + c) * kLanes) : zero();
  }
  const typename Kernel::X* x = run.x;
  const W* w = run.w;
  const int64_t x_stride = run.x_stride, column_stride = run.column_stride, next = run.next;
  for (int64_t k = 0; k < run.steps; k++) {
    const char* bytes = reinterpret_cast<const char*>(w);
    for (int b = 0; b < kStepBytes; b += 64) prefetch_near(bytes + kAhead + b);
    for (int b = 0; b < std::min(128, kStepBytes); b += 64) prefetch_far(bytes + next + b);
    Kernel::step(sums, x, x_stride, w, column_stride);
    x += kDepth<W>;
    w += kStep;
  }
  for (int m = 0; m < run.merges; m++) {
    saved -= R * C * kLanes;
    UNROLL for (int r = 0; r < R; r++) {
      UNROLL for (int c = 0; c < C; c++) sums[r][c] = load(saved + (r * C + c) * kLanes) + sums[r][c];
    }
  }
  UNROLL for (int r = 0; r < R; r++) {
    UNROLL for (int c = 0; c < C; c++) store(saved + (r * C + c) * kLanes, sums[r][c]);
  }
}

template <class Kernel>
void run_tile(int rows, const Run<Kernel>& run) {
  switch (rows) {
    case 1: return run_tile<Kernel, 1, columns_of(1)>(run);
    case 2: return run_tile<Kernel, 2, columns_of(2)>(run);
    case 3: return run_tile<Kernel, 3, columns_of(3)>(run);
    case 4: return run_tile<Kernel, 4, columns_of(4)>(run);
    case 5: return run_tile<Kernel, 5, columns_of(5)>(run);
    case 6: return run_tile<Kernel, 6, columns_of(6)>(run);
  }
}

}  // namespace penstock

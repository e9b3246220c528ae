// The arithmetic of attention on one tile: 64 keys of a KV head against a few rows, a row being one query head of one
// token. A row's bits are its own:
//   A dot product is one chain of multiply-adds, ascending in dimension (scores) or key (output), whatever the shape of
//   the register tile. With bfloat16 queries and cache, where the processor has it, the links are vdpbf16ps and weights
//   are rounded to bfloat16; otherwise everything is float32.
//   With a cache of int8 a score is multiplied by its key's scale, and a weight, after it was added to the sum of weights,
//   by its value's. Queries of 16 bits, and the weights of a tile, then become whole numbers of 16 bits, each row's times
//   a unit of its own: sums over integers are exact, and cost what they do in bfloat16.
//   What is masked is an identity (weight 0, rescaling exactly 1), so computing it and skipping it are the same. For that
//   exp2(0) is exactly 1, denormals are zero in every thread as they always are to vdpbf16ps, and what a row must not see
//   is finite or taken away (see add_values_each).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "kv_layout.h"
#include "vec.h"

namespace penstock {

constexpr int kTile = 64, kColumns = kTile / kLanes;     // keys, and registers of keys; another tile changes bits
constexpr int kTilePairs = kTile / 2, kCellPairs = kCellKeys / 2;
#if HAS_WIDE_VEC
constexpr int kGroup = 6, kWidth = 4;                    // rows and registers of a register tile; changes no bits
#else
constexpr int kGroup = 3, kWidth = 2;
#endif

constexpr bool kHasDot = HAS_DOT_PAIRS;

template <int N, class F>
INLINE void pick(int n, F&& f) {  // f(n), with n in [1, N] known at compile time
  if constexpr (N == 1) {
    f(std::integral_constant<int, 1>{});
  } else {
    n == N ? f(std::integral_constant<int, N>{}) : pick<N - 1>(n, f);
  }
}

template <int N, class F>
INLINE void pick_width(int64_t n, F&& f) {  // f(the largest of N, N / 2, … 1 that is not over n)
  if constexpr (N == 1) {
    f(std::integral_constant<int, 1>{});
  } else {
    n >= N ? f(std::integral_constant<int, N>{}) : pick_width<N / 2>(n, f);
  }
}

// Of what is multiplied next: the row pair j of some cells' keys, and C registers of dimensions of a cell's values. In int8
// a line holds two registers.
template <int C, class T>
INLINE void prefetch_keys(const T* const* cells, int64_t j) {
  if (kScaled<T> && j % 2) return;
  UNROLL for (int c = 0; c < C; c++) prefetch_rows(cells[c] + pair_offset<T>(j, 0, kLanes), kLanes);
}
template <int C, class T>
INLINE void prefetch_values(const T* cell, int64_t j, int64_t d, int64_t dim) {
  const T* const p = cell + values_offset(dim) + pair_offset<T>(j, d, dim);
  UNROLL for (int c = 0; c < C; c += kScaled<T> ? 2 : 1) prefetch_rows(p + pair_offset<T>(0, c * kLanes, dim), dim);
}

// acc[r][c] += x[r][2j] * row 2j of y + x[r][2j + 1] * row 2j + 1, for j in [begin, end). at(j, c) is where 16 lanes of
// both rows are. Both products of attention are this.
template <int R, int C, class Acc, class X, class At, class Fetch>
INLINE void accumulate(Acc (&acc)[R][C], const X* x, int64_t stride, int64_t begin, int64_t end, int64_t width, At at,
                       Fetch fetch) {
  for (int64_t j = begin; j < end; j++) {
    fetch(j);
    if constexpr (std::is_same_v<X, int16_t>) {
      Words y[C];
      UNROLL for (int c = 0; c < C; c++) y[c] = load_words(at(j, c));
      UNROLL for (int r = 0; r < R; r++) {
        int32_t pair;
        std::memcpy(&pair, x + r * stride + 2 * j, sizeof pair);
        const Words both = set_words(pair);
        UNROLL for (int c = 0; c < C; c++) acc[r][c] = add_products(acc[r][c], both, y[c]);
      }
    } else if constexpr (std::is_same_v<X, bf16>) {
#if HAS_DOT_PAIRS
      Pairs y[C];
      UNROLL for (int c = 0; c < C; c++) y[c] = load_pairs(at(j, c));
      UNROLL for (int r = 0; r < R; r++) {
        int32_t pair;
        std::memcpy(&pair, x + r * stride + 2 * j, sizeof pair);
        const Pairs both = set_pairs(pair);
        UNROLL for (int c = 0; c < C; c++) acc[r][c] = dot_pairs(acc[r][c], both, y[c]);
      }
#endif
    } else {
      Vec even[C], odd[C];
      UNROLL for (int c = 0; c < C; c++) load_rows(at(j, c), width, even[c], odd[c]);
      UNROLL for (int r = 0; r < R; r++) {
        const Vec factor = set(x[r * stride + 2 * j]);
        UNROLL for (int c = 0; c < C; c++) acc[r][c] = fma(factor, even[c], acc[r][c]);
      }
      UNROLL for (int r = 0; r < R; r++) {
        const Vec factor = set(x[r * stride + 2 * j + 1]);
        UNROLL for (int c = 0; c < C; c++) acc[r][c] = fma(factor, odd[c], acc[r][c]);
      }
    }
  }
}

template <class X>
using Sums = std::conditional_t<std::is_same_v<X, int16_t>, Ints, Vec>;
INLINE Vec to_floats(Vec a) { return a; }

// Of some rows: what was summed before is multiplied with alpha, and what is summed of whole weights with their unit.
struct Factors {
  alignas(64) float alpha[kLanes] = {}, unit[kLanes] = {};
};

// scores[r][16c..] = q[r] · the keys of cell c, for c < C. Prefetches all cells of `ahead`, if given.
template <int R, int C, class X, class T, class A>
__attribute__((noinline)) void multiply_keys(const X* q, int64_t dim, const T* const* cells, const A* const* ahead,
                                             float* scores) {
  Sums<X> acc[R][C];
  UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++) acc[r][c] = Sums<X>{};
  const T* keys[C];
  UNROLL for (int c = 0; c < C; c++) keys[c] = cells[c];
  accumulate(
      acc, q, dim, 0, dim / 2, kLanes, [&](int64_t j, int c) { return keys[c] + pair_offset<T>(j, 0, kLanes); },
      [&](int64_t j) {
        if (ahead) prefetch_keys<kColumns>(ahead, j);
      });
  UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++) {
    store(scores + r * kTile + c * kLanes, to_floats(acc[r][c]));
  }
}

// out[r][d..] = out[r][d..] * alpha[r] + p[r] · V * unit[r] for C registers of dimensions, over the pairs [begin, end) of the tile's
// keys. Prefetches the same places of `ahead`, if given.
template <int R, int C, class X, class T, class A>
__attribute__((noinline)) void multiply_values(const X* p, int64_t dim, int64_t d, const T* const* cells,
                                               const A* const* ahead, int64_t begin, int64_t end,
                                               const Factors& factors, float* out) {
  constexpr bool kIsWhole = std::is_same_v<X, int16_t>;
  out += d;
  auto before = [&](int r, int c) { return load(out + r * dim + c * kLanes) * set(factors.alpha[r]); };
  Sums<X> acc[R][C];
  UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++) {
    if constexpr (kIsWhole) {
      acc[r][c] = Sums<X>{};
    } else {
      acc[r][c] = before(r, c);
    }
  }
  const int64_t here = values_offset(dim) + pair_offset<T>(0, d, dim);
  for (int64_t cell = begin / kCellPairs; cell * kCellPairs < end; cell++) {
    const int64_t first = cell * kCellPairs;
    const T* const values = cells[cell] + here;
    accumulate(
        acc, p + 2 * first, kTile, std::max<int64_t>(begin - first, 0), std::min<int64_t>(end - first, kCellPairs), dim,
        [&](int64_t j, int c) { return values + pair_offset<T>(j, c * kLanes, dim); },
        [&](int64_t j) {
          if (ahead) prefetch_values<C>(ahead[cell], j, d, dim);
        });
  }
  UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++) {
    Vec sum = to_floats(acc[r][c]);
    if constexpr (kIsWhole) sum = fma(sum, set(factors.unit[r]), before(r, c));
    store(out + r * dim + c * kLanes, sum);
  }
}

// Keys of a tile: [low, high), counted from its first.
struct Range {
  int low, high;
};

// Up to kGroup rows that share each load of K and V, and what they see of the tile.
struct Group {
  int rows;
  Range seen[kGroup];
  Range some{kTile, 0}, all{0, kTile};  // what at least one row sees, what each of them sees

  void add(Range range) {
    range = {std::max(range.low, 0), std::min(range.high, kTile)};
    seen[rows++] = range;
    if (range.low < range.high) some = {std::min(some.low, range.low), std::max(some.high, range.high)};
    all = {std::max(all.low, range.low), std::min(all.high, range.high)};
  }
  bool sees_nothing() const { return some.low >= some.high; }
  bool sees_all() const { return all.low == 0 && all.high == kTile; }
  int first_column() const { return some.low / (2 * kLanes) * 2; }  // registers of keys, two and two
  int end_column() const { return (some.high + 2 * kLanes - 1) / (2 * kLanes) * 2; }
  int first_pair() const { return some.low / 2; }
  int end_pair() const { return (some.high + 1) / 2; }
};

template <class T>
bool is_finite(const T* const* cells, int64_t dim, int begin, int end) {  // the values of the pairs [begin, end)
  if constexpr (kScaled<T>) return true;
  Vec bad = zero();
  for (int j = begin; j < end; j++) {
    for (int64_t d = 0; d < dim; d += kLanes) {
      Vec even, odd;
      load_rows(cells[j / kCellPairs] + values_offset(dim) + pair_offset<T>(j % kCellPairs, d, dim), dim, even, odd);
      bad = fma(odd, zero(), fma(even, zero(), bad));
    }
  }
  return sum(bad) == 0;
}

template <int R, class X, class T, class A>
INLINE void multiply_all_values(const X* p, int64_t dim, const T* const* cells, const A* const* ahead, int begin, int end,
                                const Factors& factors, float* out) {
  for (int64_t d = 0; d < dim;) {
    pick_width<kWidth>((dim - d) / kLanes, [&](auto C) {
      multiply_values<R, C>(p, dim, d, cells, ahead, begin, end, factors, out);
      d += C * kLanes;
    });
  }
}

// As add_values, when some row must not see a value that is Inf or NaN, for 0 * NaN is NaN: each row alone, with a copy
// of V where all that it does not see is 0. The instructions, and so the bits, are the same.
template <class X, class T>
__attribute__((noinline)) void add_values_each(const Group& group, const X* p, int64_t dim, const T* const* cells,
                                               const Factors& factors, float* out) {
  static thread_local std::vector<T> copy;
  copy.resize(static_cast<size_t>(kColumns * cell_size<T>(dim)));
  const T* copies[kColumns];
  for (int c = 0; c < kColumns; c++) copies[c] = copy.data() + c * cell_size<T>(dim);
  for (int r = 0; r < group.rows; r++) {
    Factors own;
    own.alpha[0] = factors.alpha[r];
    own.unit[0] = factors.unit[r];
    std::fill(copy.begin(), copy.end(), T{});
    for (int key = group.seen[r].low; key < group.seen[r].high; key++) {
      const int64_t cell = key / kCellKeys, row = key % kCellKeys;
      for (int64_t d = 0; d < dim; d++) {
        const int64_t at = values_offset(dim) + element_offset<T>(row, d, dim);
        copy[static_cast<size_t>(cell * cell_size<T>(dim) + at)] = cells[cell][at];
      }
    }
    multiply_all_values<1>(p + r * kTile, dim, copies, static_cast<const T* const*>(nullptr), group.first_pair(),
                           group.end_pair(), own, out + r * dim);
  }
}

// out[r] = out[r] * alpha[r] + p[r] · V.
template <class X, class T, class A>
INLINE void add_values(const Group& group, const X* p, int64_t dim, const T* const* cells, const A* const* ahead,
                       const Factors& factors, float* out) {
  const int begin = group.first_pair(), end = group.end_pair();
  const int low = std::min((group.all.low + 1) / 2, end), high = std::max(group.all.high / 2, low);
  if (!is_finite(cells, dim, begin, low) || !is_finite(cells, dim, high, end)) {
    return add_values_each(group, p, dim, cells, factors, out);
  }
  pick<kGroup>(group.rows, [&](auto R) { multiply_all_values<R>(p, dim, cells, ahead, begin, end, factors, out); });
}

// scores[r] = q[r] · K, for the columns of which some row sees a key.
template <class X, class T, class A>
INLINE void multiply_all_keys(const Group& group, const X* q, int64_t dim, const T* const* cells, const A* const* ahead,
                              float* scores) {
  const int end = group.end_column();
  for (int c = group.first_column(); c < end;) {
    const int width = std::min(kWidth, end - c);  // 2 or 4
    pick<kGroup>(group.rows, [&](auto R) {
      if (width == kWidth) {
        multiply_keys<R, kWidth>(q, dim, cells + c, ahead, scores + c * kLanes);
      } else {
        multiply_keys<R, 2>(q, dim, cells + c, ahead, scores + c * kLanes);
      }
    });
    c += width;
    ahead = nullptr;
  }
}

}  // namespace penstock

// How the keys and values of one layer lie in its cache. kv_write puts them there and attention reads them; nobody else
// knows. Sizes and offsets count elements, `dim` is the head size rounded up to whole registers, its tail zeros.
//
// A cell is 16 keys of one KV head and, behind them, their values:
//   K  a matrix of `dim` rows and 16 lanes, one lane for each key
//   V  a matrix of 16 rows, one for each key, and `dim` lanes
// so that a dot product is a chain of multiply-adds over rows. In bfloat16 the rows lie interleaved in pairs: a register
// of 32 elements is what one vdpbf16ps multiplies, and what load_pairs() widens. The other types have row after row.
//
// Blocks of a multiple of 16 tokens are cells, [tokens / 16, KV heads]. Other blocks are loose, [tokens, KV heads, 2, dim]:
// they are correct and take no more room, but attention has to make cells of them first.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "vec.h"

namespace penstock {

constexpr int64_t kCellKeys = kLanes;

template <class T>
constexpr bool kPaired = std::is_same_v<T, bf16>;

constexpr int64_t padded_dim(int64_t head_dim) { return (head_dim + kLanes - 1) / kLanes * kLanes; }
constexpr bool has_cells(int64_t block_size) { return block_size % kCellKeys == 0; }
constexpr int64_t cell_size(int64_t dim) { return 2 * kCellKeys * dim; }
constexpr int64_t values_offset(int64_t dim) { return kCellKeys * dim; }

// Where the lanes from `lane` on of the row pair j begin, in a matrix of `width` lanes.
template <class T>
INLINE int64_t pair_offset(int64_t j, int64_t lane, int64_t width) {
  return 2 * j * width + (kPaired<T> ? 2 : 1) * lane;
}

template <class T>
INLINE int64_t element_offset(int64_t row, int64_t lane, int64_t width) {
  return kPaired<T> ? pair_offset<T>(row / 2, lane, width) + row % 2 : row * width + lane;
}

// Sixteen lanes of both rows of a pair, widened.
template <class T>
INLINE void load_rows(const T* p, int64_t width, Vec& even, Vec& odd) {
  if constexpr (kPaired<T>) {
    load_pairs(p, even, odd);
  } else {
    even = load(p);
    odd = load(p + width);
  }
}

// Sixteen dimensions of one token, from d on.
template <class T>
INLINE void put_in_cell(T* cell, int64_t key, int64_t d, int64_t dim, const T* k, const T* v) {
  T *const keys = cell + element_offset<T>(d, key, kLanes), *const values = cell + values_offset(dim);
  UNROLL for (int i = 0; i < kLanes; i++) keys[element_offset<T>(i, 0, kLanes)] = k[i];
  UNROLL for (int i = 0; i < kLanes; i++) values[element_offset<T>(key, d + i, dim)] = v[i];
}

}  // namespace penstock

// How the keys and values of one layer lie in its cache. kv_write puts them there and attention reads them; nobody else
// knows. Sizes and offsets count elements, `dim` is the head size rounded up to whole registers, its tail zeros.
//
// A cell is 16 keys of one KV head and, behind them, their values:
//   K  a matrix of `dim` rows and 16 lanes, one lane for each key
//   V  a matrix of 16 rows, one for each key, and `dim` lanes
// so that a dot product is a chain of multiply-adds over rows. In bfloat16 and int8 the rows lie interleaved in pairs: 32
// elements are what one instruction multiplies, and what load_pairs() widens. The other types have row after row.
//
// In int8 a cell has, behind its values, the 16 scales of its keys and the 16 of its values, in float32: a number of K or V
// is what is stored times the scale of its token and head.
//
// What was never written may be anything: kv_write changes nothing but its tokens, and attention takes care of the rest.
//
// Blocks of a multiple of 16 tokens are cells, [tokens / 16, KV heads]. Other blocks are loose, [tokens, KV heads, 2, dim],
// in int8 with both scales behind it: they are correct and take no more room, but attention has to make cells of them first.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "vec.h"

namespace penstock {

constexpr int64_t kCellKeys = kLanes;

template <class T>
constexpr bool kPaired = std::is_same_v<T, bf16> || std::is_same_v<T, int8_t>;

template <class T>
constexpr bool kScaled = std::is_same_v<T, int8_t>;

constexpr int64_t padded_dim(int64_t head_dim) { return (head_dim + kLanes - 1) / kLanes * kLanes; }
constexpr bool has_cells(int64_t block_size) { return block_size % kCellKeys == 0; }
constexpr int64_t values_offset(int64_t dim) { return kCellKeys * dim; }

// Of one token and head, or of a cell.
template <class T>
constexpr int64_t loose_size(int64_t dim) {
  return 2 * dim + (kScaled<T> ? 2 * static_cast<int64_t>(sizeof(float)) : 0);
}
template <class T>
constexpr int64_t cell_size(int64_t dim) {
  return kCellKeys * loose_size<T>(dim);
}

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

// Into L1, which measured faster than into L2. In assembler, for GCC drops a function that does nothing but prefetch.
template <class T>
INLINE void prefetch_rows(const T* p, int64_t width) {
  prefetch_in_order(*p);
  if constexpr (!kPaired<T>) prefetch_in_order(p[width]);
}

// Sixteen dimensions of one token, from d on.
template <class T>
INLINE void put_in_cell(T* cell, int64_t key, int64_t d, int64_t dim, const T* k, const T* v) {
  T *const keys = cell + element_offset<T>(d, key, kLanes), *const values = cell + values_offset(dim);
  UNROLL for (int i = 0; i < kLanes; i++) keys[element_offset<T>(i, 0, kLanes)] = k[i];
  UNROLL for (int i = 0; i < kLanes; i++) values[element_offset<T>(key, d + i, dim)] = v[i];
}

// Of K, and those of V behind them.
inline float* cell_scales(int8_t* cell, int64_t dim) { return reinterpret_cast<float*>(cell + 2 * kCellKeys * dim); }
inline float* loose_scales(int8_t* loose, int64_t dim) { return reinterpret_cast<float*>(loose + 2 * dim); }
inline const float* cell_scales(const int8_t* cell, int64_t dim) { return cell_scales(const_cast<int8_t*>(cell), dim); }
inline const float* loose_scales(const int8_t* loose, int64_t dim) { return loose_scales(const_cast<int8_t*>(loose), dim); }

inline void put_scales(int8_t* cell, int64_t key, int64_t dim, float k, float v) {
  float* const scales = cell_scales(cell, dim);
  scales[key] = k;
  scales[kCellKeys + key] = v;
}

}  // namespace penstock

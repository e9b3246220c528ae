// y = x wᵀ + bias in tiles. x is the sum of two bfloat16 numbers, as the weight may be, and of their products all are added
// but that of the low ones. Each element of y is summed in one order: over ascending blocks of 32 inputs, in each first the
// low part of the weight times the high part of x, then high times high, then high times low. Segments are added in a
// binary tree.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "abi.h"
#include "linear.h"
#include "output.h"
#include "pool.h"
#include "ranges.h"
#include "scratch.h"
#include "tiled.h"

namespace penstock {
namespace {

constexpr int64_t kRowsAtATime = 512;
constexpr int64_t kPairs = 8;             // of tiles of rows that a piece of work has at most
constexpr int64_t kSums = 4 * kTileRows * kTileRows;  // of four tiles, which are summed together
constexpr int64_t kXBytes = 2 * kTileBytes;           // of a block of x: high and low

// A row of x in tiles, from its place in the first one on.
template <class T>
void split_row(const T* x, const Tiled& w, std::byte* to) {
  for (int64_t s = 0; s < w.segments; s++, x += w.width) {
    for (int64_t first = 0; first < w.width; first += kTileInputs, to += kXBytes) {
      for (int64_t k = 0; k < kTileInputs; k += kLanes) {
        const int64_t left = w.width - first - k;
        const Vec value = left > 0 ? load(x + first + k, left) : zero();
        split(value, reinterpret_cast<bf16*>(to) + k, reinterpret_cast<bf16*>(to + kTileBytes) + k);
      }
    }
  }
}

// Two tiles of columns, which are side by side at w, by ROWS tiles of x, x_stride bytes apart, into the tiles from SUMS on.
template <int PARTS, int ROWS, int SUMS>
INLINE void add_block(const std::byte* x, int64_t x_stride, const std::byte* w) {
  const auto add = [] {
    add_products<SUMS, 4, 6>(), add_products<SUMS + 1, 4, 7>();
    if constexpr (ROWS == 2) add_products<SUMS + 2, 5, 6>(), add_products<SUMS + 3, 5, 7>();
  };
  const auto load_x = [&](int64_t part) {
    load_tile<4>(x + part * kTileBytes);
    if constexpr (ROWS == 2) load_tile<5>(x + x_stride + part * kTileBytes);
  };
  const auto load_w = [&](int64_t part) {
    load_tile<6>(w + part * kGroupTiles * kTileBytes), load_tile<7>(w + (part * kGroupTiles + 1) * kTileBytes);
  };
  load_x(0);
  if constexpr (PARTS == 2) load_w(1), add();
  load_w(0), add();
  load_x(1), add();
}

// A segment of two tiles of rows by two of columns, or of one by four.
template <int PARTS, int ROWS>
void multiply_segment(const std::byte* x, int64_t x_stride, const std::byte* w, int64_t blocks, float* sums) {
  constexpr int64_t kWidth = kSums / (ROWS * kTileRows);
  clear_tile<0>(), clear_tile<1>(), clear_tile<2>(), clear_tile<3>();
  for (int64_t block = 0; block < blocks; block++, x += kXBytes, w += PARTS * kGroupTiles * kTileBytes) {
    add_block<PARTS, ROWS, 0>(x, x_stride, w);
    if constexpr (ROWS == 1) add_block<PARTS, ROWS, 2>(x, x_stride, w + 2 * kTileBytes);
  }
  float* const below = ROWS == 2 ? sums + kTileRows * kWidth : sums + 2 * kTileRows;
  store_tile<0>(sums, kWidth), store_tile<1>(sums + kTileRows, kWidth);
  store_tile<2>(below, kWidth), store_tile<3>(below + kTileRows, kWidth);
}

// Sums of segments wait in a binary counter: after segment s there is one for each bit of s + 1.
template <int PARTS, int ROWS>
void multiply_segments(const std::byte* x, const Tiled& w, const std::byte* panel, float* sums) {
  const int64_t x_bytes = w.blocks * kXBytes, w_bytes = w.blocks * w.block_bytes();
  for (uint64_t s = 0; s < static_cast<uint64_t>(w.segments); s++) {
    const int64_t number = static_cast<int64_t>(s);
    float* own = sums + std::popcount(s) * kSums;
    multiply_segment<PARTS, ROWS>(x + number * x_bytes, w.segments * x_bytes, panel + number * w_bytes, w.blocks, own);
    for (int merges = std::countr_one(s); merges > 0; merges--) {
      own -= kSums;
      for (int64_t i = 0; i < kSums; i += kLanes) store(own + i, load(own + i) + load(own + kSums + i));
    }
  }
}

// The tiles of the 64 outputs of a coded group.
void decode_group(const Tiled& w, const std::byte* from, std::byte* to) {
  constexpr int64_t kHalf = kScaled / 2 * 2 * kTileRows;  // numbers of a tile that have the same scales
  for (int64_t block = 0; block < w.segments * w.blocks; block++, from += w.stored_bytes(), to += w.block_bytes()) {
    const auto* codes = reinterpret_cast<const int8_t*>(from);
    const auto* scales = reinterpret_cast<const float*>(from + kCodes);
    auto* numbers = reinterpret_cast<bf16*>(to);
    for (int64_t tile = 0; tile < kGroupTiles; tile++) {
      for (int64_t half = 0; half < kTileInputs / kScaled; half++, codes += kHalf, numbers += kHalf) {
        alignas(64) float twice[2 * kTileRows];
        for (int64_t i = 0; i < 2 * kTileRows; i++) twice[i] = scales[half * kGroup + tile * kTileRows + i / 2];
        for (int64_t i = 0; i < kHalf; i += kLanes) decode(codes + i, twice + i % (2 * kTileRows), numbers + i);
      }
    }
  }
}

template <int PARTS>
struct TiledLinear {
  const Tiled& w;
  const std::byte* panels;
  const Output& output;

  // x: tiles of `rows` rows, which are those from first_row on of the output.
  void operator()(const std::byte* x, int64_t first_row, int64_t rows) const {
    const int64_t pairs = (rows + 2 * kTileRows - 1) / (2 * kTileRows), pieces = (pairs + kPairs - 1) / kPairs;
    const int64_t most = (pairs + pieces - 1) / pieces;
    const auto cut = [&](int64_t unit) { return unit - unit % pairs + std::min(pairs, (unit % pairs / most + 1) * most); };
    parallel_ranges(w.groups() * pairs, cut, [&](int64_t begin, int64_t end, int64_t) {
      const int64_t group = begin / pairs, first = begin % pairs;
      const std::byte* panel = panels + group * w.group_bytes();
      if (w.is_coded) {
        thread_local Scratch scratch;
        std::byte* const decoded = scratch.get<std::byte>(w.segments * w.blocks * w.block_bytes());
        decode_group(w, panel, decoded);
        panel = decoded;
      }
      const TileUse use;
      for (int64_t half = 0; half < 2; half++) {
        for (int64_t pair = first; pair < first + end - begin; pair++) {
          multiply(x, first_row, rows, panel + half * 2 * kTileBytes, group * kGroup + half * kGroup / 2, half, pair);
        }
      }
    });
  }

 private:
  // Half of a group, the outputs from `first` on, by two tiles of rows, or if there is only one more, all of the group.
  void multiply(const std::byte* x, int64_t first_row, int64_t rows, const std::byte* panel, int64_t first, int64_t half,
                int64_t pair) const {
    const int64_t row = pair * 2 * kTileRows, count = std::min<int64_t>(rows - row, 2 * kTileRows);
    const int columns = count > kTileRows ? 2 : 4;
    if (first >= output.width || (half && columns == 4)) return;
    thread_local Scratch scratch;
    float* const sums = scratch.get<float>(std::bit_width(static_cast<uint64_t>(w.segments)) * kSums);
    const std::byte* const own = x + pair * 2 * w.segments * w.blocks * kXBytes;
    columns == 2 ? multiply_segments<PARTS, 2>(own, w, panel, sums) : multiply_segments<PARTS, 1>(own, w, panel, sums);
    const int64_t step = output.deltas ? kRows : count;
    for (int64_t r = 0; r < count; r += step) {
      output.write(sums + r * columns * kLanes, first_row + row + r, std::min(step, count - r), first, columns);
    }
  }
};

}  // namespace

void multiply_tiled(const void* x, int64_t x_dtype, int64_t rows, const void* packed, const Output& output) {
  const TiledHeader& header = *static_cast<const TiledHeader*>(packed);
  const std::byte* const panels = reinterpret_cast<const std::byte*>(&header + 1);
  const Tiled w(header);
  const int64_t row_bytes = w.segments * w.blocks * kXBytes;  // of a tile of rows
  thread_local Scratch scratch;
  std::byte* const tiles = scratch.get<std::byte>((std::min(rows, kRowsAtATime) + kTileRows - 1) / kTileRows * row_bytes);
  for (int64_t first = 0; first < rows; first += kRowsAtATime) {
    const int64_t count = std::min(rows - first, kRowsAtATime);
    with_type(x_dtype, [&](auto type) {
      const auto* from = static_cast<const decltype(type)*>(x) + first * header.header.inputs;
      parallel((count + kTileRows - 1) / kTileRows, [&](int64_t tile) {
        for (int64_t r = tile * kTileRows; r < std::min(count, (tile + 1) * kTileRows); r++) {
          split_row(from + r * header.header.inputs, w, tiles + tile * row_bytes + r % kTileRows * 64);
        }
      });
    });
    if (w.parts == 2) TiledLinear<2>{w, panels, output}(tiles, first, count);
    if (w.parts == 1) TiledLinear<1>{w, panels, output}(tiles, first, count);
  }
}

}  // namespace penstock

// A weight for tiles: a float32 is the sum of two bfloat16 numbers, a high one and a low one, but for 2^-17 of it. What is
// bfloat16 has a high one alone.
//
// Of each 64 outputs, of each segment, of each 32 inputs: the tiles of the high parts, 16 outputs each, then those of the
// low ones. A tile has the inputs in pairs, 16 pairs one below the other. Segments are padded with zeros.
//
// A coded weight has int8 in place of bfloat16, and behind them the scales of the outputs, for the first 16 inputs and for
// the others. It is multiplied as what they make, rounded to bfloat16: a piece of work makes the tiles of its outputs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bytes.h"
#include "packed.h"
#include "tiles.h"

namespace penstock {

constexpr int kTileInputs = 32;
constexpr int kGroupTiles = kGroup / kTileRows;  // side by side

constexpr int kScaled = 16;                      // inputs that share a scale of a coded weight
constexpr int64_t kCodes = kGroup * kTileInputs;  // of a block
constexpr int64_t kScales = kTileInputs / kScaled * kGroup;

struct TiledHeader {
  Header header;
  int64_t parts;  // 1 or 2
  int64_t is_coded;
};

struct Tiled {
  int64_t parts, is_coded, outputs, segments, width, blocks;  // width and blocks: of a segment

  explicit Tiled(const TiledHeader& h)
      : parts(h.parts),
        is_coded(h.is_coded),
        outputs(h.header.outputs),
        segments(h.header.segments),
        width(h.header.inputs / segments),
        blocks((width + kTileInputs - 1) / kTileInputs) {}

  int64_t groups() const { return (outputs + kGroup - 1) / kGroup; }
  int64_t block_bytes() const { return parts * kGroupTiles * kTileBytes; }  // as it is multiplied
  int64_t stored_bytes() const {
    return is_coded ? kCodes + kScales * static_cast<int64_t>(sizeof(float)) : block_bytes();
  }
  int64_t group_bytes() const { return segments * blocks * stored_bytes(); }
  int64_t bytes() const { return static_cast<int64_t>(sizeof(TiledHeader)) + groups() * group_bytes(); }
};

// Sixteen numbers as sums of two.
INLINE void split(Vec x, bf16* high, bf16* low) {
  store(high, x);
  store(low, x - load(high));
}

// Two numbers of each of 8 outputs, as bfloat16. scales: of each output twice.
INLINE void decode(const int8_t* codes, const float* scales, bf16* to) { store(to, load_bytes(codes) * load(scales)); }

}  // namespace penstock

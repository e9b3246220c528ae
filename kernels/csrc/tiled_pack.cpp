// Weights into tiles.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "abi.h"
#include "pool.h"
#include "tiled.h"

namespace penstock {
namespace {

TiledHeader header_of(int64_t dtype, int64_t outputs, int64_t inputs, int64_t segments) {
  return {{kTiled, outputs, inputs, segments}, dtype == kBF16 || dtype == kI8 ? 1 : 2, dtype == kI8};
}

// The inputs of a block, of which there are `count`, for one output, whose pairs are a tile's row apart.
template <class W>
void pack_block(const W* from, int64_t count, int64_t parts, bf16* to) {
  constexpr int64_t kRow = 2 * kTileRows, kPart = kGroupTiles * kTileBytes / static_cast<int64_t>(sizeof(bf16));
  alignas(64) bf16 split_up[2][kTileInputs];
  for (int64_t k = 0; k < kTileInputs; k += kLanes) {
    const Vec x = k < count ? load(from + k, count - k) : zero();
    split(x, split_up[0] + k, split_up[1] + k);
  }
  for (int64_t part = 0; part < parts; part++) {
    for (int64_t k = 0; k < kTileInputs; k += 2) {
      std::memcpy(to + part * kPart + k / 2 * kRow, split_up[part] + k, 2 * sizeof(bf16));
    }
  }
}

template <class W>
void pack_group(const W* weight, int64_t inputs, const Tiled& tiled, int64_t first, std::byte* to) {
  const int64_t count = std::min<int64_t>(kGroup, tiled.outputs - first);
  if (count < kGroup) std::memset(to, 0, static_cast<size_t>(tiled.group_bytes()));
  for (int64_t s = 0; s < tiled.segments; s++) {
    for (int64_t block = 0; block < tiled.blocks; block++, to += tiled.block_bytes()) {
      for (int64_t output = 0; output < count; output++) {
        auto* const own = reinterpret_cast<bf16*>(to + output / kTileRows * kTileBytes) + output % kTileRows * 2;
        const W* from = weight + (first + output) * inputs + s * tiled.width + block * kTileInputs;
        pack_block(from, tiled.width - block * kTileInputs, tiled.parts, own);
      }
    }
  }
}

// codes [outputs, inputs], scales [outputs, inputs / kScaled].
void pack_coded_group(const int8_t* codes, const float* scales, int64_t inputs, const Tiled& tiled, int64_t first,
                      std::byte* to) {
  const int64_t count = std::min<int64_t>(kGroup, tiled.outputs - first);
  std::memset(to, 0, static_cast<size_t>(tiled.group_bytes()));
  for (int64_t s = 0; s < tiled.segments; s++) {
    for (int64_t block = 0; block < tiled.blocks; block++, to += tiled.stored_bytes()) {
      const int64_t begin = s * tiled.width + block * kTileInputs;
      const int64_t width = std::min<int64_t>(kTileInputs, (s + 1) * tiled.width - begin);
      auto* const own = reinterpret_cast<int8_t*>(to);
      auto* const own_scales = reinterpret_cast<float*>(to + kCodes);
      for (int64_t output = 0; output < count; output++) {
        const int64_t tile = output / kTileRows, column = output % kTileRows;
        for (int64_t k = 0; k < width; k++) {
          const int64_t pair = (tile * kTileInputs + k) / 2;
          own[(pair * kTileRows + column) * 2 + k % 2] = codes[(first + output) * inputs + begin + k];
        }
        for (int64_t k = 0; k < width; k += kScaled) {
          own_scales[k / kScaled * kGroup + output] = scales[((first + output) * inputs + begin + k) / kScaled];
        }
      }
    }
  }
}

}  // namespace
}  // namespace penstock

using namespace penstock;

extern "C" void penstock_may_use_tiles(int64_t* may_use) { *may_use = may_use_tiles(); }

extern "C" void penstock_packed_tiled_size(int64_t dtype, int64_t outputs, int64_t inputs, int64_t segments, int64_t* size) {
  *size = Tiled(header_of(dtype, outputs, inputs, segments)).bytes();
}

extern "C" void penstock_pack_tiled(const void* weight, int64_t dtype, int64_t outputs, int64_t inputs, int64_t segments,
                                    void* packed) {
  const TiledHeader header = header_of(dtype, outputs, inputs, segments);
  const Tiled tiled(header);
  std::memcpy(packed, &header, sizeof header);
  std::byte* const to = static_cast<std::byte*>(packed) + sizeof header;
  with_type(dtype, [&](auto type) {
    const auto* from = static_cast<const decltype(type)*>(weight);
    parallel(tiled.groups(), [&](int64_t g) { pack_group(from, inputs, tiled, g * kGroup, to + g * tiled.group_bytes()); });
  });
}

extern "C" void penstock_pack_tiled_codes(const int8_t* codes, const float* scales, int64_t outputs, int64_t inputs,
                                          int64_t segments, void* packed) {
  const TiledHeader header = header_of(kI8, outputs, inputs, segments);
  const Tiled tiled(header);
  std::memcpy(packed, &header, sizeof header);
  std::byte* const to = static_cast<std::byte*>(packed) + sizeof header;
  parallel(tiled.groups(), [&](int64_t g) {
    pack_coded_group(codes, scales, inputs, tiled, g * kGroup, to + g * tiled.group_bytes());
  });
}

// What attention without a cache makes of its tensors, so that it reads them as it reads a cache.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "abi.h"
#include "attention_plan.h"
#include "kv_layout.h"
#include "scratch.h"

namespace penstock {

struct Heads {
  const void* data;
  int64_t stride;  // between tokens
};

// The keys and values of a call without a cache, in cells of its own: those of each sequence begin a new one.
class OwnCells {
 public:
  OwnCells(const int32_t* counts, int64_t num_sequences) {
    for (int64_t s = 0; s < num_sequences; s++) {
      firsts_.push_back(num_cells_);
      for (int64_t i = 0; i < counts[s]; i++) places_.push_back(num_cells_ * kCellKeys + i);
      num_cells_ += (counts[s] + kCellKeys - 1) / kCellKeys;
    }
    for (int64_t i = 0; i < num_cells_; i++) table_.push_back(static_cast<int32_t>(i));
  }

  // No place that was never written is read: the cells in which a sequence ends begin as zeros.
  void* write(const Heads& k, const Heads& v, int64_t num_kv_heads, int64_t head_dim, DType dtype) {
    const int64_t size = num_kv_heads * 2 * kCellKeys * padded_dim(head_dim) * (dtype == kF32 ? 4 : 2);
    std::byte* const cells = memory_.get<std::byte>(num_cells_ * size);
    const int64_t count = static_cast<int64_t>(firsts_.size());
    for (int64_t s = 0; s < count; s++) {
      const int64_t end = s + 1 < count ? firsts_[static_cast<size_t>(s) + 1] : num_cells_;
      if (end > firsts_[static_cast<size_t>(s)]) std::memset(cells + (end - 1) * size, 0, static_cast<size_t>(size));
    }
    int64_t status;
    penstock_kv_write(k.data, k.stride, v.data, v.stride, dtype, cells, dtype, num_cells_, kCellKeys, num_kv_heads,
                      head_dim, places_.data(), static_cast<int64_t>(places_.size()), &status);
    return cells;
  }
  const int32_t* table(int64_t sequence) const { return table_.data() + firsts_[static_cast<size_t>(sequence)]; }

 private:
  static inline thread_local Scratch memory_;
  int64_t num_cells_ = 0;
  std::vector<int64_t> firsts_, places_;
  std::vector<int32_t> table_;
};

// bias [heads, 2 * reach + 1], by the distance of a key, as `length` keys have it: those farther than reach are the farthest.
Distances spread(const float* bias, int64_t reach, int64_t num_heads, int64_t length) {
  static thread_local Scratch memory;
  const int64_t origin = length + kTile, stride = 2 * origin;  // a tile may begin before the keys, and end behind them
  float* const at = memory.get<float>(num_heads * stride);
  for (int64_t h = 0; h < num_heads; h++) {
    for (int64_t i = 0; i < stride; i++) {
      at[h * stride + i] = bias[h * (2 * reach + 1) + std::clamp(i - origin, -reach, reach) + reach] * kLog2e;
    }
  }
  return {at, stride, origin};
}

}  // namespace penstock

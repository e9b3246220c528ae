// The processor's tile registers: eight of 16 rows by 64 bytes, with sums of products of pairs of bfloat16.
#pragma once

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "vec.h"

namespace penstock {

constexpr int kTileRows = 16;
constexpr int64_t kTileBytes = kTileRows * 64;

// Whether the processor has tiles of bfloat16, and the system lets this process use them, which has to ask.
inline bool may_use_tiles() {
  constexpr unsigned kHasPairs = 1u << 22, kHasTiles = 1u << 24;
  constexpr long kAsk = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM; XFEATURE_XTILEDATA
  unsigned a, b, c, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || ~d & (kHasPairs | kHasTiles)) return false;
  return syscall(SYS_arch_prctl, kAsk, kTileData) == 0;
}

// While this lives, the thread's tiles are of 16 rows by 64 bytes. Afterwards the system need not save them any more.
class TileUse {
 public:
  TileUse() {
    static constexpr Sizes sizes;
    asm volatile("ldtilecfg %0" : : "m"(sizes));
  }
  ~TileUse() { asm volatile("tilerelease"); }
  TileUse(const TileUse&) = delete;
  TileUse& operator=(const TileUse&) = delete;

 private:
  struct alignas(64) Sizes {
    uint8_t palette = 1, start = 0, unused[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
};

template <int TILE>
INLINE void clear_tile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(TILE));
}
template <int TILE>
INLINE void load_tile(const std::byte* from) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(int64_t{64}), "i"(TILE) : "memory");
}
template <int TILE>
INLINE void store_tile(float* to, int64_t stride) {  // stride: floats between rows
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride * 4), "i"(TILE) : "memory");
}
// sums [16, 16] grow by a [16, 32] times b, which has 16 pairs of k for each of 16 columns.
template <int SUMS, int A, int B>
INLINE void add_products() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(SUMS), "i"(A), "i"(B));
}

}  // namespace penstock

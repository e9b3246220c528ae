// What the fused layers share: memory for what is between their ops, and linears with adapters.
#pragma once

#include <cstddef>
#include <cstdint>

#include "abi.h"
#include "linear.h"
#include "lora.h"
#include "packed.h"
#include "scratch.h"

namespace penstock {

inline int64_t bytes_of(int64_t dtype) { return dtype == kF32 ? 4 : 2; }

// Parts of one piece of memory, each at a 64-byte boundary.
class Parts {
 public:
  Parts(std::byte* memory, int64_t element) : memory_(memory), element_(element) {}
  static int64_t size(int64_t count, int64_t element) { return (count * element + 63) / 64 * 64; }
  std::byte* take(int64_t count) {
    std::byte* const part = memory_;
    memory_ += size(count, element_);
    return part;
  }

 private:
  std::byte* memory_;
  int64_t element_;
};

// A weight of a layer and what adapters add to it. If `shrunk` is not null, both are sums of this rank's inputs alone, and
// there go the adapters'. The activation is of the whole sums.
inline void multiply(const void* x, int64_t dtype, int64_t rows, const void* packed, const void* bias,
                     int64_t bias_dtype, void* out, const Site& site, bool partial = false, float* shrunk = nullptr,
                     int64_t activation = kNoActivation) {
  const Header& header = *static_cast<const Header*>(packed);
  Output output{out, partial ? kF32 : dtype, header.outputs, partial ? nullptr : bias, bias_dtype, 0, header.outputs, nullptr,
                activation};
  const int64_t rank = site.rank();
  if (rank == 0) return multiply_any(x, dtype, rows, packed, output);
  thread_local Scratch scratch;
  float* const sums = partial ? shrunk : scratch.get<float>(rows * rank);
  shrink(site, dtype, x, header.inputs, !partial, sums, rank);
  const Deltas deltas{site, sums, rank};
  if (!partial) output.deltas = &deltas;
  multiply_any(x, dtype, rows, packed, output);
}

}  // namespace penstock

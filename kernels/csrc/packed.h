// Where a packed weight's elements are: in panels whose outputs are adjacent for each k, so that a lane of a register is
// an output and its sum runs over ascending k. bfloat16 has its k in pairs, as the instruction for dot products wants them.
#pragma once

#include <cstdint>

#include "vec.h"

namespace penstock {

constexpr int kGroup = 64;  // outputs that one piece of work makes; N is padded to whole groups

#if HAS_WIDE_VEC
constexpr int kPanel = kGroup;  // one stream of memory
#else
constexpr int kPanel = kLanes;  // sixteen registers hold one column of six rows: a narrow panel stays in the first cache
#endif

// A packed weight starts with this. Its dtype is that of the numbers in its panels, which follow, or one of these.
struct alignas(64) Header {
  int64_t dtype, outputs, inputs, segments;
};
enum Form : int64_t { kQuantised = 16, kStacked = 17, kTiled = 18 };

// Weights of the same inputs and segments, whose outputs follow one another.
struct Stack {
  Header header;
  int64_t count;
  const void* parts[];
};

template <class W>
constexpr int kDepth = 1;  // k that are adjacent for each output
template <>
constexpr int kDepth<bf16> = 2;

// Where the elements of a packed weight are. Segments are padded with zeros to whole steps of kDepth k.
template <class W>
struct Layout {
  static constexpr int64_t kStep = kPanel * kDepth<W>;  // elements of a panel for one step
  int64_t groups, segments, width, steps;               // width and steps: of a segment

  explicit Layout(const Header& h)
      : groups((h.outputs + kGroup - 1) / kGroup),
        segments(h.segments),
        width(h.inputs / h.segments),
        steps((width + kDepth<W> - 1) / kDepth<W>) {}

  int64_t padded_inputs() const { return segments * steps * kDepth<W>; }
  bool is_padded() const { return width != steps * kDepth<W>; }
  int64_t group_size() const { return kGroup * padded_inputs(); }
  int64_t column_stride() const { return kPanel == kGroup ? kLanes * kDepth<W> : kLanes * padded_inputs(); }
  int64_t bytes() const {
    return static_cast<int64_t>(sizeof(Header)) + groups * group_size() * static_cast<int64_t>(sizeof(W));
  }
  // The first k of an output; the next steps are kStep elements apart.
  int64_t at(int64_t output) const {
    const int64_t column = output % kGroup / kLanes;
    return output / kGroup * group_size() + column * column_stride() + output % kLanes * kDepth<W>;
  }
};

template <class W>
W* elements(void* packed) {
  return reinterpret_cast<W*>(static_cast<Header*>(packed) + 1);
}
template <class W>
const W* elements(const void* packed) {
  return reinterpret_cast<const W*>(static_cast<const Header*>(packed) + 1);
}

}  // namespace penstock

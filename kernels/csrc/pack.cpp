// Weights into panels, and rows of them out again.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "abi.h"
#include "packed.h"
#include "pool.h"
#include "quantised.h"

namespace penstock {
namespace {

// The steps [begin, end) of a segment for one output, whose row begins at `from`; null stands for a row of zeros.
template <class W>
void pack_row(const W* from, int64_t width, int64_t begin, int64_t end, W* to) {
  constexpr int64_t kStep = Layout<W>::kStep, depth = kDepth<W>;
  const int64_t whole = from ? std::clamp(width / depth, begin, end) : begin;
  for (int64_t step = begin; step < whole; step++) {
    std::memcpy(to + step * kStep, from + step * depth, sizeof(W) * depth);
  }
  for (int64_t step = whole; step < end; step++) {
    for (int64_t d = 0; d < depth; d++) {
      to[step * kStep + d] = from && step * depth + d < width ? from[step * depth + d] : W{};
    }
  }
}

// A panel is written in blocks that stay in the first cache while rows of the weight become its lanes.
template <class W>
void pack_panel(const W* weight, const Layout<W>& layout, const Header& header, int64_t first, W* packed) {
  constexpr int64_t kSteps = 32;
  for (int64_t s = 0; s < layout.segments; s++) {
    for (int64_t begin = 0; begin < layout.steps; begin += kSteps) {
      const int64_t end = std::min(begin + kSteps, layout.steps);
      for (int64_t output = first; output < first + kPanel; output++) {
        const W* from = output < header.outputs ? weight + output * header.inputs + s * layout.width : nullptr;
        pack_row(from, layout.width, begin, end, packed + layout.at(output) + s * layout.steps * layout.kStep);
      }
    }
  }
}

}  // namespace
}  // namespace penstock

using namespace penstock;

extern "C" void penstock_packed_size(int64_t dtype, int64_t outputs, int64_t inputs, int64_t segments, int64_t* size) {
  with_type(dtype, [&](auto type) { *size = Layout<decltype(type)>({dtype, outputs, inputs, segments}).bytes(); });
}

extern "C" void penstock_pack(const void* weight, int64_t dtype, int64_t outputs, int64_t inputs, int64_t segments,
                              void* packed) {
  const Header header{dtype, outputs, inputs, segments};
  std::memcpy(packed, &header, sizeof header);
  with_type(dtype, [&](auto type) {
    using W = decltype(type);
    const Layout<W> layout(header);
    parallel(layout.groups * kGroup / kPanel, [&](int64_t i) {
      pack_panel(static_cast<const W*>(weight), layout, header, i * kPanel, elements<W>(packed));
    });
  });
}

extern "C" void penstock_weight_rows(const void* packed, const int64_t* ids, int64_t count, void* out,
                                     int64_t out_dtype) {
  const Header& header = *static_cast<const Header*>(packed);
  if (header.dtype == kQuantised) return coded_rows(packed, ids, count, out_dtype, out);
  with_type(header.dtype, [&](auto type) {
    using W = decltype(type);
    const Layout<W> layout(header);
    parallel(count, [&](int64_t i) {
      const W* from = elements<W>(packed) + layout.at(ids[i]);
      W* to = static_cast<W*>(out) + i * header.inputs;
      for (int64_t k = 0; k < header.inputs; k++) to[k] = from[k / kDepth<W> * layout.kStep + k % kDepth<W>];
    });
  });
}

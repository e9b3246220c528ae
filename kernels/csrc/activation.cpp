#include "abi.h"
#include "rows.h"

namespace penstock {
namespace {

// gate / (1 + e^-gate), with an exponent that is never above 0, so that nothing overflows.
INLINE Vec silu(Vec gate) {
  constexpr float kHigh = 0x1.715476p+0f, kLow = 0x1.4ae0c0p-26f;  // log2(e)
  const Vec power = exp2(max(set(-138.f), min(gate, zero() - gate)), set(kHigh), set(kLow));
  const Vec numerator = select(less(gate, zero()), power, set(1.f));
  return gate * (numerator / (set(1.f) + power));
}

template <class T>
void silu_mul(const T* gate_up, T* out, int64_t rows, int64_t width) {
  parallel_rows(rows, width, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++) {
      const T* gate = gate_up + 2 * row * width;
      const T* up = gate + width;
      T* to = out + row * width;
      for_vectors(width, [&](int64_t i, int64_t n) { store(to + i, silu(load(gate + i, n)) * load(up + i, n), n); });
    }
  });
}

}  // namespace
}  // namespace penstock

extern "C" void penstock_silu_mul(int64_t dtype, const void* gate_up, void* out, int64_t rows, int64_t width) {
  using namespace penstock;
  with_type(dtype, [&](auto element) {
    using T = decltype(element);
    silu_mul(static_cast<const T*>(gate_up), static_cast<T*>(out), rows, width);
  });
}

// The sigmoid, as a factor.
#pragma once

#include "vec.h"

namespace penstock {

constexpr float kLog2eHigh = 0x1.715476p+0f, kLog2eLow = 0x1.4ae0c0p-26f;

// x / (1 + e^-y), with an exponent that is never above 0, so that nothing overflows.
INLINE Vec times_sigmoid(Vec x, Vec y) {
  const Vec power = exp2(max(set(-138.f), min(y, zero() - y)), set(kLog2eHigh), set(kLog2eLow));
  const Vec numerator = select(less(y, zero()), power, set(1.f));
  return x * (numerator / (set(1.f) + power));
}

}  // namespace penstock

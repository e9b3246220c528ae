// From the scores of a tile to weights: the online softmax, and what a score is beside its product.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "attention_tile.h"
#include "vec.h"

namespace penstock {

constexpr float kNone = -1e30f;  // the maximum of no scores: finite, so that kNone - kNone is 0
constexpr float kLog2e = 1.44269504f;

// What a score is beside q·k. Everything is in powers of 2.
struct Form {
  float scale;  // of q·k: to the score, or to the exponent of softcap's tanh
  float cap;    // of tanh; 0: there is none

  static Form of(float scale, float softcap) {
    return softcap > 0 ? Form{scale / softcap * (2 * kLog2e), softcap * kLog2e} : Form{scale * kLog2e, 0};
  }
};

INLINE Vec shape_score(Vec s, const Form& form) {
  s = s * set(form.scale);
  if (form.cap == 0) return s;
  // tanh(x) = 1 - 2 / (e^2x + 1), which is ±1 beyond the range of exp2
  const Vec tanh = set(1.f) - set(2.f) / (exp2(min(set(100.f), s)) + set(1.f));
  return tanh * set(form.cap);
}

// What the scores of some rows grow by with each key of a tile, in powers of 2: by a slope that is 0 at the row's own
// position, which is counted from the tile's first key, or where `distances` is not null by what lies there for each key.
struct Added {
  float slope[kGroup], query[kGroup];
  const float* distances[kGroup] = {};

  INLINE Vec add(Vec score, int row, int key) const {
    if (distances[row]) return score + load(distances[row] + key);
    alignas(64) static constexpr float kNumbers[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const Vec distance = load(kNumbers) + set(static_cast<float>(key) - query[row]);
    return fma(distance, set(slope[row]), score);
  }
};

// Of the keys and the values of a tile, which may be NaN where nothing was written, and the units of the queries.
struct Scales {
  alignas(64) float keys[kTile], values[kTile];
  const float* queries;
};
struct NoScales {};

INLINE Vec scale_weights(Vec p, const float* scales) {  // a weight of 0 meets no scale
  return select(less(zero(), p), p * load(scales), zero());
}

// x(0), x(16), … as whole numbers up to `limit`, and their unit: NaN if one of them is not finite.
template <class Load>
INLINE float take_whole(Load&& x, int64_t n, float limit, int16_t* to) {
  Vec top = zero(), bad = zero();
  for (int64_t i = 0; i < n; i += kLanes) {
    const Vec some = x(i);
    top = max(top, max(some, zero() - some));
    bad = fma(some, zero(), bad);
  }
  const float unit = largest(top) / limit + sum(bad);
  const Vec inverse = set(unit > 0 ? 1 / unit : 0);
  for (int64_t i = 0; i < n; i += kLanes) store(to + i, x(i) * inverse);
  return unit;
}

// The online softmax of up to kGroup rows: the weights p of this tile, times the values' scales, and the factors of
// their product with V. `sums` has a row's sum of weights in lanes.
template <class X, class S>
inline void take_weights(const Group& group, const Form& form, const Added* added, const S& scales, float* scores, float* max,
                         float (*sums)[kLanes], Factors& factors, X* p) {
  constexpr bool kHasScales = std::is_same_v<S, Scales>;
  const Vec none = set(-INFINITY);
  const int begin = group.first_column(), end = group.end_column();
  for (int r = 0; r < group.rows; r++) {
    Vec top = none;
    for (int c = begin; c < end; c++) {
      float* const at = scores + r * kTile + c * kLanes;
      Vec x = load(at);
      if constexpr (kHasScales) x = x * (load(scales.keys + c * kLanes) * set(scales.queries[r]));
      x = shape_score(x, form);
      if (added) x = added->add(x, r, c * kLanes);
      if (!group.sees_all()) {
        x = select(first(group.seen[r].high - c * kLanes), x, none);
        x = select(first(group.seen[r].low - c * kLanes), none, x);
      }
      store(at, x);
      top = penstock::max(top, x);
    }
    const float next = std::max(max[r], largest(top));
    factors.alpha[r] = max[r] - next;
    max[r] = next;
  }
  store(factors.alpha, exp2(load(factors.alpha)));
  for (int r = 0; r < group.rows; r++) {
    Vec sum = load(sums[r]) * set(factors.alpha[r]);
    for (int c = begin; c < end; c += 2) {
      const int64_t at = r * kTile + c * kLanes;
      Vec even = exp2(load(scores + at) - set(max[r])), odd = exp2(load(scores + at + kLanes) - set(max[r]));
      if constexpr (kHasScales) {
        sum = (sum + even) + odd;
        even = scale_weights(even, scales.values + c * kLanes);
        odd = scale_weights(odd, scales.values + (c + 1) * kLanes);
      }
      if constexpr (std::is_same_v<X, bf16>) {
#if HAS_DOT_PAIRS
        const Pairs both = round_pairs(even, odd);
        store(p + at, both);
        sum = dot_pairs(sum, both, set_pairs(0x3f803f80));  // ones: the sum of what V is multiplied with
#endif
      } else if constexpr (std::is_same_v<X, int16_t>) {
        store(scores + at, even);
        store(scores + at + kLanes, odd);
      } else {
        store(p + at, even);
        store(p + at + kLanes, odd);
        if constexpr (!kHasScales) sum = (sum + even) + odd;
      }
    }
    store(sums[r], sum);
    if constexpr (std::is_same_v<X, int16_t>) {
      const int64_t at = r * kTile + begin * kLanes;
      factors.unit[r] = take_whole([&](int64_t i) { return load(scores + at + i); }, (end - begin) * kLanes, 32767, p + at);
    }
  }
}

}  // namespace penstock

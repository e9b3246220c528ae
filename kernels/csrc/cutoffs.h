// What top-k, top-p, typical-p and min-p keep of a row: all tokens up to a boundary, found without sorting the row.
//
// Weights are whole numbers of units, so their sums are exact and have no order. One pass over the row adds them up in
// buckets of the tokens' ranks; then the tokens of the one bucket that has the boundary are searched by the bits of
// their ranks. A bucket is a monotone function of the rank, so what is kept is what a sort would keep.
#pragma once

#include <bit>
#include <cfloat>
#include <cmath>
#include <numeric>
#include <vector>

#include "softmax.h"

namespace penstock {

// The tokens that are left: those with large scores that are not far from a middle.
struct Kept {
  float lowest = -kInfinity;
  float middle = 0, middle_rest = 0, farthest = kInfinity;

  INLINE Vec distance(Vec scores) const {
    const Vec d = (scores - set(middle)) - set(middle_rest);
    return max(d, zero() - d);
  }
  INLINE Mask operator()(Vec scores) const {
    return less_equal(set(lowest), scores) & less_equal(distance(scores), set(farthest));
  }
};

using Units = uint64_t;
constexpr Units kUnit = Units{1} << 40;  // the weight 1; less than one unit is nothing

constexpr int kBuckets = 2048;

// Where each bucket of ranks begins: bucket b has start + b / scale and more. The last has all that is behind it.
struct Buckets {
  float start, scale;
  INLINE Vec operator()(Vec ranks) const { return min((ranks - set(start)) * set(scale), set(kBuckets - 1)); }
};

struct Candidate {
  uint32_t key;
  Units units;
};

struct CutoffMemory {
  Units sums[kSegments * kBuckets];
  std::vector<Candidate> candidates;
};

// An integer in the order of floats, which are no NaN.
inline uint32_t to_key(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
inline float from_key(uint32_t key) { return std::bit_cast<float>(key >> 31 ? key ^ 0x80000000u : ~key); }

// The first index at which the sum of sums up to it reaches `wanted`, from which what comes before is taken away.
inline uint32_t reach(const Units* sums, Units& wanted) {
  uint32_t i = 0;
  for (; sums[i] < wanted; i++) wanted -= sums[i];
  return i;
}

// The smallest key of which the tokens up to it weigh `wanted`, which is not more than all of them weigh.
inline uint32_t reach(const std::vector<Candidate>& candidates, Units wanted) {
  constexpr int kDigits[][2] = {{21, 11}, {10, 11}, {0, 10}};  // lowest bit, number of bits
  uint64_t found = 0;                                          // the digits above
  for (const auto [shift, width] : kDigits) {
    Units sums[kBuckets] = {};
    for (const auto& [key, units] : candidates) {
      const uint64_t digits = key >> shift;
      if (digits >> width == found) sums[digits & ((1u << width) - 1)] += units;
    }
    found = found << width | reach(sums, wanted);
  }
  return static_cast<uint32_t>(found);
}

INLINE void to_units(Vec weights, Units (&units)[kLanes]) {
  alignas(64) float values[kLanes];
  store(values, weights * set(static_cast<float>(kUnit)));
  for (int lane = 0; lane < kLanes; lane++) units[lane] = static_cast<Units>(static_cast<int64_t>(values[lane]));
}

// The smallest rank of which the tokens up to it weigh as much as wanted(the weight of all).
template <class Rank, class Weigh, class Wanted>
float boundary(const Row& row, CutoffMemory& memory, Buckets buckets, Rank rank, Weigh weigh, Wanted wanted) {
  const int64_t num_sums = row.is_split ? kSegments : 1;
  std::fill_n(memory.sums, num_sums * kBuckets, 0);
  row.for_segments([&](int64_t segment) {
    Units* sums = memory.sums + (row.is_split ? segment * kBuckets : 0);
    row.for_vectors(segment, [&](int64_t, Vec scores) {
      const Vec weights = weigh(scores);
      if (!bits(less(zero(), weights))) return;
      alignas(64) int32_t bucket[kLanes];
      alignas(64) Units units[kLanes];
      store_whole(bucket, buckets(rank(scores)));
      to_units(weights, units);
      UNROLL for (int lane = 0; lane < kLanes; lane++) sums[bucket[lane]] += units[lane];
    });
  });
  for (int64_t i = kBuckets; i < num_sums * kBuckets; i++) memory.sums[i % kBuckets] += memory.sums[i];
  Units rest = wanted(std::accumulate(memory.sums, memory.sums + kBuckets, Units{0}));
  const Vec bucket = set(static_cast<float>(reach(memory.sums, rest)));

  memory.candidates.clear();
  for (int64_t segment = 0; segment < kSegments; segment++) {
    row.for_vectors(segment, [&](int64_t, Vec scores) {
      const Vec ranks = rank(scores), place = buckets(ranks);
      uint32_t found = bits(less_equal(bucket, place) & less(place, bucket + set(1.f)));
      if (!found) return;
      alignas(64) float values[kLanes];
      alignas(64) Units units[kLanes];
      store(values, ranks);
      to_units(weigh(scores), units);
      for (; found; found &= found - 1) {
        const int lane = std::countr_zero(found);
        if (units[lane]) memory.candidates.push_back({to_key(values[lane]), units[lane]});
      }
    });
  }
  return from_key(reach(memory.candidates, rest));
}

struct Cutoffs {
  int64_t top_k;
  float top_p, typical_p, min_p;
};

struct Moments {
  double mass, first;
  friend Moments operator+(Moments a, Moments b) { return {a.mass + b.mass, a.first + b.first}; }
};

// The weights' sum, and that of the weights times the scores' differences from the top.
inline Moments moments(const Row& row, const Weights& weights, const Kept& kept) {
  Moments parts[kSegments];
  row.for_segments([&](int64_t segment) {
    double mass[kLanes] = {}, first[kLanes] = {};
    row.for_vectors(segment, [&](int64_t, Vec scores) {
      const Mask mask = kept(scores);
      if (!bits(mask)) return;
      alignas(64) float weight[kLanes], difference[kLanes];
      const Vec below_top = weights.below_top(scores);
      store(weight, select(mask, weights.of_difference(below_top), zero()));
      store(difference, below_top);
      for (int lane = 0; lane < kLanes; lane++) mass[lane] += weight[lane];
      for (int lane = 0; lane < kLanes; lane++) first[lane] += static_cast<double>(weight[lane]) * difference[lane];
    });
    Moments sum{};
    for (int lane = 0; lane < kLanes; lane++) sum = sum + Moments{mass[lane], first[lane]};
    parts[segment] = sum;
  });
  return tree_sum(parts);
}

// The largest score that is kept.
inline float largest_kept(const Row& row, const Kept& kept) {
  float tops[kSegments];
  row.for_segments([&](int64_t segment) {
    Vec found = set(-kInfinity);
    row.for_vectors(segment, [&](int64_t, Vec scores) {
      found = max(select(kept(scores), scores, set(-kInfinity)), found);
    });
    tops[segment] = largest(found);
  });
  return *std::max_element(tops, tops + kSegments);
}

// The lowest score of a token that is at least min_p times as likely as one of the score `top`.
inline float lowest_score(float top, float min_p, double temperature) {
  const double distance = temperature * std::log(std::min<double>(min_p, 1));
  const double lowest = std::max<double>(top + distance, -FLT_MAX);
  const float rounded = static_cast<float>(lowest);
  return rounded < lowest ? std::nextafter(rounded, kInfinity) : rounded;
}

// What is left of a row after top-k, then top-p, then typical-p, then min-p.
inline Kept cut(const Row& row, float top, double temperature, const Weights& weights, const Cutoffs& cutoffs,
                CutoffMemory& memory) {
  constexpr float kDensity = kBuckets / 40.f;  // buckets for a power of two in the weight
  Kept kept;
  const auto downwards = [](Vec scores) { return zero() - scores; };
  const auto outwards = [&](Vec scores) { return kept.distance(scores); };
  const auto mass = [&](Vec scores) {
    const Mask mask = kept(scores);
    return bits(mask) ? select(mask, weights(scores), zero()) : zero();
  };
  const auto share_of = [](Units all, float share) {
    const double wanted = std::ceil(static_cast<double>(all) * share);
    return std::clamp<Units>(static_cast<Units>(wanted), 1, all);
  };
  if (cutoffs.top_k > 0 && cutoffs.top_k < row.size) {
    const auto one = [](Vec) { return set(1.f); };
    const auto count = [&](Units) { return static_cast<Units>(cutoffs.top_k) * kUnit; };
    kept.lowest = -boundary(row, memory, {-top, kDensity}, downwards, one, count);
  }
  if (cutoffs.top_p < 1) {
    const auto share = [&](Units all) { return share_of(all, cutoffs.top_p); };
    kept.lowest = -boundary(row, memory, {-top, kDensity * weights.scale()}, downwards, mass, share);
  }
  if (cutoffs.typical_p < 1) {
    const auto [all, first] = moments(row, weights, kept);
    const double middle = top + first / all;  // the entropy is the distance of the top from it
    kept.middle = static_cast<float>(middle);
    kept.middle_rest = static_cast<float>(middle - kept.middle);
    const auto share = [&](Units all) { return share_of(all, cutoffs.typical_p); };
    kept.farthest = boundary(row, memory, {0, kDensity * weights.scale()}, outwards, mass, share);
  }
  if (cutoffs.min_p > 0) {
    const float best = cutoffs.typical_p < 1 ? largest_kept(row, kept) : top;
    kept.lowest = std::max(kept.lowest, lowest_score(best, cutoffs.min_p, temperature));
  }
  return kept;
}

}  // namespace penstock

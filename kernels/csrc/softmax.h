// The softmax of a row: its top, the sum of its weights, and its likeliest tokens.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "vocabulary.h"

namespace penstock {

struct Token {
  float score;
  int64_t id;
};

// The lowest id of the largest score, or of the first that is NaN.
inline Token find_top(const Row& row) {
  Token tops[kSegments];
  row.for_segments([&](int64_t segment) {
    Vec found = set(-kInfinity);
    Mask nan = first(0);
    row.for_vectors(segment, [&](int64_t, Vec scores) {
      found = max(scores, found);
      nan = nan | is_nan(scores);
    });
    tops[segment] = {bits(nan) ? NAN : largest(found), row.begin(segment)};
  });
  Token top = tops[0];
  for (const Token& other : tops) {
    if (other.score > top.score || (std::isnan(other.score) && !std::isnan(top.score))) top = other;
  }
  const auto is_top = [&](float score) { return score == top.score || (std::isnan(score) && std::isnan(top.score)); };
  top.id = std::find_if(row.scores + top.id, row.scores + row.size, is_top) - row.scores;
  return top;
}

// e^((score - top) / temperature) for scores up to the top, and 0 for those far below it.
class Weights {
 public:
  Weights(float top, double temperature) : top_(top) {
    const double scale = 0x1.71547652b82fep+0 / std::clamp(temperature, 0x1p-90, 0x1p90);  // what float32 can work with
    high_ = static_cast<float>(scale);
    low_ = static_cast<float>(scale - high_);
    lowest_ = -200.f / high_;
  }
  float scale() const { return high_; }  // how many powers of two a difference of 1 in the scores is
  INLINE Vec below_top(Vec scores) const { return max(set(lowest_), scores - set(top_)); }
  INLINE Vec of_difference(Vec below_top) const { return exp2(below_top, set(high_), set(low_)); }
  INLINE Vec operator()(Vec scores) const { return of_difference(below_top(scores)); }

 private:
  float top_, high_, low_, lowest_;
};

inline float total_weight(const Row& row, const Weights& weights) {
  float sums[kSegments];
  row.for_segments([&](int64_t segment) {
    Vec total = zero();
    row.for_vectors(segment, [&](int64_t, Vec scores) { total = total + weights(scores); });
    sums[segment] = sum(total);
  });
  return tree_sum(sums);
}

// Log-probabilities of scores.
struct Softmax {
  double top = NAN, temperature = 1, log_total = NAN;

  // The natural logarithm of a token's weight.
  double log_weight(float score) const { return (static_cast<double>(score) - top) / temperature; }
  float logprob(float score) const { return static_cast<float>(log_weight(score) - log_total); }
};

constexpr Softmax kOwnLogprobs{0, 1, 0};  // of scores that are log-probabilities

inline Softmax softmax(const Row& row, float top) {
  return {top, 1, std::log(static_cast<double>(total_weight(row, Weights(top, 1))))};
}

struct All {
  INLINE Mask operator()(Vec) const { return first(kLanes); }
};

// At most `count` of the kept tokens: the likeliest first, of equal ones the lowest id first. None of them is -inf.
template <class Kept>
void find_top_logprobs(const Row& row, const Kept& kept, size_t count, std::vector<Token>& found) {
  found.clear();
  if (count == 0) return;
  float least = -kInfinity;  // a token must exceed it
  for (int64_t segment = 0; segment < kSegments; segment++) {
    row.for_vectors(segment, [&](int64_t i, Vec scores) {
      const Mask above = less(set(least), scores);
      if (!bits(above)) return;
      for (uint32_t near = bits(above & kept(scores)); near; near &= near - 1) {
        const int64_t id = i + std::countr_zero(near);
        const float score = row.scores[id];
        if (score <= least) continue;
        const auto is_less = [](float value, const Token& token) { return value > token.score; };
        found.insert(std::upper_bound(found.begin(), found.end(), score, is_less), {score, id});
        if (found.size() > count) found.pop_back();
        if (found.size() == count) least = found.back().score;
      }
    });
  }
}

// Where the likeliest tokens of all rows go: [rows, width]. A row that has fewer ends with ids of -1.
struct TopLogprobs {
  const int64_t* counts;  // [rows], none more than width
  int64_t width;
  int64_t* ids;
  float* logprobs;

  template <class Kept>
  void write(int64_t index, const Row& row, const Kept& kept, const Softmax& softmax) const {
    if (counts[index] == 0) return write(index, softmax, {});
    thread_local std::vector<Token> found;
    find_top_logprobs(row, kept, static_cast<size_t>(counts[index]), found);
    write(index, softmax, found);
  }
  void write(int64_t index, const Softmax& softmax, const std::vector<Token>& found) const {
    for (int64_t i = 0; i < width; i++) {
      const bool is_found = i < static_cast<int64_t>(found.size());
      ids[index * width + i] = is_found ? found[i].id : -1;
      logprobs[index * width + i] = is_found ? softmax.logprob(found[i].score) : -kInfinity;
    }
  }
};

}  // namespace penstock

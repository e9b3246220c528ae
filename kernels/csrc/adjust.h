// What becomes of a row's scores before anything else: they are normalised, penalties on what its history holds, biases,
// and a mask.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "softmax.h"
#include "vocabulary.h"

namespace penstock {

struct History {
  const int64_t* ids;
  int64_t length, prompt_length;  // what is behind the prompt is the output
};

struct Penalties {
  float repetition, share, frequency, presence;
  bool is_on() const { return repetition != 1 || share != 0 || frequency != 0 || presence != 0; }
};

struct Biases {
  const int64_t* ids;
  const float* values;
  int64_t count;
  bool has_bans() const { return std::find(values, values + count, -kInfinity) != values + count; }
};

struct Adjustments {
  History history;
  Penalties penalties;
  Biases biases;
  const uint32_t* mask;  // null: all tokens are allowed

  bool is_penalised() const { return penalties.is_on() && history.length > 0; }
  bool is_on() const { return is_penalised() || biases.count > 0 || mask; }
};

// A row of scores that can be changed, and counts for each token, which are 0 between two uses.
struct AdjustMemory {
  struct Counts {
    uint32_t all, output;
  };
  std::vector<float> scores;
  std::vector<Counts> counts;
};

inline void penalise(const History& history, const Penalties& penalties, AdjustMemory& memory) {
  memory.counts.resize(std::max(memory.counts.size(), memory.scores.size()));
  for (int64_t i = 0; i < history.length; i++) {
    auto& counts = memory.counts[history.ids[i]];
    counts.all++;
    counts.output += i >= history.prompt_length;
  }
  for (int64_t i = 0; i < history.length; i++) {
    auto& [all, output] = memory.counts[history.ids[i]];
    if (all == 0) continue;
    double score = memory.scores[history.ids[i]];
    score = score < 0 ? score * penalties.repetition : score / penalties.repetition;
    score -= penalties.share * (all / static_cast<double>(history.length));
    score -= static_cast<double>(penalties.frequency) * output;
    if (output) score -= penalties.presence;
    memory.scores[history.ids[i]] = static_cast<float>(score);
    all = output = 0;
  }
}

// Whether each of the sixteen tokens from i on is allowed, i being a multiple of sixteen.
INLINE Mask allowed(const uint32_t* mask, int64_t i) { return lanes(mask[i / 32] >> (i % 32)); }

inline void apply(const uint32_t* mask, float* scores, int64_t vocabulary) {
  const Row row{scores, vocabulary, false};
  row.for_segments([=](int64_t segment) {
    row.for_vectors(segment, [=](int64_t i, Vec part) {
      store(scores + i, select(allowed(mask, i), part, set(-kInfinity)), std::min<int64_t>(kLanes, vocabulary - i));
    });
  });
}

// The lowest token that a mask allows; the vocabulary's size if it allows none.
inline int64_t lowest_allowed(const uint32_t* mask, int64_t vocabulary) {
  int64_t i = 0;
  while (i < vocabulary && !mask[i / 32]) i += 32;
  return i < vocabulary ? std::min<int64_t>(vocabulary, i + std::countr_zero(mask[i / 32])) : vocabulary;
}

// The logits, or the log-probabilities that `softmax` makes of them unless it is null, after all of it; they are in
// `memory` then. Bans are biases of -inf.
inline const float* adjust(const float* logits, int64_t vocabulary, const Softmax* softmax,
                           const Adjustments& adjustments, bool with_bans, AdjustMemory& memory) {
  memory.scores.assign(logits, logits + vocabulary);
  if (softmax) for (float& score : memory.scores) score = softmax->logprob(score);
  if (adjustments.is_penalised()) penalise(adjustments.history, adjustments.penalties, memory);
  const Biases& biases = adjustments.biases;
  for (int64_t i = 0; i < biases.count; i++) {
    if (!with_bans && biases.values[i] == -kInfinity) continue;
    float& score = memory.scores[biases.ids[i]];
    score = static_cast<float>(static_cast<double>(score) + biases.values[i]);
  }
  if (adjustments.mask) apply(adjustments.mask, memory.scores.data(), vocabulary);
  return memory.scores.data();
}

}  // namespace penstock

// The penalties on what a row's history holds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace penstock {

struct History {
  const int64_t* ids;
  int64_t length;
};

struct Penalties {
  float repetition, frequency;
  bool is_on() const { return repetition != 1 || frequency != 0; }
};

// A row of scores that can be changed, and a count for each token, which is 0 between two uses.
struct PenaltyMemory {
  std::vector<float> scores;
  std::vector<uint32_t> counts;
};

// The logits with the history's penalties taken off; they are in `memory` then.
inline const float* penalise(const float* logits, int64_t vocabulary, History history, Penalties penalties,
                             PenaltyMemory& memory) {
  memory.scores.assign(logits, logits + vocabulary);
  memory.counts.resize(std::max(memory.counts.size(), static_cast<size_t>(vocabulary)));
  for (int64_t i = 0; i < history.length; i++) memory.counts[history.ids[i]]++;
  for (int64_t i = 0; i < history.length; i++) {
    uint32_t& count = memory.counts[history.ids[i]];
    if (count == 0) continue;
    double score = logits[history.ids[i]];
    score = score < 0 ? score * penalties.repetition : score / penalties.repetition;
    const double share = count / static_cast<double>(history.length);
    memory.scores[history.ids[i]] = static_cast<float>(score - penalties.frequency * share);
    count = 0;
  }
  return memory.scores.data();
}

}  // namespace penstock

// Sampling as a race: token i arrives at E_i / w_i, with E_i = -log(u_i) its noise and w_i its weight, and the first is
// the sample. That is the largest score - log(E). As E is never below 1 - u, nearly all tokens are known to lose from
// their noise's word alone: a logarithm is computed for the few that come near the lead.
#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>

#include "abi.h"
#include "cutoffs.h"
#include "penalties.h"
#include "philox.h"
#include "pool.h"
#include "vocabulary.h"

namespace penstock {
namespace {

constexpr int64_t kSplitVocabulary = 1 << 14;  // smaller rows are not worth more than one thread

struct Batch {
  const float* logits;
  int64_t rows, vocabulary;
  const uint8_t* do_sample;
  const int64_t *seed, *position;
  const float* temperatures;
  const int64_t* top_k;
  const float *top_p, *typical_p, *repetition_penalty, *frequency_penalty;
  const int64_t *history_ids, *history_offsets;
  int64_t history_length;

  Penalties penalties(int64_t row) const { return {repetition_penalty[row], frequency_penalty[row]}; }
  double temperature(int64_t row) const { return std::max(temperatures[row], FLT_MIN); }  // less would be read as 0
  Cutoffs cutoffs(int64_t row) const { return {top_k[row], top_p[row], typical_p[row]}; }
  Philox noise(int64_t row) const {
    return {static_cast<uint64_t>(seed[row]), static_cast<uint32_t>(position[row])};
  }
  History history(int64_t row) const {
    return {history_ids + history_offsets[row], history_offsets[row + 1] - history_offsets[row]};
  }
  bool is_penalised(int64_t row) const { return penalties(row).is_on() && history(row).length > 0; }
};

struct Memory {
  PenaltyMemory penalties;
  CutoffMemory cutoffs;
};

struct Token {
  float score;
  int64_t id;
};

struct Choice {
  int64_t id;
  float logprob;
};

// The lowest id of the largest score, or of the first that is NaN.
Token find_top(const Row& row) {
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

float total_weight(const Row& row, const Weights& weights) {
  float sums[kSegments];
  row.for_segments([&](int64_t segment) {
    Vec total = zero();
    row.for_vectors(segment, [&](int64_t, Vec scores) { total = total + weights(scores); });
    sums[segment] = sum(total);
  });
  return tree_sum(sums);
}

struct Lead {
  double value = -HUGE_VAL;
  int64_t id = -1;
  float limit = FLT_MAX;  // no token with 1 - u at or above its weight times this can take the lead

  void take(double other, int64_t other_id) {
    if (other < value || (other == value && other_id > id)) return;
    value = other, id = other_id;
    limit = static_cast<float>(std::min<double>(FLT_MAX, 1.0001 * std::exp(-value)));  // the weights are off by less
  }
};

// The sampling of one row, whose scores are divided by the temperature.
struct Race {
  const Row& row;
  const Weights& weights;
  const Kept& kept;
  const Philox& noise;
  float top;
  double temperature;

  // The natural logarithm of a token's weight.
  double log_weight(int64_t id) const { return (static_cast<double>(row.scores[id]) - top) / temperature; }

  void enter(int64_t id, Lead& lead) const {
    const double u = (noise.word(static_cast<uint32_t>(id)) + 0.5) * 0x1p-32;
    lead.take(log_weight(id) - std::log(-std::log(u)), id);
  }

  // Lets a segment run, and returns the sum of its weights.
  float run(int64_t segment, Lead& lead) const {
    Vec total = zero();
    row.for_vectors(segment, [&](int64_t i, Vec scores) {
      const Mask mask = kept(scores);
      if (!bits(mask)) return;
      const Vec weight = select(mask, weights(scores), zero());
      total = total + weight;
      const Vec bound = weight * set(lead.limit);
      if (!bits(less(set(0x1p-34f), bound))) return;  // 1 - u is never that small
      uint32_t near = bits(less(noise.complement(static_cast<uint32_t>(i)), bound));
      for (; near; near &= near - 1) enter(i + std::countr_zero(near), lead);
    });
    return sum(total);
  }

  Choice finish(int64_t top_id) const {
    Lead start, leads[kSegments];
    if (bits(kept(set(top)))) enter(top_id, start);
    float sums[kSegments];
    row.for_segments([&](int64_t segment) {
      leads[segment] = row.is_split || segment == 0 ? start : leads[segment - 1];
      sums[segment] = run(segment, leads[segment]);
    });
    for (const Lead& lead : leads) start.take(lead.value, lead.id);
    return {start.id, static_cast<float>(log_weight(start.id) - std::log(static_cast<double>(tree_sum(sums))))};
  }
};

Choice choose(const Batch& batch, int64_t index, bool is_split, Memory& memory) {
  const float* logits = batch.logits + index * batch.vocabulary;
  if (batch.is_penalised(index)) {
    logits = penalise(logits, batch.vocabulary, batch.history(index), batch.penalties(index), memory.penalties);
  }
  const Row row{logits, batch.vocabulary, is_split};
  const Token top = find_top(row);
  if (!std::isfinite(top.score)) return {top.id, NAN};
  if (!batch.do_sample[index]) {
    return {top.id, static_cast<float>(-std::log(static_cast<double>(total_weight(row, Weights(top.score, 1)))))};
  }
  const double temperature = batch.temperature(index);
  const Weights weights(top.score, temperature);
  const Kept kept = cut(row, top.score, weights, batch.cutoffs(index), memory.cutoffs);
  const Philox noise = batch.noise(index);
  return Race{row, weights, kept, noise, top.score, temperature}.finish(top.id);
}

bool has_wrong_history(const Batch& batch) {
  bool is_read = false;
  for (int64_t row = 0; row < batch.rows; row++) is_read |= batch.is_penalised(row);
  if (!is_read) return false;
  for (int64_t row = 0; row < batch.rows; row++) {
    if (batch.history_offsets[row] > batch.history_offsets[row + 1]) return true;
  }
  if (batch.history_offsets[0] != 0 || batch.history_offsets[batch.rows] != batch.history_length) return true;
  const auto is_wrong = [&](int64_t id) { return id < 0 || id >= batch.vocabulary; };
  return std::any_of(batch.history_ids, batch.history_ids + batch.history_length, is_wrong);
}

void sample(const Batch& batch, int64_t* ids, float* logprobs) {
  const auto take = [&](int64_t row, bool is_split) {
    thread_local Memory memory;
    const Choice choice = choose(batch, row, is_split, memory);
    ids[row] = choice.id, logprobs[row] = choice.logprob;
  };
  if (batch.rows >= num_threads() || batch.vocabulary < kSplitVocabulary) {
    return parallel(batch.rows, [&](int64_t row) { take(row, false); });
  }
  const FlushDenormals flush;
  for (int64_t row = 0; row < batch.rows; row++) take(row, true);
}

}  // namespace
}  // namespace penstock

extern "C" void penstock_sample(const float* logits, int64_t rows, int64_t vocabulary, const uint8_t* do_sample,
                                const int64_t* seed, const int64_t* position, const float* temperature,
                                const int64_t* top_k, const float* top_p, const float* typical_p,
                                const float* repetition_penalty, const float* frequency_penalty,
                                const int64_t* history_ids, const int64_t* history_offsets, int64_t history_length,
                                int64_t* ids, float* logprobs, int64_t* is_wrong) {
  const penstock::Batch batch{logits, rows, vocabulary, do_sample, seed, position, temperature, top_k, top_p, typical_p,
                              repetition_penalty, frequency_penalty, history_ids, history_offsets, history_length};
  *is_wrong = penstock::has_wrong_history(batch);
  if (!*is_wrong) penstock::sample(batch, ids, logprobs);
}

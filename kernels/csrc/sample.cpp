// Sampling as a race: token i arrives at E_i / w_i, with E_i = -log(u_i) its noise and w_i its weight, and the first is
// the sample. That is the largest score - log(E). As E is never below 1 - u, nearly all tokens are known to lose from
// their noise's word alone: a logarithm is computed for the few that come near the lead.
#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>

#include "abi.h"
#include "adjust.h"
#include "cutoffs.h"
#include "philox.h"
#include "pool.h"
#include "softmax.h"

namespace penstock {
namespace {

struct Batch : SampleBatch {
  double temperature_of(int64_t row) const { return std::max(temperature[row], FLT_MIN); }  // less would be read as 0
  Cutoffs cutoffs(int64_t row) const { return {top_k[row], top_p[row], typical_p[row], min_p[row]}; }
  Philox noise(int64_t row) const {
    return {static_cast<uint64_t>(seed[row]), static_cast<uint32_t>(position[row]), static_cast<uint32_t>(branch[row])};
  }
  bool is_of_logprobs(int64_t row) const { return of_logprobs[row] && !do_sample[row]; }
  int64_t mask_words() const { return (vocabulary + 31) / 32; }
  Adjustments adjustments(int64_t row) const {
    const int64_t begin = history_offsets[row], first_bias = bias_offsets[row];
    return {{history_ids + begin, history_offsets[row + 1] - begin, prompt_length[row]},
            {repetition_penalty[row], share_penalty[row], frequency_penalty[row], presence_penalty[row]},
            {bias_ids + first_bias, bias_values + first_bias, bias_offsets[row + 1] - first_bias},
            mask[row] < 0 ? nullptr : masks + mask[row] * mask_words()};
  }
  TopLogprobs tops() const { return {top_n, top_width, top_ids, top_logprobs}; }
};

struct Memory {
  AdjustMemory adjust;
  CutoffMemory cutoffs;
};

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
  Softmax& softmax;

  void enter(int64_t id, Lead& lead) const {
    const double u = (noise.word(static_cast<uint32_t>(id)) + 0.5) * 0x1p-32;
    lead.take(softmax.log_weight(row.scores[id]) - std::log(-std::log(u)), id);
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

  // The token that wins, and the softmax's total.
  int64_t finish(const Token& top) const {
    Lead start, leads[kSegments];
    if (bits(kept(set(top.score)))) enter(top.id, start);
    float sums[kSegments];
    row.for_segments([&](int64_t segment) {
      leads[segment] = row.is_split || segment == 0 ? start : leads[segment - 1];
      sums[segment] = run(segment, leads[segment]);
    });
    for (const Lead& lead : leads) start.take(lead.value, lead.id);
    softmax.log_total = std::log(static_cast<double>(tree_sum(sums)));
    return start.id;
  }
};

// Whether a row's logits are numbers, whose softmax `found` becomes.
bool find_softmax(const Row& row, Softmax& found) {
  const Token top = find_top(row);
  if (!std::isfinite(top.score)) return false;
  found = softmax(row, top.score);
  return true;
}

void choose(const Batch& batch, int64_t index, bool is_split, Memory& memory) {
  int64_t& id = batch.ids[index];
  float& logprob = batch.logprobs[index];
  const float* logits = batch.logits + index * batch.vocabulary;
  const Adjustments adjustments = batch.adjustments(index);
  Row row{logits, batch.vocabulary, is_split};
  Softmax before;
  const bool is_normalised = adjustments.is_on() && batch.is_of_logprobs(index) && find_softmax(row, before);
  const auto adjusted = [&](bool with_bans) {
    return adjust(logits, row.size, is_normalised ? &before : nullptr, adjustments, with_bans, memory.adjust);
  };
  if (adjustments.is_on()) row.scores = adjusted(true);
  Token top = find_top(row);
  if (top.score == -kInfinity && adjustments.biases.has_bans()) {
    row.scores = adjusted(false);
    top = find_top(row);
  }
  if (!std::isfinite(top.score)) {
    const bool is_none = top.score == -kInfinity && adjustments.mask;
    id = is_none ? lowest_allowed(adjustments.mask, row.size) : top.id, logprob = NAN;
    return batch.tops().write(index, {}, {});
  }
  if (!batch.do_sample[index]) {
    const Softmax scores = is_normalised ? kOwnLogprobs : softmax(row, top.score);
    id = top.id, logprob = scores.logprob(top.score);
    return batch.tops().write(index, row, All{}, scores);
  }
  Softmax scores{top.score, batch.temperature_of(index)};
  const Weights weights(top.score, scores.temperature);
  const Kept kept = cut(row, top.score, scores.temperature, weights, batch.cutoffs(index), memory.cutoffs);
  const Philox noise = batch.noise(index);
  id = Race{row, weights, kept, noise, scores}.finish(top);
  logprob = scores.logprob(row.scores[id]);
  batch.tops().write(index, row, kept, scores);
}

// Whether `offsets` [rows + 1] do not cut all of `count` ids, or one of those is not in the vocabulary.
bool is_wrong_cut(const Batch& batch, const int64_t* ids, int64_t count, const int64_t* offsets) {
  if (!std::is_sorted(offsets, offsets + batch.rows + 1)) return true;
  if (offsets[0] != 0 || offsets[batch.rows] != count) return true;
  return std::any_of(ids, ids + count, [&](int64_t id) { return id < 0 || id >= batch.vocabulary; });
}

enum Wrong : int64_t { kNothing = 0, kHistories = 1, kBiases = 2, kMasks = 3 };

Wrong find_wrong(const Batch& batch) {
  if (is_wrong_cut(batch, batch.bias_ids, batch.num_biases, batch.bias_offsets)) return kBiases;
  bool is_read = false;
  for (int64_t row = 0; row < batch.rows; row++) {
    const Adjustments adjustments = batch.adjustments(row);
    is_read |= adjustments.penalties.is_on() && adjustments.history.length != 0;
    if (batch.mask[row] >= batch.num_masks) return kMasks;
    if (adjustments.mask && lowest_allowed(adjustments.mask, batch.vocabulary) == batch.vocabulary) return kMasks;
  }
  const bool is_wrong = is_read && is_wrong_cut(batch, batch.history_ids, batch.history_length, batch.history_offsets);
  return is_wrong ? kHistories : kNothing;
}

}  // namespace
}  // namespace penstock

extern "C" void penstock_sample(const SampleBatch* pointers, int64_t* is_wrong) {
  using namespace penstock;
  const Batch batch{*pointers};
  *is_wrong = find_wrong(batch);
  if (*is_wrong) return;
  for_rows(batch.rows, batch.vocabulary, [&](int64_t row, bool is_split) {
    thread_local Memory memory;
    choose(batch, row, is_split, memory);
  });
}

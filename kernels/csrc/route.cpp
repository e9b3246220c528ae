// The choice of experts for each token. All sums run over ascending experts.
#include <algorithm>
#include <cmath>
#include <limits>

#include "abi.h"
#include "rows.h"

namespace penstock {
namespace {

constexpr int64_t kMaxExperts = 4096;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Router {
  const float* bias;
  int64_t experts, scoring, top_k;
  bool is_normalised;
  float scale;
  int64_t groups, top_groups, group_best;
  float jitter;
};

// The number of the largest; of equal ones, and where all are NaN, the first.
int64_t find_best(const float* scores, int64_t count) {
  int64_t best = 0;
  for (int64_t i = 1; i < count; i++) {
    if (scores[i] > scores[best] || (std::isnan(scores[best]) && !std::isnan(scores[i]))) best = i;
  }
  return best;
}

void softmax(const float* logits, int64_t count, float* to) {
  float top = logits[0], total = 0;
  for (int64_t i = 1; i < count; i++) top = std::max(top, logits[i]);
  for (int64_t i = 0; i < count; i++) total += to[i] = std::exp(logits[i] - top);
  for (int64_t i = 0; i < count; i++) to[i] /= total;
}

// Takes the experts of all but the best groups out of the choice.
void leave_groups(const Router& r, float* choice) {
  const int64_t size = r.experts / r.groups;
  float scores[kMaxExperts];
  for (int64_t g = 0; g < r.groups; g++) {
    float left[kMaxExperts];
    std::copy_n(choice + g * size, size, left);
    scores[g] = 0;
    for (int64_t i = 0; i < r.group_best; i++) {
      const int64_t best = find_best(left, size);
      scores[g] += left[best];
      left[best] = -kInfinity;
    }
  }
  bool is_allowed[kMaxExperts] = {};
  for (int64_t i = 0; i < r.top_groups; i++) {
    int64_t best = 0;
    while (is_allowed[best]) best++;
    for (int64_t g = best + 1; g < r.groups; g++) {
      if (!is_allowed[g] && scores[g] > scores[best]) best = g;
    }
    is_allowed[best] = true;
  }
  for (int64_t i = 0; i < r.experts; i++) {
    if (!is_allowed[i / size]) choice[i] = -kInfinity;
  }
}

struct Chosen {
  int32_t id;
  float weight;
};

// Experts one after the other, each weighed against those near it.
void mix(const Router& r, const float* logits, Chosen* chosen) {
  float left[kMaxExperts], near[kMaxExperts];
  std::copy_n(logits, r.experts, left);
  for (int64_t k = 0; k < r.top_k; k++) {
    const int64_t best = find_best(left, r.experts);
    const float top = left[best];
    for (int64_t i = 0; i < r.experts; i++) {
      const bool is_far = (top - logits[i]) / std::max(std::fabs(logits[i]), top) > 2 * r.jitter;
      near[i] = is_far ? -kInfinity : left[i];
    }
    softmax(near, r.experts, near);
    chosen[k] = {static_cast<int32_t>(best), near[best]};
    left[best] = -kInfinity;
  }
}

void choose(const Router& r, const float* logits, Chosen* chosen) {
  float scores[kMaxExperts], choice[kMaxExperts];
  if (r.scoring == kSoftmaxScore) {
    softmax(logits, r.experts, scores);
  } else {
    for (int64_t i = 0; i < r.experts; i++) scores[i] = 1.f / (1.f + std::exp(-logits[i]));
  }
  for (int64_t i = 0; i < r.experts; i++) {
    choice[i] = r.bias ? scores[i] + r.bias[i] : r.scoring == kSoftmaxScore ? logits[i] : scores[i];
  }
  if (r.groups > 1) leave_groups(r, choice);
  bool is_taken[kMaxExperts] = {};
  for (int64_t k = 0; k < r.top_k; k++) {
    int64_t best = 0;
    while (is_taken[best]) best++;
    for (int64_t i = best + 1; i < r.experts; i++) {
      if (!is_taken[i] && choice[i] > choice[best]) best = i;
    }
    is_taken[best] = true;
    chosen[k] = {static_cast<int32_t>(best), scores[best]};
  }
}

void write(const Router& r, Chosen* chosen, int32_t* ids, float* weights) {
  std::sort(chosen, chosen + r.top_k, [](const Chosen& a, const Chosen& b) { return a.id < b.id; });
  float total = 0;
  for (int64_t k = 0; k < r.top_k; k++) total += chosen[k].weight;
  for (int64_t k = 0; k < r.top_k; k++) {
    ids[k] = chosen[k].id;
    weights[k] = (r.is_normalised ? chosen[k].weight / total : chosen[k].weight) * r.scale;
  }
}

}  // namespace
}  // namespace penstock

extern "C" void penstock_route(const float* logits, const float* bias, int64_t tokens, int64_t experts, int64_t scoring,
                               int64_t top_k, int64_t is_normalised, float scale, int64_t groups, int64_t top_groups,
                               int64_t group_best, float jitter, int32_t* ids, float* weights) {
  using namespace penstock;
  const Router router{bias, experts, scoring, top_k, is_normalised != 0, scale, groups, top_groups, group_best, jitter};
  parallel_rows(tokens, experts * top_k, [&](int64_t begin, int64_t end) {
    Chosen chosen[kMaxExperts];
    for (int64_t token = begin; token < end; token++) {
      scoring == kSparseMixerScore ? mix(router, logits + token * experts, chosen)
                              : choose(router, logits + token * experts, chosen);
      write(router, chosen, ids + token * top_k, weights + token * top_k);
    }
  });
}

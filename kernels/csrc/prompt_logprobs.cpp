// The log-probability of a given token in each row, by the logits as they are.
#include "abi.h"
#include "pool.h"
#include "softmax.h"

namespace penstock {
namespace {

void write_row(const Row& row, int64_t index, int64_t target, const TopLogprobs& tops, float* logprob) {
  const Token top = find_top(row);
  if (!std::isfinite(top.score)) {
    *logprob = NAN;
    return tops.write(index, {}, {});
  }
  const Softmax scores = softmax(row, top.score);
  *logprob = scores.logprob(row.scores[target]);
  tops.write(index, row, All{}, scores);
}

}  // namespace
}  // namespace penstock

extern "C" void penstock_prompt_logprobs(const float* logits, int64_t rows, int64_t vocabulary, const int64_t* targets,
                                         const int64_t* top_n, int64_t width, float* logprobs, int64_t* top_ids,
                                         float* top_logprobs, int64_t* is_wrong) {
  using namespace penstock;
  *is_wrong = std::any_of(targets, targets + rows, [&](int64_t id) { return id < 0 || id >= vocabulary; });
  if (*is_wrong) return;
  const TopLogprobs tops{top_n, width, top_ids, top_logprobs};
  for_rows(rows, vocabulary, [&](int64_t index, bool is_split) {
    const Row row{logits + index * vocabulary, vocabulary, is_split};
    write_row(row, index, targets[index], tops, logprobs + index);
  });
}

// A mixture of experts: each token's sum over those that it chose, in their order.
//
// Rows, each a token at one of its experts, are sorted by expert. Three rounds of work go over all experts together: the
// products with gates and what they are for, what the next weight wants of these, and the sums.
#include <algorithm>
#include <vector>

#include "abi.h"
#include "activation.h"
#include "linear.h"
#include "packed.h"
#include "pool.h"
#include "ranges.h"
#include "rows.h"
#include "scratch.h"

namespace penstock {
namespace {

constexpr int64_t kTokensAtATime = 256;  // whose sums stay in the second cache
constexpr int64_t kTotals = 64 << 10;    // of them, as many as let an expert be read for several groups in a row
constexpr int64_t kMaxGroups = 4;

int64_t bytes_of(int64_t dtype) { return dtype == kF32 ? 4 : 2; }

// Takes parts of one piece of memory, each at a 64-byte boundary.
int64_t take(int64_t& size, int64_t bytes) {
  const int64_t at = size;
  size += (bytes + 63) / 64 * 64;
  return at;
}

// Rows of one weight, prepared for it.
struct Prepared {
  const void* packed;
  int64_t stride, at;
};

// The rows that one expert has: those from `first` on, in the order of experts and tokens.
struct Share {
  int64_t expert, first, count, inner;
  int64_t gate_up_at, part, num_parts;  // of the products with its gates
  Prepared down;
};

class Mixture {
 public:
  Mixture(const Experts& experts, int64_t dtype, const int32_t* ids, const float* weights, int64_t tokens, int64_t top_k)
      : experts_(experts), dtype_(dtype), element_(bytes_of(dtype)), tokens_(tokens), rows_(tokens * top_k) {
    deal(ids, weights, top_k);
  }

  void operator()(const std::byte* x, void* out, int64_t out_dtype) const {
    thread_local Scratch scratch;
    std::byte* const memory = scratch.get<std::byte>(size_);
    prepare(x, memory);
    multiply(memory);
    activate(memory);
    sum(memory, out, out_dtype);
  }

 private:
  // Sorts rows by experts, those of one by tokens.
  void deal(const int32_t* ids, const float* weights, int64_t top_k) {
    std::vector<int64_t> ends(static_cast<size_t>(experts_.count) + 1);
    for (int64_t i = 0; i < rows_; i++) ends[static_cast<size_t>(ids[i]) + 1]++;
    for (int64_t e = 0; e < experts_.count; e++) {
      const int64_t count = ends[static_cast<size_t>(e) + 1], first = ends[static_cast<size_t>(e)];
      ends[static_cast<size_t>(e) + 1] += first;
      if (count) add_share(e, first, count);
    }
    token_of_.resize(static_cast<size_t>(rows_));
    weight_of_.resize(static_cast<size_t>(rows_));
    for (int64_t i = 0; i < rows_; i++) {
      const auto row = static_cast<size_t>(ends[static_cast<size_t>(ids[i])]++);
      token_of_[row] = i / top_k;
      weight_of_[row] = weights[i];
    }
  }

  void add_share(int64_t expert, int64_t first, int64_t count) {
    const void *const gate_up = experts_.gate_up[expert], *const down = experts_.down[expert];
    Share share{expert, first, count, experts_.inner[expert], 0, static_cast<int64_t>(parts_.size()), 1, {}};
    if (static_cast<const Header*>(gate_up)->dtype == kStacked) {
      const Stack& stack = *static_cast<const Stack*>(gate_up);
      share.num_parts = stack.count;
      for (int64_t i = 0; i < stack.count; i++) parts_.push_back(prepared(stack.parts[i], count));
    } else {
      parts_.push_back(prepared(gate_up, count));
    }
    share.gate_up_at = take(size_, count * 2 * share.inner * element_);
    share.down = prepared(down, count);
    most_inner_ = std::max(most_inner_, share.inner);
    segments_ = static_cast<const Header*>(down)->segments;
    shares_.push_back(share);
  }

  Prepared prepared(const void* packed, int64_t count) {
    const int64_t stride = prepared_bytes(packed, dtype_);
    return {packed, stride, take(size_, count * stride)};
  }

  // f(a share, a row's number in it), for all rows.
  template <class F>
  void each_row(int64_t width, F&& f) const {
    parallel_rows(rows_, width, [&](int64_t begin, int64_t end) {
      const auto is_behind = [](int64_t row, const Share& share) { return row < share.first; };
      auto share = std::upper_bound(shares_.begin(), shares_.end(), begin, is_behind) - 1;
      for (int64_t row = begin; row < end; row++) {
        if (row == share->first + share->count) share++;
        f(*share, row - share->first);
      }
    });
  }

  void prepare(const std::byte* x, std::byte* memory) const {
    each_row(experts_.width, [&](const Share& share, int64_t row) {
      const std::byte* const from = x + token_of_[static_cast<size_t>(share.first + row)] * experts_.width * element_;
      for (int64_t i = share.part; i < share.part + share.num_parts; i++) {
        const Prepared& part = parts_[static_cast<size_t>(i)];
        prepare_row(part.packed, from, dtype_, memory + part.at + row * part.stride);
      }
    });
  }

  void multiply(std::byte* memory) const {
    std::vector<Product> products;
    for (const Share& share : shares_) {
      const int64_t outputs = 2 * share.inner;
      const auto* bias = static_cast<const std::byte*>(experts_.bias);
      if (bias) bias += share.expert * outputs * bytes_of(experts_.bias_dtype);
      const Output output{memory + share.gate_up_at, dtype_, outputs, bias, experts_.bias_dtype, 0, outputs};
      int64_t first = 0;
      for (int64_t i = share.part; i < share.part + share.num_parts; i++) {
        const Prepared& part = parts_[static_cast<size_t>(i)];
        const int64_t width = static_cast<const Header*>(part.packed)->outputs;
        products.push_back({part.packed, memory + part.at, share.count, output.columns(first, width)});
        first += width;
      }
    }
    multiply_each(products.data(), static_cast<int64_t>(products.size()), dtype_);
  }

  void activate(std::byte* memory) const {
    each_row(most_inner_, [&](const Share& share, int64_t row) {
      thread_local Scratch scratch;
      std::byte* const inner = scratch.get<std::byte>(share.inner * element_);
      const std::byte* const gate_up = memory + share.gate_up_at + row * 2 * share.inner * element_;
      activate_gate_of_row(experts_.activation, dtype_, gate_up, inner, share.inner);
      prepare_row(share.down.packed, inner, dtype_, memory + share.down.at + row * share.down.stride);
    });
  }

  void sum(const std::byte* memory, void* out, int64_t out_dtype) const {
    const int64_t groups = (experts_.outputs + kGroup - 1) / kGroup;
    const int64_t pieces = (tokens_ + kTokensAtATime - 1) / kTokensAtATime;
    const int64_t bytes = std::min(tokens_, kTokensAtATime) * segments_ * kGroup * static_cast<int64_t>(sizeof(float));
    const int64_t together = std::clamp<int64_t>(kTotals / bytes, 1, kMaxGroups);
    const auto cut = [&](int64_t i) { return std::min(i + together, (i / groups + 1) * groups); };
    parallel_ranges(pieces * groups, cut, [&](int64_t begin, int64_t end, int64_t) {
      const int64_t piece = begin / groups, first = begin % groups;
      sum_groups(memory, first, first + end - begin, tokens_ * piece / pieces, tokens_ * (piece + 1) / pieces, out,
                 out_dtype);
    });
  }

  // The sums of some tokens for the outputs of some groups: each segment's over the experts, then those of the segments.
  void sum_groups(const std::byte* memory, int64_t first_group, int64_t end_group, int64_t begin, int64_t end, void* out,
                  int64_t out_dtype) const {
    thread_local Scratch scratch;
    const int64_t size = segments_ * kGroup, stride = (end_group - first_group) * size;
    float* const totals = scratch.get<float>((end - begin) * stride);
    std::fill_n(totals, (end - begin) * stride, 0.f);
    for (const Share& share : shares_) {
      const int64_t* const tokens = token_of_.data() + share.first;
      const int64_t first = std::lower_bound(tokens, tokens + share.count, begin) - tokens;
      const int64_t count = std::lower_bound(tokens + first, tokens + share.count, end) - tokens - first;
      if (!count) continue;
      const std::byte* const rows = memory + share.down.at + first * share.down.stride;
      const float* const weights = weight_of_.data() + share.first + first;
      for (int64_t group = first_group; group < end_group; group++) {
        add_apart(share.down.packed, dtype_, rows, count, group,
                  {totals + (group - first_group) * size, begin, stride, tokens + first, weights});
      }
    }
    const Output output{out, out_dtype, experts_.outputs, nullptr, kF32, 0, experts_.outputs};
    for (int64_t token = begin; token < end; token++) {
      for (int64_t group = first_group; group < end_group; group++) {
        float* const sums = totals + (token - begin) * stride + (group - first_group) * size;
        add_segments(sums);
        output.write(sums, token, 1, group * kGroup, kGroup / kLanes);
      }
    }
  }

  void add_segments(float* sums) const {
    for (int64_t left = segments_ / 2; left; left /= 2) {
      for (int64_t s = 0; s < left; s++) {
        UNROLL for (int i = 0; i < kGroup; i += kLanes) {
          store(sums + s * kGroup + i, load(sums + 2 * s * kGroup + i) + load(sums + (2 * s + 1) * kGroup + i));
        }
      }
    }
  }

  const Experts& experts_;
  const int64_t dtype_, element_, tokens_, rows_;
  std::vector<Share> shares_;
  std::vector<Prepared> parts_;  // of all shares
  std::vector<int64_t> token_of_;
  std::vector<float> weight_of_;
  int64_t size_ = 0, most_inner_ = 0, segments_ = 1;
};

}  // namespace
}  // namespace penstock

extern "C" void penstock_experts(const Experts* experts, const void* x, int64_t dtype, const int32_t* ids,
                                 const float* weights, int64_t tokens, int64_t top_k, void* out, int64_t out_dtype) {
  using namespace penstock;
  if (tokens) Mixture(*experts, dtype, ids, weights, tokens, top_k)(static_cast<const std::byte*>(x), out, out_dtype);
}

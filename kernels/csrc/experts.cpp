// A mixture of experts: each token's sum over those that it chose, in their order.
#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "abi.h"
#include "linear.h"
#include "packed.h"
#include "pool.h"
#include "ranges.h"
#include "scratch.h"
#include "vec.h"

namespace penstock {
namespace {

constexpr int64_t kTokensAtATime = 256;  // whose sums stay in the second cache

int64_t bytes_of(int64_t dtype) { return dtype == kF32 ? 4 : 2; }

// The rows that one expert has: what its tokens gave it, and where that lies.
struct Share {
  int64_t expert, first, count;  // of all rows, in the order of experts and tokens
  int64_t inner, inner_at;       // bytes to the first of its inner rows
  int64_t prepared_bytes, prepared_at;
};

class Mixture {
 public:
  Mixture(const Experts& experts, int64_t dtype, const int32_t* ids, const float* weights, int64_t tokens, int64_t top_k)
      : experts_(experts), dtype_(dtype), element_(bytes_of(dtype)), tokens_(tokens), rows_(tokens * top_k) {
    deal(ids, weights, top_k);
  }

  void operator()(const std::byte* x, void* out, int64_t out_dtype) const {
    thread_local Scratch prepared;
    std::byte* const rows = prepared.get<std::byte>(prepared_bytes_);
    prepare(activate(multiply(gather(x))), rows);
    sum(rows, out, out_dtype);
  }

 private:
  // Sorts rows by experts, those of one by tokens.
  void deal(const int32_t* ids, const float* weights, int64_t top_k) {
    std::vector<int64_t> ends(static_cast<size_t>(experts_.count) + 1);
    for (int64_t i = 0; i < rows_; i++) ends[static_cast<size_t>(ids[i]) + 1]++;
    for (int64_t e = 0; e < experts_.count; e++) {
      const int64_t count = ends[static_cast<size_t>(e) + 1], first = ends[static_cast<size_t>(e)];
      ends[static_cast<size_t>(e) + 1] += first;
      if (!count) continue;
      const int64_t inner = experts_.inner[e], bytes = prepared_bytes(experts_.down[e], dtype_);
      shares_.push_back({e, first, count, inner, inner_bytes_, bytes, prepared_bytes_});
      inner_bytes_ += (count * inner * element_ + 63) / 64 * 64;
      prepared_bytes_ += (count * bytes + 63) / 64 * 64;
      most_ = std::max(most_, count);
      segments_ = static_cast<const Header*>(experts_.down[e])->segments;
    }
    token_of_.resize(static_cast<size_t>(rows_));
    weight_of_.resize(static_cast<size_t>(rows_));
    for (int64_t i = 0; i < rows_; i++) {
      const auto row = static_cast<size_t>(ends[static_cast<size_t>(ids[i])]++);
      token_of_[row] = i / top_k;
      weight_of_[row] = weights[i];
    }
  }

  const std::byte* gather(const std::byte* x) const {
    if (tokens_ == 1) return x;  // its rows are one
    thread_local Scratch scratch;
    const int64_t bytes = experts_.width * element_;
    std::byte* const rows = scratch.get<std::byte>(rows_ * bytes);
    parallel((rows_ + 15) / 16, [&](int64_t i) {
      for (int64_t row = 16 * i; row < std::min(rows_, 16 * i + 16); row++) {
        std::memcpy(rows + row * bytes, x + token_of_[static_cast<size_t>(row)] * bytes, static_cast<size_t>(bytes));
      }
    });
    return rows;
  }

  std::byte* multiply(const std::byte* rows) const {
    thread_local Scratch scratch;
    std::byte* const gate_up = scratch.get<std::byte>(2 * inner_bytes_);
    const int64_t stride = tokens_ == 1 ? 0 : experts_.width * element_;
    for (const Share& share : shares_) {
      const int64_t outputs = 2 * share.inner;
      const auto* bias = static_cast<const std::byte*>(experts_.bias);
      if (bias) bias += share.expert * outputs * bytes_of(experts_.bias_dtype);
      multiply_any(rows + share.first * stride, dtype_, share.count, experts_.gate_up[share.expert],
                   {gate_up + 2 * share.inner_at, dtype_, outputs, bias, experts_.bias_dtype, 0, outputs});
    }
    return gate_up;
  }

  const std::byte* activate(const std::byte* gate_up) const {
    thread_local Scratch scratch;
    std::byte* const inner = scratch.get<std::byte>(inner_bytes_);
    for (const Share& share : shares_) {
      penstock_activation(experts_.activation, 1, dtype_, gate_up + 2 * share.inner_at, inner + share.inner_at,
                          share.count, share.inner);
    }
    return inner;
  }

  void prepare(const std::byte* inner, std::byte* prepared) const {
    for (const Share& share : shares_) {
      parallel((share.count + 7) / 8, [&](int64_t i) {
        for (int64_t r = 8 * i; r < std::min(share.count, 8 * i + 8); r++) {
          prepare_row(experts_.down[share.expert], inner + share.inner_at + r * share.inner * element_, dtype_,
                      prepared + share.prepared_at + r * share.prepared_bytes);
        }
      });
    }
  }

  void sum(const std::byte* prepared, void* out, int64_t out_dtype) const {
    const int64_t groups = (experts_.outputs + kGroup - 1) / kGroup;
    const int64_t pieces = (tokens_ + kTokensAtATime - 1) / kTokensAtATime;
    const auto cut = [](int64_t i) { return i + 1; };
    parallel_ranges(groups * pieces, cut, [&](int64_t i, int64_t, int64_t) {
      const int64_t piece = i % pieces;
      sum_group(prepared, i / pieces, tokens_ * piece / pieces, tokens_ * (piece + 1) / pieces, out, out_dtype);
    });
  }

  // The sums of some tokens for the outputs of a group: each segment's over the experts, then those of the segments.
  void sum_group(const std::byte* prepared, int64_t group, int64_t begin, int64_t end, void* out,
                 int64_t out_dtype) const {
    thread_local Scratch scratch;
    const int64_t count = end - begin, most = std::min(most_, count);
    float* const totals = scratch.get<float>((count + most) * segments_ * kGroup);
    float* const products = totals + count * segments_ * kGroup;
    std::fill_n(totals, count * segments_ * kGroup, 0.f);
    for (const Share& share : shares_) {
      const auto tokens = token_of_.begin() + share.first;
      const int64_t first = std::lower_bound(tokens, tokens + share.count, begin) - tokens;
      const int64_t rows = std::lower_bound(tokens + first, tokens + share.count, end) - tokens - first;
      if (!rows) continue;
      multiply_apart(experts_.down[share.expert], dtype_, prepared + share.prepared_at + first * share.prepared_bytes,
                     rows, group, products);
      for (int64_t r = 0; r < rows; r++) {
        const Vec weight = set(weight_of_[static_cast<size_t>(share.first + first + r)]);
        float* const to = totals + (tokens[first + r] - begin) * segments_ * kGroup;
        for (int64_t s = 0; s < segments_; s++) add(weight, products + (s * rows + r) * kGroup, to + s * kGroup);
      }
    }
    for (int64_t t = 0; t < count; t++) write(totals + t * segments_ * kGroup, begin + t, group, out, out_dtype);
  }

  static INLINE void add(Vec weight, const float* product, float* to) {
    UNROLL for (int i = 0; i < kGroup; i += kLanes) store(to + i, fma(weight, load(product + i), load(to + i)));
  }

  void write(float* sums, int64_t token, int64_t group, void* out, int64_t out_dtype) const {
    for (int64_t left = segments_ / 2; left; left /= 2) {
      for (int64_t s = 0; s < left; s++) {
        UNROLL for (int i = 0; i < kGroup; i += kLanes) {
          store(sums + s * kGroup + i, load(sums + 2 * s * kGroup + i) + load(sums + (2 * s + 1) * kGroup + i));
        }
      }
    }
    const Output output{out, out_dtype, experts_.outputs, nullptr, kF32, 0, experts_.outputs};
    output.write(sums, token, 1, group * kGroup, kGroup / kLanes);
  }

  const Experts& experts_;
  const int64_t dtype_, element_, tokens_, rows_;
  std::vector<Share> shares_;
  std::vector<int64_t> token_of_;
  std::vector<float> weight_of_;
  int64_t inner_bytes_ = 0, prepared_bytes_ = 0, most_ = 0, segments_ = 1;
};

}  // namespace
}  // namespace penstock

extern "C" void penstock_experts(const Experts* experts, const void* x, int64_t dtype, const int32_t* ids,
                                 const float* weights, int64_t tokens, int64_t top_k, void* out, int64_t out_dtype) {
  using namespace penstock;
  if (tokens) Mixture(*experts, dtype, ids, weights, tokens, top_k)(static_cast<const std::byte*>(x), out, out_dtype);
}

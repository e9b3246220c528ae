// What adapters add to the rows of a linear (kernels/lora).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "abi.h"
#include "vec.h"

namespace penstock {

constexpr int64_t kMaxSegments = 8;

// One linear of a step's adapters.
struct Site {
  const AdapterRows* rows = nullptr;
  int64_t number = 0;

  const LoraLinear& of_group(int64_t group) const { return rows->table[group * rows->num_sites + number]; }
  // What the adapter of a row has; null: nothing.
  const LoraLinear* of(int64_t row) const {
    const int64_t group = rows->groups[row];
    if (group < 0) return nullptr;
    const LoraLinear& found = of_group(group);
    return found.rank ? &found : nullptr;
  }
  // The highest rank that any adapter has; 0 if there is nothing to do.
  int64_t rank() const {
    int64_t most = 0;
    for (int64_t g = 0; rows && g < rows->num_groups; g++) most = std::max(most, of_group(g).rank);
    return most;
  }
};

// shrunk [rows, rank] of x: sums, or if they are to be expanded at once, times their scales.
void shrink(const Site& site, int64_t dtype, const void* x, int64_t inputs, bool is_scaled, float* shrunk, int64_t rank);

// Memory that is to come into the second cache bit by bit, while others are computed with.
class Fetch {
 public:
  void add(const char* begin, const char* end) {
    if (count_ == kMost || begin >= end || std::find(begins_, begins_ + count_, begin) != begins_ + count_) return;
    begins_[count_] = begin, ends_[count_++] = end;
    lines_ += (end - begin + 63) / 64;
  }
  int64_t lines() const { return lines_; }
  void fetch(int64_t lines) {
    for (; lines > 0 && next_ < count_; lines--) {
      prefetch_far(begins_[next_]);
      begins_[next_] += 64;
      if (begins_[next_] >= ends_[next_]) next_++;
    }
  }

 private:
  static constexpr int kMost = 64;
  int count_ = 0, next_ = 0;
  int64_t lines_ = 0;
  const char *begins_[kMost], *ends_[kMost];
};

// What is to be added to a product of this linear: B times scaled rows [rows, rank].
struct Deltas {
  Site site;
  const float* scaled;
  int64_t rank;

  // The sums of `columns` registers of outputs from `first` on, of some rows, with their deltas: `sums` if they have none,
  // else `to`.
  const float* add(const float* sums, int64_t row, int64_t rows, int64_t first, int64_t count, int columns,
                   float* to) const {
    bool has_any = false;
    for (int64_t r = 0; r < rows; r++) has_any = has_any || site.of(row + r);
    if (!has_any) return sums;
    std::copy_n(sums, rows * columns * kLanes, to);
    for (int64_t r = 0; r < rows; r++) {
      const LoraLinear* const own = site.of(row + r);
      if (!own) continue;
      const float* const x = scaled + (row + r) * rank;
      float* const out = to + r * columns * kLanes;
      if (first % kLanes) {
        for (int64_t i = 0; i < count; i++) out[i] += one(*own, x, first + i);
      } else {
        add_panels(*own, x, first / kLanes, (count + kLanes - 1) / kLanes, out);
      }
    }
    return to;
  }

  // Adds the deltas of some panels, several together where they read the same ranks: their sums wait for each other's.
  static void add_panels(const LoraLinear& own, const float* x, int64_t number, int64_t count, float* to) {
    constexpr int kTogether = 4;
    const int64_t* const at = own.panels + 3 * number;
    bool is_alike = count == kTogether && at[1];
    for (int64_t i = 1; is_alike && i < kTogether; i++) is_alike = at[3 * i] == at[0] && at[3 * i + 1] == at[1];
    if (is_alike) return add_alike<kTogether>(own, x, at, to);
    for (int64_t i = 0; i < count; i++) {
      store(to + i * kLanes, load(to + i * kLanes) + panel(own, x, number + i));
    }
  }

  // What `add` will read for some rows.
  void collect(int64_t row, int64_t rows, int64_t first, int columns, Fetch& fetch) const {
    const LoraLinear* last = nullptr;
    for (int64_t r = 0; r < rows; r++) {
      const LoraLinear* const own = site.of(row + r);
      if (!own || own == last) continue;
      last = own;
      const int64_t end = std::min<int64_t>((first + columns * kLanes - 1) / kLanes, (own->outputs - 1) / kLanes);
      const int64_t *const from = own->panels + 3 * (first / kLanes), *const to = own->panels + 3 * end;
      const int64_t element = own->dtype == kF32 ? 4 : 2;
      const char* const b = static_cast<const char*>(own->b);
      fetch.add(b + from[2] * element, b + (to[2] + to[1] * kLanes) * element);
    }
  }

  // The deltas of sixteen outputs; -0, which changes no sum, where the adapter has nothing for them.
  static Vec panel(const LoraLinear& own, const float* x, int64_t number) {
    const int64_t* const at = own.panels + 3 * number;
    x += at[0];
    if (at[1] == 0) return set(-0.f);
    Vec total = zero();
    with_type(own.dtype, [&](auto type) {
      using W = decltype(type);
      const W* b = static_cast<const W*>(own.b) + at[2];
      if constexpr (std::is_same_v<W, bf16>) {
        for (int64_t j = 0; j < at[1]; j += 2, b += 2 * kLanes) {
          Vec low, high;
          load_pairs(b, low, high);
          total = fma(set(x[j + 1]), high, fma(set(x[j]), low, total));
        }
      } else {
        for (int64_t j = 0; j < at[1]; j++, b += kLanes) total = fma(set(x[j]), load(b), total);
      }
    });
    return total;
  }

  // What `panel` computes, for C panels that have as many ranks each, one behind the other.
  template <int C>
  static void add_alike(const LoraLinear& own, const float* x, const int64_t* at, float* to) {
    const int64_t ranks = at[1], stride = ranks * kLanes;
    x += at[0];
    Vec totals[C];
    UNROLL for (int c = 0; c < C; c++) totals[c] = zero();
    with_type(own.dtype, [&](auto type) {
      using W = decltype(type);
      const W* b = static_cast<const W*>(own.b) + at[2];
      if constexpr (std::is_same_v<W, bf16>) {
        for (int64_t j = 0; j < ranks; j += 2, b += 2 * kLanes) {
          const Vec first = set(x[j]), second = set(x[j + 1]);
          UNROLL for (int c = 0; c < C; c++) {
            Vec low, high;
            load_pairs(b + c * stride, low, high);
            totals[c] = fma(second, high, fma(first, low, totals[c]));
          }
        }
      } else {
        for (int64_t j = 0; j < ranks; j++, b += kLanes) {
          const Vec one = set(x[j]);
          UNROLL for (int c = 0; c < C; c++) totals[c] = fma(one, load(b + c * stride), totals[c]);
        }
      }
    });
    UNROLL for (int c = 0; c < C; c++) store(to + c * kLanes, load(to + c * kLanes) + totals[c]);
  }

 private:
  // One of the numbers of `panel`, for outputs whose sums lie across panels.
  static float one(const LoraLinear& own, const float* x, int64_t output) {
    alignas(64) float lanes[kLanes];
    store(lanes, panel(own, x, output / kLanes));
    return lanes[output % kLanes];
  }
};

}  // namespace penstock

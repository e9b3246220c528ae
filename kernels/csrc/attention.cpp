// Attention of a ragged batch over the paged cache: one item's way through its tiles. attention_plan.h cuts a call into
// items, attention_tile.h has the arithmetic.
#include <algorithm>
#include <memory>
#include <numeric>

#include "abi.h"
#include "attention_plan.h"
#include "attention_tile.h"
#include "attention_weights.h"
#include "own_cells.h"
#include "pool.h"

namespace penstock {
namespace {

constexpr size_t kKeptParts = 1 << 20;  // floats that a thread keeps for its next call

void merge(const State& to, const State& from, int64_t rows, int64_t dim) {
  for (int64_t r = 0; r < rows; r++) {
    const float max = std::max(to.max[r], from.max[r]);
    const Vec own = exp2(set(to.max[r] - max)), other = exp2(set(from.max[r] - max));
    alignas(64) float sums[kLanes];
    store(sums, fma(set(to.sum[r]), own, set(from.sum[r]) * other));
    to.max[r] = max;
    to.sum[r] = sums[0];
    for (int64_t i = r * dim; i < (r + 1) * dim; i += kLanes) {
      store(to.out + i, fma(load(to.out + i), own, load(from.out + i) * other));
    }
  }
}

// f(index in the state, token, query head) for each row of an item.
template <class F>
void each_row(const Call& call, const Item& item, F&& f) {
  const int64_t share = call.share();
  int64_t i = 0;
  for (int64_t head = item.head; head < item.head + item.num_heads; head++) {
    for (int64_t row = item.row; row < item.row + item.num_rows; row++) {
      f(i++, item.token + row / share, head * share + row % share);
    }
  }
}

// The factor of what was summed without the sink, by the sum with it.
float with_sink(const State& state, int64_t row, float sink, float& factor) {
  const float logit = std::min(sink * kLog2e, 3e38f), max = std::max(state.max[row], logit);
  alignas(64) float factors[kLanes] = {state.max[row] - max, logit - max};
  store(factors, exp2(load(factors)));
  factor = factors[0];
  return std::fma(state.sum[row], factors[0], factors[1]);
}

void finish(const Call& call, const Item& item, const State& state) {
  const int64_t dim = call.dim();
  each_row(call, item, [&](int64_t i, int64_t token, int64_t head) {
    float factor = 1, sum = state.sum[i];
    if (call.sinks) sum = with_sink(state, i, call.sinks[head], factor);
    const Vec scale = set(factor / sum);
    with_type(call.dtype, [&]<class T>(T) {
      T* const out = static_cast<T*>(call.out) + (token * call.num_heads + head) * call.head_dim;
      for (int64_t d = 0; d < call.head_dim; d += kLanes) {
        store(out + d, load(state.out + i * dim + d) * scale + zero(), call.head_dim - d);  // -0 + 0 is 0
      }
    });
  });
}

// Computes items, one after the other. X is what is multiplied with the cache's T: bfloat16, float32, or int16 with int8.
template <class X, class T>
class Worker {
 public:
  Worker(const Call& call) : call_(call), dim_(call.dim()) { std::fill_n(query_units_, kRows, 1.f); }

  void run(const Item& item, const Item* next) {
    item_ = &item;
    next_ = next;
    load_queries();
    const State total(item.part ? item.part : states_[0], item.rows());
    for (int64_t begin = item.begin, end; begin < item.end; begin = end) {
      end = std::min(item.end, (begin / kSegment + 1) * kSegment);
      if (begin == item.begin) {
        attend(begin, end, total);
      } else {
        const State more(states_[1], item.rows());
        attend(begin, end, more);
        merge(total, more, item.rows(), dim_);
      }
    }
    if (!item.part) finish(call_, item, total);
  }

 private:
  using Cells = const T* [kColumns];

  void load_queries() {
    each_row(call_, *item_, [&](int64_t i, int64_t token, int64_t head) {
      with_type(call_.dtype, [&]<class Q>(Q) {
        const Q* const q = static_cast<const Q*>(call_.q) + token * call_.q_stride + head * call_.head_dim;
        if constexpr (std::is_same_v<X, int16_t>) {
          // No sum over dim_ products with a number of 8 bits leaves an int32.
          const float limit = static_cast<float>(std::min<int64_t>(32767, (1 << 24) / dim_ - 1));
          auto some = [&](int64_t d) { return load(q + d, call_.head_dim - d); };
          query_units_[i] = take_whole(some, dim_, limit, q_ + i * dim_);
        } else if constexpr (std::is_same_v<Q, X>) {
          std::fill_n(std::copy_n(q, call_.head_dim, q_ + i * dim_), dim_ - call_.head_dim, X{});
        } else if constexpr (std::is_same_v<X, float>) {
          for (int64_t d = 0; d < dim_; d += kLanes) store(q_ + i * dim_ + d, load(q + d, call_.head_dim - d));
        }
      });
    });
  }

  // The online softmax of all rows over the keys [begin, end), which lie in one segment.
  void attend(int64_t begin, int64_t end, const State& out) {
    const int64_t rows = item_->rows();
    std::fill_n(out.max, rows, kNone);
    std::fill_n(out.out, rows * dim_, 0.f);
    std::fill_n(lanes_[0], rows * kLanes, 0.f);
    for (int64_t tile = begin; tile < end; tile += kTile) attend_tile(tile, out);
    for (int64_t i = 0; i < rows; i++) out.sum[i] = penstock::sum(load(lanes_[i]));
  }

  void attend_tile(int64_t tile, const State& out) {
    const bool has_own_cells = !has_cells(call_.block_size);
    Cells base, base_after, cells, ahead;
    bool has_after = false;
    if (!has_own_cells) {
      find_cells(*item_, tile, base);
      has_after = find_cells_after(tile, base_after);
    }
    for (int64_t h = 0; h < item_->num_heads; h++) {
      const bool is_last = h + 1 == item_->num_heads;
      if (has_own_cells) {
        make_cells(tile, item_->head + h, cells);
      } else {
        for (int c = 0; c < kColumns; c++) cells[c] = base[c] + h * cell_size<T>(dim_);
        for (int c = 0; c < kColumns; c++) ahead[c] = is_last ? base_after[c] : cells[c] + cell_size<T>(dim_);
      }
      const T* const* const next = !has_own_cells && (!is_last || has_after) ? ahead : nullptr;
      if constexpr (kScaled<T>) find_scales(cells);
      attend_head(tile, h * item_->num_rows, cells, next, out);
    }
  }

  // All rows of one KV head, whose state begins at `index`, over one tile.
  void attend_head(int64_t tile, int64_t index, const Cells& cells, const T* const* ahead, const State& out) {
    const int64_t groups = (item_->num_rows + kGroup - 1) / kGroup;
    const int64_t size = (item_->num_rows + groups - 1) / groups;
    for (int64_t row = 0; row < item_->num_rows; row += size) {
      const Group group = group_of(tile, row, std::min(size, item_->num_rows - row));
      if (group.sees_nothing()) continue;
      const int64_t i = index + row;
      const bool is_added = call_.slopes || call_.distances.at;
      if (is_added) find_added(tile, index / item_->num_rows, row, group.rows);
      if constexpr (kScaled<T>) scales_.queries = query_units_ + i;
      multiply_all_keys(group, q_ + i * dim_, dim_, cells, ahead, scores_);
      take_weights(group, call_.form, is_added ? &added_ : nullptr, scales_, scores_, out.max + i, lanes_ + i, factors_,
                   weights_);
      add_values(group, weights_, dim_, cells, ahead, factors_, out.out + i * dim_);
      ahead = nullptr;
    }
  }

  Group group_of(int64_t tile, int64_t row, int64_t rows) const {
    Group group{};
    for (int64_t r = 0; r < rows; r++) {
      const int64_t position = item_->start + (item_->row + row + r) / call_.share();
      const int64_t low = std::min<int64_t>(call_.low(position) - tile, kTile);
      const int64_t high = std::max<int64_t>(call_.high(position, item_->length) - tile, 0);
      group.add({static_cast<int>(std::max<int64_t>(low, 0)), static_cast<int>(std::min<int64_t>(high, kTile))});
    }
    return group;
  }

  // Of some rows of the item's head, counted from its first.
  void find_added(int64_t tile, int64_t head, int64_t row, int64_t rows) {
    const int64_t share = call_.share();
    for (int64_t r = 0; r < rows; r++) {
      const int64_t number = item_->row + row + r, query_head = (item_->head + head) * share + number % share;
      const int64_t query = item_->start + number / share - tile;
      if (call_.slopes) {
        added_.slope[r] = call_.slopes[query_head] * kLog2e;
        added_.query[r] = static_cast<float>(query);
      } else {
        const Distances& distances = call_.distances;
        added_.distances[r] = distances.at + query_head * distances.stride + distances.origin - query;
      }
    }
  }

  // The cells of an item's first head in a tile. Where no row sees a key it may be any cell, for it is not read.
  void find_cells(const Item& item, int64_t tile, Cells& cells) const {
    for (int c = 0; c < kColumns; c++) {
      const int64_t key = std::clamp(tile + c * kCellKeys, item.low, item.end - 1);
      const int64_t place = item.table[key / call_.block_size] * call_.block_size + key % call_.block_size;
      cells[c] = static_cast<const T*>(call_.cache) + (place / kCellKeys * call_.num_kv_heads + item.head) * cell_size<T>(dim_);
    }
  }

  // The cells that will be read after this tile's.
  bool find_cells_after(int64_t tile, Cells& cells) const {
    if (tile + kTile < item_->end) {
      find_cells(*item_, tile + kTile, cells);
    } else if (next_) {
      find_cells(*next_, next_->begin, cells);
    } else {
      return false;
    }
    return true;
  }

  void find_scales(const Cells& cells) {
    for (int c = 0; c < kColumns; c++) {
      const float* const scales = cell_scales(cells[c], dim_);
      store(scales_.keys + c * kLanes, load(scales));
      store(scales_.values + c * kLanes, load(scales + kCellKeys));
    }
  }

  // The cells of a head in a tile, made from loose blocks; zeros where the item sees no key.
  void make_cells(int64_t tile, int64_t head, Cells& cells) {
    const size_t size = static_cast<size_t>(kColumns * cell_size<T>(dim_));
    if (!made_) made_ = std::make_unique<T[]>(size);
    std::fill_n(made_.get(), size, T{});
    for (int c = 0; c < kColumns; c++) cells[c] = made_.get() + c * cell_size<T>(dim_);
    for (int64_t key = std::max(tile, item_->low); key < std::min(tile + kTile, item_->end); key++) {
      const int64_t place = item_->table[key / call_.block_size] * call_.block_size + key % call_.block_size;
      const T* const loose = static_cast<const T*>(call_.cache) + (place * call_.num_kv_heads + head) * loose_size<T>(dim_);
      T* const cell = made_.get() + (key - tile) / kCellKeys * cell_size<T>(dim_);
      for (int64_t d = 0; d < dim_; d += kLanes) put_in_cell(cell, key % kCellKeys, d, dim_, loose + d, loose + dim_ + d);
      if constexpr (kScaled<T>) {
        const float* const scales = loose_scales(loose, dim_);
        put_scales(cell, key % kCellKeys, dim_, scales[0], scales[1]);
      }
    }
  }

  const Call& call_;
  const int64_t dim_;
  const Item *item_, *next_;
  std::unique_ptr<T[]> made_;
  std::conditional_t<kScaled<T>, Scales, NoScales> scales_;
  Added added_;
  alignas(64) X q_[kMaxState];
  alignas(64) float states_[2][kMaxState + 2 * kRows];
  alignas(64) float lanes_[kRows][kLanes];
  alignas(64) float scores_[kGroup * kTile];
  alignas(64) X weights_[kGroup * kTile];
  Factors factors_;
  float query_units_[kRows];  // in float32 they stay 1
};

void finish_cut(const Call& call, const Item& unit) {
  const int64_t size = State::size(unit.rows(), call.dim());
  const State total(unit.part, unit.rows());
  for (int64_t s = 1; s < unit.num_segments(); s++) {
    merge(total, State(unit.part + s * size, unit.rows()), unit.rows(), call.dim());
  }
  finish(call, unit, total);
}

template <class X, class T>
void run_items(const Call& call, const Plan& plan) {
  const int64_t count = static_cast<int64_t>(plan.items.size()), threads = num_threads();
  parallel(count, [&](int64_t i) {
    Worker<X, T> worker(call);
    worker.run(plan.items[i], i + threads < count ? &plan.items[i + threads] : nullptr);  // most likely its next one
  });
}

void attend(const Call& call, DType cache_dtype, const Plan& plan) {
  with_cache_type(cache_dtype, [&]<class T>(T) {
    if constexpr (kScaled<T>) {
      if (call.dtype != kF32) return run_items<int16_t, T>(call, plan);
    } else if constexpr (std::is_same_v<T, bf16> && kHasDot) {
      if (call.dtype == kBF16) return run_items<bf16, T>(call, plan);
    }
    run_items<float, T>(call, plan);
  });
  if (plan.parts.empty()) return;
  parallel(static_cast<int64_t>(plan.units.size()), [&](int64_t i) {
    if (plan.units[i].part) finish_cut(call, plan.units[i]);
  });
}

void compute(const Call& call, DType cache_dtype, int64_t num_sequences, auto&& sequence_of) {
  static thread_local Plan plan;
  plan.make(call, num_sequences, sequence_of);
  attend(call, cache_dtype, plan);
  if (plan.parts.size() > kKeptParts) plan.parts = {};
}

}  // namespace
}  // namespace penstock

using namespace penstock;

extern "C" void penstock_paged_attention(void* out, const void* q, int64_t q_stride, int64_t dtype, const void* cache,
                                         int64_t cache_dtype, int64_t num_blocks, int64_t block_size,
                                         int64_t num_kv_heads, int64_t head_dim, const int32_t* tables,
                                         int64_t max_blocks, const int32_t* starts, const int32_t* counts,
                                         int64_t num_sequences, int64_t num_tokens, int64_t num_heads, float scale,
                                         int64_t window, float softcap, const float* sinks, const float* slopes,
                                         int64_t* status) {
  const Call call{q,          cache,  out,  q_stride, num_heads, num_kv_heads, head_dim, block_size, window, DType(dtype),
                  Form::of(scale, softcap), sinks, slopes};
  *status = check(call, num_blocks, tables, max_blocks, starts, counts, num_sequences, num_tokens);
  if (*status != kOk || num_tokens == 0) return;
  compute(call, DType(cache_dtype), num_sequences, [&](int64_t s) -> Sequence {
    return {tables + s * max_blocks, starts[s], counts[s]};
  });
}

extern "C" void penstock_full_attention(void* out, const void* q, int64_t q_stride, const void* k, int64_t k_stride,
                                        const void* v, int64_t v_stride, int64_t dtype, int64_t num_kv_heads,
                                        int64_t head_dim, const int32_t* counts, int64_t num_sequences,
                                        int64_t num_tokens, int64_t num_heads, float scale, int64_t window,
                                        const float* bias, int64_t reach, int64_t* status) {
  const int32_t* const end = counts + num_sequences;
  const bool is_bad = std::any_of(counts, end, [](int32_t count) { return count < 0; }) ||
                      std::accumulate(counts, end, int64_t{0}) != num_tokens;
  *status = is_bad ? kBadLengths : kOk;
  if (*status != kOk || num_tokens == 0) return;
  OwnCells cells(counts, num_sequences);
  const void* const cache = cells.write({k, k_stride}, {v, v_stride}, num_kv_heads, head_dim, DType(dtype));
  Call call{q, cache, out, q_stride, num_heads, num_kv_heads, head_dim, kCellKeys, window ? window + 1 : 0, DType(dtype),
            Form::of(scale, 0), nullptr, nullptr, true};
  if (bias) call.distances = spread(bias, reach, num_heads, *std::max_element(counts, end));
  compute(call, DType(dtype), num_sequences, [&](int64_t s) -> Sequence { return {cells.table(s), 0, counts[s]}; });
}

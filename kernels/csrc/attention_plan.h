// How the work of a call of attention is cut into items for threads.
//
// Tiles of 64 keys and segments of 512 start at multiples of the absolute position, under a window too. A segment is an
// online softmax from scratch; segments merge in ascending order, whether one thread computes them all or many.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "abi.h"
#include "attention_tile.h"
#include "attention_weights.h"
#include "pool.h"

namespace penstock {

// [heads, stride]: that of the key at s to the query at p is at [head, origin + s - p], in powers of 2.
struct Distances {
  const float* at;
  int64_t stride, origin;
};

constexpr int64_t kSegment = 512;                        // keys; another segment changes bits
constexpr int64_t kRows = 48, kMaxState = kRows * 256;   // rows, and rows * dim, of an item; they change no bits

struct Call {
  const void *q, *cache;
  void* out;
  int64_t q_stride, num_heads, num_kv_heads, head_dim, block_size, window;
  DType dtype;
  Form form;
  const float *sinks, *slopes;
  bool is_full = false;      // a query sees later keys, too
  Distances distances = {};  // what scores grow by with the distance of a key, if `at` is not null

  int64_t dim() const { return padded_dim(head_dim); }
  int64_t share() const { return num_heads / num_kv_heads; }  // query heads of a KV head
  int64_t max_rows() const { return std::max<int64_t>(1, std::min(kRows, kMaxState / dim())); }
  // The keys [low, high) that a query sees, of `length`.
  int64_t low(int64_t position) const { return window ? std::max<int64_t>(0, position + 1 - window) : 0; }
  int64_t high(int64_t position, int64_t length) const {
    if (!is_full) return position + 1;
    return window ? std::min(length, position + window) : length;
  }
};

struct Sequence {
  const int32_t* table;
  int64_t start, count;  // position of its first query, and how many there are
};

// The work of one thread: some rows of some KV heads of a sequence, over the keys [begin, end).
struct Item {
  const int32_t* table;
  int64_t start, token;     // position of the sequence's first query, and its index in q
  int64_t length;           // keys of the sequence
  int64_t head, num_heads;  // KV heads
  int64_t row, num_rows;    // of each of these heads: share() rows for each token
  int64_t low;              // the first key that any of the rows sees
  int64_t begin, end;       // begin is a multiple of kTile
  float* part;              // where the state goes for merging; null: these are all keys, and the item writes the output

  int64_t rows() const { return num_heads * num_rows; }
  int64_t cost() const { return num_heads * (num_rows + 4) * (end - begin); }
  int64_t num_segments() const { return (end - 1) / kSegment - begin / kSegment + 1; }
};

// Of the online softmax of some rows: maximum, sum of weights, weighted sum of V.
struct State {
  float *max, *sum, *out;
  State(float* p, int64_t rows) : max(p), sum(p + rows), out(p + 2 * rows) {}
  static int64_t size(int64_t rows, int64_t dim) { return rows * (dim + 2); }
};

// What a call has to do. A thread keeps its plan's memory for its next call.
struct Plan {
  std::vector<Item> units, items;  // a unit is all keys of some rows; an item is a unit, or a segment of one
  std::vector<float> parts;        // the states of the segments

  // sequence_of(s) is one of num_sequences.
  template <class F>
  void make(const Call& call, int64_t num_sequences, F&& sequence_of) {
    units.clear();
    items.clear();
    // Two threads are well balanced by eight items; one thread has nothing to balance.
    const int64_t threads = num_threads(), enough = threads > 1 ? 4 * threads : 0;
    int64_t token = 0;
    for (int64_t s = 0; s < num_sequences; s++) {
      const Sequence own = sequence_of(s);
      add_sequence(call, {own.table, own.start, token, own.start + own.count, 0, 0, 0, 0, 0, 0, 0, nullptr}, own.count,
                   num_sequences, enough);
      token += own.count;
    }
    cut(call.dim(), enough);
  }

 private:
  void add_sequence(const Call& call, Item item, int64_t count, int64_t num_sequences, int64_t enough) {
    for (const int64_t all = count * call.share(); item.row < all; item.row += item.num_rows) {
      item.num_rows = std::min(call.max_rows(), all - item.row);
      item.low = call.low(item.start + item.row / call.share());
      item.begin = item.low / kTile * kTile;
      item.end = call.high(item.start + (item.row + item.num_rows - 1) / call.share(), item.length);
      // All heads together read the memory in order; each alone is more items for the threads.
      const bool is_few = num_sequences * item.num_segments() < enough;
      const int64_t together = is_few ? 1 : call.max_rows() / item.num_rows;
      for (item.head = 0; item.head < call.num_kv_heads; item.head += together) {
        item.num_heads = std::min(together, call.num_kv_heads - item.head);
        units.push_back(item);
      }
    }
  }

  // A unit that would keep a thread busy for too long is cut into its segments; the largest items come first.
  void cut(int64_t dim, int64_t enough) {
    int64_t cost = 0, size = 0;
    for (const Item& unit : units) cost += unit.cost();
    auto is_cut = [&](const Item& unit) { return unit.num_segments() > 1 && unit.cost() * enough > cost; };
    for (const Item& unit : units) size += is_cut(unit) ? unit.num_segments() * State::size(unit.rows(), dim) : 0;
    parts.resize(static_cast<size_t>(size));
    float* part = parts.data();
    for (Item& unit : units) {
      if (!is_cut(unit)) {
        items.push_back(unit);
        continue;
      }
      unit.part = part;
      for (Item item = unit; item.begin < unit.end; item.begin = item.end) {
        item.end = std::min(unit.end, (item.begin / kSegment + 1) * kSegment);
        item.low = std::max(item.low, item.begin);
        item.part = part;
        part += State::size(unit.rows(), dim);
        items.push_back(item);
      }
    }
    auto is_larger = [](const Item& a, const Item& b) { return a.cost() > b.cost(); };
    if (!std::is_sorted(items.begin(), items.end(), is_larger)) std::stable_sort(items.begin(), items.end(), is_larger);
  }
};

enum Status : int64_t { kOk = 0, kBadLengths = 1, kBadBlocks = 2 };

inline Status check(const Call& call, int64_t num_blocks, const int32_t* tables, int64_t max_blocks, const int32_t* starts,
             const int32_t* counts, int64_t num_sequences, int64_t num_tokens) {
  int64_t tokens = 0;
  for (int64_t s = 0; s < num_sequences; s++) {
    const int64_t end = int64_t{starts[s]} + counts[s];
    if (starts[s] < 0 || counts[s] < 0 || end > max_blocks * call.block_size) return kBadLengths;
    tokens += counts[s];
    if (counts[s] == 0) continue;
    const int32_t* const table = tables + s * max_blocks;
    for (int64_t i = call.low(starts[s]) / call.block_size; i <= (end - 1) / call.block_size; i++) {
      if (table[i] < 0 || table[i] >= num_blocks) return kBadBlocks;
    }
  }
  return tokens == num_tokens ? kOk : kBadLengths;
}

}  // namespace penstock

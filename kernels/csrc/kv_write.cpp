#include <algorithm>

#include "abi.h"
#include "kv_layout.h"
#include "pool.h"

namespace penstock {
namespace {

constexpr int64_t kWorthAThread = 16 << 10;  // elements of K that take as long as waking a thread

struct Tokens {
  const void *k, *v;
  int64_t k_stride, v_stride, count, num_kv_heads, head_dim;
  const int64_t* slot_mapping;
};

// The first n ≤ 16 values, then zeros. What has the type already keeps its bits.
template <class From, class To>
INLINE void convert(const From* from, int64_t n, To* to) {
  if constexpr (std::is_same_v<From, To>) {
    if (n >= kLanes) {
      std::memcpy(to, from, kLanes * sizeof(To));  // of a size that the compiler knows
    } else {
      std::memset(static_cast<void*>(to), 0, kLanes * sizeof(To));
      std::memcpy(to, from, static_cast<size_t>(n) * sizeof(To));
    }
  } else {
    store(to, load(from, n));
  }
}

// What a head's numbers are divided by: the largest of their magnitudes becomes 127. NaN if one of them is not finite.
template <class From>
INLINE float find_scale(const From* x, int64_t head_dim) {
  Vec top = zero(), bad = zero();
  for (int64_t d = 0; d < head_dim; d += kLanes) {
    const Vec some = load(x + d, head_dim - d);
    top = max(top, max(some, zero() - some));
    bad = fma(some, zero(), bad);
  }
  const float scale = largest(top) / 127.f + sum(bad);
  return scale == 0 ? 1.f : scale;
}

template <class From>
INLINE void quantise(const From* from, int64_t n, float scale, int8_t* to) {
  store(to, min(max(load(from, n) / set(scale), set(-127.f)), set(127.f)));
}

template <class From, class To>
void write_head(const Tokens& tokens, int64_t head, bool in_cells, To* cache) {
  const int64_t dim = padded_dim(tokens.head_dim), heads = tokens.num_kv_heads;
  for (int64_t t = 0; t < tokens.count; t++) {
    const int64_t place = tokens.slot_mapping[t];
    const From* k = static_cast<const From*>(tokens.k) + t * tokens.k_stride + head * tokens.head_dim;
    const From* v = static_cast<const From*>(tokens.v) + t * tokens.v_stride + head * tokens.head_dim;
    To* const cell = cache + (place / kCellKeys * heads + head) * cell_size<To>(dim);
    To* const loose = cache + (place * heads + head) * loose_size<To>(dim);
    [[maybe_unused]] float k_scale, v_scale;
    if constexpr (kScaled<To>) {
      k_scale = find_scale(k, tokens.head_dim);
      v_scale = find_scale(v, tokens.head_dim);
      if (in_cells) {
        put_scales(cell, place % kCellKeys, dim, k_scale, v_scale);
      } else {
        loose_scales(loose, dim)[0] = k_scale;
        loose_scales(loose, dim)[1] = v_scale;
      }
    }
    for (int64_t d = 0; d < dim; d += kLanes) {
      alignas(64) To some_k[kLanes], some_v[kLanes];
      if constexpr (kScaled<To>) {
        quantise(k + d, tokens.head_dim - d, k_scale, some_k);
        quantise(v + d, tokens.head_dim - d, v_scale, some_v);
      } else {
        convert(k + d, tokens.head_dim - d, some_k);
        convert(v + d, tokens.head_dim - d, some_v);
      }
      if (in_cells) {
        put_in_cell(cell, place % kCellKeys, d, dim, some_k, some_v);
      } else {
        std::memcpy(loose + d, some_k, sizeof some_k);
        std::memcpy(loose + dim + d, some_v, sizeof some_v);
      }
    }
  }
}

// Heads share nothing; tokens do: two lie in one pair of V.
template <class From, class To>
void write(const Tokens& tokens, bool in_cells, To* cache) {
  const int64_t size = tokens.count * tokens.num_kv_heads * tokens.head_dim;
  const int64_t parts = std::clamp<int64_t>(size / kWorthAThread, 1, tokens.num_kv_heads);
  parallel(parts, [&](int64_t part) {
    for (int64_t head = part; head < tokens.num_kv_heads; head += parts) {
      write_head<From>(tokens, head, in_cells, cache);
    }
  });
}

}  // namespace
}  // namespace penstock

using namespace penstock;

extern "C" void penstock_kv_write(const void* k, int64_t k_stride, const void* v, int64_t v_stride, int64_t dtype,
                                  void* cache, int64_t cache_dtype, int64_t num_blocks, int64_t block_size,
                                  int64_t num_kv_heads, int64_t head_dim, const int64_t* slot_mapping,
                                  int64_t num_tokens, int64_t* status) {
  const int64_t num_places = num_blocks * block_size;
  *status = !std::all_of(slot_mapping, slot_mapping + num_tokens,
                         [&](int64_t place) { return place >= 0 && place < num_places; });
  if (*status) return;
  const Tokens tokens{k, v, k_stride, v_stride, num_tokens, num_kv_heads, head_dim, slot_mapping};
  with_type(dtype, [&]<class From>(From) {
    with_cache_type(cache_dtype,
                    [&]<class To>(To) { write<From>(tokens, has_cells(block_size), static_cast<To*>(cache)); });
  });
}

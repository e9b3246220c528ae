// Adapters: each row of x times the A of its own adapter, and these times its B (kernels/lora).
//
// A lane of a register is one output of A, or of B, whose sum runs over ascending k, whatever the rows beside it.
#include "lora.h"

#include <numeric>
#include <type_traits>
#include <vector>

#include "packed.h"
#include "pool.h"
#include "ranges.h"
#include "rows.h"
#include "scratch.h"

namespace penstock {
namespace {

constexpr int kTile = 8;               // rows that read a panel of A together
constexpr int64_t kAhead = 8 << 10;    // bytes that a panel is read ahead of its use

// Products of float32 numbers, each added with one rounding.
template <class Weight>
struct FuseLanes {
  using X = float;
  using W = Weight;
  template <int R>
  static INLINE void step(Vec (&sums)[R], const X* const (&x)[R], int64_t k, const W* w) {
    if constexpr (std::is_same_v<W, bf16>) {
      Vec low, high;
      load_pairs(w, low, high);
      UNROLL for (int r = 0; r < R; r++) sums[r] = fma(set(x[r][k + 1]), high, fma(set(x[r][k]), low, sums[r]));
    } else {
      const Vec lanes = load(w);
      UNROLL for (int r = 0; r < R; r++) sums[r] = fma(set(x[r][k]), lanes, sums[r]);
    }
  }
};

#if HAS_DOT_PAIRS
struct DotLanes {
  using X = bf16;
  using W = bf16;
  template <int R>
  static INLINE void step(Vec (&sums)[R], const X* const (&x)[R], int64_t k, const W* w) {
    const Pairs lanes = load_pairs(w);
    UNROLL for (int r = 0; r < R; r++) {
      int pair;
      std::memcpy(&pair, x[r] + k, 4);
      sums[r] = dot_pairs(sums[r], set_pairs(pair), lanes);
    }
  }
};
#endif

// What is read behind a place in a panel: its rest, then what most likely follows.
struct Stream {
  const char *end, *next;

  void fetch(const void* place) const {
    const char* const ahead = static_cast<const char*>(place) + kAhead;
    prefetch_near(ahead < end ? ahead : next + (ahead - end));
  }
};

// A segment of R rows by a panel.
template <class Kernel, int R>
[[gnu::noinline]] void run_rows(const typename Kernel::X* const* rows, const typename Kernel::W* w, int64_t width,
                                const Stream& stream, float* out) {
  const Stream own = stream;
  constexpr int64_t kDepthOf = kDepth<typename Kernel::W>, kStep = kLanes * kDepthOf;
  const typename Kernel::X* x[R];
  Vec sums[R];
  UNROLL for (int r = 0; r < R; r++) x[r] = rows[r], sums[r] = zero();
  for (int64_t k = 0; k < width; k += kDepthOf, w += kStep) {
    own.fetch(w);
    Kernel::template step<R>(sums, x, k, w);
  }
  UNROLL for (int r = 0; r < R; r++) store(out + r * kLanes, sums[r]);
}

template <class Kernel>
void run_rows(int64_t count, const typename Kernel::X* const* rows, const typename Kernel::W* w, int64_t width,
              const Stream& stream, float* out) {
  switch (count) {
    case 1: return run_rows<Kernel, 1>(rows, w, width, stream, out);
    case 2: return run_rows<Kernel, 2>(rows, w, width, stream, out);
    case 3: return run_rows<Kernel, 3>(rows, w, width, stream, out);
    case 4: return run_rows<Kernel, 4>(rows, w, width, stream, out);
    case 5: return run_rows<Kernel, 5>(rows, w, width, stream, out);
    case 6: return run_rows<Kernel, 6>(rows, w, width, stream, out);
    case 7: return run_rows<Kernel, 7>(rows, w, width, stream, out);
    case 8: return run_rows<Kernel, 8>(rows, w, width, stream, out);
  }
}

// A tile of rows with one adapter by a panel of its A.
struct Unit {
  const LoraLinear* own;
  const int32_t* rows;
  int64_t count, panel;

  int64_t panel_bytes() const {
    const int64_t depth = own->dtype == kBF16 ? 2 : 1, element = own->dtype == kF32 ? 4 : 2;
    return own->segments * ((own->width + depth - 1) / depth) * depth * kLanes * element;
  }
  const char* weights() const { return static_cast<const char*>(own->a) + panel * panel_bytes(); }
};

struct Shrinking {
  int64_t dtype;
  const void* x;
  int64_t inputs;
  bool is_scaled;
  float* out;
  int64_t rank;

  template <class Kernel, class From>
  void run(const Unit& unit, const Unit& next) const {
    using X = typename Kernel::X;
    constexpr int64_t depth = kDepth<typename Kernel::W>;
    const LoraLinear& own = *unit.own;
    const int64_t steps = (own.width + depth - 1) / depth, padded = steps * depth;
    const From* const given = static_cast<const From*>(x);
    // Rows are read where they lie if no pair of them is cut, and no number of theirs is to be converted.
    const bool is_direct = std::is_same_v<From, X> && own.width % depth == 0 && inputs % depth == 0;
    thread_local Scratch scratch;
    X* const copies = is_direct ? nullptr : scratch.get<X>(kTile * padded);
    alignas(64) float sums[kMaxSegments][kTile * kLanes];
    const auto* w = reinterpret_cast<const typename Kernel::W*>(unit.weights());
    const Stream stream{unit.weights() + unit.panel_bytes(), next.weights()};
    for (int64_t s = 0; s < own.segments; s++) {
      const int64_t begin = std::min(s * own.width, inputs), width = std::min(own.width, inputs - begin);
      const X* rows[kTile];
      for (int64_t r = 0; r < unit.count; r++) {
        const From* const row = given + unit.rows[r] * inputs + begin;
        if constexpr (std::is_same_v<From, X>) rows[r] = row;
        if (!is_direct) rows[r] = copy(row, width, copies + r * padded, depth);
      }
      run_rows<Kernel>(unit.count, rows, w + s * padded * kLanes, width, stream, sums[s]);
    }
    for (int64_t size = own.segments / 2; size; size /= 2) {
      for (int64_t s = 0; s < size; s++) {
        for (int64_t i = 0; i < unit.count * kLanes; i += kLanes) {
          store(sums[s] + i, load(sums[2 * s] + i) + load(sums[2 * s + 1] + i));
        }
      }
    }
    for (int64_t r = 0; r < unit.count; r++) {
      const Vec total = load(sums[0] + r * kLanes);
      store(out + unit.rows[r] * rank + unit.panel * kLanes,
            is_scaled ? total * load(own.scales + unit.panel * kLanes) : total);
    }
  }

  // A row's numbers, behind which zeros make up a whole step.
  template <class From, class X>
  static X* copy(const From* from, int64_t width, X* to, int64_t depth) {
    if constexpr (std::is_same_v<From, X>) {
      std::copy_n(from, width, to);
    } else {
      for (int64_t k = 0; k < width; k += kLanes) store(to + k, load(from + k, width - k), width - k);
    }
    std::fill(to + width, to + (width + depth - 1) / depth * depth, X{});
    return to;
  }

  void operator()(const Unit& unit, const Unit& next) const {
    with_type(dtype, [&](auto type) {
      using From = decltype(type);
      const int64_t kind = unit.own->dtype;
      if (kind == kF32) return run<FuseLanes<f32>, From>(unit, next);
      if (kind == kF16) return run<FuseLanes<f16>, From>(unit, next);
#if HAS_DOT_PAIRS
      if constexpr (std::is_same_v<From, bf16>) return run<DotLanes, From>(unit, next);
#endif
      run<FuseLanes<bf16>, From>(unit, next);
    });
  }
};

// Vectors that keep their memory from call to call.
struct Order {
  std::vector<int32_t> rows;
  std::vector<int64_t> ends, next;
  std::vector<Unit> units;
};

// The rows of a step in the order of their adapters, cut up.
const std::vector<Unit>& units_of(const Site& site, Order& made) {
  const AdapterRows& rows = *site.rows;
  auto& [order, ends, next, units] = made;
  ends.assign(static_cast<size_t>(rows.num_groups) + 1, 0);
  for (int64_t t = 0; t < rows.num_tokens; t++) {
    if (rows.groups[t] >= 0) ends[static_cast<size_t>(rows.groups[t]) + 1]++;
  }
  std::partial_sum(ends.begin(), ends.end(), ends.begin());
  order.resize(static_cast<size_t>(ends.back()));
  next.assign(ends.begin(), ends.end() - 1);
  for (int64_t t = 0; t < rows.num_tokens; t++) {
    if (rows.groups[t] >= 0) {
      order[static_cast<size_t>(next[static_cast<size_t>(rows.groups[t])]++)] = static_cast<int32_t>(t);
    }
  }
  units.clear();
  for (int64_t g = 0; g < rows.num_groups; g++) {
    const LoraLinear& own = site.of_group(g);
    for (int64_t panel = 0; panel < own.rank / kLanes; panel++) {
      for (int64_t begin = ends[static_cast<size_t>(g)]; begin < ends[static_cast<size_t>(g) + 1]; begin += kTile) {
        units.push_back({&own, order.data() + begin, std::min<int64_t>(kTile, ends[static_cast<size_t>(g) + 1] - begin),
                         panel});
      }
    }
  }
  return units;
}

}  // namespace

void shrink(const Site& site, int64_t dtype, const void* x, int64_t inputs, bool is_scaled, float* shrunk,
            int64_t rank) {
  thread_local Order order;
  const std::vector<Unit>& units = units_of(site, order);
  for (int64_t t = 0; t < site.rows->num_tokens; t++) {
    const LoraLinear* const own = site.of(t);
    const int64_t filled = own ? own->rank : 0;
    std::fill(shrunk + t * rank + filled, shrunk + (t + 1) * rank, 0.f);
  }
  const Shrinking shrinking{dtype, x, inputs, is_scaled, shrunk, rank};
  const auto cut = [](int64_t unit) { return unit + 1; };
  parallel_ranges(static_cast<int64_t>(units.size()), cut, [&](int64_t begin, int64_t, int64_t next) {
    shrinking(units[static_cast<size_t>(begin)], units[static_cast<size_t>(next)]);
  });
}

}  // namespace penstock

using namespace penstock;

extern "C" void penstock_lora_shrink(const AdapterRows* rows, int64_t site, int64_t dtype, const void* x,
                                     int64_t inputs, float* shrunk, int64_t rank) {
  shrink({rows, site}, dtype, x, inputs, false, shrunk, rank);
}

extern "C" void penstock_lora_expand(const AdapterRows* rows, int64_t number, const float* shrunk, int64_t rank,
                                     float* out, int64_t outputs) {
  const Site site{rows, number};
  parallel_rows(rows->num_tokens, outputs, [&](int64_t begin, int64_t end) {
    thread_local Scratch scratch;
    float* const scaled = scratch.get<float>(rank);
    for (int64_t t = begin; t < end; t++) {
      const LoraLinear* const own = site.of(t);
      if (own) {
        for (int64_t j = 0; j < own->rank; j += kLanes) {
          store(scaled + j, load(shrunk + t * rank + j) * load(own->scales + j));
        }
      }
      for_vectors(outputs, [&](int64_t i, int64_t n) {
        store(out + t * outputs + i, own ? Deltas::panel(*own, scaled, i / kLanes) : set(-0.f), n);
      });
    }
  });
}

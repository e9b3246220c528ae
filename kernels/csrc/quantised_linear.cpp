// y = x wᵀ + bias for coded weights. The sums within a piece of the inputs are exact, or in the order of the dense
// weights' steps; pieces are added in ascending order, segments in a binary tree (kernels/quantised_linear).

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "abi.h"
#include "pool.h"
#include "quantised.h"
#include "ranges.h"
#include "scratch.h"

namespace penstock {
namespace {

constexpr float kMost = 127.f;      // the largest whole number that an input becomes
constexpr float kLeast = 0x1p-100f;  // a largest input below this is 0: its inverse may be no float32
constexpr int64_t kRowsAtATime = 256;
constexpr int kRows = 6;            // of a tile
constexpr int kTiles = 8;           // of a piece of work
constexpr int kColumns = kPanel / kLanes;
#define INLINE_LAMBDA __attribute__((always_inline))

constexpr int64_t kAhead = 8 << 10;  // bytes that a panel is read ahead of its use

// Rows of x as tiles read them: in X, each piece padded to whole steps, then the scale and the sum of each piece.
template <class X>
struct Rows {
  std::byte* memory;
  int64_t padded, num_pieces;

  int64_t numbers_bytes() const { return (padded * static_cast<int64_t>(sizeof(X)) + 63) / 64 * 64; }
  int64_t stride() const { return numbers_bytes() + (8 * num_pieces + 63) / 64 * 64; }
  X* numbers(int64_t row) const { return reinterpret_cast<X*>(memory + row * stride()); }
  float* scales(int64_t row) const { return reinterpret_cast<float*>(memory + row * stride() + numbers_bytes()); }
  float* sums(int64_t row) const { return scales(row) + num_pieces; }
};

INLINE Vec magnitude(Vec a) { return max(a, penstock::zero() - a); }

// The largest magnitude of a piece; NaN if there is one, or an infinity.
template <class T>
float largest_of(const T* x, int64_t width) {
  Vec top = zero();
  uint32_t nans = 0;
  for (int64_t k = 0; k < width; k += kLanes) {
    const Vec v = load(x + k, width - k);
    top = max(top, magnitude(v));
    nans |= bits(is_nan(v));
  }
  const float most = largest(top);
  return nans || std::isinf(most) ? std::numeric_limits<float>::quiet_NaN() : most;
}

template <class T>
void write_row(const Coded& w, const T* x, const Rows<int8_t>& rows, int64_t row) {
  for (int64_t i = 0; i < w.header.num_pieces; i++) {
    const Piece& piece = w.pieces[i];
    const float most = largest_of(x + piece.begin, piece.width);
    const bool is_some = most >= kLeast;
    rows.scales(row)[i] = is_some || std::isnan(most) ? most / kMost : 0.f;
    const Vec inverse = set(is_some ? kMost / most : 0.f);
    Vec total = zero();
    for (int64_t k = 0; k < piece.steps * kStepInputs; k += kLanes) {
      Vec v = k < piece.width ? load(x + piece.begin + k, piece.width - k) : zero();
      v = is_some ? round(v * inverse) : zero();
      total = total + v;
      store(rows.numbers(row) + piece.padded + k, v, piece.steps * kStepInputs - k);
    }
    rows.sums(row)[i] = sum(total);  // exact: whole numbers below 2^24
  }
}

template <class T>
void write_row(const Coded& w, const T* x, const Rows<float>& rows, int64_t row) {
  for (int64_t i = 0; i < w.header.num_pieces; i++) {
    const Piece& piece = w.pieces[i];
    Vec total = zero();
    for (int64_t k = 0; k < piece.steps * kStepInputs; k += kLanes) {
      const Vec v = k < piece.width ? load(x + piece.begin + k, piece.width - k) : zero();
      total = total + v;
      store(rows.numbers(row) + piece.padded + k, v, piece.steps * kStepInputs - k);
    }
    rows.sums(row)[i] = sum(total);
  }
}

template <class X>
struct Tile {
  const Coded& w;
  const char* panel;
  int64_t lane;     // of the panel, the first
  Rows<X> x;        // whose first row is the tile's
  float* sums;      // [levels][R][C][16]: a binary counter of segments' sums
  int64_t next;     // bytes from the panel to what is to come into the second cache meanwhile, or 0
};

INLINE void prefetch_near(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
INLINE void prefetch_far(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

template <int BYTES>
INLINE void prefetch_step(const uint8_t* codes, int64_t next) {
  for (int b = 0; b < BYTES; b += 64) prefetch_near(codes + kAhead + b);
  for (int b = 0; b < std::min(128, BYTES); b += 64) prefetch_far(codes + next + b);
}

// Codes of BITS, or what they choose from a table, multiplied with whole numbers, exactly.
template <int BITS, bool HAS_TABLE = false>
struct Whole {
  using X = int8_t;
  using Sum = Ints;
  static constexpr int kBytes = kPanel * BITS;  // of a step

  // The zeros are what the sums begin with.
  template <int R, int C>
  static INLINE void begin(Ints (&sums)[R][C], const Tile<X>& t, const Piece& piece, int64_t index) {
    const CodedHeader& header = t.w.header;
    UNROLL for (int r = 0; r < R; r++) {
      const int32_t x_sum = static_cast<int32_t>(t.x.sums(r)[index]);
      UNROLL for (int c = 0; c < C; c++) {
        sums[r][c] = header.has_zeros ? times(widen(zeros_of(t.w, piece, t.panel) + t.lane + c * kLanes), -x_sum)
                                      : set_ints(static_cast<int32_t>(-header.zero) * x_sum);
      }
    }
  }

  template <int R, int C>
  static INLINE void add(Ints (&sums)[R][C], const Tile<X>& t, const Piece& piece) {
    const uint8_t* codes = reinterpret_cast<const uint8_t*>(t.panel) + piece.codes + 4 * t.lane;
    const int8_t* x = t.x.numbers(0) + piece.padded;
    const int64_t x_stride = t.x.stride(), next = t.next;
    const Bytes table = load_codes(t.w.header.whole);
    for (int step = 0; step < piece.steps; step++, codes += kBytes, x += kStepInputs) {
      prefetch_step<kBytes>(codes, next);
      UNROLL for (int half = 0; half < 2; half++) {
        Bytes column[C];
        UNROLL for (int c = 0; c < C; c++) {
          column[c] = load_codes(codes + (BITS == 8 ? half * 4 * kPanel : 0) + 64 * c);
          if (BITS == 4) column[c] = half ? high_halves(column[c]) : low_halves(column[c]);
          if (HAS_TABLE) column[c] = choose(table, column[c]);
        }
        UNROLL for (int r = 0; r < R; r++) {
          UNROLL for (int c = 0; c < C; c++) add_dot<BITS == 4 && !HAS_TABLE>(sums[r][c], column[c], x + r * x_stride + 4 * half);
        }
      }
    }
  }

  static INLINE Vec total(Vec product, Vec scale, Vec x_scale, Vec total) { return fma(product * x_scale, scale, total); }
  static INLINE Vec total(Vec product, Vec scale, Vec x_sum, Vec minimum, Vec x_scale, Vec total) {
    return fma(fma(product, scale, x_sum * minimum), x_scale, total);
  }
};

// Levels multiplied with inputs as they are, in float32.
template <int BITS, bool HAS_TABLE>
struct Float {
  using X = float;
  using Sum = Vec;
  static constexpr int kBytes = kPanel * BITS;

  template <int R, int C>
  static INLINE void begin(Vec (&sums)[R][C], const Tile<X>&, const Piece&, int64_t) {
    UNROLL for (int r = 0; r < R; r++) {
      UNROLL for (int c = 0; c < C; c++) sums[r][c] = zero();
    }
  }

  template <int R, int C>
  static INLINE void add(Vec (&sums)[R][C], const Tile<X>& t, const Piece& piece) {
    const CodedHeader& header = t.w.header;
    const Table table(header.table);
    Ints zeros[C];
    UNROLL for (int c = 0; c < C; c++) {
      zeros[c] = header.has_zeros ? widen(zeros_of(t.w, piece, t.panel) + t.lane + c * kLanes)
                                  : set_ints(static_cast<int32_t>(header.zero));
    }
    const uint8_t* codes = reinterpret_cast<const uint8_t*>(t.panel) + piece.codes + 4 * t.lane;
    const float* x = t.x.numbers(0) + piece.padded;
    const int64_t x_stride = t.x.stride() / static_cast<int64_t>(sizeof(float)), next = t.next;
    const auto add_one = [&]<int K>() INLINE_LAMBDA {
      UNROLL for (int c = 0; c < C; c++) {
        const Bytes four = load_codes(codes + (BITS == 8 ? K / 4 * 4 * kPanel : 0) + 64 * c);
        const Ints code = code_of<BITS, K>(four);
        const Vec level = HAS_TABLE ? table[code] : to_floats(code - zeros[c]);
        UNROLL for (int r = 0; r < R; r++) sums[r][c] = fma(set(x[r * x_stride + K]), level, sums[r][c]);
      }
    };
    for (int step = 0; step < piece.steps; step++, codes += kBytes, x += kStepInputs) {
      prefetch_step<kBytes>(codes, next);
      add_one.template operator()<0>(), add_one.template operator()<1>(), add_one.template operator()<2>();
      add_one.template operator()<3>(), add_one.template operator()<4>(), add_one.template operator()<5>();
      add_one.template operator()<6>(), add_one.template operator()<7>();
    }
  }

  static INLINE Vec total(Vec product, Vec scale, Vec, Vec total) { return fma(product, scale, total); }
  static INLINE Vec total(Vec product, Vec scale, Vec x_sum, Vec minimum, Vec, Vec total) {
    return fma(x_sum, minimum, fma(product, scale, total));
  }
};

INLINE Vec to_floats(Vec a) { return a; }

// Adds a piece to the totals [R][C][16].
template <class Kernel, int R, int C>
INLINE void add_piece(const Tile<typename Kernel::X>& t, int64_t index, float* totals) {
  const Piece& piece = t.w.pieces[index];
  typename Kernel::Sum sums[R][C];
  Kernel::begin(sums, t, piece, index);
  Kernel::add(sums, t, piece);
  const bool has_minima = t.w.header.minima != Numbers::kNone;
  UNROLL for (int c = 0; c < C; c++) {
    const int lane = static_cast<int>(t.lane) + c * kLanes;
    const Vec scale = load_scales(t.w, piece, t.panel, lane);
    const Vec minimum = has_minima ? load_minima(t.w, piece, t.panel, lane) : zero();
    UNROLL for (int r = 0; r < R; r++) {
      float* const total = totals + (r * C + c) * kLanes;
      const Vec product = to_floats(sums[r][c]), x_scale = set(t.x.scales(r)[index]), x_sum = set(t.x.sums(r)[index]);
      store(total, has_minima ? Kernel::total(product, scale, x_sum, minimum, x_scale, load(total))
                              : Kernel::total(product, scale, x_scale, load(total)));
    }
  }
}

template <class Kernel, int R, int C>
[[gnu::noinline]] void run_tile(const Tile<typename Kernel::X>& t) {
  constexpr int64_t kSize = R * C * kLanes;
  float* totals = t.sums;
  std::fill_n(totals, kSize, 0.f);
  for (int64_t i = 0; i < t.w.header.num_pieces; i++) {
    add_piece<Kernel, R, C>(t, i, totals);
    const int merges = t.w.pieces[i].merges;
    if (merges < 0) continue;
    for (int m = 0; m < merges; m++, totals -= kSize) {
      for (int64_t v = 0; v < kSize; v += kLanes) store(totals - kSize + v, load(totals - kSize + v) + load(totals + v));
    }
    totals += kSize;
    std::fill_n(totals, kSize, 0.f);
  }
}

template <class Kernel>
void run_tile(int rows, const Tile<typename Kernel::X>& t) {
  switch (rows) {
    case 1: return run_tile<Kernel, 1, kColumns>(t);
    case 2: return run_tile<Kernel, 2, kColumns>(t);
    case 3: return run_tile<Kernel, 3, kColumns>(t);
    case 4: return run_tile<Kernel, 4, kColumns>(t);
    case 5: return run_tile<Kernel, 5, kColumns>(t);
    case 6: return run_tile<Kernel, 6, kColumns>(t);
  }
}

// Some rows by all outputs of a weight.
template <class Kernel>
struct Multiplication {
  using X = typename Kernel::X;
  const Coded& w;
  const Output& output;
  int64_t levels = std::bit_width(static_cast<uint64_t>(w.header.header.segments)) + 1;

  void operator()(const void* x, int64_t x_dtype, int64_t rows) const {
    thread_local Scratch scratch;
    Rows<X> some{nullptr, w.header.padded_inputs, w.header.num_pieces};
    some.memory = scratch.get<std::byte>(std::min(rows, kRowsAtATime) * some.stride());
    for (int64_t first = 0; first < rows; first += kRowsAtATime) {
      const int64_t count = std::min(rows - first, kRowsAtATime);
      with_type(x_dtype, [&](auto type) {
        const auto* given = static_cast<const decltype(type)*>(x) + first * w.header.header.inputs;
        parallel(count, [&](int64_t r) { write_row(w, given + r * w.header.header.inputs, some, r); });
      });
      multiply(some, first, count);
    }
  }

 private:
  void multiply(const Rows<X>& x, int64_t first_row, int64_t rows) const {
    const int64_t tiles = (rows + kRows - 1) / kRows, panels = w.num_panels();
    const int64_t chunks = (tiles + kTiles - 1) / kTiles, most = (tiles + chunks - 1) / chunks;
    const auto cut = [&](int64_t i) {
      const int64_t tile = i % tiles;
      return i - tile + std::min(tiles, (tile / most + 1) * most);
    };
    parallel_ranges(panels * tiles, cut, [&](int64_t begin, int64_t end, int64_t next) {
      const int64_t panel = begin / tiles;
      const int64_t ahead = (next / tiles - panel) * w.header.panel_bytes;
      for (int64_t i = begin; i < end; i++) {
        const int64_t tile = i - panel * tiles, row = rows * tile / tiles;
        multiply_tile(x, row, rows * (tile + 1) / tiles - row, first_row + row, panel, i == begin ? ahead : 0);
      }
    });
  }

  void multiply_tile(const Rows<X>& x, int64_t row, int64_t rows, int64_t output_row, int64_t panel, int64_t next) const {
    thread_local Scratch scratch;
    float* const sums = scratch.get<float>(levels * kRows * kPanel);
    const Rows<X> own{x.memory + row * x.stride(), x.padded, x.num_pieces};
    run_tile<Kernel>(static_cast<int>(rows), {w, w.panel(panel), 0, own, sums, next});
    output.write(sums, output_row, rows, panel * kPanel, kColumns);
  }
};

template <class Kernel>
void multiply(const void* x, int64_t x_dtype, int64_t rows, const Coded& w, const Output& output) {
  if (rows) Multiplication<Kernel>{w, output}(x, x_dtype, rows);
}

}  // namespace

void multiply_coded(const void* x, int64_t x_dtype, int64_t rows, const void* packed, const Output& output) {
  const Coded w(packed);
  const bool is_half = w.header.bits == 4;
  if (w.header.is_whole) {
    if (w.header.has_table) return multiply<Whole<4, true>>(x, x_dtype, rows, w, output);
    return is_half ? multiply<Whole<4>>(x, x_dtype, rows, w, output) : multiply<Whole<8>>(x, x_dtype, rows, w, output);
  }
  if (w.header.has_table) return multiply<Float<4, true>>(x, x_dtype, rows, w, output);
  is_half ? multiply<Float<4, false>>(x, x_dtype, rows, w, output) : multiply<Float<8, false>>(x, x_dtype, rows, w, output);
}

}  // namespace penstock

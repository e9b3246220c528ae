// A tile: a few rows of x by some outputs of a panel of coded weights, with the sums of a piece and the totals in registers.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bytes.h"
#include "quantised.h"

namespace penstock {

#define INLINE_LAMBDA __attribute__((always_inline))

constexpr int64_t kAhead = 8 << 10;  // bytes that a panel is read ahead of its use

template <class X>
struct Tile {
  const CodedHeader* header;
  const Piece* pieces;
  const char* panel;
  const X* x;           // of the first row, as Rows has them
  int64_t stride;       // bytes from a row to the next
  const float* scales;  // of the first row's pieces
  int64_t lane;         // of the panel, the first
  float* sums;          // [levels][R][C][16]: a binary counter of segments' sums; or all of them, apart
  const char* next;     // what is to come into the second cache meanwhile, two lines with each step,
  int64_t next_step;    // so many bytes behind those of the step before
  bool is_apart;        // whether segments' sums stay apart

  INLINE const X* numbers(int row, const Piece& piece) const { return at_row(x, row) + piece.padded; }
  INLINE float scale(int row, int64_t piece) const { return at_row(scales, row)[piece]; }
  INLINE float sum(int row, int64_t piece) const { return at_row(scales, row)[piece + header->num_pieces]; }
  INLINE int32_t start(int row, int64_t piece) const {
    return reinterpret_cast<const int32_t*>(at_row(scales, row))[piece + 2 * header->num_pieces];
  }

 private:
  template <class T>
  INLINE const T* at_row(const T* first, int row) const {
    return reinterpret_cast<const T*>(reinterpret_cast<const char*>(first) + row * stride);
  }
};

// The codes of 4 of a step's inputs, the first or the others, for 16 outputs. `planes` has the bits above the fourth.
template <int BITS>
INLINE Bytes four_codes(const uint8_t* codes, const uint8_t* planes, int half) {
  if constexpr (BITS == 8) return load_codes(codes + half * 4 * kPanel);
  const Bytes halves = load_codes(codes);
  Bytes out = half ? high_halves(halves) : low_halves(halves);
  UNROLL for (int bit = 4; bit < BITS; bit++) {
    out = add_where(out, planes + (bit - 4) * kPanel + 8 * half, static_cast<int8_t>(1 << bit));
  }
  return out;
}

// Fetches what C registers of codes need some steps later, and at the next panel.
template <int BITS, int C>
INLINE void prefetch_step(const uint8_t* codes, const char*& next, int64_t next_step) {
  UNROLL for (int bit = 4; BITS < 8 && bit < BITS; bit++) {
    prefetch_near(codes + kAhead + bit * kPanel);
  }
  UNROLL for (int half = 0; half < BITS / 4; half++) {
    UNROLL for (int c = 0; c < C; c++) {
      prefetch_near(codes + kAhead + half * 4 * kPanel + 64 * c);
    }
  }
  prefetch_far(next);
  prefetch_far(next + 64);
  next += next_step;
}

// Codes of BITS, or what they choose from a table, multiplied with whole numbers, exactly.
template <int BITS, bool HAS_TABLE, bool HAS_VNNI>
struct Whole {
  using X = int8_t;
  using Sum = Ints;
  static constexpr int kBytes = kPanel * BITS;  // of a step

  // The zeros are what the sums begin with.
  template <int R, int C>
  static INLINE void begin(Ints (&sums)[R][C], const Tile<X>& t, int64_t index) {
    UNROLL for (int r = 0; r < R; r++) {
      UNROLL for (int c = 0; c < C; c++) sums[r][c] = set_ints(t.start(r, index));
    }
    if (!t.header->has_zeros) return;
    const uint8_t* zeros = zeros_of(*t.header, t.pieces[index], t.panel);
    UNROLL for (int r = 0; r < R; r++) {
      UNROLL for (int c = 0; c < C; c++) sums[r][c] = times(widen(zeros + t.lane + c * kLanes), t.start(r, index));
    }
  }

  template <int R, int C>
  static INLINE void add(Ints (&sums)[R][C], Tile<X>& t, const Piece& piece) {
    const uint8_t* codes = reinterpret_cast<const uint8_t*>(t.panel) + piece.codes + 4 * t.lane;
    const uint8_t* planes = codes + 4 * kPanel - 3 * t.lane;
    const X* x = t.numbers(0, piece);
    const Bytes table = load_codes(t.header->whole);
    for (int step = 0; step < piece.steps; step++, codes += kBytes, planes += kBytes, x += kStepInputs) {
      prefetch_step<BITS, C>(codes, t.next, t.next_step);
      UNROLL for (int half = 0; half < 2; half++) {
        Bytes column[C];
        UNROLL for (int c = 0; c < C; c++) {
          column[c] = four_codes<BITS>(codes + 64 * c, planes + 16 * c, half);
          if (HAS_TABLE) column[c] = choose(table, column[c]);
        }
        UNROLL for (int r = 0; r < R; r++) {
          const Four four = load_four(x + r * t.stride + 4 * half);
          UNROLL for (int c = 0; c < C; c++) add_dot<HAS_VNNI, BITS != 8 && !HAS_TABLE>(sums[r][c], column[c], four);
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
  static INLINE void begin(Vec (&sums)[R][C], const Tile<X>&, int64_t) {
    UNROLL for (int r = 0; r < R; r++) {
      UNROLL for (int c = 0; c < C; c++) sums[r][c] = zero();
    }
  }

  template <int R, int C>
  static INLINE void add(Vec (&sums)[R][C], Tile<X>& t, const Piece& piece) {
    const CodedHeader& header = *t.header;
    const Table table(header.table);
    Ints zeros[C];
    UNROLL for (int c = 0; c < C; c++) {
      zeros[c] = header.has_zeros ? widen(zeros_of(header, piece, t.panel) + t.lane + c * kLanes)
                                  : set_ints(static_cast<int32_t>(header.zero));
    }
    const uint8_t* codes = reinterpret_cast<const uint8_t*>(t.panel) + piece.codes + 4 * t.lane;
    const uint8_t* planes = codes + 4 * kPanel - 3 * t.lane;
    const float* x = t.numbers(0, piece);
    const int64_t stride = t.stride / static_cast<int64_t>(sizeof(float));
    const auto add_one = [&]<int K>() INLINE_LAMBDA {
      UNROLL for (int c = 0; c < C; c++) {
        const Bytes four = BITS == 4 ? load_codes(codes + 64 * c) : four_codes<BITS>(codes + 64 * c, planes + 16 * c, K / 4);
        const Ints code = code_of<BITS, K>(four);
        const Vec level = HAS_TABLE ? table[code] : to_floats(code - zeros[c]);
        UNROLL for (int r = 0; r < R; r++) sums[r][c] = fma(set(x[r * stride + K]), level, sums[r][c]);
      }
    };
    for (int step = 0; step < piece.steps; step++, codes += kBytes, planes += kBytes, x += kStepInputs) {
      prefetch_step<BITS, C>(codes, t.next, t.next_step);
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

// Adds a piece to the totals, which are nothing yet if it is FIRST: they need no registers before its sums are done then.
template <class Kernel, bool FIRST, int R, int C>
INLINE void add_piece(Tile<typename Kernel::X>& t, int64_t index, Vec (&totals)[R][C]) {
  const CodedHeader& header = *t.header;
  const Piece& piece = t.pieces[index];
  const bool has_minima = header.minima != Numbers::kNone;
  alignas(64) float scales[C * kLanes], minima[C * kLanes];  // done before the sums need all registers
  load_scales<C>(header, piece, t.panel, t.lane, scales);
  if (has_minima) load_minima<C>(header, piece, t.panel, t.lane, minima);
  typename Kernel::Sum sums[R][C];
  Kernel::begin(sums, t, index);
  Kernel::add(sums, t, piece);
  if (FIRST) {
    UNROLL for (int r = 0; r < R; r++) {
      UNROLL for (int c = 0; c < C; c++) totals[r][c] = zero();
    }
  }
  if (has_minima) {
    UNROLL for (int r = 0; r < R; r++) {
      UNROLL for (int c = 0; c < C; c++) {
        totals[r][c] = Kernel::total(to_floats(sums[r][c]), load(scales + c * kLanes), set(t.sum(r, index)),
                                     load(minima + c * kLanes), set(t.scale(r, index)), totals[r][c]);
      }
    }
  } else {
    UNROLL for (int r = 0; r < R; r++) {
      UNROLL for (int c = 0; c < C; c++) {
        totals[r][c] = Kernel::total(to_floats(sums[r][c]), load(scales + c * kLanes), set(t.scale(r, index)), totals[r][c]);
      }
    }
  }
}

template <class Kernel, int R, int C>
[[gnu::noinline]] void run_tile(const Tile<typename Kernel::X>& given) {
  auto t = given;  // no store can change what has no address
  float* done = t.sums;
  Vec totals[R][C];
  for (int64_t i = 0, count = t.header->num_pieces; i < count; i++) {
    const bool is_first = i == 0 || t.pieces[i - 1].merges >= 0;
    is_first ? add_piece<Kernel, true>(t, i, totals) : add_piece<Kernel, false>(t, i, totals);
    const int merges = t.pieces[i].merges;
    if (merges < 0) continue;
    for (int m = 0; m < merges && !t.is_apart; m++) {
      done -= R * C * kLanes;
      UNROLL for (int r = 0; r < R; r++) {
        UNROLL for (int c = 0; c < C; c++) totals[r][c] = load(done + (r * C + c) * kLanes) + totals[r][c];
      }
    }
    UNROLL for (int r = 0; r < R; r++) {
      UNROLL for (int c = 0; c < C; c++) store(done + (r * C + c) * kLanes, totals[r][c]);
    }
    done += R * C * kLanes;
  }
}

}  // namespace penstock

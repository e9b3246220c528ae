// Where a coded weight's codes are, and what makes numbers of them (kernels/quantised_linear has the contract).
//
// A panel of outputs is one stream: for each piece of the inputs its scales, its zeros or minima, and its codes in steps
// of 8 inputs. A lane of a register is an output. Codes of 4 bits: byte j of a lane has input j of the step in its low
// half and input 4 + j in its high one; of 8 bits: the first 4 inputs of all lanes, then the others. Of 5 and 6 bits: the
// lowest 4 like those, then the fifth bits of all, then the sixth, each for 16 lanes in the order of bytes: those of the
// first 4 inputs, those of the others. The last step of a piece may be padded, where x is 0.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "abi.h"
#include "bytes.h"
#include "output.h"
#include "packed.h"
#include "vec.h"

namespace penstock {

constexpr int kStepInputs = 8;

enum class Numbers : int64_t {  // how a piece's scales or minima are stored
  kNone,
  kHalf,     // float16, which holds them exactly
  kFloat,    // float32
  kSigned,   // int8, of which each is times a float32 of the span
  kUnsigned  // uint8, likewise
};

struct CodedHeader {
  Header header;
  int64_t bits, zero, is_whole;  // is_whole: activations in 8 bits
  Numbers scales, minima;
  int64_t has_zeros, has_table;
  int64_t num_pieces, panel_bytes, padded_inputs;
  alignas(64) float table[16];
  alignas(64) uint8_t whole[64];  // four times the table's levels, each `zero` more, where activations are whole
};

// The inputs [begin, begin + width) of the weight, which share a scale.
struct Piece {
  int64_t meta, codes;           // bytes from the panel's begin
  int64_t span;                  // where the panel has the numbers of the span
  int32_t begin, width, steps;
  int32_t padded;                // where these inputs begin in a row of x
  int32_t merges;                // of waiting segments' sums at its end; -1 within a segment
  int32_t group, span_index;     // where its numbers are in the CodedWeight
};

inline int64_t bytes_of(Numbers numbers) {
  return numbers == Numbers::kFloat ? 4 : numbers == Numbers::kHalf ? 2 : numbers == Numbers::kNone ? 0 : 1;
}
inline bool has_span(Numbers numbers) { return numbers == Numbers::kSigned || numbers == Numbers::kUnsigned; }

// A packed coded weight.
struct Coded {
  const CodedHeader& header;
  const Piece* pieces;
  const char* panels;

  explicit Coded(const void* packed)
      : header(*static_cast<const CodedHeader*>(packed)),
        pieces(reinterpret_cast<const Piece*>(&header + 1)),
        panels(reinterpret_cast<const char*>(&header + 1) + piece_bytes(header.num_pieces)) {}

  static int64_t piece_bytes(int64_t count) { return (count * static_cast<int64_t>(sizeof(Piece)) + 63) / 64 * 64; }
  int64_t num_panels() const { return (header.header.outputs + kPanel - 1) / kPanel; }
  const char* panel(int64_t index) const { return panels + index * header.panel_bytes; }
};

// Sixteen of a piece's numbers, as float32.
INLINE Vec load_numbers(Numbers numbers, const char* from, const float* of_span, int64_t lane) {
  if (numbers == Numbers::kHalf) return load(reinterpret_cast<const f16*>(from) + lane);
  if (numbers == Numbers::kFloat) return load(reinterpret_cast<const float*>(from) + lane);
  if (numbers == Numbers::kNone) return zero();
  const Vec factors = numbers == Numbers::kSigned ? load_bytes(reinterpret_cast<const int8_t*>(from) + lane)
                                                  : load_bytes(reinterpret_cast<const uint8_t*>(from) + lane);
  return factors * load(of_span + lane);
}
// The scales of a piece, for the COLUMNS registers of outputs from `lane` of the panel on; then its minima.
template <int COLUMNS>
INLINE void load_scales(const CodedHeader& header, const Piece& piece, const char* panel, int64_t lane, float* to) {
  const auto* const of_span = reinterpret_cast<const float*>(panel + piece.span);
  UNROLL for (int i = 0; i < COLUMNS * kLanes; i += kLanes) {
    store(to + i, load_numbers(header.scales, panel + piece.meta, of_span, lane + i));
  }
}
template <int COLUMNS>
INLINE void load_minima(const CodedHeader& header, const Piece& piece, const char* panel, int64_t lane, float* to) {
  const char* const from = panel + piece.meta + bytes_of(header.scales) * kPanel;
  const auto* const of_span = reinterpret_cast<const float*>(panel + piece.span) + has_span(header.scales) * kPanel;
  UNROLL for (int i = 0; i < COLUMNS * kLanes; i += kLanes) {
    store(to + i, load_numbers(header.minima, from, of_span, lane + i));
  }
}
// The zeros of a piece, a byte for each output.
INLINE const uint8_t* zeros_of(const CodedHeader& header, const Piece& piece, const char* panel) {
  return reinterpret_cast<const uint8_t*>(panel) + piece.meta + bytes_of(header.scales) * kPanel;
}

void coded_rows(const void* packed, const int64_t* ids, int64_t count, int64_t dtype, void* out);

}  // namespace penstock

// Coded weights into panels, and rows of them out again.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "abi.h"
#include "pool.h"
#include "quantised.h"

namespace penstock {
namespace {

// How a matrix of numbers [outputs, columns] is stored: without loss in as few bytes as do.
Numbers kind_of(const float* numbers, const int16_t* factors, int64_t count, int64_t factor_count) {
  if (!numbers) return Numbers::kNone;
  if (factors) return *std::min_element(factors, factors + factor_count) < 0 ? Numbers::kSigned : Numbers::kUnsigned;
  const auto is_half = [](float x) { return to_float(to_f16(x)) == x; };
  return std::all_of(numbers, numbers + count, is_half) ? Numbers::kHalf : Numbers::kFloat;
}

// The bits that codes need: of a file's 8 there may be 5 or 6 in use.
int64_t bits_of(const CodedWeight& w) {
  if (w.bits == 4) return 4;
  uint8_t used = 0;
  for (int64_t i = 0, count = w.outputs * w.inputs; i < count; i++) used |= w.codes[i];
  return used < 16 ? 4 : used < 32 ? 5 : used < 64 ? 6 : 8;
}

int64_t num_groups(int64_t start, int64_t inputs, int64_t group) {
  return inputs ? (start + inputs + group - 1) / group - start / group : 0;
}

// The pieces of a weight: cut at multiples of the group, counted in the whole, and at the ends of segments.
std::vector<Piece> cut(const CodedWeight& w) {
  std::vector<Piece> pieces;
  const int64_t width = w.inputs / w.segments;
  for (int64_t segment = 0; segment < w.segments; segment++) {
    for (int64_t begin = segment * width, end; begin < (segment + 1) * width; begin = end) {
      const int64_t at = w.start + begin, span = w.span ? w.span : w.group;
      end = std::min((segment + 1) * width, (at / w.group + 1) * w.group - w.start);
      Piece piece{};
      piece.begin = static_cast<int32_t>(begin);
      piece.width = static_cast<int32_t>(end - begin);
      piece.steps = (piece.width + kStepInputs - 1) / kStepInputs;
      piece.merges = end == (segment + 1) * width ? std::countr_one(static_cast<uint64_t>(segment)) : -1;
      piece.group = static_cast<int32_t>(at / w.group - w.start / w.group);
      piece.span_index = static_cast<int32_t>(at / span - w.start / span);
      pieces.push_back(piece);
    }
  }
  return pieces;
}

// Lays the pieces out one behind the other in a panel; a span's numbers lie before the first of its pieces.
void lay_out(CodedHeader& header, std::vector<Piece>& pieces) {
  const int64_t of_piece = kPanel * (bytes_of(header.scales) + bytes_of(header.minima) + header.has_zeros);
  const int64_t of_span = 4 * kPanel * (has_span(header.scales) + has_span(header.minima));
  int64_t at = 0, span_at = 0, padded = 0;
  for (size_t i = 0; i < pieces.size(); i++) {
    Piece& piece = pieces[i];
    if (i == 0 || piece.span_index != pieces[i - 1].span_index) span_at = at, at += of_span;
    piece.span = span_at;
    piece.meta = at;
    piece.codes = at + of_piece;
    piece.padded = static_cast<int32_t>(padded);
    at = piece.codes + piece.steps * kPanel * header.bits;
    padded += piece.steps * kStepInputs;
  }
  header.num_pieces = static_cast<int64_t>(pieces.size());
  header.panel_bytes = (at + 63) / 64 * 64;
  header.padded_inputs = padded;
}

CodedHeader make_header(const CodedWeight& w, std::vector<Piece>& pieces) {
  CodedHeader header{};
  header.header = {kQuantised, w.outputs, w.inputs, w.segments};
  header.bits = bits_of(w);
  header.zero = w.zero;
  header.is_whole = w.is_whole;
  const int64_t groups = num_groups(w.start, w.inputs, w.group) * w.outputs;
  const int64_t coarse = w.span ? num_groups(w.start, w.inputs, w.span) * w.outputs : groups;
  header.scales = kind_of(w.scales, w.factors, coarse, groups);
  header.minima = kind_of(w.minima, w.offsets, coarse, groups);
  header.has_zeros = w.zeros != nullptr;
  header.has_table = w.table != nullptr;
  if (w.table) {
    std::copy_n(w.table, 16, header.table);
    if (w.is_whole) header.zero = static_cast<int64_t>(-*std::min_element(w.table, w.table + 16));
    for (int i = 0; w.is_whole && i < 64; i++) header.whole[i] = static_cast<uint8_t>(w.table[i % 16] + static_cast<float>(header.zero));
  }
  pieces = cut(w);
  lay_out(header, pieces);
  return header;
}

// Writes the panels of a weight.
struct Packer {
  const CodedWeight& w;
  const CodedHeader& header;
  const std::vector<Piece>& pieces;

  void write(int64_t first, char* panel) const {
    for (const Piece& piece : pieces) {
      for (int64_t lane = 0; lane < std::min<int64_t>(kPanel, w.outputs - first); lane++) {
        write_numbers(piece, first + lane, lane, panel);
        const uint8_t* const codes = w.codes + (first + lane) * w.inputs + piece.begin;
        char* const to = panel + piece.codes + 4 * lane;
        if (header.bits == 8) {
          write_bytes(codes, piece, to);
        } else {
          write_halves(codes, piece, to);
          for (int bit = 4; bit < header.bits; bit++) write_bits(codes, piece, bit, lane, panel + piece.codes + bit * kPanel);
        }
      }
    }
  }

 private:
  void write_numbers(const Piece& piece, int64_t output, int64_t lane, char* panel) const {
    const int64_t groups = num_groups(w.start, w.inputs, w.group), spans = num_groups(w.start, w.inputs, w.span ? w.span : 1);
    const auto put = [&](Numbers kind, const float* numbers, const int16_t* factors, char* at, char* span) {
      const int64_t of_group = output * groups + piece.group, of_span = output * spans + piece.span_index;
      if (kind == Numbers::kHalf) reinterpret_cast<uint16_t*>(at)[lane] = to_f16(numbers[of_group]).bits;
      if (kind == Numbers::kFloat) reinterpret_cast<float*>(at)[lane] = numbers[of_group];
      if (has_span(kind)) {
        at[lane] = static_cast<char>(factors[of_group]);
        reinterpret_cast<float*>(span)[lane] = numbers[of_span];
      }
    };
    char* const meta = panel + piece.meta;
    char* const behind = meta + bytes_of(header.scales) * kPanel;
    char* const span = panel + piece.span;
    put(header.scales, w.scales, w.factors, meta, span);
    put(header.minima, w.minima, w.offsets, behind, span + (has_span(header.scales) ? 4 * kPanel : 0));
    if (header.has_zeros) behind[lane] = static_cast<char>(w.zeros[output * groups + piece.group]);
  }

  // Calls take(codes, to) with the codes of each step's 8 inputs in ascending bytes, and where the step is.
  template <class Take>
  void each_step(const uint8_t* codes, const Piece& piece, char* to, Take take) const {
    static_assert(kStepInputs == 8);
    for (int left = piece.width; left > 0; left -= 8, codes += 8, to += header.bits * kPanel) {
      uint64_t eight = 0;
      left >= 8 ? std::memcpy(&eight, codes, 8) : std::memcpy(&eight, codes, static_cast<size_t>(left));
      take(eight, to);
    }
  }

  void write_halves(const uint8_t* codes, const Piece& piece, char* to) const {
    each_step(codes, piece, to, [](uint64_t eight, char* at) {
      eight &= 0x0F0F0F0F0F0F0F0F;
      const uint32_t halves = static_cast<uint32_t>(eight) | static_cast<uint32_t>(eight >> 32) << 4;
      std::memcpy(at, &halves, 4);
    });
  }

  // A lane's four bits of the first inputs, and 8 bytes behind them those of the others.
  void write_bits(const uint8_t* codes, const Piece& piece, int bit, int64_t lane, char* plane) const {
    char* const to = plane + lane / kLanes * kLanes + lane % kLanes / 2;
    each_step(codes, piece, to, [&](uint64_t eight, char* at) {
      const uint64_t ones = eight >> bit & 0x0101010101010101;
      const auto together = static_cast<uint8_t>(ones * 0x0102040810204080 >> 56);  // of byte j in bit j
      at[0] = static_cast<char>(at[0] | (together & 15) << lane % 2 * 4);
      at[8] = static_cast<char>(at[8] | together >> 4 << lane % 2 * 4);
    });
  }

  static void write_bytes(const uint8_t* codes, const Piece& piece, char* to) {
    for (int four = 0; four < 2 * piece.steps; four++, to += 4 * kPanel) {
      const int count = std::clamp(piece.width - 4 * four, 0, 4);
      std::memcpy(to, codes + 4 * four, static_cast<size_t>(count));
    }
  }
};

int64_t size_of(const CodedHeader& header) {
  const int64_t panels = (header.header.outputs + kPanel - 1) / kPanel;
  return static_cast<int64_t>(sizeof header) + Coded::piece_bytes(header.num_pieces) + panels * header.panel_bytes;
}

// The code of an input that is `k` from the begin of its piece.
int code_at(const Coded& w, const Piece& piece, const char* panel, int64_t lane, int64_t k) {
  const int64_t step = k / kStepInputs, within = k % kStepInputs;
  if (w.header.bits == 8) {
    return static_cast<uint8_t>(panel[piece.codes + (2 * step + within / 4) * 4 * kPanel + 4 * lane + within % 4]);
  }
  const char* const codes = panel + piece.codes + step * w.header.bits * kPanel;
  const int byte = static_cast<uint8_t>(codes[4 * lane + within % 4]);
  int code = within < 4 ? byte & 15 : byte >> 4;
  for (int bit = 4; bit < w.header.bits; bit++) {
    const char* const bits = codes + bit * kPanel + lane / kLanes * kLanes + within / 4 * 8 + lane % kLanes / 2;
    code |= (static_cast<uint8_t>(*bits) >> (lane % 2 * 4 + within % 4) & 1) << bit;
  }
  return code;
}

void write_row(const Coded& w, int64_t output, float* to) {
  const char* const panel = w.panel(output / kPanel);
  const int64_t lane = output % kPanel, column = lane / kLanes * kLanes;
  for (int64_t i = 0; i < w.header.num_pieces; i++) {
    const Piece& piece = w.pieces[i];
    alignas(64) float scales[kLanes], minima[kLanes];
    load_scales<1>(w.header, piece, panel, column, scales);
    load_minima<1>(w.header, piece, panel, column, minima);
    const float scale = scales[lane % kLanes], minimum = minima[lane % kLanes];
    const int zero = w.header.has_zeros ? zeros_of(w.header, piece, panel)[lane] : static_cast<int>(w.header.zero);
    for (int64_t k = 0; k < piece.width; k++) {
      const int code = code_at(w, piece, panel, lane, k);
      const float level = w.header.has_table ? w.header.table[code] : static_cast<float>(code - zero);
      const float value = level * scale;
      to[piece.begin + k] = w.header.minima == Numbers::kNone ? value : value + minimum;
    }
  }
}

}  // namespace

void coded_rows(const void* packed, const int64_t* ids, int64_t count, int64_t dtype, void* out) {
  const Coded w(packed);
  const int64_t inputs = w.header.header.inputs;
  parallel(count, [&](int64_t i) {
    thread_local std::vector<float> row;
    row.resize(static_cast<size_t>(inputs) + kLanes);
    write_row(w, ids[i], row.data());
    with_type(dtype, [&](auto type) {
      auto* to = static_cast<decltype(type)*>(out) + i * inputs;
      for (int64_t k = 0; k < inputs; k += kLanes) store(to + k, load(row.data() + k), inputs - k);
    });
  });
}

}  // namespace penstock

using namespace penstock;

extern "C" void penstock_packed_coded_size(const CodedWeight* weight, int64_t* size) {
  std::vector<Piece> pieces;
  *size = size_of(make_header(*weight, pieces));
}

extern "C" void penstock_pack_coded(const CodedWeight* weight, void* packed) {
  std::vector<Piece> pieces;
  const CodedHeader header = make_header(*weight, pieces);
  char* to = static_cast<char*>(packed);
  std::memcpy(to, &header, sizeof header);
  std::memcpy(to + sizeof header, pieces.data(), pieces.size() * sizeof(Piece));
  to += sizeof header + Coded::piece_bytes(header.num_pieces);
  const Packer packer{*weight, header, pieces};
  parallel((weight->outputs + kPanel - 1) / kPanel, [&](int64_t i) {
    char* const panel = to + i * header.panel_bytes;
    std::memset(panel, 0, static_cast<size_t>(header.panel_bytes));  // lanes without an output, and inputs without a piece
    packer.write(i * kPanel, panel);
  });
}

// y = x wᵀ + bias for coded weights. The sums within a piece of the inputs are exact, or in the order of the dense
// weights' steps; pieces are added in ascending order, segments in a binary tree (kernels/quantised_linear).

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "abi.h"
#include "linear.h"
#include "pool.h"
#include "quantised.h"
#include "quantised_rows.h"
#include "quantised_tile.h"
#include "ranges.h"
#include "scratch.h"
#include "units.h"

namespace penstock {
namespace {

constexpr int64_t kRowsAtATime = 256;
constexpr int kFewTiles = 3;
constexpr int kColumns = kPanel / kLanes;
#if HAS_WIDE_VEC
constexpr bool kHasManyRegisters = true;
#else
constexpr bool kHasManyRegisters = false;
#endif

// Registers of outputs that leave others for the totals of so many rows. Such a tile passes over its panel twice, so the
// first one, for which the panel comes from memory, takes all outputs at once, and so do a few over 8 bits: their panels
// are too large for the first cache. Segments of one piece need no totals beside its sums.
constexpr int columns_of(int rows) { return rows <= kRows / 2 ? kColumns : std::max(1, kColumns / 2); }

template <class Kernel, int R>
void run_tile(int columns, const Tile<typename Kernel::X>& t) {
  columns == kColumns ? run_tile<Kernel, R, kColumns>(t) : run_tile<Kernel, R, columns_of(R)>(t);
}

template <class Kernel>
void run_tile(int rows, int columns, const Tile<typename Kernel::X>& t) {
  switch (rows) {
    case 1: return run_tile<Kernel, 1>(columns, t);
    case 2: return run_tile<Kernel, 2>(columns, t);
    case 3: return run_tile<Kernel, 3>(columns, t);
    case 4: return run_tile<Kernel, 4>(columns, t);
    case 5: return run_tile<Kernel, 5>(columns, t);
    case 6: return run_tile<Kernel, 6>(columns, t);
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
        parallel(count, [&](int64_t r) { write_row(w, given + r * w.header.header.inputs, some[r]); });
      });
      multiply(some, first, count);
    }
  }

  // Some units of rows of x, which are those from first_row on of the output; most likely the panel at `next` is read next.
  void multiply_piece(const Rows<X>& x, int64_t first_row, const Units& units, int64_t begin, int64_t end,
                      const char* next) const {
    const bool has_no_totals = w.header.num_pieces == w.header.header.segments && kHasManyRegisters;
    const int64_t panel = units.panel(begin), count = end - begin;
    const int64_t next_step = next == w.panel(panel) ? 0 : (Kernel::kBytes / count + 63) / 64 * 64;
    for (int64_t i = 0; i < count; i++) {
      const int64_t tile = units.tile(begin) + i, row = units.first_row(tile);
      const char* const slice = next + w.header.panel_bytes * i / count;
      const bool is_wide = i == 0 || has_no_totals || (w.header.bits == 8 && count <= kFewTiles);
      multiply_tile(x, row, units.num_rows(tile), first_row + row, panel, is_wide, slice, next_step);
    }
  }

 private:
  void multiply(const Rows<X>& x, int64_t first_row, int64_t rows) const {
    const Units units(rows, w.num_panels());
    const auto cut = [&](int64_t unit) { return units.end_of_piece(unit); };
    parallel_ranges(units.count(), cut, [&](int64_t begin, int64_t end, int64_t next) {
      multiply_piece(x, first_row, units, begin, end, w.panel(units.panel(next)));
    });
  }

  void multiply_tile(const Rows<X>& x, int64_t row, int64_t rows, int64_t output_row, int64_t panel, bool is_wide,
                     const char* next, int64_t next_step) const {
    thread_local Scratch scratch;
    float* const sums = scratch.get<float>(levels * kRows * kPanel);
    const int count = static_cast<int>(rows), columns = is_wide ? kColumns : columns_of(count);
    for (int64_t lane = 0; lane < kPanel; lane += columns * kLanes) {
      Fetch others = output.fetch(output_row, rows, panel * kPanel + lane, columns);
      others.fetch(others.lines());
      run_tile<Kernel>(count, columns, {&w.header, w.pieces, w.panel(panel), x[row].numbers, x.stride(), x[row].scales,
                                        lane, sums, next, next_step, false});
      output.write(sums, output_row, rows, panel * kPanel + lane, columns);
    }
  }
};

// The rows of x by the panels of a group.
template <class Kernel>
void add_apart(const Coded& w, const Rows<typename Kernel::X>& x, int64_t rows, int64_t group, const Totals& totals) {
  thread_local Scratch scratch;
  const Units units(rows, 1);
  float* const sums = scratch.get<float>((w.header.header.segments + 1) * kRows * kPanel);
  const int64_t end = std::min<int64_t>(w.num_panels(), (group + 1) * (kGroup / kPanel));
  for (int64_t panel = group * (kGroup / kPanel); panel < end; panel++) {
    for (int64_t tile = 0; tile < units.tiles; tile++) {
      const int64_t row = units.first_row(tile);
      const int count = units.num_rows(tile), columns = tile == 0 ? kColumns : columns_of(count);
      for (int64_t lane = 0; lane < kPanel; lane += columns * kLanes) {
        run_tile<Kernel>(count, columns, {&w.header, w.pieces, w.panel(panel), x[row].numbers, x.stride(),
                                          x[row].scales, lane, sums, w.panel(panel), 0, true});
        for (int64_t s = 0; s < w.header.header.segments; s++) {
          totals.add(sums + s * count * columns * kLanes, row, count, s, panel % (kGroup / kPanel) * kPanel + lane,
                     columns);
        }
      }
    }
  }
}

std::atomic<bool> uses_dot_products = has_byte_dot_products();

// f(Kernel) for the kernel that a weight wants.
template <class F>
void with_kernel(const Coded& w, F&& f) {
  const auto whole = [&]<bool HAS_VNNI>(std::bool_constant<HAS_VNNI>) {
    if (w.header.has_table) return f(std::type_identity<Whole<4, true, HAS_VNNI>>{});
    if (w.header.bits == 4) return f(std::type_identity<Whole<4, false, HAS_VNNI>>{});
    if (w.header.bits == 5) return f(std::type_identity<Whole<5, false, HAS_VNNI>>{});
    if (w.header.bits == 6) return f(std::type_identity<Whole<6, false, HAS_VNNI>>{});
    f(std::type_identity<Whole<8, false, HAS_VNNI>>{});
  };
  if (w.header.is_whole) return uses_dot_products ? whole(std::true_type{}) : whole(std::false_type{});
  if (w.header.has_table) return f(std::type_identity<Float<4, true>>{});
  if (w.header.bits == 4) return f(std::type_identity<Float<4, false>>{});
  if (w.header.bits == 5) return f(std::type_identity<Float<5, false>>{});
  if (w.header.bits == 6) return f(std::type_identity<Float<6, false>>{});
  f(std::type_identity<Float<8, false>>{});
}

template <class Kernel>
Rows<typename Kernel::X> rows_of(const Coded& w, const void* memory) {
  return {static_cast<std::byte*>(const_cast<void*>(memory)), w.header.padded_inputs, w.header.num_pieces};
}

}  // namespace

void multiply_coded(const void* x, int64_t x_dtype, int64_t rows, const void* packed, const Output& output) {
  const Coded w(packed);
  if (!rows) return;
  with_kernel(w, [&]<class Kernel>(std::type_identity<Kernel>) { Multiplication<Kernel>{w, output}(x, x_dtype, rows); });
}

int64_t prepared_bytes_of_coded(const void* packed) {
  const Coded w(packed);
  int64_t bytes = 0;
  with_kernel(w, [&]<class Kernel>(std::type_identity<Kernel>) { bytes = rows_of<Kernel>(w, nullptr).stride(); });
  return bytes;
}

void prepare_row_of_coded(const void* packed, const void* x, int64_t x_dtype, void* prepared) {
  const Coded w(packed);
  with_kernel(w, [&]<class Kernel>(std::type_identity<Kernel>) {
    with_type(x_dtype, [&](auto type) {
      write_row(w, static_cast<const decltype(type)*>(x), rows_of<Kernel>(w, prepared)[0]);
    });
  });
}

void add_apart_of_coded(const void* packed, const void* prepared, int64_t rows, int64_t group, const Totals& totals) {
  const Coded w(packed);
  with_kernel(w, [&]<class Kernel>(std::type_identity<Kernel>) {
    add_apart<Kernel>(w, rows_of<Kernel>(w, prepared), rows, group, totals);
  });
}

Units units_of_coded(const void* packed, int64_t rows) { return {rows, Coded(packed).num_panels()}; }

const char* panel_of_coded(const void* packed, int64_t panel) { return Coded(packed).panel(panel); }

void multiply_piece_of_coded(const Product& product, const Units& units, int64_t begin, int64_t end, const char* next) {
  const Coded w(product.packed);
  with_kernel(w, [&]<class Kernel>(std::type_identity<Kernel>) {
    Multiplication<Kernel>{w, product.output}.multiply_piece(rows_of<Kernel>(w, product.prepared), 0, units, begin, end,
                                                             next);
  });
}

}  // namespace penstock

extern "C" void penstock_use_dot_products(int64_t allowed) {
  penstock::uses_dot_products = allowed && penstock::has_byte_dot_products();
}

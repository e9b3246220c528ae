// y = x wᵀ + bias, where each element of y is summed over k in one order, whatever the number of rows and threads.
//
// The weight is in panels (packed.h). A tile is a few rows by the outputs of a panel, with its sums in registers for as
// long as a block of k lasts; that they go to memory between two blocks and come back changes no bit of them.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <vector>

#include "abi.h"
#include "linear.h"
#include "linear_tile.h"
#include "output.h"
#include "packed.h"
#include "pool.h"
#include "quantised.h"
#include "ranges.h"
#include "scratch.h"
#include "units.h"
#include "vec.h"

namespace penstock {
namespace {

constexpr int64_t kBlockBytes = 16 << 10;  // of a panel: stays in the first cache while the tiles pass over it
constexpr int64_t kConvertedRows = 512;    // of x at a time, where x has to be converted

// Rows of x as the kernel wants them: its type, each segment padded as the weight's are.
template <class To, class From, class W>
void convert(const From* from, const Layout<W>& layout, To* to) {
  const int64_t padded = layout.steps * kDepth<W>;
  for (int64_t s = 0; s < layout.segments; s++, from += layout.width, to += padded) {
    if constexpr (std::is_same_v<To, From>) {
      std::memcpy(to, from, static_cast<size_t>(layout.width) * sizeof(To));
    } else {
      for (int64_t k = 0; k < layout.width; k += kLanes) {
        store(to + k, load(from + k, layout.width - k), layout.width - k);
      }
    }
    std::fill(to + layout.width, to + padded, To{});
  }
}

template <class Kernel>
struct Linear {
  using X = typename Kernel::X;
  using W = typename Kernel::W;

  Layout<W> layout;
  const W* w;
  Output output;

  void operator()(const void* x, int64_t x_dtype, int64_t rows) const {
    with_type(x_dtype, [&](auto type) {
      using From = decltype(type);
      if constexpr (std::is_same_v<From, X> || std::is_same_v<X, float>) {
        const auto* given = static_cast<const From*>(x);
        const int64_t inputs = layout.segments * layout.width;
        if constexpr (std::is_same_v<From, X>) {
          if (!layout.is_padded()) return multiply(given, 0, rows);
        }
        thread_local Scratch scratch;
        X* converted = scratch.get<X>(std::min(rows, kConvertedRows) * layout.padded_inputs());
        for (int64_t first = 0; first < rows; first += kConvertedRows) {
          const int64_t count = std::min(rows - first, kConvertedRows);
          parallel((count + 7) / 8, [&](int64_t i) {
            for (int64_t r = 8 * i; r < std::min(count, 8 * i + 8); r++) {
              convert(given + (first + r) * inputs, layout, converted + r * layout.padded_inputs());
            }
          });
          multiply(converted, first, count);
        }
      }
    });
  }

  // The rows of x, which are as `convert` makes them, by the outputs of a group.
  void add_apart(const X* x, int64_t rows, int64_t group, const Totals& totals) const {
    thread_local Scratch scratch;
    const Units units(rows, 1);
    float* const sums = scratch.get<float>(kTiles * kRows * kPanel);
    for (int64_t begin = 0, end; begin < units.tiles; begin = end) {
      end = units.end_of_piece(begin);
      const int columns = columns_of(units.num_rows(end - 1));
      for (int column = 0; column < kColumns; column += columns) {
        const W* panel = w + group * layout.group_size() + column * layout.column_stride();
        Fetch others;
        const auto take = [&](int64_t tile, int64_t s, const float* from) {
          totals.add(from, units.first_row(tile), units.num_rows(tile), s, column * kLanes, columns);
        };
        sum_columns(x, units, begin, end, panel, 0, sums, kRows * kPanel, others, take);
      }
    }
  }

  Units units(int64_t rows) const { return {rows, layout.groups}; }
  const char* panel(int64_t group) const { return reinterpret_cast<const char*>(w + group * layout.group_size()); }

  // Some units of rows of x, which are those from first_row on of the output; most likely the panel at `next` is read next.
  void multiply_piece(const X* x, int64_t first_row, const Units& units, int64_t begin, int64_t end,
                      const char* next) const {
    thread_local Scratch scratch;
    const int64_t group = units.panel(begin), ahead = next - panel(group);
    const int64_t first = units.tile(begin), last = first + end - begin;
    const int columns = columns_of(units.num_rows(last - 1));  // of one row or two only if there is no other tile
    const int64_t sums_size = kRows * kPanel, levels = std::bit_width(static_cast<uint64_t>(layout.segments));
    float* sums = scratch.get<float>((end - begin) * levels * sums_size);
    for (int column = 0; column < kColumns; column += columns) {
      const W* own = w + group * layout.group_size() + column * layout.column_stride();
      const int64_t row = units.first_row(first);
      Fetch others = output.fetch(first_row + row, units.first_row(last) - row, group * kGroup + column * kLanes, columns);
      sum_columns(x, units, first, last, own, ahead, sums, levels * sums_size, others, nullptr);
      for (int64_t t = first; t < last; t++) {
        output.write(sums + (t - first) * levels * sums_size, first_row + units.first_row(t), units.num_rows(t),
                     group * kGroup + column * kLanes, columns);
      }
    }
  }

 private:
  // x has `rows` rows, which are those from first_row on of the output.
  void multiply(const X* x, int64_t first_row, int64_t rows) const {
    const Units all = units(rows);
    const auto cut = [&](int64_t unit) { return all.end_of_piece(unit); };
    parallel_ranges(all.count(), cut, [&](int64_t begin, int64_t end, int64_t next) {
      multiply_piece(x, first_row, all, begin, end, panel(all.panel(next)));
    });
  }

  // Segment sums wait in a binary counter of tiles: after segment s there is one for each bit of s + 1. Where there is a
  // `take`, it is given each tile's sums of each segment instead. `others` are fetched meanwhile.
  template <class Take>
  void sum_columns(const X* x, const Units& units, int64_t begin, int64_t end, const W* panel, int64_t ahead, float* sums,
                   int64_t sums_stride, Fetch& others, Take take) const {
    constexpr bool kIsApart = !std::is_same_v<Take, std::nullptr_t>;
    constexpr int64_t kStep = Layout<W>::kStep, kStepBytes = kStep * static_cast<int64_t>(sizeof(W));
    const int64_t block = end - begin == 1 ? std::max<int64_t>(layout.steps, 1) : kBlockBytes / kStepBytes;
    const int columns = columns_of(units.num_rows(end - 1));
    const int64_t runs = layout.segments * std::max<int64_t>((layout.steps + block - 1) / block, 1) * (end - begin);
    const int64_t lines = (others.lines() + runs - 1) / runs;
    for (uint64_t s = 0; s < static_cast<uint64_t>(layout.segments); s++) {
      for (int64_t k = 0; k == 0 || k < layout.steps; k += block) {
        const int64_t step = static_cast<int64_t>(s) * layout.steps + k;
        const int64_t steps = std::min(block, layout.steps - k);
        const bool is_last = k + steps == layout.steps;
        for (int64_t t = begin; t < end; t++) {
          const int rows = units.num_rows(t);
          others.fetch(lines);
          float* own_sums = sums + (t - begin) * sums_stride + (kIsApart ? 0 : std::popcount(s) * rows * columns * kLanes);
          run_tile<Kernel>(rows, {x + units.first_row(t) * layout.padded_inputs() + step * kDepth<W>,
                                  layout.padded_inputs(), panel + step * kStep, layout.column_stride(), steps,
                                  prefetched(t - begin, end - begin, ahead, kStepBytes), own_sums, k > 0,
                                  is_last && !kIsApart ? std::countr_one(s) : 0});
          if constexpr (kIsApart) {
            if (is_last) take(t, static_cast<int64_t>(s), own_sums);
          }
        }
      }
    }
  }

  // What one of `count` tiles fetches of the next group: up to 128 bytes a step for the first and for the middle one.
  static int64_t prefetched(int64_t tile, int64_t count, int64_t ahead, int64_t step_bytes) {
    if (count == 1 || ahead == 0) return 0;
    if (tile == 0) return ahead;
    return tile == count / 2 && step_bytes > 128 ? ahead + 128 : 0;
  }
};

template <class Kernel>
Linear<Kernel> linear_of(const void* packed, const Output& output = {}) {
  using W = typename Kernel::W;
  return {Layout<W>(*static_cast<const Header*>(packed)), elements<W>(packed), output};
}

// f(a linear) for the kernel that multiplies x of a dtype by a dense weight.
template <class F>
void with_linear(int64_t x_dtype, const void* packed, const Output& output, F&& f) {
  const int64_t dtype = static_cast<const Header*>(packed)->dtype;
  if (dtype == kF32) return f(linear_of<Fuse<f32>>(packed, output));
  if (dtype == kF16) return f(linear_of<Fuse<f16>>(packed, output));
#if HAS_DOT_PAIRS
  if (x_dtype == kBF16) return f(linear_of<DotPairs>(packed, output));
#endif
  f(linear_of<FusePairs>(packed, output));
}

}  // namespace

void multiply_any(const void* x, int64_t x_dtype, int64_t rows, const void* packed, const Output& output) {
  const Header& header = *static_cast<const Header*>(packed);
  if (header.dtype == kStacked) {
    const Stack& stack = *static_cast<const Stack*>(packed);
    for (int64_t i = 0, first = 0, width; i < stack.count; i++, first += width) {
      width = static_cast<const Header*>(stack.parts[i])->outputs;
      multiply_any(x, x_dtype, rows, stack.parts[i], output.columns(first, width));
    }
    return;
  }
  if (header.dtype == kQuantised) return multiply_coded(x, x_dtype, rows, packed, output);
  if (header.dtype == kTiled) return multiply_tiled(x, x_dtype, rows, packed, output);
  with_linear(x_dtype, packed, output, [&](const auto& linear) { linear(x, x_dtype, rows); });
}

int64_t prepared_bytes(const void* packed, int64_t x_dtype) {
  if (static_cast<const Header*>(packed)->dtype == kQuantised) return prepared_bytes_of_coded(packed);
  int64_t bytes = 0;
  with_linear(x_dtype, packed, {}, [&]<class Kernel>(const Linear<Kernel>& linear) {
    bytes = linear.layout.padded_inputs() * static_cast<int64_t>(sizeof(typename Kernel::X));
  });
  return bytes;
}

void prepare_row(const void* packed, const void* x, int64_t x_dtype, void* prepared) {
  if (static_cast<const Header*>(packed)->dtype == kQuantised) return prepare_row_of_coded(packed, x, x_dtype, prepared);
  with_linear(x_dtype, packed, {}, [&]<class Kernel>(const Linear<Kernel>& linear) {
    with_type(x_dtype, [&](auto type) {
      using From = decltype(type);
      using X = typename Kernel::X;
      if constexpr (std::is_same_v<From, X> || std::is_same_v<X, float>) {
        convert(static_cast<const From*>(x), linear.layout, static_cast<X*>(prepared));
      }
    });
  });
}

void add_apart(const void* packed, int64_t x_dtype, const void* prepared, int64_t rows, int64_t group,
               const Totals& totals) {
  if (static_cast<const Header*>(packed)->dtype == kQuantised) {
    return add_apart_of_coded(packed, prepared, rows, group, totals);
  }
  with_linear(x_dtype, packed, {}, [&]<class Kernel>(const Linear<Kernel>& linear) {
    linear.add_apart(static_cast<const typename Kernel::X*>(prepared), rows, group, totals);
  });
}

namespace {

bool is_coded(const Product& product) { return static_cast<const Header*>(product.packed)->dtype == kQuantised; }

Units units_of(const Product& product, int64_t x_dtype) {
  if (is_coded(product)) return units_of_coded(product.packed, product.rows);
  Units units(0, 0);
  with_linear(x_dtype, product.packed, {}, [&](const auto& linear) { units = linear.units(product.rows); });
  return units;
}

const char* panel_of(const Product& product, int64_t x_dtype, int64_t panel) {
  if (is_coded(product)) return panel_of_coded(product.packed, panel);
  const char* found = nullptr;
  with_linear(x_dtype, product.packed, {}, [&](const auto& linear) { found = linear.panel(panel); });
  return found;
}

void multiply_piece(const Product& product, int64_t x_dtype, const Units& units, int64_t begin, int64_t end,
                    const char* next) {
  if (is_coded(product)) return multiply_piece_of_coded(product, units, begin, end, next);
  with_linear(x_dtype, product.packed, product.output, [&]<class Kernel>(const Linear<Kernel>& linear) {
    linear.multiply_piece(static_cast<const typename Kernel::X*>(product.prepared), 0, units, begin, end, next);
  });
}

}  // namespace

void multiply_each(const Product* products, int64_t count, int64_t x_dtype) {
  std::vector<Units> units;
  std::vector<int64_t> firsts{0};  // of all units
  for (int64_t i = 0; i < count; i++) {
    units.push_back(units_of(products[i], x_dtype));
    firsts.push_back(firsts.back() + units.back().count());
  }
  const auto product_of = [&](int64_t unit) {
    return static_cast<size_t>(std::upper_bound(firsts.begin(), firsts.end() - 1, unit) - firsts.begin() - 1);
  };
  const auto cut = [&](int64_t unit) {
    const size_t i = product_of(unit);
    return firsts[i] + units[i].end_of_piece(unit - firsts[i]);
  };
  parallel_ranges(firsts.back(), cut, [&](int64_t begin, int64_t end, int64_t next) {
    const size_t i = product_of(begin), j = product_of(next);
    const char* const panel = panel_of(products[j], x_dtype, units[j].panel(next - firsts[j]));
    multiply_piece(products[i], x_dtype, units[i], begin - firsts[i], end - firsts[i], panel);
  });
}

}  // namespace penstock

using namespace penstock;

extern "C" void penstock_linear(const void* x, int64_t x_dtype, int64_t rows, const void* packed, const void* bias,
                                int64_t bias_dtype, void* out, int64_t out_dtype) {
  const int64_t outputs = static_cast<const Header*>(packed)->outputs;
  multiply_any(x, x_dtype, rows, packed, {out, out_dtype, outputs, bias, bias_dtype, 0, outputs});
}

extern "C" void penstock_linear_apart(const void* x, int64_t x_dtype, int64_t rows, const void* packed, float* out) {
  const Header& header = *static_cast<const Header*>(packed);
  thread_local Scratch scratch;
  const int64_t stride = prepared_bytes(packed, x_dtype), x_bytes = header.inputs * (x_dtype == kF32 ? 4 : 2);
  std::byte* prepared = scratch.get<std::byte>(rows * stride);
  parallel(rows, [&](int64_t r) {
    prepare_row(packed, static_cast<const std::byte*>(x) + r * x_bytes, x_dtype, prepared + r * stride);
  });
  const std::vector<float> ones(static_cast<size_t>(rows), 1.f);
  std::vector<int64_t> numbers(static_cast<size_t>(rows));
  std::iota(numbers.begin(), numbers.end(), 0);
  parallel((header.outputs + kGroup - 1) / kGroup, [&](int64_t group) {
    thread_local Scratch own;
    const int64_t stride = header.segments * kGroup;
    float* const sums = own.get<float>(rows * stride);
    std::fill_n(sums, rows * stride, 0.f);
    add_apart(packed, x_dtype, prepared, rows, group, {sums, 0, stride, numbers.data(), ones.data()});
    const int64_t first = group * kGroup, width = std::min<int64_t>(kGroup, header.outputs - first);
    for (int64_t s = 0; s < header.segments; s++) {
      for (int64_t r = 0; r < rows; r++) {
        std::copy_n(sums + r * stride + s * kGroup, width, out + (s * rows + r) * header.outputs + first);
      }
    }
  });
}

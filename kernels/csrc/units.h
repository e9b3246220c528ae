// The work of a product, cut up: rows in tiles, outputs in panels.
#pragma once

#include <algorithm>
#include <cstdint>

namespace penstock {

constexpr int kRows = 6;   // of a tile; with 4 registers of outputs they leave 8 for x and w
constexpr int kTiles = 8;  // of a piece of work

// A unit is a tile by a panel; the tiles of a panel follow one another.
struct Units {
  int64_t rows, panels, tiles, most;  // most: tiles of a piece, which are about as many in all pieces

  Units(int64_t row_count, int64_t panel_count)
      : rows(row_count), panels(panel_count), tiles((rows + kRows - 1) / kRows) {
    const int64_t pieces = (tiles + kTiles - 1) / kTiles;
    most = pieces ? (tiles + pieces - 1) / pieces : 0;
  }

  int64_t count() const { return panels * tiles; }
  int64_t panel(int64_t unit) const { return unit / tiles; }
  int64_t tile(int64_t unit) const { return unit % tiles; }
  // Where a piece that begins with this unit ends at the latest.
  int64_t end_of_piece(int64_t unit) const {
    return panel(unit) * tiles + std::min(tiles, (tile(unit) / most + 1) * most);
  }
  int64_t first_row(int64_t tile) const { return rows * tile / tiles; }
  int num_rows(int64_t tile) const { return static_cast<int>(first_row(tile + 1) - first_row(tile)); }
};

}  // namespace penstock

#include "row_tiles.h"

#include <algorithm>

#include "checked.h"

namespace hattn {

int64_t computed_rows(const KernelInfo &kernel, int64_t filled_rows) {
    const bool in_bands = goes_in_bands(kernel.storage, kernel.tile.rows);
    return in_bands ? round_up(filled_rows, int64_t{kBandRows}) : kernel.tile.rows;
}

RowTiles::RowTiles(const Choice &choice, int64_t query_length)
    : kernel_(choice.kernel),
      last_kernel_(choice.last_kernel),
      query_length_(query_length),
      heads_(choice.heads),
      rows_(choice.kernel->tile.rows / choice.heads),
      last_rows_(choice.last_kernel ? choice.last_kernel->tile.rows / choice.heads : 0) {
    const int64_t tiles = ceil_div(query_length, rows_);
    last_ = std::min(choice.last_tiles, tiles);
    usual_ = tiles - last_;
}

int64_t RowTiles::computed_rows() const {
    int64_t rows = 0;
    for (int64_t i = 0; i < count(); ++i) {
        const RowTile tile = (*this)[i];
        rows += hattn::computed_rows(*tile.kernel, tile.rows * heads_);
    }
    return rows;
}

RowTile RowTiles::operator[](int64_t i) const {
    const bool is_last = i >= usual_;
    const int64_t row = is_last ? usual_ * rows_ + (i - usual_) * last_rows_ : i * rows_;
    return {row, std::min(is_last ? last_rows_ : rows_, query_length_ - row), is_last ? last_kernel_ : kernel_};
}

}  // namespace hattn

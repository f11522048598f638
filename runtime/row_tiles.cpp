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
    if (count() == 0) {
        return 0;
    }
    const RowTile end = (*this)[count() - 1];  // all others are full
    const int64_t full = last_ > 0 ? usual_ : usual_ - 1, full_last = std::max<int64_t>(last_ - 1, 0);
    const int64_t of_last = full_last > 0 ? hattn::computed_rows(*last_kernel_, last_rows_ * heads_) : 0;
    return full * hattn::computed_rows(*kernel_, rows_ * heads_) + full_last * of_last +
           hattn::computed_rows(*end.kernel, end.rows * heads_);
}

RowTile RowTiles::operator[](int64_t i) const {
    const bool is_last = i >= usual_;
    const int64_t row = is_last ? usual_ * rows_ + (i - usual_) * last_rows_ : i * rows_;
    return {row, std::min(is_last ? last_rows_ : rows_, query_length_ - row), is_last ? last_kernel_ : kernel_};
}

}  // namespace hattn

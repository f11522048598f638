#include "row_tiles.h"

#include <algorithm>

#include "checked.h"

namespace hattn {

RowTiles::RowTiles(const Choice &choice, int64_t query_length)
    : kernel_(choice.kernel),
      last_kernel_(choice.last_kernel),
      query_length_(query_length),
      rows_(choice.kernel->tile.rows / choice.heads),
      last_rows_(choice.last_kernel ? choice.last_kernel->tile.rows / choice.heads : 0) {
    const int64_t tiles = ceil_div(query_length, rows_);
    last_ = std::min(choice.last_tiles, tiles);
    usual_ = tiles - last_;
}

RowTile RowTiles::operator[](int64_t i) const {
    const bool is_last = i >= usual_;
    const int64_t row = is_last ? usual_ * rows_ + (i - usual_) * last_rows_ : i * rows_;
    return {row, std::min(is_last ? last_rows_ : rows_, query_length_ - row), is_last ? last_kernel_ : kernel_};
}

}  // namespace hattn

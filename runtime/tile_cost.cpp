#include "tile_cost.h"

#include <algorithm>

#include "checked.h"
#include "row_tiles.h"

namespace hattn {

namespace {

// Of tiles that multiply matrices: what they do for a key, whatever rows they have, takes as long as so many fifths of
// a row. Those that do not go in bands take more for each row instead. Measured, see docs/decisions/0112.
constexpr int64_t kFifths = 5, kFifthsOfBands = 160, kFifthsOfMatrices = 80, kFifthsOfRowOfMatrices = 6;

// Chunks of keys that a tile's rows see, of which the last one is so many before the end; windows aside.
int64_t chunks_of(const Problem &problem, const KernelInfo &kernel, int64_t rows_behind, int64_t kv_length) {
    const int64_t seen = std::max<int64_t>(problem.causal ? kv_length - rows_behind : kv_length, 1);
    return multiplies_matrices(kernel.storage) ? ceil_div(seen, int64_t{kernel.tile.keys}) : 1;
}

}  // namespace

int64_t cost_of_tile(const KernelInfo &kernel, int64_t filled_rows) {
    const int64_t rows = computed_rows(kernel, filled_rows);
    if (!multiplies_matrices(kernel.storage)) {
        return kFifths * rows;
    }
    return goes_in_bands(kernel.storage, kernel.tile.rows) ? kFifths * rows + kFifthsOfBands
                                                           : kFifthsOfRowOfMatrices * rows + kFifthsOfMatrices;
}

int64_t cost_of_tiles(const Choice &choice, const Problem &problem, int64_t query_length, int64_t kv_length) {
    const RowTiles tiles(choice, query_length);
    const int64_t blocks = ceil_div(problem.group_size(), choice.heads);
    const int64_t heads_of_last = problem.group_size() - (blocks - 1) * choice.heads;
    int64_t cost = 0;
    for (int64_t i = 0; i < tiles.count(); ++i) {
        const RowTile tile = tiles[i];
        const int64_t behind = query_length - tile.row - tile.rows;
        const int64_t of_blocks = (blocks - 1) * cost_of_tile(*tile.kernel, tile.rows * choice.heads) +
                                  cost_of_tile(*tile.kernel, tile.rows * heads_of_last);
        cost += of_blocks * chunks_of(problem, *tile.kernel, behind, kv_length);
    }
    return cost;
}

}  // namespace hattn

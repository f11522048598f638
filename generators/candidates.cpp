#include "candidates.h"

#include <algorithm>

#include "attention_stages.h"

namespace hattn::generators {

using schedules::TargetRow;
using schedules::Tile;

namespace {

// Scores and weights of a chunk share the second-level cache, of 256 KiB at least, with keys, values and the state.
constexpr int kMostChunkScores = 16384;  // 2 x 64 KiB

// Schedules without register blocks read rows and keys of a tile alone.
bool has_blocks(const TargetRow &target) {
    return target.vector_registers > 0;
}

// Whether head elements run along the vectors, else rows do.
bool head_in_lanes(const TargetRow &target, KernelKind kind, const Tile &tile) {
    switch (kind) {
    case KernelKind::kNaive:
    case KernelKind::kFlash:
        return false;
    case KernelKind::kSplitKv:
        return target.split_kv.has_head_in_lanes(tile);
    case KernelKind::kUnfusedScores:
        return target.unfused_scores.head_in_lanes && tile.rows < target.lanes;
    default:
        return has_blocks(target);
    }
}

// The two kernels of unfused work in pairs, with the rows that the library's have.
bool is_half_of_pair(KernelKind kind) {
    return kind == KernelKind::kUnfusedScores || kind == KernelKind::kUnfusedValues;
}

std::vector<int> rows_of_pairs(const TargetRow &target) {
    std::vector<int> rows;
    for (const Tile &tile : target.unfused_scores_tiles) {
        rows.push_back(tile.rows);
    }
    return rows;
}

bool contains(const std::vector<int> &values, int value) {
    return std::find(values.begin(), values.end(), value) != values.end();
}

// Which of the two blocks a kind has: scores, unrolled by keys, and values, by head elements or vectors of them.
bool has_score_block(KernelKind kind) {
    return kind != KernelKind::kUnfusedValues;
}

bool has_value_block(KernelKind kind) {
    return kind != KernelKind::kUnfusedScores;
}

// A block of row_vectors x unroll accumulators, which leaves registers for what is multiplied and holds enough to hide
// the latency of a multiply-add.
bool fills_registers(const TargetRow &target, bool along_head, int row_vectors, int unroll) {
    const int operands = (along_head ? std::min(row_vectors, unroll) : row_vectors) + 1;
    const int accumulators = row_vectors * unroll;
    return 4 * accumulators >= target.vector_registers && accumulators + operands <= target.vector_registers;
}

bool goes_by_quads(const TargetRow &target, KernelKind kind, const Tile &tile) {
    return generators::goes_by_quads({.kind = kind, .tile = tile}, target);
}

bool is_worth_trying(const TargetRow &target, KernelKind kind, const Tile &tile) {
    if (!why_illegal(target, kind, tile).empty() || tile.rows * tile.keys > kMostChunkScores) {
        return false;
    }
    const bool along_head = head_in_lanes(target, kind, tile);
    const auto fits = [&](bool has_block, int row_vectors, int unroll) {
        return has_block && has_blocks(target) ? fills_registers(target, along_head, row_vectors, unroll) : unroll == 1;
    };
    const int of_scores = goes_by_quads(target, kind, tile) ? tile.rows * kQuad / target.lanes : tile.row_vectors;
    return fits(has_score_block(kind), of_scores, tile.key_unroll) &&
           fits(has_value_block(kind), tile.row_vectors, tile.value_unroll);
}

// Rows of a tile, and vectors of them (rows, with the head in lanes) in a block.
struct Shape {
    int rows, row_vectors;
};

// So many blocks of so many vectors, rows in lanes.
std::vector<Shape> shapes_by_blocks(const TargetRow &target, const std::vector<int> &row_vectors,
                                    const std::vector<int> &blocks) {
    std::vector<Shape> shapes;
    for (const int vectors : row_vectors) {
        for (const int count : blocks) {
            shapes.push_back({target.lanes * vectors * count, vectors});
        }
    }
    return shapes;
}

// All rows in one block, or in blocks of 8 or 4.
std::vector<Shape> shapes_by_rows(const TargetRow &target, KernelKind kind, const std::vector<int> &rows) {
    std::vector<Shape> shapes;
    for (const int count : rows) {
        const int vectors = head_in_lanes(target, kind, {.rows = count}) ? count : count / target.lanes;
        shapes.push_back({count, std::min(vectors, 4)});
        if (vectors > 4) {
            shapes.push_back({count, 8});
        }
    }
    return shapes;
}

// The lists.
struct Space {
    std::vector<Shape> shapes;
    std::vector<int> keys;
    bool largest_unroll;  // alone, of those that fit
};

Space plain_space(const TargetRow &target, KernelKind kind) {
    switch (kind) {
    case KernelKind::kNaive:
        return {shapes_by_blocks(target, {1}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}), {0}, true};
    case KernelKind::kFlash:
        return {shapes_by_blocks(target, {1}, {2, 4, 8, 12}), {32, 64, 128}, true};
    case KernelKind::kSplitKv:
        return {shapes_by_blocks(target, {1}, {1, 2, 3, 4}), {32, 64, 128}, true};
    case KernelKind::kUnfusedScores:
    case KernelKind::kUnfusedValues:
        return {shapes_by_blocks(target, {1}, {2}), {16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256}, true};
    default:
        return {};
    }
}

Space blocked_space(const TargetRow &target, KernelKind kind) {
    switch (kind) {
    case KernelKind::kNaive:
        return {shapes_by_blocks(target, {1, 2, 3, 4}, {1, 2}), {0}, false};
    case KernelKind::kFlash:
        return {shapes_by_blocks(target, {2, 3}, {1, 2}), {32, 64, 128}, true};
    case KernelKind::kSplitKv:
        // Where decode computes the keys alone that are there, chunks may be as long as splits.
        return {shapes_by_rows(target, kind, {1, 2, 4, 8, 16}),
                target.fetch_by_row ? std::vector<int>{64, 128, 256, 512} : std::vector<int>{64, 128}, false};
    case KernelKind::kUnfusedScores:
    case KernelKind::kUnfusedValues:
        return {shapes_by_rows(target, kind, rows_of_pairs(target)), {64, 128}, true};
    default:
        return {};
    }
}

}  // namespace

std::string why_illegal(const TargetRow &target, KernelKind kind, const Tile &tile) {
    const std::vector<Tile> own = tiles_of(target, kind);
    if (blocked_space(target, kind).shapes.empty()) {
        return std::find(own.begin(), own.end(), tile) != own.end() ? "" : "this kind has no choice of tiles";
    }
    const bool along_head = head_in_lanes(target, kind, tile);
    const int row_step = tile.row_vectors * (along_head ? 1 : target.lanes);
    if (std::min({tile.rows, tile.row_vectors, tile.key_unroll, tile.value_unroll}) < 1) {
        return "rows, vectors of rows and both unrollings must be at least 1";
    }
    if ((tile.keys > 0) != (kind != KernelKind::kNaive) || tile.keys < 0) {
        return "keys must be 0, all at once, for naive, and positive for all others";
    }
    if (tile.keys % kGranuleKeys != 0 || tile.keys % tile.key_unroll != 0 || (along_head && tile.keys % target.lanes)) {
        return "keys must be whole granules of 16, blocks of key_unroll and, with the head in lanes, vectors";
    }
    if (along_head && kind == KernelKind::kSplitKv && tile.keys == kGranuleKeys) {
        // Halide 21.0.0 leaves out the softmax and the values of chunks of one granule, see decision 0070.
        return "keys must be more than one granule of 16 with the head in lanes";
    }
    if (tile.rows % row_step != 0) {
        return "rows must be whole blocks of row_vectors, " + std::to_string(row_step);
    }
    if (is_half_of_pair(kind) && !contains(rows_of_pairs(target), tile.rows)) {
        return "rows of unfused kernels must be those of the target's own, for they work in pairs";
    }
    return "";
}

std::vector<Tile> candidates(const TargetRow &target, KernelKind kind) {
    const Space space = has_blocks(target) ? blocked_space(target, kind) : plain_space(target, kind);
    std::vector<Tile> found;
    for (const Shape &shape : space.shapes) {
        for (const int keys : space.keys) {
            for (const int unroll : {16, 8, 4, 2, 1}) {
                Tile tile{shape.rows, keys, shape.row_vectors, has_score_block(kind) ? unroll : 1,
                          has_value_block(kind) ? unroll : 1};
                // With fewer vectors of sums for each key there are more keys.
                Tile quads = tile;
                quads.key_unroll = unroll * target.lanes / kQuad;
                if (goes_by_quads(target, kind, quads)) {
                    tile = quads;
                }
                if (is_worth_trying(target, kind, tile)) {
                    found.push_back(tile);
                    if (space.largest_unroll) {
                        break;
                    }
                }
            }
        }
    }
    std::ranges::stable_sort(found, {}, &Tile::rows);
    return found;
}

void for_each_candidate(const TargetRow &target, const std::function<void(const KernelSpec &)> &visit) {
    for_each_family([&](const KernelFamily &family) {
        for (const Tile &tile :
             family.storage != KeyStorage::kFloat32 ? std::vector<Tile>() : candidates(target, family.kind)) {
            visit({family.kind, family.storage, 0, tile});
        }
    });
}

}  // namespace hattn::generators

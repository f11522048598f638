#include "space.h"

#include <algorithm>

namespace hattn::autotune {

namespace {

// What is tried beside tiles. `splits`: keys per split; `heads`: see Candidate.
struct SpaceRow {
    const char *algorithm;
    std::vector<int64_t> splits;
    std::vector<int64_t> heads;
    int64_t most_keys;  // beyond that it has no chance, and costs time and memory
};

const std::vector<SpaceRow> &space_rows() {
    static const std::vector<SpaceRow> rows = {
        {"naive", {0}, {1}, 2048},
        {"flash", {0}, {0, 1}, int64_t{1} << 40},
        {"split_kv", {128, 256, 512, 1024, 2048, 4096}, {0}, int64_t{1} << 40},
        {"unfused", {256, 512, 1024, 2048}, {0}, int64_t{1} << 40},
    };
    return rows;
}

// Up to this many rows of a head the runtime may let heads share flash tiles.
constexpr int64_t kFewRows = 96;

// From the first split on that leaves the range whole, all are the same choice.
std::vector<int64_t> splits_of(const SpaceRow &row, int64_t keys) {
    std::vector<int64_t> splits;
    for (const int64_t split : row.splits) {
        splits.push_back(split);
        if (split >= keys) {
            break;
        }
    }
    return splits;
}

// Tiles of split-KV and unfused hold the rows of all heads of a kv head. More than twice as many rows would stay empty;
// of devices, whose kernels have one number of rows, they may.
bool is_too_large(const SpaceRow &row, const Tile &tile, const Shape &shape) {
    return row.splits.front() > 0 && !tile.is_of_device() && tile.rows >= 2 * shape.query_length * shape.group();
}

}  // namespace

std::vector<Candidate> space_of(const Shape &shape, const std::vector<AlgorithmKernels> &kernels) {
    std::vector<Candidate> space;
    for (const SpaceRow &row : space_rows()) {
        const auto found = std::find_if(kernels.begin(), kernels.end(), [&](const AlgorithmKernels &entry) {
            return entry.algorithm == row.algorithm;
        });
        if (found == kernels.end() || shape.seen_keys() > row.most_keys) {
            continue;
        }
        const bool may_share = shape.group() > 1 && shape.query_length <= kFewRows && shape.device == HATTN_CPU;
        for (const Tile &tile : found->tiles) {
            if (is_too_large(row, tile, shape)) {
                continue;
            }
            for (const int64_t split : splits_of(row, shape.seen_keys())) {
                for (const int64_t heads : row.heads) {
                    if (heads == row.heads.front() || may_share) {
                        space.push_back({row.algorithm, tile, split, heads});
                    }
                }
            }
        }
    }
    return space;
}

std::vector<Candidate> invariant_space(const std::vector<Candidate> &space, const Candidate &usual) {
    std::vector<Candidate> same;
    for (const Candidate &candidate : space) {
        if (candidate.algorithm == usual.algorithm && candidate.tile.keys == usual.tile.keys &&
            candidate.split_keys == usual.split_keys) {
            same.push_back(candidate);
        }
    }
    return same;
}

}  // namespace hattn::autotune

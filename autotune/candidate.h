// One choice the planner could make, as a tuning database would state it.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

namespace hattn::autotune {

// As in hattn_info().
struct Tile {
    int rows = 0, keys = 0, row_vectors = 1, key_unroll = 1, value_unroll = 1;

    bool operator==(const Tile &) const = default;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Tile, rows, keys, row_vectors, key_unroll, value_unroll)

struct Candidate {
    std::string algorithm;
    Tile tile;
    int64_t split_keys = 0;  // 0: the algorithm does not split
    int64_t heads = 0;       // that share a tile; 0: as many as leave the fewest rows of tiles empty
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Candidate, algorithm, tile, split_keys, heads)

}  // namespace hattn::autotune

// One choice the planner could make, as a tuning database would state it.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

namespace hattn::autotune {

// As in hattn_info().
struct Tile {
    int rows = 0, keys = 0;
    int row_vectors = 1, key_unroll = 1, value_unroll = 1;  // of the CPU's kernels
    int head = 0, slices = 0, thread_rows = 0;              // of those of devices
    bool warpgroups = false;                                // likewise

    bool is_of_device() const {
        return head > 0;
    }
    bool operator==(const Tile &) const = default;
};
void to_json(nlohmann::json &json, const Tile &tile);
void from_json(const nlohmann::json &json, Tile &tile);

struct Candidate {
    std::string algorithm;
    Tile tile;
    int64_t split_keys = 0;  // 0: the algorithm does not split, or as the library's rule says
    int64_t heads = 0;       // that share a tile; 0: as many as take the least time for tiles
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Candidate, algorithm, tile, split_keys, heads)

}  // namespace hattn::autotune

#include "candidate.h"

namespace hattn::autotune {

void to_json(nlohmann::json &json, const Tile &tile) {
    json = {{"rows", tile.rows}, {"keys", tile.keys}};
    if (tile.is_of_device()) {
        json.update({{"head", tile.head},
                     {"slices", tile.slices},
                     {"thread_rows", tile.thread_rows},
                     {"warpgroups", tile.warpgroups}});
    } else {
        json.update(
            {{"row_vectors", tile.row_vectors}, {"key_unroll", tile.key_unroll}, {"value_unroll", tile.value_unroll}});
    }
}

void from_json(const nlohmann::json &json, Tile &tile) {
    tile = {};
    tile.rows = json.at("rows");
    tile.keys = json.at("keys");
    if (json.contains("head")) {
        tile.head = json.at("head");
        tile.slices = json.at("slices");
        tile.thread_rows = json.at("thread_rows");
        tile.warpgroups = json.value("warpgroups", false);
    } else {
        tile.row_vectors = json.at("row_vectors");
        tile.key_unroll = json.at("key_unroll");
        tile.value_unroll = json.at("value_unroll");
    }
}

}  // namespace hattn::autotune

#include "cut.h"

#include <algorithm>
#include <cmath>

namespace hattn::autotune {

namespace {

double usual_heads(const Candidate &candidate, const Shape &shape) {
    const auto group = static_cast<double>(shape.group());
    if (candidate.tile.is_of_device()) {
        return 1.0;
    }
    if (candidate.heads > 0 || shape.query_length > candidate.tile.rows) {
        return std::max(1.0, static_cast<double>(candidate.heads));
    }
    return std::min(group, std::floor(candidate.tile.rows / static_cast<double>(shape.query_length)));
}

}  // namespace

double ceil_div(double a, double b) {
    return std::ceil(a / b);
}

double mean_keys(const Shape &shape, double positions) {
    const auto keys = static_cast<double>(shape.kv_length), rows = static_cast<double>(shape.query_length);
    if (!shape.causal) {
        return keys;
    }
    const double first = keys - rows;  // of the last row less the rows
    const double seen = first + (rows + positions) / 2.0;
    const double most = shape.window_left < 0 ? keys : static_cast<double>(shape.window_left) + positions;
    return std::clamp(seen, 1.0, std::min(keys, most));
}

Cut cut_of(const Candidate &candidate, const Shape &shape) {
    const double kv_heads = static_cast<double>(shape.batch * shape.kv_heads);
    const double rows = static_cast<double>(shape.query_length), group = static_cast<double>(shape.group());
    const bool shares_keys = candidate.split_keys > 0;
    const double heads = shares_keys ? std::min<double>(candidate.tile.rows, group) : usual_heads(candidate, shape);
    const double positions = std::max(1.0, std::floor(candidate.tile.rows / heads));
    Cut cut{};
    cut.rows = candidate.tile.rows;
    cut.passes = ceil_div(group, heads) * ceil_div(rows, positions);
    cut.tiles = kv_heads * cut.passes;
    cut.keys = mean_keys(shape, std::min(positions, rows));
    if (candidate.tile.keys > 0) {
        cut.keys = ceil_div(cut.keys, candidate.tile.keys) * candidate.tile.keys;
    }
    cut.splits = shares_keys ? ceil_div(cut.keys, static_cast<double>(candidate.split_keys)) : 1.0;
    return cut;
}

}  // namespace hattn::autotune

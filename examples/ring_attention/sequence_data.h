// The numbers of a long sequence, any token of which any rank can make by itself.
#pragma once

#include <hattn/hattn.hpp>

#include <cmath>
#include <cstdint>
#include <vector>

#include "ring.h"

struct Shape {
    std::int64_t tokens, heads, dim;
    std::int64_t queries;  // the last tokens of the sequence

    std::int64_t token_floats() const {
        return heads * dim;
    }
};

// Uniform with variance 1, a function of its place alone (splitmix64: Steele, Lea and Flood, 2014).
inline float number_at(std::uint64_t stream, std::uint64_t index) {
    std::uint64_t z = (stream << 40) + (index + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    const double unit = static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
    return static_cast<float>(std::sqrt(12.0) * (unit - 0.5));
}

// Appends the tokens of a block, [token][head][dim].
inline void append_tokens(std::vector<float> &to, const Shape &shape, Block block, std::uint64_t stream) {
    const std::int64_t begin = block.first * shape.token_floats(), count = block.count * shape.token_floats();
    for (std::int64_t i = begin; i < begin + count; i++) {
        to.push_back(number_at(stream, static_cast<std::uint64_t>(i)));
    }
}

inline std::vector<float> make_queries(const Shape &shape, Block queries) {
    std::vector<float> q;
    append_tokens(q, shape, {shape.tokens - shape.queries + queries.first, queries.count}, 1);
    return q;
}

// Keys of a block, then its values.
inline std::vector<float> make_shard(const Shape &shape, Block keys) {
    std::vector<float> shard;
    append_tokens(shard, shape, keys, 2);
    append_tokens(shard, shape, keys, 3);
    return shard;
}

// [1, heads, count, dim] of [token][head][dim].
inline hattn_tensor token_view(const float *data, const Shape &shape, std::int64_t count) {
    return hattn::bshd(data, {1, shape.heads, count, shape.dim});
}

#include "work.h"

#include <algorithm>

namespace hattn::bench {

namespace {

// Keys that row `position` of a sequence of kv_length keys may look at.
int64_t visible_keys(const cases::Case &c, int64_t position, int64_t kv_length) {
    int64_t first = c.window_left < 0 ? 0 : std::max<int64_t>(0, position - c.window_left);
    int64_t last = kv_length - 1;
    if (c.window_right >= 0) {
        last = std::min(last, position + c.window_right);
    }
    if (c.causal) {
        last = std::min(last, position);
    }
    return std::max<int64_t>(0, last - first + 1);
}

int64_t entry(const std::vector<int32_t> &values, int64_t b, int64_t otherwise) {
    return values.empty() ? otherwise : values[static_cast<size_t>(b)];
}

}  // namespace

double visible_triples(const cases::Case &c) {
    double pairs = 0.0;
    for (int64_t b = 0; b < c.batch; ++b) {
        int64_t rows = entry(c.q_lengths, b, c.query_length);
        int64_t keys = entry(c.kv_lengths, b, c.kv_length);
        int64_t offset = entry(c.causal_offsets, b, keys - rows);
        for (int64_t i = 0; i < rows; ++i) {
            pairs += static_cast<double>(visible_keys(c, i + offset, keys));
        }
    }
    return pairs * static_cast<double>(c.query_heads);
}

double visible_flops(const cases::Case &c) {
    return 2.0 * static_cast<double>(c.key_dim + c.value_dim) * visible_triples(c);
}

double key_value_bytes(const cases::Case &c) {
    return static_cast<double>(c.batch) * static_cast<double>(c.kv_heads) * static_cast<double>(c.kv_length) *
           static_cast<double>(c.key_dim + c.value_dim) * static_cast<double>(sizeof(float));
}

}  // namespace hattn::bench

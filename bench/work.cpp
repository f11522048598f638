#include "work.h"

#include <algorithm>
#include <stdexcept>

namespace hattn::bench {

namespace {

// Keys that row `position` of a sequence of kv_length keys may look at.
VisibleKeys keys_of_row(const cases::Case &c, int64_t position, int64_t kv_length) {
    int64_t begin = c.window_left < 0 ? 0 : std::max<int64_t>(0, position - c.window_left);
    int64_t last = kv_length - 1;
    if (c.window_right >= 0) {
        last = std::min(last, position + c.window_right);
    }
    if (c.causal) {
        last = std::min(last, position);
    }
    return {begin, std::max(begin, last + 1)};
}

int64_t entry(const std::vector<int32_t> &values, int64_t b, int64_t otherwise) {
    return values.empty() ? otherwise : values[static_cast<size_t>(b)];
}

// visit(keys) for every row of sequence b.
template<typename Visit>
void for_each_row(const cases::Case &c, int64_t b, Visit visit) {
    int64_t rows = entry(c.q_lengths, b, c.query_length);
    int64_t keys = entry(c.kv_lengths, b, c.kv_length);
    int64_t offset = entry(c.causal_offsets, b, keys - rows);
    for (int64_t i = 0; i < rows; ++i) {
        visit(keys_of_row(c, i + offset, keys));
    }
}

}  // namespace

double visible_flops(const cases::Case &c) {
    double pairs = 0.0;
    for (int64_t b = 0; b < c.batch; ++b) {
        for_each_row(c, b, [&](const VisibleKeys &keys) { pairs += static_cast<double>(keys.end - keys.begin); });
    }
    return 2.0 * static_cast<double>((c.key_dim + c.value_dim) * c.query_heads) * pairs;
}

VisibleKeys visible_keys(const cases::Case &c, int64_t b) {
    VisibleKeys all = {c.kv_length, 0};
    for_each_row(c, b, [&](const VisibleKeys &keys) {
        all.begin = std::min(all.begin, keys.begin);
        all.end = std::max(all.end, keys.end);
    });
    return {std::min(all.begin, all.end), all.end};
}

double visible_bytes(const cases::Case &c) {
    int64_t keys = 0;
    for (int64_t b = 0; b < c.batch; ++b) {
        VisibleKeys visible = visible_keys(c, b);
        keys += visible.end - visible.begin;
    }
    return static_cast<double>(keys * c.kv_heads * (c.key_dim + c.value_dim)) * static_cast<double>(sizeof(float));
}

std::vector<Span> visible_spans(const cases::Problem &problem) {
    const cases::Case &c = problem.spec;
    if (c.layout != cases::Layout::kBhsd) {
        throw std::invalid_argument(c.name + ": a case bound by reading has to lie [B, H, S, D] in memory");
    }
    std::vector<Span> spans;
    for (int64_t b = 0; b < c.batch; ++b) {
        VisibleKeys keys = visible_keys(c, b);
        for (int64_t h = 0; h < c.kv_heads && keys.end > keys.begin; ++h) {
            for (const hattn_tensor *tensor : {&problem.args.k, &problem.args.v}) {
                spans.push_back({&cases::element<float>(*tensor, b, h, keys.begin, 0),
                                 static_cast<size_t>((keys.end - keys.begin) * tensor->extent[3]) * sizeof(float)});
            }
        }
    }
    return spans;
}

}  // namespace hattn::bench

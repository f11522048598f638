#include "verify.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "compare.h"
#include "oracle.h"
#include "random.h"
#include "work.h"

namespace hattn::bench {

namespace {

struct Place {
    int64_t b, h, i;
};

// The tensor from `begin` on, with extents [1, 1, 1 or all, all]; a dimension that broadcasts stays at its one index.
hattn_tensor slice(hattn_tensor tensor, int64_t b, int64_t h, int64_t i) {
    if (!tensor.data) {
        return tensor;
    }
    int64_t offset = 0;
    const int64_t begin[] = {b, h, i};
    for (int dim = 0; dim < 3; ++dim) {
        if (begin[dim] >= 0) {
            offset += tensor.extent[dim] == 1 ? 0 : begin[dim] * tensor.stride[dim];
            tensor.extent[dim] = 1;
        }
    }
    tensor.data =
        static_cast<std::byte *>(tensor.data) + offset * static_cast<int64_t>(cases::element_size(tensor.dtype));
    return tensor;
}

// One row of the problem as a problem of its own: its place among the keys becomes an explicit offset.
cases::Expected evaluate_row(const cases::Problem &problem, const Place &row, const cases::Rounding &rounding) {
    const hattn_attention_args &whole = problem.args;
    int64_t q_length = whole.q_lengths ? whole.q_lengths[row.b] : whole.q.extent[2];
    int32_t kv_length = whole.kv_lengths ? whole.kv_lengths[row.b] : static_cast<int32_t>(whole.k.extent[2]);
    auto inside = static_cast<int32_t>(row.i < q_length);
    auto position =
        static_cast<int32_t>(row.i + (whole.causal_offsets ? whole.causal_offsets[row.b] : kv_length - q_length));
    int64_t kv_head = row.h / (problem.desc.query_heads / problem.desc.kv_heads);
    constexpr int64_t kAll = -1;

    hattn_attention_desc desc = problem.desc;
    desc.batch = desc.query_heads = desc.kv_heads = desc.query_length = 1;
    hattn_attention_args args = whole;
    args.q = slice(whole.q, row.b, row.h, row.i);
    args.k = slice(whole.k, row.b, kv_head, kAll);
    args.v = slice(whole.v, row.b, kv_head, kAll);
    args.bias = slice(whole.bias, row.b, row.h, row.i);
    args.mask = slice(whole.mask, row.b, row.h, row.i);
    args.alibi_slopes = whole.alibi_slopes ? whole.alibi_slopes + row.h : nullptr;
    args.sinks = whole.sinks ? whole.sinks + row.h : nullptr;
    args.q_lengths = &inside;
    args.kv_lengths = &kv_length;
    args.causal_offsets = &position;

    return cases::evaluate(desc, args, rounding);
}

std::string row_difference(const cases::Problem &problem, const Place &row, const cases::Expected &expected) {
    const hattn_attention_args &whole = problem.args;
    std::string text =
        cases::difference("out", slice(whole.out, row.b, row.h, row.i), expected.out, expected.out_bound);
    if (whole.lse.data) {
        text += cases::difference("lse", slice(whole.lse, row.b, row.h, row.i), expected.lse, expected.lse_bound);
    }
    if (whole.scores.data) {
        text += cases::difference("scores", slice(whole.scores, row.b, row.h, row.i), expected.scores,
                                  expected.scores_bound);
    }
    if (text.empty()) {
        return text;
    }
    return "batch " + std::to_string(row.b) + ", query head " + std::to_string(row.h) + ", row " +
           std::to_string(row.i) + ": " + text;
}

std::vector<Place> sample(const cases::Case &c, int64_t count) {
    std::vector<Place> rows;
    for (int64_t h : {int64_t{0}, c.query_heads - 1}) {
        for (int64_t i : {int64_t{0}, c.query_length - 1}) {
            rows.push_back({h == 0 ? 0 : c.batch - 1, h, i});
        }
    }
    cases::Random random(c.seed() + 99);
    while (static_cast<int64_t>(rows.size()) < count) {
        rows.push_back({random.integer(0, c.batch - 1), random.integer(0, c.query_heads - 1),
                        random.integer(0, c.query_length - 1)});
    }
    return rows;
}

// Elements that still hold the byte that outputs are filled with before the call, or no number.
std::string find_unwritten(const hattn_tensor &out) {
    float unwritten;
    std::memset(&unwritten, cases::Problem::kOutputFill, sizeof unwritten);
    int64_t count = 0;
    cases::for_each_index(cases::extents_of(out), [&](int64_t b, int64_t h, int64_t i, int64_t d) {
        float value = cases::element<float>(out, b, h, i, d);
        count += value == unwritten || !std::isfinite(value) ? 1 : 0;
    });
    return count == 0 ? "" : "out: " + std::to_string(count) + " elements were not written or are not finite";
}

}  // namespace

Verification::Verification(const cases::Problem &problem, double budget, const cases::Rounding &rounding) {
    const cases::Case &c = problem.spec;
    double work = visible_flops(c) / 2.0;
    if (work <= budget) {
        whole_ = cases::evaluate(problem.desc, problem.args, rounding);
        return;
    }
    constexpr int64_t kLeast = 16, kMost = 256;
    double rows = static_cast<double>(c.batch * c.query_heads * c.query_length);
    auto count = std::clamp(static_cast<int64_t>(budget / (work / rows)), kLeast, kMost);
    for (const Place &place : sample(c, count)) {
        rows_.push_back({place.b, place.h, place.i, evaluate_row(problem, place, rounding)});
    }
}

std::string Verification::check(const cases::Problem &problem) const {
    if (rows_.empty()) {
        return cases::difference(problem, whole_);
    }
    for (const Row &row : rows_) {
        std::string text = row_difference(problem, {row.b, row.h, row.i}, row.expected);
        if (!text.empty()) {
            return text;
        }
    }
    return find_unwritten(problem.out.view);
}

std::string verify(const cases::Problem &problem) {
    return Verification(problem).check(problem);
}

}  // namespace hattn::bench

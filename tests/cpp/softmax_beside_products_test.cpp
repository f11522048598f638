// Softmax among products, as Halide lowers an attention of chunks with the passes.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "schedules/own_slots.h"
#include "schedules/simd/maxima_beside_scores.h"
#include "schedules/simd/weights_beside_values.h"
#include "support/lowered_text.h"

namespace {

using namespace Halide;
using hattn::schedules::OwnSlots;
using hattn::schedules::simd::MaximaBesideScores;
using hattn::schedules::simd::WeightsBesideValues;
using hattn::test::count_of;
using hattn::test::lowered_text;

constexpr int kLanes = 8, kRows = 2 * kLanes, kGranule = 16, kChunk = 4 * kGranule, kBlock = 4, kDim = 24;
constexpr float kMasked = -1e30f;

enum class Passes { kNone, kMaxima, kWeights, kBoth };

// Attention with the reference of each chunk alone: state(r, d) = the sum over chunks of its weighted values over its
// sum of weights. Enough for what the passes look at.
struct ChunkedAttention {
    ImageParam query{Float(32), 2, "query"}, key{Float(32), 2, "key"}, value{Float(32), 2, "value"};
    Param<int> keys{"keys"};
    Func dot{"dot"}, logits{"logits"}, chunk_max{"chunk_max"}, weights{"weights"}, chunk_sum{"chunk_sum"},
        chunk_output{"chunk_output"}, state{"state"}, out{"out"};

    ChunkedAttention(Passes passes, bool reads_weights) {
        Var r("r"), k("k"), d("d"), c("c"), block("block"), inner("inner");
        RDom over_dim(0, kDim, "over_dim"), over_limits(0, 1, "over_limits"), chunks(0, (keys + kChunk - 1) / kChunk);
        RDom over_keys({{0, kGranule}, {0, kChunk / kGranule}}, "over_keys");
        over_keys.where(over_keys.y * kGranule < keys - c * kChunk);
        Expr in_chunk = over_keys.y * kGranule + over_keys.x, last = keys - 1;
        dot(r, k, c) = 0.0f;
        dot(r, k, c) += query(r, over_dim) * key(over_dim, min(c * kChunk + k, last));
        logits(r, k, c) = dot(r, k, c);
        over_limits.where((c + 1) * kChunk > keys);
        logits(r, k, c) = select(c * kChunk + k + over_limits <= last, logits(r, k, c), kMasked);
        chunk_max(r, c) = kMasked;
        chunk_max(r, c) = max(chunk_max(r, c), logits(r, in_chunk, c));
        weights(r, k, c) = 1.0f / (1.0f + chunk_max(r, c) - logits(r, k, c));
        chunk_sum(r, c) = 0.0f;
        chunk_sum(r, c) += weights(r, in_chunk, c);
        chunk_output(r, d, c) = 0.0f;
        chunk_output(r, d, c) +=
            weights(r, in_chunk, c) * value(min(d, value.dim(0).max()), min(c * kChunk + in_chunk, last));
        Expr added = chunk_output(r, d, chunks) / chunk_sum(r, chunks);
        if (reads_weights) {
            added += weights(r, 0, chunks);
        }
        state(r, d) = 0.0f;
        state(r, d) += added;
        out(r, d) = state(r, d);

        out.bound(r, 0, kRows).vectorize(r, kLanes).output_buffer().dim(0).set_bounds(0, kRows);
        state.compute_root().bound(r, 0, kRows).vectorize(r, kLanes).unroll(r);
        state.update()
            .split(d, block, inner, kBlock, TailStrategy::GuardWithIf)
            .reorder(r, inner, block, chunks)
            .partition(chunks, Partition::Never)
            .vectorize(r, kLanes)
            .unroll(r)
            .unroll(inner);
        for (Func f : {logits, weights, chunk_sum}) {
            f.compute_at(state, chunks).bound_extent(r, kRows).bound_extent(c, 1).vectorize(r, kLanes).unroll(r);
        }
        chunk_max.store_root().compute_at(state, chunks).bound_extent(r, kRows).vectorize(r, kLanes).unroll(r);
        for (Func f : {logits, weights}) {
            f.bound_storage(k, kChunk);
        }
        Var k_block("k_block");
        logits.split(k, k_block, k, kBlock, TailStrategy::RoundUp).reorder(r, k, k_block).unroll(k);
        logits.update().reorder(r, k, over_limits).vectorize(r, kLanes).unroll(r);
        dot.compute_at(logits, k_block).vectorize(r, kLanes).unroll(r).unroll(k);
        dot.update().reorder(r, k, over_dim).vectorize(r, kLanes).unroll(r).unroll(k);
        for (Func f : {chunk_max, chunk_sum}) {
            f.update().reorder(r, over_keys.x, over_keys.y).vectorize(r, kLanes).unroll(r);
        }
        chunk_output.compute_at(state, block).bound_extent(r, kRows).bound_extent(d, kBlock);
        chunk_output.vectorize(r, kLanes).unroll(r).unroll(d);
        chunk_output.update().reorder(r, d, over_keys.x, over_keys.y).vectorize(r, kLanes).unroll(r).unroll(d);

        out.add_custom_lowering_pass(new OwnSlots());
        if (passes == Passes::kMaxima || passes == Passes::kBoth) {
            out.add_custom_lowering_pass(new MaximaBesideScores({logits.name(), chunk_max.name()}));
        }
        if (passes == Passes::kWeights || passes == Passes::kBoth) {
            out.add_custom_lowering_pass(
                new WeightsBesideValues({weights.name(), chunk_sum.name(), chunk_output.name()}));
        }
    }

    std::string lowered() {
        return lowered_text(out, {query, key, value, keys});
    }

    // Of so many elements of values.
    Buffer<float> of(int key_count, int elements) {
        const auto filled = [](int x, int y, int step) {
            Buffer<float> numbers(x, y);
            numbers.for_each_element(
                [&](int i, int j) { numbers(i, j) = static_cast<float>((i * 7 + j * step) % 23 - 11) / 8.0f; });
            return numbers;
        };
        query.set(filled(kRows, kDim, 5));
        key.set(filled(kDim, key_count, 3));
        value.set(filled(elements, key_count, 11));
        keys.set(key_count);
        return out.realize({kRows, elements});
    }
};

bool are_same(const Buffer<float> &a, const Buffer<float> &b) {
    bool same = a.dim(1).extent() == b.dim(1).extent();
    Buffer<float> other = b;
    Buffer<float>(a).for_each_element([&](int r, int d) { same = same && a(r, d) == other(r, d); });
    return same;
}

class SoftmaxBesideProducts : public testing::TestWithParam<Passes> {};

// One key, parts of granules and of chunks, whole ones, and several; elements that are no whole blocks, and fewer.
TEST_P(SoftmaxBesideProducts, HasTheSameBits) {
    ChunkedAttention as_written(Passes::kNone, false), changed(GetParam(), false);
    for (const int keys : {1, 15, 16, 40, 64, 65, 128, 200}) {
        for (const int elements : {1, 4, 6, 16, 21}) {
            EXPECT_TRUE(are_same(as_written.of(keys, elements), changed.of(keys, elements)))
                << keys << " keys, " << elements << " elements";
        }
    }
}
INSTANTIATE_TEST_SUITE_P(Each, SoftmaxBesideProducts, testing::Values(Passes::kMaxima, Passes::kWeights, Passes::kBoth),
                         [](const auto &run) {
                             return run.param == Passes::kMaxima    ? "Maxima"
                                    : run.param == Passes::kWeights ? "Weights"
                                                                    : "Both";
                         });

// The loops of a name, each as far as its last line, which has as much space before it as the first.
std::vector<std::string> loops_of(const std::string &text, const std::string &name) {
    std::vector<std::string> loops;
    for (size_t at = text.find("for (" + name); at != std::string::npos; at = text.find("for (" + name, at + 1)) {
        const size_t line = text.rfind('\n', at);
        const std::string end = "\n" + text.substr(line + 1, at - line - 1) + "}";
        loops.push_back(text.substr(at, text.find(end, at) - at));
    }
    return loops;
}

// Of these, how many store in both arrays.
int loops_with_both(const std::vector<std::string> &loops, const std::string &one, const std::string &other) {
    return static_cast<int>(std::count_if(loops.begin(), loops.end(), [&](const std::string &loop) {
        return count_of(loop, " " + one + "[") > 0 && count_of(loop, " " + other + "[") > 0;
    }));
}

TEST(MaximaBesideScores, AreTakenWhereScoresAreStored) {
    ChunkedAttention as_written(Passes::kNone, false), changed(Passes::kMaxima, false);
    const auto blocks = [](ChunkedAttention &attention) {
        return loops_of(attention.lowered(), attention.logits.name() + ".s0.k");
    };
    for (const std::string &loop : blocks(as_written)) {
        EXPECT_EQ(count_of(loop, as_written.chunk_max.name()), 0) << loop;
    }
    const std::vector<std::string> made = blocks(changed);
    ASSERT_FALSE(made.empty());
    for (const std::string &loop : made) {
        // As many vectors as a block of scores has.
        EXPECT_EQ(count_of(loop, " = max(" + changed.chunk_max.name() + "["), kBlock * kRows / kLanes) << loop;
    }
}

TEST(WeightsBesideValues, AreComputedWithTheFirstBlock) {
    ChunkedAttention as_written(Passes::kNone, false), changed(Passes::kWeights, false);
    const auto over_keys = [](ChunkedAttention &attention) {
        return loops_of(attention.lowered(), attention.chunk_output.name() + ".s1.over_keys$x");
    };
    const std::vector<std::string> before = over_keys(as_written), after = over_keys(changed);
    EXPECT_EQ(loops_with_both(before, as_written.chunk_output.name(), as_written.weights.name()), 0);
    EXPECT_GT(loops_with_both(after, changed.chunk_output.name(), changed.weights.name()), 0);
    EXPECT_EQ(loops_with_both(after, changed.chunk_sum.name(), changed.weights.name()),
              loops_with_both(after, changed.chunk_output.name(), changed.weights.name()));
    // Those of the first block with weights and, of the last granule, without, and those of all others.
    EXPECT_GE(after.size(), before.size() + 2);
}

TEST(WeightsBesideValues, StayWhereAnotherStageReadsThem) {
    ChunkedAttention as_written(Passes::kNone, true), changed(Passes::kWeights, true);
    const auto loops = [](ChunkedAttention &attention) {
        return loops_of(attention.lowered(), attention.chunk_output.name()).size();
    };
    EXPECT_EQ(loops(changed), loops(as_written));
    EXPECT_TRUE(are_same(as_written.of(100, 6), changed.of(100, 6)));
}

}  // namespace

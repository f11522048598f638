// Products of queries and keys that take two or four elements of the head at a time.
#include "attention_stages.h"

namespace hattn::generators {

using namespace Halide;

// Each row has a sum of every second, or fourth, element, side by side in a vector: a load of as many elements of a key
// serves all of them, and all rows.
Expr ScoreStages::multiply_sides(const StageOptions &options) {
    query_pairs = Func("query_pairs");
    over_pairs = RDom(0, over_dim.x.extent() / sides, "over_pairs");
    side_sums = Func("side_sums");
    side_sums(side, r, k, c) = 0.0f;
    Expr key;
    if (in_quads) {
        key = elements_of_key();
    } else {
        query_pairs(side, r, pair) = query_tile(r, sides * pair + side);
        key = key_rows(sides * over_pairs + side, k, c);
    }
    side_sums(side, r, k, c) +=
        ask_with_step(over_pairs, kLineFloats / sides, options) + query_pairs(side, r, over_pairs) * key;
    if (in_quads) {
        return add_quads();
    }
    dot(r, k, c) = side_sums(0, r, k, c) + side_sums(1, r, k, c);
    return dot(r, k, c);
}

// Of heads that are no whole quads the last one ends where they do, with zeros for what the one before has too. Keys of
// 16 bits are in float32 before, in whole lines.
Expr ScoreStages::elements_of_key() {
    Expr element = kQuad * pair + side;
    if (all_type != HATTN_FLOAT32) {
        query_pairs(side, r, pair) = query_tile(r, in_words ? inputs_.words().element(element) : element);
        return key_rows(kQuad * over_pairs + side, k, c);
    }
    Expr last_start = inputs_.key_dim() - kQuad, key = key_index(k, c);
    Expr present = max(min(likely(kQuad * pair), last_start), 0) + side;
    query_pairs(side, r, pair) = select(likely(present >= kQuad * pair), query_tile(r, present), 0.0f);
    has_quads = last_start >= 0;
    Expr start = kQuad * over_pairs;
    Expr of_key = inputs_.key_element(min(likely(start), last_start) + side, key / kGranuleKeys, key % kGranuleKeys);
    of_key = select(likely(start <= last_start) || last_start + side >= start, of_key, 0.0f);
    return select(has_quads, of_key, key_rows(start + side, k, c));
}

// Of four keys at once: each four lanes of a vector are a row's.
Expr ScoreStages::add_quads() {
    over_sides = RDom(0, kQuad, "over_sides");
    quad_sums = Func("quad_sums");
    quad_sums(slot_of_quad, r, quad, c) = 0.0f;
    quad_sums(slot_of_quad, r, quad, c) += side_sums(over_sides, r, quad * kQuad + slot_of_quad, c);
    dot(r, k, c) = quad_sums(k % kQuad, r, k / kQuad, c);
    return dot(r, k, c);
}

}  // namespace hattn::generators

#include "integer_bytes.h"

#include "integer_digits.h"
#include "integer_pairs.h"
#include "keys_by_row.h"

namespace hattn::schedules::simd {

using namespace Halide;
using generators::AttentionStages;
using generators::kDigits;
using generators::kSides;
using generators::ScoreStages;

void schedule_byte_queries(ScoreStages &s, const Tile &tile, int lanes) {
    schedule_integer_queries(s, tile, lanes);
    s.digits.query_digits.compute_root()
        .bound(s.r, 0, tile.rows)
        .bound(s.digits.digit, 0, kDigits)
        .reorder_storage(s.d, s.digits.digit, s.r)
        .reorder(s.d, s.digits.digit, s.r)
        .vectorize(s.d, kSides * lanes)
        .unroll(s.digits.digit);
}

void schedule_byte_sums(ScoreStages &s, const Var &block, const Var &rows, int lanes) {
    const Var digit = s.digits.digit;
    schedule_scaled_sums(s, block, rows, lanes);
    schedule_step_digits(s, s.over_step, lanes);
    s.lane_integers.compute_at(s.dot, rows)
        .bound(digit, 0, kDigits)
        .reorder_storage(s.lane, digit, s.r, s.k, s.c)
        .reorder(s.lane, digit, s.r, s.k, s.c)
        .vectorize(s.lane, lanes)
        .unroll(digit)
        .unroll(s.r)
        .unroll(s.k);
    s.lane_integers.update()
        .reorder({s.over_integers.x, s.lane, digit, s.r, s.k, s.over_integers.y, s.over_integers.z})
        .atomic()
        .vectorize(s.over_integers.x)
        .vectorize(s.lane, lanes)
        .unroll(digit)
        .unroll(s.r)
        .unroll(s.k)
        .unroll(s.over_integers.y);
}

void schedule_byte_values(AttentionStages &s, const Var &block, const Var &rows, const Tile &tile, int lanes) {
    generators::ByteValues &v = s.value_bytes;
    generators::DigitValues &q = s.value_digits;
    const Var digit = s.digits.digit;
    const LoopLevel chunk_loop(s.state, s.over_chunks.x), of_quad(s.integer_output, q.over_key_quads.y);
    s.state.bound(s.d, 0, s.value_positions);
    const int elements = lanes * tile.value_unroll, numbers = kSides * lanes, panels = elements / numbers;
    unroll_parts(s, block, s.step_elements / elements);
    s.integer_output.compute_at(s.state, rows)
        .bound_extent(s.r, tile.row_vectors)
        .bound(s.lane, 0, numbers)
        .bound_extent(s.panel, panels)
        .bound(digit, 0, kDigits)
        .reorder_storage(s.lane, s.panel, digit, s.r, s.c)
        .reorder(s.lane, s.panel, digit, s.r, s.c)
        .vectorize(s.lane)
        .unroll(s.panel)
        .unroll(digit)
        .unroll(s.r);
    s.integer_output.update()
        .reorder({q.over_key_quads.x, s.lane, s.panel, digit, s.r, q.over_key_quads.y, q.over_key_quads.z})
        .atomic()
        .vectorize(q.over_key_quads.x)
        .vectorize(s.lane)
        .unroll(s.panel)
        .unroll(digit)
        .unroll(s.r);
    v.value_numbers.compute_at(of_quad)
        .bound(s.lane, 0, numbers)
        .bound(s.side, 0, kSides)
        .bound_extent(s.panel, panels)
        .reorder_storage(s.lane, s.side, s.panel)
        .reorder(s.lane, s.side, s.panel)
        .vectorize(s.lane)
        .unroll(s.side)
        .unroll(s.panel);
    v.value_halves.compute_at(of_quad)
        .bound(s.side, 0, 2)
        .bound(s.lane, 0, numbers)
        .bound(s.pair, 0, 2)
        .bound_extent(s.panel, panels)
        .reorder_storage(s.side, s.lane, s.pair, s.panel)
        .reorder(s.side, s.lane, s.pair, s.panel)
        .vectorize(s.side)
        .vectorize(s.lane)
        .unroll(s.pair)
        .unroll(s.panel);
    Var pair("pair_of_word"), of_pair("of_pair");
    s.value_words.compute_at(of_quad)
        .bound(s.side, 0, kSides)
        .bound(s.lane, 0, numbers)
        .bound_extent(s.panel, panels)
        .reorder_storage(s.side, s.lane, s.panel)
        .split(s.side, pair, of_pair, 2)
        .reorder(of_pair, pair, s.lane, s.panel)
        .vectorize(of_pair)
        .vectorize(pair)
        .vectorize(s.lane)
        .unroll(s.panel);
    bound_keys(q.weight_digits, s, tile)
        .compute_at(chunk_loop)
        .bound_extent(s.r, tile.rows)
        .bound(digit, 0, kDigits)
        .reorder_storage(s.k, digit, s.r, s.block, s.c)
        .reorder(s.k, digit, s.r, s.block)
        .vectorize(s.k, 2 * lanes)
        .unroll(digit);
    schedule_weight_units(s, tile, lanes);
}

}  // namespace hattn::schedules::simd

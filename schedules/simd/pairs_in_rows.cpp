#include "pairs_in_rows.h"

#include "keys_by_row.h"
#include "words_of_four.h"

namespace hattn::schedules::simd {

using namespace Halide;
using generators::AttentionStages;
using generators::ScoreStages;

void schedule_query_rows(ScoreStages &s, const Tile &tile) {
    generators::RowPairScores &q = s.row_pairs;
    q.query_words.compute_root()
        .bound(s.side, 0, q.kWordElements)
        .bound(q.key_of_four, 0, generators::kKeysAtOnce)
        .bound(q.quarter, 0, generators::kQuarters)
        .bound(q.word, 0, q.kQuarterWords)
        .bound(s.r, 0, tile.rows)
        .reorder_storage(s.side, q.key_of_four, q.quarter, q.word, s.line, s.r)
        .reorder(s.side, q.key_of_four, q.quarter, q.word, s.line, s.r)
        .vectorize(s.side)
        .vectorize(q.key_of_four)
        .vectorize(q.quarter)
        .unroll(q.word);
}

void schedule_row_scores(ScoreStages &s, const LoopLevel &chunk_loop, const Tile &tile) {
    generators::RowPairScores &q = s.row_pairs;
    const Var block = schedule_dot_by_fours(s, chunk_loop, tile);
    s.fetch_starts.compute_at(s.dot, block);
    q.word_sums.compute_at(s.dot, block)
        .bound(q.key_of_four, 0, generators::kKeysAtOnce)
        .bound(q.quarter, 0, generators::kQuarters)
        .bound_extent(s.r, tile.rows)
        .bound_extent(q.four, tile.key_unroll / generators::kKeysAtOnce)
        .reorder_storage(q.key_of_four, q.quarter, s.r, q.four)
        .reorder(q.key_of_four, q.quarter, s.r, q.four)
        .vectorize(q.key_of_four)
        .vectorize(q.quarter)
        .unroll(s.r)
        .unroll(q.four);
    const RDom &over = q.over_words;
    q.word_sums.update()
        .reorder({over.x, q.key_of_four, q.quarter, s.r, q.four, over.y, over.z})
        .atomic()
        .vectorize(over.x)
        .vectorize(q.key_of_four)
        .vectorize(q.quarter)
        .unroll(s.r)
        .unroll(q.four)
        .unroll(over.y);
    const LoopLevel of_line(q.word_sums, over.z);
    schedule_words_of_four(s, q, q.kWordElements, of_line);
    q.key_line.compute_at(of_line).bound(s.d, 0, q.kLineElements).vectorize(s.d).unroll(s.k);
    s.fetched_line.compute_at(of_line).unroll(s.k);
}

void schedule_row_values(AttentionStages &s, const Var &rows, const Tile &tile, int lanes) {
    const int elements = lanes * tile.value_unroll;
    s.chunk_output.compute_at(s.state, rows)
        .bound_extent(s.r, tile.row_vectors)
        .bound_extent(s.d, elements)
        .reorder_storage(s.d, s.r, s.c)
        .reorder(s.d, s.r, s.c)
        .vectorize(s.d, lanes)
        .unroll(s.d)
        .unroll(s.r);
    s.chunk_output.update()
        .reorder({s.over_key_pairs.x, s.d, s.r, s.over_key_pairs.y, s.over_key_pairs.z})
        .vectorize(s.d, lanes)
        .atomic()
        .vectorize(s.over_key_pairs.x)
        .unroll(s.d)
        .unroll(s.r);
    s.value_pairs.compute_at(s.chunk_output, s.over_key_pairs.y)
        .bound(s.side, 0, 2)
        .bound_extent(s.d, elements)
        .bound_extent(s.pair, 1)
        .reorder_storage(s.side, s.d, s.pair)
        .reorder(s.side, s.d)
        .vectorize(s.d, 2 * lanes)
        .unroll(s.side)
        .unroll(s.d);
    bound_keys(s.weight_halves, s, tile)
        .compute_at(s.state, s.over_chunks.x)
        .bound_extent(s.r, tile.rows)
        .vectorize(s.k, lanes);
}

}  // namespace hattn::schedules::simd

// Words of four keys that change places before they are multiplied, see generators::DigitScores and RowPairScores.
#pragma once

#include "generators/attention_stages.h"

namespace hattn::schedules::simd {

// A line of each key at a time, in vectors: of two keys first, and then of four. `sides`: numbers of a word.
template<typename Words>
void schedule_words_of_four(generators::ScoreStages &stages, Words &words, int sides,
                            const Halide::LoopLevel &of_line) {
    using generators::kKeysAtOnce, generators::kKeysOfPair, generators::kQuarters;
    Halide::Var of_pair("of_pair"), pair("pair_of_four");
    words.words_of_four.compute_at(of_line)
        .bound(stages.side, 0, sides)
        .bound(words.key_of_four, 0, kKeysAtOnce)
        .bound(words.quarter, 0, kQuarters)
        .reorder_storage(stages.side, words.key_of_four, words.quarter, words.word, words.four)
        .split(words.key_of_four, pair, of_pair, kKeysOfPair)
        .reorder(stages.side, of_pair, pair, words.quarter, words.word, words.four)
        .vectorize(stages.side)
        .vectorize(of_pair)
        .vectorize(pair)
        .vectorize(words.quarter)
        .unroll(words.word)
        .unroll(words.four);
    words.key_pairs.compute_at(of_line)
        .bound(stages.side, 0, sides)
        .bound(words.key_of_pair, 0, kKeysOfPair)
        .bound(words.word, 0, 2)
        .bound(words.quarter, 0, kQuarters)
        .reorder_storage(stages.side, words.key_of_pair, words.word, words.quarter, words.half, stages.pair)
        .reorder(stages.side, words.key_of_pair, words.word, words.quarter, words.half, stages.pair)
        .vectorize(stages.side)
        .vectorize(words.key_of_pair)
        .vectorize(words.word)
        .vectorize(words.quarter)
        .unroll(words.half)
        .unroll(stages.pair);
}

}  // namespace hattn::schedules::simd

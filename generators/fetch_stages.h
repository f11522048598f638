// What is asked for ahead of its use: members of ScoreStages and AttentionStages, in whose coordinates they are.
#pragma once

#include "Halide.h"

namespace hattn::generators {

struct FetchedKeys {
    Halide::RDom over_asks;     // (ask, step), or, by_row, (line of a key)
    Halide::RDom over_unusual;  // (once) by_row, of floats, if heads are none of usual_heads
    // (block, c) 0; asks for all that fetched_line does for a block of keys. By_row, but not in_digits, (k, c), for all
    // lines of a key: of heads of floats that are usual, in place of fetched_line, as LLVM moves no load across what is
    // asked for.
    Halide::Func asked;
    // (block, c) Tuple of where the rows start that a block asks for: its values, and keys fetch_lead further. By_row
    // the keys alone. In_digits (granule, c) Tuple of keys, values and the scales of these.
    Halide::Func fetch_starts;
    Halide::Func fetch_lines;   // (k % asks, line) Tuple of how far behind these starts a line is
    Halide::Func fetched_line;  // (k, line, c) 0; asks for it; all three defined with fetch_block. Here k counts
                                // as many lines for each block of keys as lines_of_step() says. By_stride there are no
                                // fetch_lines, fetch_starts are addresses, and with rows in the lanes (block, ask, c)
    Halide::RDom over_dense, over_table;  // (once) with place_keys: if rows have no gaps, and if they have
    Halide::RDom over_asked_rows;         // (row) of a block; defined with fetch_rows, as the next three
    Halide::Func asked_range;             // (block, c) Tuple of the first row that it asks for, and how many
    Halide::Func row_places;              // (r) Tuple of where rows of next_query and of the output start
    Halide::Func asked_rows;              // (block, line, c) 0; asks for a line of each
};

// Of later chunks.
struct FetchedChunks {
    Halide::RDom over_asked;   // (line) that weights of a pair ask for; defined in_bands, as the next
    Halide::Func asked_ahead;  // (turn, c) 0, of a pair of a chunk's bands, counted through one after the other;
                               // asks for lines of a key of the next chunk and of its value
    // With fetch_pass. Turns count the granules of a chunk, in one pass over it after the other: each asks for lines of
    // one granule of the next chunk.
    Halide::Var turn{"turn"};
    Halide::RDom over_granule_lines;  // (line, slot) of a granule's keys
    Halide::Func granule_lines;       // (slot * lines + line) how far behind the granule's start the line is; asks for
                                      // those of the first granule
    Halide::Var part{"part"};         // of a granule's lines: those of a turn
    Halide::Func next_granule;        // (turn) Tuple of the granule and the part
    Halide::Func next_lines;          // (slot, part) of granule_lines
    Halide::Func next_start;          // (turn, c) where the granule starts
    Halide::Func asked_next;  // (slot, turn, c) 0; asks for the line, or, by_row or by_stride, for those that the pass
                              // reads of a value, of the key fetch_lead further; likewise next_start
};

}  // namespace hattn::generators

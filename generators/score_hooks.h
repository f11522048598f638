// Score modifiers. Each is one row of the table below: a function from the score to the new score, the identity when
// its row is off, composed in table order between the scaled dot product and the positional limits.
#pragma once

#include <string>
#include <vector>

#include "Halide.h"
#include "kernel_inputs.h"
#include "softmax_math.h"

namespace hattn::generators {

// An operand of a hook over (r, k, c), which a schedule may lay out before use.
struct HookTile {
    Halide::Func func;
    Halide::Expr dense;     // its keys lie side by side in memory
    Halide::Func fetched;   // (turn, c) 0; asks for a part of its rows in the next chunk; defined with
                            // StageOptions::fetch_operands
    Halide::RDom over_ask;  // (line, row) of the turn
};

// What a hook may look at. Coordinates of a score are (r, k, c): row of the tile, key within its chunk, chunk.
struct ScoreContext {
    const AttentionInputs &inputs;
    Halide::Var r, k, c;
    Halide::Expr key;       // absolute index j of the key
    Halide::Expr row;       // absolute row i of row r
    Halide::Expr head;      // absolute query head h of row r
    Halide::Expr position;  // of row r among the keys
    float unit;             // scores are kept in multiples of 1/unit: log2(e) inside the softmax, 1 for score outputs
    std::vector<HookTile> *tiles;
    std::vector<Halide::Func> *per_row;  // Funcs over (r)
    Exp2 exp2;
    int fetch_rows = 0, fetch_keys = 0;  // rows of a tile and keys of a chunk whose operands are asked for ahead
    int fetch_block = 0;                 // with so many keys, a part of them; 0: all at once, by the operand's tile
    int fetch_band = 0;                  // in place of that: of a band of so many rows, with each pair of keys
};

using HookMask = unsigned;

struct ScoreHook {
    const char *name;
    HookMask bit;
    bool can_hide_keys;  // may mask a key that the positional limits leave visible
    bool has_neutral;    // some operand leaves every score as it is, see runtime/kernel_arguments.h
    Halide::Expr (*apply)(Halide::Expr score, const ScoreContext &context);
};

// Row n has bit 1 << n. The runtime's table of hooks is generated from this one.
const std::vector<ScoreHook> &score_hooks();

Halide::Expr apply_score_hooks(HookMask hooks, Halide::Expr score, const ScoreContext &context);
HookMask hiding_hooks();   // all that can hide keys
HookMask neutral_hooks();  // all that have a neutral operand

// The sets that kernels are compiled for: none, each hook alone, and all that have a neutral operand with any of those
// that have none. Every other combination is computed by the smallest of these that contains it, with neutral operands.
std::vector<HookMask> kernel_hook_sets();

bool can_hide_keys(HookMask hooks);
std::string hook_suffix(HookMask hooks);  // "" or "_softcap_bias"...

}  // namespace hattn::generators

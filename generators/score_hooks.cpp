#include "score_hooks.h"

#include <algorithm>

namespace hattn::generators {

using namespace Halide;

namespace {

// s = softcap * tanh(s / softcap)   (Gemma 2, 2024)
Expr apply_softcap(Expr score, const ScoreContext &context) {
    return capped_score(score, context.inputs.softcap * context.unit, context.exp2);
}

// What of a tile's rows, and of their lines in a chunk, a turn asks for.
struct Turn {
    int rows = 1, lines = 1;
    Expr first_row, first_line;  // of the tile, of a row
    int line_step = 1;
    bool within = true;  // no turn goes beyond the tile's rows
};

Turn turn_of(const Var &turn, int lines, const ScoreContext &context) {
    if (context.fetch_band > 0) {
        const int pairs = context.fetch_keys / 2, parts = std::max(1, pairs / context.fetch_band);  // of a row
        const int rows = std::max(1, context.fetch_band / pairs);
        Expr of_band = turn % pairs;
        return {rows, (lines + parts - 1) / parts, turn / pairs * context.fetch_band + of_band / parts * rows,
                of_band % parts, parts};
    }
    const int block = context.fetch_block > 0 ? context.fetch_block : context.fetch_keys;
    const int turns = (context.fetch_keys + block - 1) / block, rows = (context.fetch_rows + turns - 1) / turns;
    return {rows, lines, turn * rows, 0, 1, turns * rows <= context.fetch_rows};
}

// An operand has a row for each row of the tile, too far apart for the CPU to foresee that they go on. Asking for what
// is beyond the last key does no harm.
void fetch_ahead(const ImageParam &operand, HookTile &tile, const ScoreContext &context) {
    if (context.fetch_rows == 0) {
        return;
    }
    const int line = line_elements(operand), lines = (context.fetch_keys + line - 1) / line;
    Var turn("turn");
    const Turn asked = turn_of(turn, lines, context);
    tile.over_ask = RDom({{0, asked.lines}, {0, asked.rows}}, "over_ask");
    Expr row = asked.first_row + tile.over_ask.y, line_of_row = asked.first_line + tile.over_ask.x * asked.line_step;
    if (!asked.within) {
        tile.over_ask.where(row < context.fetch_rows);
        row = unsafe_promise_clamped(row, 0, context.fetch_rows - 1);
    }
    if (lines % asked.line_step != 0) {
        tile.over_ask.where(line_of_row < lines);
    }
    const auto of_row = [&](const Expr &coordinate) { return Internal::substitute(context.r.name(), row, coordinate); };
    const auto offset = [&](int dimension, const Expr &coordinate) {
        return (coordinate - operand.dim(dimension).min()) * operand.dim(dimension).stride();
    };
    Expr next = (context.c + 1) * context.fetch_keys + line_of_row * line;
    tile.fetched = Func(operand.name() + "_tile_fetched");
    tile.fetched(turn, context.c) = 0.0f;
    tile.fetched(turn, context.c) +=
        prefetch_line(operand, offset(0, next) + offset(1, of_row(context.row)) + offset(2, of_row(context.head)));
}

// Defines a tile over an operand's elements.
void lay_out(const ImageParam &operand, Func &func, const Expr &element, const ScoreContext &context) {
    HookTile tile{func, operand.dim(0).stride() == 1, {}, {}};
    fetch_ahead(operand, tile, context);
    const bool asks = tile.fetched.defined() && context.fetch_block == 0 && context.fetch_band == 0;
    func(context.r, context.k, context.c) = asks ? element + tile.fetched(0, context.c) : element;
    context.tiles->push_back(tile);
}

// s = s + bias[h, i, j]
Expr apply_bias(Expr score, const ScoreContext &context) {
    Func tile("bias_tile");
    Expr bias = context.inputs.bias(context.key, context.row, context.head);
    lay_out(context.inputs.bias, tile, finite_logit(bias, context.unit), context);
    // Selected rather than added, so that a key hidden by -inf may hold anything.
    Expr operand = tile(context.r, context.k, context.c);
    return select(operand <= kLowestReference, kMaskedScore, score + operand);
}

// s = s - slope[h] * |p - j|   (Press et al., 2022)
Expr apply_alibi(Expr score, const ScoreContext &context) {
    Func slope("alibi_slope");
    slope(context.r) = context.inputs.alibi_slopes(context.head) * context.unit;
    context.per_row->push_back(slope);
    Expr distance = abs(context.position - context.key);
    return score - slope(context.r) * cast<float>(distance);
}

Expr apply_mask(Expr score, const ScoreContext &context) {
    Func tile("mask_tile");
    Expr visible = context.inputs.mask(context.key, context.row, context.head) != 0;
    lay_out(context.inputs.mask, tile, select(visible, 1.0f, 0.0f), context);
    return select(tile(context.r, context.k, context.c) > 0.0f, score, kMaskedScore);
}

}  // namespace

const std::vector<ScoreHook> &score_hooks() {
    static const std::vector<ScoreHook> hooks = {
        {"softcap", 1u << 0, false, false, apply_softcap},
        {"bias", 1u << 1, true, true, apply_bias},
        {"alibi", 1u << 2, false, true, apply_alibi},
        {"mask", 1u << 3, true, true, apply_mask},
    };
    return hooks;
}

Expr apply_score_hooks(HookMask hooks, Expr score, const ScoreContext &context) {
    for (const ScoreHook &hook : score_hooks()) {
        if (hooks & hook.bit) {
            score = hook.apply(score, context);
        }
    }
    for (const HookTile &operand : *context.tiles) {
        if (operand.fetched.defined() && context.fetch_block > 0) {
            score += operand.fetched(context.k / context.fetch_block, context.c);
        }
    }
    return score;
}

HookMask hiding_hooks() {
    HookMask hiding = 0;
    for (const ScoreHook &hook : score_hooks()) {
        hiding |= hook.can_hide_keys ? hook.bit : 0;
    }
    return hiding;
}

HookMask neutral_hooks() {
    HookMask neutral = 0;
    for (const ScoreHook &hook : score_hooks()) {
        neutral |= hook.has_neutral ? hook.bit : 0;
    }
    return neutral;
}

std::vector<HookMask> kernel_hook_sets() {
    const HookMask neutral = neutral_hooks();
    HookMask all = 0;
    std::vector<HookMask> sets = {0};
    for (const ScoreHook &hook : score_hooks()) {
        all |= hook.bit;
        sets.push_back(hook.bit);
    }
    for (HookMask set = 0; set <= all; ++set) {
        const bool alone = std::find(sets.begin(), sets.end(), set) != sets.end();
        if ((set & neutral) == neutral && !alone) {
            sets.push_back(set);
        }
    }
    return sets;
}

bool can_hide_keys(HookMask hooks) {
    return (hooks & hiding_hooks()) != 0;
}

std::string hook_suffix(HookMask hooks) {
    std::string suffix;
    for (const ScoreHook &hook : score_hooks()) {
        if (hooks & hook.bit) {
            suffix += std::string("_") + hook.name;
        }
    }
    return suffix;
}

}  // namespace hattn::generators

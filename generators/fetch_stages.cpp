// What is asked for ahead of its use, of ScoreStages and AttentionStages.
#include <algorithm>

#include "attention_stages.h"

namespace hattn::generators {

using namespace Halide;

namespace {

// Of a granule, or of the last one where there is none.
Expr first_key_of(const AttentionInputs &inputs, const Expr &granule) {
    Expr last = granules(inputs.key_count) - 1;
    return unsafe_promise_clamped(min(granule, last), 0, last) * kGranuleKeys;
}

// Keys that what is asked for is ahead of what is read: more where rows have room for another one between them.
Expr lead_of(const ImageParam &side, const StageOptions &options) {
    Expr lie_apart = side.dim(1).stride() >= 2 * side.dim(0).extent();
    return options.fetch_lead_apart > options.fetch_lead
               ? select(lie_apart, options.fetch_lead_apart, options.fetch_lead)
               : Expr(options.fetch_lead);
}

}  // namespace

Expr asking(const Expr &number, const Expr &nothing) {
    return reinterpret(BFloat(16), reinterpret<uint16_t>(number) + cast<uint16_t>(nothing));
}

// In the order of memory, which is what the memory and its hardware prefetchers are good at: with each line of the head
// the next `block` lines, not one of each row.
void ScoreStages::fetch_by_line(const StageOptions &options) {
    fetch_starts = Func("fetch_starts");
    fetch_lines = Func("fetch_lines");
    fetched_line = Func("fetched_line");
    const int block = options.fetch_block;
    const int asks = lines_of_step(block);
    Expr first_key = k * block;
    Expr next_key = key_index(first_key + options.fetch_lead, c);
    const bool fetch_keys = options.fetch_pass == 0;
    Expr none = 0;
    fetch_starts(k, c) = Tuple(inputs_.value_start(key_index(first_key, c)),
                               !fetch_keys          ? none
                               : options.place_keys ? key_starts(first_key + options.fetch_lead, c)
                                                    : inputs_.key_start(next_key));
    Expr which = line * asks + k;
    // Over a type that fills steps with parts of lines, the block's lines are spread over its steps.
    const auto spread = [&](const Expr &lines) {
        return all_type == HATTN_FLOAT32 && !any_storage ? which : which * (block * lines) / (asks * step_count());
    };
    fetch_lines(k, line) = Tuple(inputs_.value_line(spread(inputs_.value_lines()), block),
                                 fetch_keys ? inputs_.key_line(spread(inputs_.key_lines()), block) : none);
    Tuple starts = fetch_starts(k / asks, c), lines = fetch_lines(k % asks, line);
    const auto ask = [&](const Expr &value_line, const Expr &key_line) {
        Expr asked = options.fetch_values ? inputs_.prefetch_value(starts[0], value_line) : Expr(0.0f);
        return fetch_keys ? asked + inputs_.prefetch_key(starts[1], key_line) : asked;
    };
    if (!options.place_keys) {
        fetched_line(k, line, c) = ask(lines[0], lines[1]);
        return;
    }
    // Of rows without gaps the table says nothing new.
    Expr dense = inputs_.dense_rows();
    over_dense = RDom(0, 1, "over_dense");
    over_dense.where(dense);
    over_table = RDom(0, 1, "over_table");
    over_table.where(!dense);
    fetched_line(k, line, c) = 0.0f;
    Expr next_line = (line * asks + k % asks + over_dense) * kLineFloats;
    fetched_line(k, line, c) += ask(next_line, next_line);
    fetched_line(k, line, c) += ask(lines[0] + over_table, lines[1]);
}

// A block's lines follow each other where rows have no gaps, or where a line of the head finds all of a row; else each
// finds one of every row.
void ScoreStages::fetch_by_stride(const StageOptions &options) {
    fetch_starts = Func("fetch_starts");
    fetched_line = Func("fetched_line");
    const int asks = options.fetch_block;
    Expr first_key = k * asks, next_key = first_key + options.fetch_lead;
    Expr next_start = options.place_keys ? key_starts(next_key, c) : inputs_.key_start(key_index(next_key, c));
    Expr value_start = inputs_.value_start(key_index(first_key, c));
    const ImageParam &keys = inputs_.asked_keys(), &values = inputs_.asked_values();
    fetch_starts(k, c) = Tuple(address_of(values, value_start), address_of(keys, next_start));

    const bool with_each_step = !whole_lines;
    Expr ask = with_each_step ? line % asks : k % asks, line_of_head = with_each_step ? line / asks : line;
    Tuple starts = fetch_starts(with_each_step ? k : k / asks, c);
    Expr dense = inputs_.dense_rows(), whole_rows = inputs_.key_lines() == asks && inputs_.value_lines() == asks;
    const auto ask_for = [&](const Expr &start, const ImageParam &rows) {
        Expr stride = rows.dim(1).stride();
        const int line_of_rows = line_elements(rows);
        Expr of_line = select(dense, asks * line_of_rows, whole_rows, stride, line_of_rows);
        Expr of_ask = select(dense || whole_rows, line_of_rows, stride);
        const auto bytes = [&](const Expr &count, const Expr &elements) {
            return cast<int64_t>(count) * cast<int64_t>(elements * rows.type().bytes());
        };
        return prefetch_address(start + cast<uint64_t>(bytes(line_of_head, of_line) + bytes(ask, of_ask)));
    };
    Expr asked = ask_for(starts[1], keys);
    fetched_line(k, line, c) = options.fetch_pass > 0 ? asked : asked + ask_for(starts[0], values);
}

// Keys that are multiplied one after the other are asked for so too, which is the order of memory without a table.
// Lines past the last are those of another row: asking for them does no harm.
void ScoreStages::fetch_by_row(const StageOptions &options) {
    fetch_starts = Func("fetch_starts");
    const int block = options.fetch_block;
    // Without key_index(), whose likely() would give the last keys a loop of their own.
    Expr first_key = c * chunk_keys + k * block, last_key = inputs_.key_count - 1;
    Expr ahead = min(first_key + lead_of(inputs_.asked_keys(), options), last_key);
    Expr start = inputs_.key_start(ahead);
    if (in_integers) {
        // They are read all at once behind the scores.
        Expr scales = inputs_.scales_start(inputs_.stored_value, min(first_key, last_key));
        start += cast(start.type(), inputs_.prefetch_scales(inputs_.stored_value, scales, 0));
    }
    fetch_starts(k, c) = start;
    const auto asked_line = [&](const Expr &of_row) {
        return inputs_.prefetch_key(fetch_starts(k / block, c), inputs_.key_line_of_slot(k % block, of_row));
    };
    const int line_elements = kLineFloats * steps_of_line;
    over_asks = RDom(0, (inputs_.key_dim() + (line_elements - 1)) / line_elements, "over_asks");
    if (!in_integers) {
        // One or the other.
        Expr usual = usual_heads[0] || usual_heads[1];
        over_asks.where(usual);
        over_unusual = RDom(0, 1, "over_unusual");
        over_unusual.where(!usual);
        fetched_line = Func("fetched_line");
        fetched_line(k, line, c) = 0.0f;
        fetched_line(k, line, c) += asked_line(line + over_unusual);
    }
    asked = Func("asked");
    asked(k, c) = 0.0f;
    asked(k, c) += asked_line(over_asks);
}

// The same where granules have a loop of their own, and what starts with them is found once. Where values are
// multiplied as bytes too, scores take longer than these: some values are asked for with them.
void ScoreStages::fetch_by_granule(const StageOptions &options) {
    fetch_starts = Func("fetch_starts");
    asked = Func("asked");
    const int block = in_byte_matrices ? kGranuleKeys : kKeysAtOnce, blocks = kGranuleKeys / block;
    const auto nearest = [&](const Expr &of_chunk) {
        return min(c * granules(chunk_keys) + of_chunk, granules(inputs_.key_count) - 1) * kGranuleKeys;
    };
    Expr ahead = nearest(k + options.fetch_lead / kGranuleKeys), read_next = nearest(k);
    fetch_starts(k, c) =
        Tuple(inputs_.key_start(ahead), inputs_.value_start(read_next), inputs_.scales_start(inputs_.stored_key, ahead),
              inputs_.scales_start(inputs_.stored_value, read_next));
    Tuple starts = fetch_starts(k / blocks, c);
    Expr slot = k % blocks * block, asked_first = 0.0f;
    for (int i = 0; i < block; i += kKeysAtOnce) {
        Expr key_scales = inputs_.prefetch_scales(inputs_.stored_key, starts[2], slot + i);
        asked_first += select(one_key_scale, 0.0f, key_scales) +
                       inputs_.prefetch_scales(inputs_.stored_value, starts[3], slot + i);
    }
    for (int i = 0; i < (values_in_digits ? kValuesWithScores : 0); ++i) {
        asked_first += inputs_.prefetch_value(starts[1], inputs_.value_line_of_slot(slot + i, 0));
    }
    asked(k, c) = asked_first;
    // In one loop: of several, as many as keys, LLVM makes blocks of their own.
    over_asks = RDom(0, block * inputs_.key_digits().lines(), "over_asks");
    Expr of_slot = over_asks % block, line_of_row = over_asks / block;
    if (in_byte_matrices) {
        over_asks = RDom({{0, inputs_.key_digits().lines()}, {0, block}}, "over_asks");
        of_slot = over_asks.y;
        line_of_row = over_asks.x;
    }
    asked(k, c) += inputs_.prefetch_key(starts[0], inputs_.key_line_of_slot(slot + of_slot, line_of_row));
}

// Of rows the first are asked for with the first blocks of keys, and of few keys more with each.
void ScoreStages::ask_for_rows(const StageOptions &options) {
    row_places = Func("row_places");
    row_places(r) = Tuple(inputs_.next_query + query_starts(r), inputs_.own_output + r * inputs_.output_stride);
    asked_rows = Func("asked_rows");
    Expr blocks = (inputs_.key_count + (options.fetch_block - 1)) / options.fetch_block;
    Expr rows = max(options.fetch_rows, (options.rows + blocks - 1) / blocks);
    Expr first_row = min((c * (options.chunk / options.fetch_block) + k) * rows, options.rows);
    asked_range = Func("asked_range");
    asked_range(k, c) = Tuple(first_row, min(rows, options.rows - first_row));
    over_asked_rows = RDom(0, options.rows, "over_asked_rows");
    over_asked_rows.where(over_asked_rows < asked_range(k, c)[1]);
    Tuple places = row_places(unsafe_promise_clamped(asked_range(k, c)[0] + over_asked_rows, 0, options.rows - 1));
    asked_rows(k, line, c) = 0.0f;
    asked_rows(k, line, c) += inputs_.prefetch_query(places[0], line) + inputs_.prefetch_query(places[1], line);
}

Expr ScoreStages::step_count() const {
    return in_steps      ? inputs_.key_steps().count()
           : in_bytes    ? inputs_.key_signed_bytes().count()
           : in_integers ? inputs_.key_pairs().count()
                         : over_dim.x.extent() / kLineFloats;
}

// Of any storage as many as 16 bits have: of float32 there every second one.
int ScoreStages::lines_of_step(int block) const {
    constexpr int kLineBits = 512;
    const int bits = any_storage ? storage_bits(HATTN_FLOAT16) : storage_bits(all_type);
    return std::max(1, block * step_elements * bits / kLineBits);
}

Expr ScoreStages::ask_of_key(int block) const {
    return k / (block / lines_of_step(block));
}

// All pairs of all bands ask for as many lines of keys, values and operands of hooks of the next chunk, but those whose
// weights nobody reads, as those of bands without rows: see decision 0112. What lies behind the last key, or behind a
// row, need not be there.
Expr AttentionStages::ask_ahead(const AttentionInputs &inputs, int rows) {
    const int parts = rows / joined_rows / 2;  // of a key's lines, a turn each
    Expr key_lines = inputs.key_lines(), value_lines = inputs.value_lines();
    over_asked = RDom(0, (max(key_lines, value_lines) + (parts - 1)) / parts, "over_asked");
    over_asked.where((c + 1) * chunk < inputs.key_count);
    Expr key = turn / parts, there = (c + 1) * (chunk / kGranuleKeys) + key / kGranuleKeys;
    Expr first_key = first_key_of(inputs, there);
    Expr of_slot = key % kGranuleKeys, line_of_row = over_asked * parts + turn % parts;
    asked_ahead = Func("asked_ahead");
    asked_ahead(turn, c) = 0.0f;
    asked_ahead(turn, c) =
        inputs.prefetch_key(inputs.key_start(first_key), inputs.key_line_of_slot(of_slot, line_of_row)) +
        inputs.prefetch_value(inputs.value_start(first_key), inputs.value_line_of_slot(of_slot, line_of_row));
    const Expr turn_of_pair = r / joined_rows * (chunk / 2) + pair;
    Expr nothing = asked_ahead(turn_of_pair, c);
    for (const HookTile &operand : hook_tiles) {
        if (operand.fetched.defined()) {
            nothing += operand.fetched(turn_of_pair, c);
        }
    }
    return nothing;
}

void AttentionStages::ask_for_quads(const AttentionInputs &inputs) {
    ByteMatrixValues &v = byte_values;
    const Var &quad = byte_scores.quad;
    v.next_starts = Func("next_starts");
    v.asked_line = Func("asked_line");
    Expr there = c * granules(chunk_keys) + granule + kByteDepth / kGranuleKeys;
    v.next_starts(granule, c) = inputs.value_start(first_key_of(inputs, there));
    Expr of_chunk = quad / kQuadsOfBlock * kSides + side;
    v.asked_line(side, part, quad, c) =
        inputs.prefetch_value(v.next_starts(of_chunk, c), inputs.value_line_of_slot(quad % kQuadsOfBlock, part));
}

// The lines that a pass reads of a key, of the one fetch_lead further, into the next chunk too.
void AttentionStages::fetch_next_values(const AttentionInputs &inputs, const StageOptions &options) {
    const int chunk_granules = options.chunk / kGranuleKeys;
    next_start = Func("next_start");
    Expr lead = lead_of(inputs.asked_values(), options) / kGranuleKeys;
    Expr there = c * chunk_granules + turn % chunk_granules + lead;
    next_start(turn, c) = inputs.value_start(first_key_of(inputs, there));

    asked_next = Func("next_values");
    const int line_elements = kLineFloats * steps_of_line, lines = std::max(1, options.fetch_pass / line_elements);
    const Expr pass = turn / chunk_granules;
    // Passes over parts of a line ask for it again; those of digits count lines.
    const Expr first_line = values_in_digits ? pass : pass * options.fetch_pass / line_elements;
    Expr asked(0.0f);
    // Of a sum what is added last is asked for first; memory is faster in its own order.
    for (int i = lines - 1; i >= 0; --i) {
        Expr line_of_row = first_line + i;
        asked += inputs.prefetch_value(next_start(turn, c), inputs.value_line_of_slot(slot, line_of_row));
    }
    if (!values_in_digits && !values_in_integers && options.fetch_pass < kUsualHead) {
        // Of rows that start within a line a pass reads one more, which the next would ask for.
        Expr end = inputs.value_line_of_slot(slot, first_line + lines) - 1;
        asked += inputs.prefetch_value(next_start(turn, c), end);
    }
    asked_next(slot, turn, c) = asked;
}

// In the order of memory, as in fetch_by_line(): the lines of the next chunk are spread over all passes. All that needs
// a division is in tables, made once. What lies behind the last key need not be there: nobody reads it.
void AttentionStages::fetch_next_keys(const AttentionInputs &inputs, const StageOptions &options) {
    const int chunk_granules = options.chunk / kGranuleKeys;
    Expr passes = (inputs.value_dim() + (options.fetch_pass - 1)) / options.fetch_pass;
    Expr lines = inputs.key_lines(), last_line = kGranuleKeys * lines - 1;

    granule_lines = Func("granule_lines");
    over_granule_lines = RDom({{0, lines}, {0, kGranuleKeys}}, "over_granule_lines");
    granule_lines(line) = undef<int>();
    Expr offset = inputs.key_line_of_slot(over_granule_lines.y, over_granule_lines.x);
    granule_lines(over_granule_lines.y * lines + over_granule_lines.x) =
        offset + cast<int>(inputs.prefetch_key(inputs.key_start(0), offset));

    next_granule = Func("next_granule");
    next_granule(turn) = Tuple(turn / passes, turn % passes);
    next_lines = Func("next_lines");
    constexpr int kFraction = 16;
    Expr lines_per_key = (lines << kFraction) / passes;
    Expr which = part * kGranuleKeys * lines / passes + ((slot * lines_per_key) >> kFraction);
    next_lines(slot, part) = granule_lines(clamp(which, 0, last_line));

    next_start = Func("next_start");
    Expr there = (c + 1) * chunk_granules + next_granule(turn)[0];
    next_start(turn, c) = inputs.key_start(first_key_of(inputs, there));
    asked_next = Func("next_keys");
    Expr part_of_turn = unsafe_promise_clamped(next_granule(turn)[1], 0, passes - 1);
    asked_next(slot, turn, c) = inputs.prefetch_key(next_start(turn, c), next_lines(slot, part_of_turn));
}

}  // namespace hattn::generators

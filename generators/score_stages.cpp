// From the query tile to the logits: ScoreStages.
#include <algorithm>

#include "attention_stages.h"
#include "number_formats.h"
#include "softmax_math.h"

namespace hattn::generators {

using namespace Halide;

namespace {

Expr zero_of(const Expr &value) {
    return cast(value.type(), 0);
}

Expr round_up(Expr value, int multiple) {
    return (value + (multiple - 1)) / multiple * multiple;
}

}  // namespace

ScoreStages::ScoreStages(const AttentionInputs &inputs, const StageOptions &options)
    : over_dim(0, options.head > 0 ? Expr(options.head) : round_up(inputs.key_dim(), options.dim_multiple), "over_dim"),
      row("row"),
      head("head"),
      position("position"),
      first("first"),
      last("last"),
      query_tile("query_tile"),
      key_rows("key_rows"),
      dot("dot"),
      logits("logits"),
      single_head(inputs.heads() == 1),
      chunk_keys(options.chunk > 0 ? Expr(options.chunk) : inputs.key_count),
      chunk_count(options.chunk > 0 ? (inputs.key_count + (options.chunk - 1)) / options.chunk : Expr(1)),
      chunk(options.chunk),
      whole_lines(options.fetch_block > 0 && options.dim_multiple == kLineFloats),
      by_row(options.fetch_by_row),
      by_stride(options.fetch_by_stride),
      present_keys(options.present_keys),
      usual_heads{inputs.key.dim(0).extent() == kUsualHead, inputs.key.dim(0).extent() == kNarrowHead},
      any_storage(inputs.any_storage),
      whole_heads(inputs.whole_heads()),
      all_type(inputs.all_type),
      step_elements(options.integer_products == IntegerProducts::kNone    ? generators::step_elements(all_type)
                    : options.integer_products == IntegerProducts::kBytes ? inputs.key_signed_bytes().elements
                                                                          : inputs.key_pairs().elements),
      steps_of_line(storage_bits(HATTN_FLOAT32) / storage_bits(all_type)),
      in_words(options.words),
      in_steps(inputs.in_steps() && options.integer_products == IntegerProducts::kNone),
      in_integers(options.integer_products != IntegerProducts::kNone),
      values_in_integers(in_integers && options.integer_products != IntegerProducts::kScorePairs),
      in_digits(takes_lines(inputs.storage)),
      in_byte_matrices(multiplies_byte_matrices(inputs.storage)),
      values_in_steps(inputs.in_steps() && !values_in_integers),
      values_in_digits(options.value_digits),
      in_bytes(options.integer_products == IntegerProducts::kBytes),
      one_key_scale(inputs.stored_key.one_scale()),
      one_value_scale(inputs.stored_value.one_scale()),
      joined_rows(std::min(options.rows, kJoinedRows * kMatrixColumns)),
      sides(options.sides),
      in_quads(options.sides == kQuad),
      in_pairs(multiplies_stored(inputs.storage) || multiplies_matrices(inputs.storage)),
      in_rows(inputs.storage == KeyStorage::kBfloat16Rows),
      in_matrices(multiplies_matrices(inputs.storage)),
      in_bands(options.bands),
      bfloat16_terms(hattn::bfloat16_terms(inputs.storage)),
      matrix_type(inputs.matrix_type),
      row_layout(inputs.row_layout),
      key_groups(options.key_groups),
      exp2(in_fragments() || options.of_cuda  ? exp2_of_cuda
           : multiplies_terms(inputs.storage) ? exp2_or_nan
           : options.strict                   ? exp2_strict
                                              : exp2_nonpositive),
      key_type(inputs.stored_key.type),
      query_type(inputs.query_type),
      inputs_(inputs) {
    // `likely` gives all but the last block of the head a loop without the clamp.
    const bool padded = (options.dim_multiple > 1 && !inputs.whole_heads()) || options.head > 0;
    const auto clamp_dim = [&](Expr dim) { return padded ? min(likely(std::move(dim)), inputs.key_dim() - 1) : dim; };
    Expr tile_row = min(r, inputs.rows() - 1);
    row(r) = inputs.query.dim(1).min() + tile_row / inputs.heads();
    head(r) = inputs.query.dim(2).min() + tile_row % inputs.heads();
    position(r) = row(r) + inputs.position_offset;

    first(r) = row(r) + inputs.first_offset;
    last(r) = min(row(r) + inputs.last_offset, inputs.key_count - 1);

    if (options.place_rows) {
        query_starts = Func("query_starts");
        query_starts(r) = inputs.query_start(row_index(), head_index());
    }
    Expr query = options.place_rows ? inputs.query_from(query_starts(r), clamp_dim(d))
                                    : inputs.query_element(clamp_dim(d), row_index(), head_index());
    if (!scales_products()) {
        query *= inputs.scale * options.unit;
    } else if (in_matrices && options.hooks == 0) {
        query *= select(inputs.scale < 0.0f, -1.0f, 1.0f);
    }
    if (inputs.has_scales()) {
        query *= inputs.stored_key.channel_scales(clamp_dim(d));
    }
    if (inputs.in_steps()) {
        query *= inputs.stored_key.common_scale();
    }
    query_tile(r, d) = in_fragments() ? query_of_row(d)
                       : padded       ? select(likely(d < inputs.key_dim()), query, zero_of(query))
                                      : query;
    if (options.place_keys) {
        place_keys(options);
    }
    if (inputs.in_lines()) {
        usual_heads.back() = inputs.key.dim(0).extent() == kWideHead;  // narrow ones are no whole lines
        one_head = inputs.has_one_head();
        fetch_by_granule(options);
    } else if (by_row) {
        fetch_by_row(options);
    } else if (by_stride) {
        fetch_by_stride(options);
    } else if (options.fetch_block > 0) {
        fetch_by_line(options);
    }
    Expr key_dim = inputs.any_storage ? min(likely(d), inputs.key_dim() - 1) : clamp_dim(d);
    Expr key_element = inputs.key_element(key_dim, key_index(k, c) / kGranuleKeys, key_index(k, c) % kGranuleKeys);
    if (options.slices > 0 && !in_fragments() && key_groups == 0) {
        key_element = key_of_block(key_element);
    } else if (options.place_keys) {
        key_element = inputs.key_from(key_starts(k, c), key_dim);
    }
    key_rows(d, k, c) = in_fragments()   ? key_of_row(d, key_index(k, c))
                        : key_groups > 0 ? key_of_slice(options.head / options.slices)
                        : in_words       ? key_of_words()
                        : in_steps       ? key_of_steps()
                        : in_integers    ? inputs.key_pairs().number(key_bytes(), d)
                        : in_pairs       ? select(likely(d < inputs.key_dim()), key_element, zero_of(key_element))
                                         : key_element;
    if (options.keys_in_place && in_matrices) {
        over_copies = RDom(0, 1, "over_copies");
        over_copies.where(!keys_fit());
        Expr copy = select(d + over_copies < inputs.key_dim(), key_element, zero_of(key_element));
        key_rows = Func("key_rows");
        key_rows(d, k, c) = undef(key_element.type());
        key_rows(d, k, c) = copy;
    }
    Expr product = in_byte_matrices ? multiply_byte_matrices(options.keys_in_place)
                   : in_digits      ? multiply_digits()
                                    : sum_products(options);

    Expr key = c * chunk_keys + k;
    Expr likely_key = min(likely(key), inputs.key_count - 1);
    const Exp2 exp2_of_hooks = key_groups > 0 ? exp2_of_cuda : in_fragments() || in_matrices ? exp2 : exp2_nonpositive;
    ScoreContext context{
        inputs,       r, k, c, likely_key, row_index(), head_index(), position(r), options.unit, &hook_tiles, &per_row,
        exp2_of_hooks};
    if (options.fetch_operands) {
        context.fetch_rows = options.rows;
        context.fetch_keys = options.chunk;
        context.fetch_block = in_matrices ? 0 : options.key_block;
        context.fetch_band = in_bands ? joined_rows : 0;
    }
    Expr factor = scales_products() ? logit_factor(options) : Expr(1.0f);
    product = is_const_one(factor) ? product : product * factor;
    Expr score = apply_score_hooks(options.hooks, product, context);
    if (!options.limits_apart && (options.slices == 0 || key_groups > 0)) {
        logits(r, k, c) = select(key >= first(r) && key <= last(r), score, kMaskedScore);
        return;
    }
    // Of the chunks that every row sees as a whole nothing is masked.
    logits(r, k, c) = score;
    over_limits = RDom(0, 1, "over_limits");
    Expr first_row = inputs.query.dim(1).min(), last_row = inputs.query.dim(1).max();
    over_limits.where(c * chunk_keys < last_row + inputs.first_offset ||
                      (c + 1) * chunk_keys > min(first_row + inputs.last_offset + 1, inputs.key_count));
    logits(r, k, c) = select(key + over_limits >= first(r) && key <= last(r), logits(r, k, c), kMaskedScore);
}

// Defines dot as a sum, and gives the product.
Expr ScoreStages::sum_products(const StageOptions &options) {
    if (sides > 0) {
        return multiply_sides(options);
    }
    if (in_rows) {
        return multiply_rows();
    }
    dot(r, k, c) = 0.0f;
    Expr product = dot(r, k, c);
    if (in_pairs) {
        query_pairs = Func("query_pairs");
        Expr query = query_tile(r, 2 * pair + side);
        if (in_bands) {
            query_pairs(side, r, pair, term, band) =
                bfloat16_term(query_tile(band * joined_rows + r, 2 * pair + side), term, bfloat16_terms);
            multiply_matrices();
        } else if (in_matrices) {
            query_pairs(side, r, pair, term) = bfloat16_term(query, term, bfloat16_terms);
            multiply_matrices();
        } else {
            query_pairs(side, r, pair) = cast<bfloat16_t>(query);
            multiply_pairs(options);
        }
    } else if (in_fragments()) {
        dot(r, k, c) +=
            half_value(matrix_type, query_tile(r, over_dim)) * half_value(matrix_type, key_rows(over_dim, k, c));
    } else if (in_steps) {
        multiply_steps(options.fetch_block);
    } else if (in_integers) {
        product = in_bytes ? multiply_bytes(options.fetch_block) : multiply_integers(options.fetch_block);
    } else if (key_groups > 0) {
        multiply_slices(options.slices, options.head / options.slices);
    } else if (whole_lines) {
        over_lines = RDom({{0, kLineFloats}, {0, over_dim.x.extent() / kLineFloats}}, "over_lines");
        Expr element = over_lines.y * kLineFloats + over_lines.x;
        Expr ask = ask_of_key(options.fetch_block);
        Expr nothing = by_row ? fetched_line(k, over_lines.y / steps_of_line, c) + asked(k, c)
                              : fetched_line(ask, over_lines.y, c);
        Func query = query_tile;
        if (in_words) {
            query = query_steps = Func("query_steps");
            query_steps(r, d) = query_tile(r, inputs_.words().element(d));
        }
        dot(r, k, c) += nothing + query(r, element) * key_rows(element, k, c);
    } else {
        Expr nothing = ask_with_step(over_dim, kLineFloats, options);
        if (options.unseen_step > 0) {
            unseen_scores = unseen_rows(k, options.key_block, options);
            nothing += unseen_scores(k / options.key_block, c);
        }
        dot(r, k, c) += nothing + query_tile(r, over_dim) * key_rows(over_dim, k, c);
    }
    return product;
}

Expr ScoreStages::ask_with_step(const Expr &step, int steps, const StageOptions &options) {
    Expr line = step / steps, nothing = 0.0f;
    if (by_stride) {
        nothing = fetched_line(k / options.fetch_block, step * options.fetch_block / steps, c);
    } else if (fetched_line.defined()) {
        nothing = fetched_line(ask_of_key(options.fetch_block), line, c);
    }
    if (options.fetch_rows > 0) {
        ask_for_rows(options);
        nothing += asked_rows(k / options.fetch_block, line, c);
    }
    return nothing;
}

// Of rows that need not multiply the last one sees most. What it sees is said in inputs, by which loops over keys are
// cut.
Func ScoreStages::unseen_rows(const Var &keys, int block, const StageOptions &options) {
    const auto seen_by_first = [&](int rows) {
        Expr last_row = inputs_.query.dim(1).min() + min(rows - 1, inputs_.rows() - 1) / inputs_.heads();
        return c * chunk_keys + keys * block <= last_row + inputs_.last_offset;
    };
    std::vector<Expr> arguments = {options.rows};
    for (int rows = options.unseen_step; rows < options.rows; rows += options.unseen_step) {
        arguments.insert(arguments.end(), {rows, !seen_by_first(rows)});
    }
    Expr call = Internal::Call::make(Float(32), kUnseenRowsCall, arguments, Internal::Call::Extern);
    Func unseen(kUnseenRows);
    unseen(keys, c) = select(seen_by_first(options.unseen_step), likely(0.0f), call);
    return unseen;
}

// What a product is multiplied by to become a logit. In fragments and matrices without hooks nothing: their exponents
// are multiplied, in the same instruction that takes the reference off, and their products are those of a positive
// scale.
Expr ScoreStages::logit_factor(const StageOptions &options) {
    Expr factor = inputs_.scale * options.unit;
    if (in_matrices && options.hooks == 0) {
        exponent_unit = max(abs(factor), kSmallestExponentUnit);
        return 1.0f;
    }
    if (!in_fragments()) {
        return factor;
    }
    if (options.hooks != 0) {
        return strict_float(factor);  // lest Halide multiplies every product twice
    }
    over_signs = RDom(0, 1, "over_signs");
    over_signs.where(inputs_.scale < 0.0f);
    dot(r, k, c) = cast<float>(over_signs) - dot(r, k, c);
    exponent_unit = strict_float(max(abs(factor), kSmallestExponentUnit));
    return 1.0f;
}

RowSteps::Row ScoreStages::key_bytes() const {
    return [this](Expr at) {
        Expr key = key_index(k, c);
        return inputs_.key_byte(std::move(at), key / kGranuleKeys, key % kGranuleKeys);
    };
}

RowSteps::Row ScoreStages::key_scales() const {
    return [this](Expr block) {
        Expr key = key_index(k, c);
        return inputs_.stored_key.block_scale(std::move(block), key / kGranuleKeys, key % kGranuleKeys);
    };
}

void ScoreStages::place_keys(const StageOptions &options) {
    placed_keys = options.chunk + (options.fetch_lead + kGranuleKeys - 1) / kGranuleKeys * kGranuleKeys;
    key_starts = Func("key_starts");
    key_starts(k, c) = inputs_.key_start(granule_of_key(), slot_of_key());
}

Expr ScoreStages::key_of_words() const {
    const Bfloat16Words words = inputs_.words();
    Expr key = key_index(k, c);
    const auto bits = [&](const Expr &element) {
        return inputs_.key_bits(element, key / kGranuleKeys, key % kGranuleKeys);
    };
    return words.number(bits, words.start(d), d);
}

Expr ScoreStages::key_of_steps() {
    const IntegerSteps steps = inputs_.key_steps();
    const RowSteps::Row byte = key_bytes();
    if (steps.in_words()) {
        key_words = Func("key_words");
        key_words(lane, step, k, c) = steps.word(byte, lane, step);
    }
    return steps.number(
        byte, [&](Expr of_lane, Expr of_step) { return key_words(of_lane, of_step, k, c); }, d);
}

// A sum over all elements of a row has its scales if all keys have one, and else those of its blocks multiply their
// parts of it.
void ScoreStages::multiply_steps(int fetch_block) {
    const IntegerSteps steps = inputs_.key_steps();
    query_steps = Func("query_steps");
    lane_sums = Func("lane_sums");
    over_steps = RDom(0, steps.count(), "over_steps");
    over_lanes = RDom(0, steps.lanes, "over_lanes");
    query_steps(r, d) = steps.query([&](Expr element) { return query_tile(r, std::move(element)); }, d);

    Expr begin = over_steps * steps.elements + lane;
    lane_sums(lane, r, k, c) = 0.0f;
    Expr one_sum = lane_sums(lane, r, k, c), part(0.0f);
    for (int vector = 0; vector < steps.vectors(); ++vector) {
        Expr at = begin + vector * steps.lanes;
        Expr product = query_steps(r, at) * key_rows(at, k, c);
        one_sum += product;
        part = vector == 0 ? product : part + product;
    }
    Expr ask = ask_of_key(fetch_block);
    Expr scaled = lane_sums(lane, r, k, c) + part * steps.scale(key_scales(), begin);
    lane_sums(lane, r, k, c) = fetched_line(ask, over_steps, c) + select(one_key_scale, one_sum, scaled);
    dot(r, k, c) += lane_sums(over_lanes, r, k, c);
}

void ScoreStages::multiply_pairs(const StageOptions &options) {
    over_pairs = RDom({{0, 2}, {0, kPairGroup}, {0, round_up(over_dim.x.extent(), 2 * kPairGroup) / (2 * kPairGroup)}},
                      "over_pairs");
    Expr which = over_pairs.z * kPairGroup + over_pairs.y;
    Expr element = 2 * which + over_pairs.x, key = key_rows(element, k, c);
    if (key_starts.defined()) {
        whole_groups = inputs_.key_dim() % (2 * kPairGroup) == 0;
        key = select(whole_groups, inputs_.key_from(key_starts(k, c), element), key);
    }
    Expr query = by_stride ? asking(query_pairs(over_pairs.x, r, which), ask_with_step(which, kLineFloats, options))
                           : query_pairs(over_pairs.x, r, which);
    dot(r, k, c) += cast<float>(query) * cast<float>(key);
}

// Keys past the last are computed from it and masked, as in key_index(). Clamped apart, those of a granule share the
// look-up.
Expr ScoreStages::granule_of_key() const {
    return min(c * (chunk / kGranuleKeys) + k / kGranuleKeys, granules(inputs_.key_count) - 1);
}

Expr ScoreStages::slot_of_key() const {
    return min(k % kGranuleKeys, inputs_.key_count - 1 - granule_of_key() * kGranuleKeys);
}

Expr ScoreStages::key_of_block(const Expr &element) const {
    return inputs_.in_blocks(inputs_.stored_key, inputs_.key, inputs_.key_granules, d, granule_of_key(), slot_of_key(),
                             key_index(k, c), element);
}

// Rows are looked up in small Funcs, whose values Halide cannot bound.
Expr ScoreStages::row_index() const {
    return unsafe_promise_clamped(row(r), inputs_.query.dim(1).min(), inputs_.query.dim(1).max());
}

Expr ScoreStages::head_index() const {
    return unsafe_promise_clamped(head(r), inputs_.query.dim(2).min(), inputs_.query.dim(2).max());
}

Expr ScoreStages::key_index(Expr key, Expr in_chunk) const {
    // Schedules round chunks up to their unrolling: the keys past the last are computed from it and masked.
    Expr index = in_chunk * chunk_keys + key;
    return min(whole_lines || in_quads ? likely(index) : index, inputs_.key_count - 1);
}

}  // namespace hattn::generators

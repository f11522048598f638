#include "attention_stages.h"

#include "number_formats.h"
#include "softmax_math.h"

namespace hattn::generators {

using namespace Halide;

namespace {

// Of a value row: schedules round blocks of d up.
Expr clamped_element(const AttentionInputs &inputs, const Expr &d) {
    return min(likely(d), inputs.value_dim() - 1);
}

// The same where whole heads are whole blocks.
Expr element_of_head(const AttentionInputs &inputs, const Expr &d) {
    return inputs.whole_heads() ? d : clamped_element(inputs, d);
}

}  // namespace

Expr granules(Expr keys) {
    return (std::move(keys) + (kGranuleKeys - 1)) / kGranuleKeys;
}

Expr reference(Expr maximum) {
    return max(std::move(maximum), kLowestReference);
}

Expr nearest_slot(const AttentionInputs &inputs, Expr slot, const Expr &granule) {
    // A stage that brings rows into float32 clamps once per row, which costs less than loops without.
    const auto usually = [&](Expr value) { return inputs.any_storage ? value : likely(value); };
    Expr first_key = granule * kGranuleKeys;
    Expr in_range = min(usually(std::move(slot)), inputs.key_count - 1 - first_key);
    return max(usually(in_range), inputs.key_skip - first_key);
}

Expr nearest_key(const AttentionInputs &inputs, const Expr &key) {
    return max(min(key, inputs.key_count - 1), inputs.key_skip);
}

Expr nearest_element(const AttentionInputs &inputs, Expr d, Expr slot, const Expr &granule) {
    return inputs.value_element(std::move(d), granule, nearest_slot(inputs, std::move(slot), granule));
}

Expr nearest_value(const AttentionInputs &inputs, Expr d, Expr slot, const Expr &granule) {
    return nearest_element(inputs, element_of_head(inputs, d), std::move(slot), granule);
}

Expr scaled_output(const AttentionInputs &inputs, Expr value, Expr d) {
    if (inputs.in_steps()) {
        value *= inputs.stored_value.common_scale();
    }
    return inputs.has_scales() ? value * inputs.stored_value.channel_scales(std::move(d)) : value;
}

Tuple normalise(Expr sum, Expr maximum, Expr sink) {
    Expr sink_logit = finite_logit(std::move(sink), kLog2E);
    Expr row_max = reference(std::move(maximum));
    Expr final_max = max(row_max, sink_logit);
    Expr shift = exp2_nonpositive(row_max - final_max);
    Expr total = std::move(sum) * shift + exp2_nonpositive(sink_logit - final_max);
    return Tuple(select(total > 0.0f, shift / max(total, 1e-37f), 0.0f),
                 select(total > 0.0f, final_max * kLn2 + log(max(total, 1e-37f)), negative_infinity()));
}

AttentionStages::AttentionStages(const AttentionInputs &inputs, const StageOptions &options)
    : ScoreStages(inputs, options),
      over_keys({{0, kGranuleKeys}, {0, granules(chunk_keys)}}, "over_keys"),
      over_chunks(0, chunk_count, "over_chunks"),
      earlier_chunks(0, chunk_count, "earlier_chunks"),
      carries_maximum(options.bands || options.carried_maximum),
      chunk_max("chunk_max"),
      running_max("running_max"),
      weights("weights"),
      rescale("rescale"),
      chunk_sum("chunk_sum"),
      key_seen("key_seen"),
      chunk_value("chunk_value"),
      chunk_output("chunk_output"),
      state("state"),
      statistics("statistics"),
      normaliser("normaliser"),
      output_scale("output_scale"),
      output("output"),
      lse("lse"),
      // What is not finite, whoever sees it, may be computed otherwise: runtime/kernel_call.cpp.
      leaves_not_finite(in_bands && (bfloat16_terms > 1 || can_hide_keys(options.hooks))),
      hides_keys(can_hide_keys(options.hooks) && !leaves_not_finite),
      values_in_place(options.values_in_place && hides_keys),
      value_type(inputs.stored_value.type) {
    if (options.slices == 0) {
        // The last chunk may be shorter; Halide trims loops to this condition.
        over_keys.where(over_keys.y < granules(inputs.key_count - c * chunk_keys));
    }
    Expr key = over_keys.y * kGranuleKeys + over_keys.x;
    chunk_max(r, c) = kMaskedScore;
    if (options.slot_statistics) {
        take_slot_maxima(inputs);
        chunk_max(r, c) = max(chunk_max(r, c), slot_max(over_slots, r, c));
    } else {
        chunk_max(r, c) = max(chunk_max(r, c), logits(r, key, c));
    }

    // A recurrence where a pass makes it one, else a prefix maximum over stored chunk maxima: a pure definition, which
    // Halide's sliding window computes once per chunk.
    if (carries_maximum) {
        statistics_before = Func("statistics_before");
        statistics_before(r) = Tuple(undef<float>(), undef<float>());
        Expr before = statistics_before(r)[1];
        running_max(r, c) = adds_in_place() ? lasting_reference(before, chunk_max(r, c)) : max(before, chunk_max(r, c));
    } else {
        earlier_chunks.where(earlier_chunks <= c);
        running_max(r, c) = kMaskedScore;
        running_max(r, c) = max(running_max(r, c), chunk_max(r, earlier_chunks));
    }
    const Func &relative_to = options.one_loop_nest ? chunk_max : running_max;

    Expr maximum = relative_to(r, c);
    if (in_fragments()) {
        take_fragment_maxima(options);
        maximum = row_reference(r, fragment_slice(k, options.chunk, options.slices), c);
    } else if (key_groups > 0) {
        take_key_maxima();
        maximum = row_max(r, 0, c);
    } else if (options.slices > 0) {
        take_slice_maxima(options);
        maximum = row_max(r, k / options.slice_keys % options.slices, c);
    }
    weights(r, k, c) = in_fragments() ? exp2(logits(r, k, c) * exponent_unit - maximum)
                                      : exp2(relative_exponent(logits(r, k, c), maximum));
    const bool only_in_slices = options.slices > 0 && !in_fragments() && key_groups == 0;
    if (only_in_slices) {
        row_weights =
            Func("chunk_rows");  // a name before that of the values: realised first, they take the keys' memory
        row_weights(k, r, c) = weights(r, k, c);
    }
    chunk_sum(r, c) = 0.0f;
    if (in_bands) {
        pair_sums = Func("pair_sums");
        pair_sums(r, pair, c) = ask_ahead(inputs, options.rows) + weights(r, 2 * pair, c) + weights(r, 2 * pair + 1, c);
        over_key_pairs = RDom({{0, kGranuleKeys / 2}, {0, granules(chunk_keys)}}, "over_key_pairs");
        over_key_pairs.where(over_key_pairs.y < granules(inputs.key_count - c * chunk_keys));
        chunk_sum(r, c) += pair_sums(r, over_key_pairs.y * (kGranuleKeys / 2) + over_key_pairs.x, c);
    } else if (options.slot_statistics) {
        take_slot_sums();
        chunk_sum(r, c) += slot_sums(over_slots, r, c);
    } else {
        chunk_sum(r, c) += weights(r, key, c);
    }

    Expr stored_granule = c * granules(chunk_keys) + granule;
    if (options.slices > 0 || in_matrices) {
        stored_granule = min(stored_granule, granules(inputs.key_count) - 1);
    }
    Expr value_key = c * chunk_keys + granule * kGranuleKeys + slot;
    Expr value = in_fragments()    ? value_of_row(inputs, stored_granule, value_key)
                 : key_groups > 0  ? value_of_slice(inputs, stored_granule, value_key, options.head / options.slices)
                 : in_words        ? value_of_words(inputs, stored_granule)
                 : values_in_steps ? value_of_steps(inputs, stored_granule)
                 : by_row          ? nearest_element(inputs, clamped_element(inputs, d), slot, stored_granule)
                                   : nearest_value(inputs, d, slot, stored_granule);
    if (only_in_slices) {
        value = inputs.in_blocks(inputs.stored_value, inputs.value, inputs.value_granules, d, stored_granule,
                                 nearest_slot(inputs, slot, stored_granule), nearest_key(inputs, value_key), value);
    }
    if (values_in_place) {
        place_values(inputs, options.rows);
        value = inputs.value_from(value_starts(granule * kGranuleKeys + slot, c), element_of_head(inputs, d));
    } else if (hides_keys) {
        in_fragments() ? find_keys_seen_in_fragments(options.rows, options.thread_rows)
                       : find_seen_keys(options.rows > 0 ? Expr(options.rows) : inputs.rows());
        value = select(key_seen(granule * kGranuleKeys + slot, c) > 0.0f, value, cast(value.type(), 0));
    }
    chunk_value(d, slot, granule, c) = value;
    if (in_fragments()) {
        carry_fragments(inputs, options);
    } else if (key_groups > 0) {
        carry_groups(inputs, options);
    } else if (options.slices > 0) {
        carry_slices(inputs, options);
    } else if (options.one_loop_nest) {
        finish_single_chunk(inputs, options);
    } else {
        carry_rows(inputs, options);
    }
}

void AttentionStages::multiply_values(const AttentionInputs &inputs, const StageOptions &options) {
    if (in_matrices) {
        multiply_value_matrices(inputs);
        return;
    }
    if (in_byte_matrices) {
        multiply_value_byte_matrices(inputs);
        return;
    }
    if (values_in_integers) {
        values_in_digits ? multiply_value_digits(inputs, options)
        : in_bytes       ? multiply_value_bytes(inputs, options)
                         : multiply_value_integers(inputs, options);
        return;
    }
    if (in_rows) {
        multiply_row_values(inputs, options);
        return;
    }
    chunk_output(r, d, c) = 0.0f;
    if (options.unseen_step > 0) {
        unseen_values = unseen_rows(granule, kGranuleKeys, options);
    }
    if (!in_pairs) {
        Expr product = value_weight(inputs, over_keys.x, over_keys.y) * chunk_value(d, over_keys.x, over_keys.y, c);
        if (by_row) {
            // Of 96 elements over one type alone: each is one more loop, of kernels with hooks one for each set of
            // these.
            for (const int head : {kNarrowHead, 3 * kWholeHead}) {
                if (head < options.fetch_pass && (whole_heads || head == kNarrowHead)) {
                    narrow_values.push_back(inputs.value.dim(0).extent() == head);
                    product = select(narrow_values.back() && d % options.fetch_pass >= head, 0.0f, product);
                }
            }
        }
        if (options.fetch_pass > 0) {
            by_row || by_stride ? fetch_next_values(inputs, options) : fetch_next_keys(inputs, options);
            product += asked_next(over_keys.x, d / options.fetch_pass * granules(options.chunk) + over_keys.y, c);
        }
        if (unseen_values.defined()) {
            product += unseen_values(over_keys.y, c);
        }
        chunk_output(r, d, c) += product;
        return;
    }
    value_pairs = Func("value_pairs");
    value_pairs(side, d, pair, c) = value_of_pair(d, pair);
    weight_pairs = Func("weight_pairs");
    weight_pairs(side, r, pair, c) = weight_term(weights(r, 2 * pair + side, c), 0, bfloat16_terms);
    constexpr int kPairs = kGranuleKeys / 2;
    over_key_pairs = RDom({{0, 2}, {0, kPairs}, {0, granules(chunk_keys)}}, "over_key_pairs");
    over_key_pairs.where(over_key_pairs.z < granules(inputs.key_count - c * chunk_keys));
    Expr which = over_key_pairs.z * kPairs + over_key_pairs.y;
    Expr product = cast<float>(weight_pairs(over_key_pairs.x, r, which, c)) *
                   cast<float>(value_pairs(over_key_pairs.x, d, which, c));
    chunk_output(r, d, c) += unseen_values.defined() ? unseen_values(over_key_pairs.z, c) + product : product;
}

Expr AttentionStages::value_of_words(const AttentionInputs &inputs, const Expr &stored_granule) {
    const Bfloat16Words words = inputs.words();
    value_positions = inputs.value_dim();
    const auto bits = [&](const Expr &element) {
        return inputs.value_bits(element, stored_granule, nearest_slot(inputs, slot, stored_granule));
    };
    return words.number(bits, min(likely(words.start(d)), inputs.value_dim() - words.elements()), d);
}

Expr AttentionStages::value_of_steps(const AttentionInputs &inputs, const Expr &stored_granule) {
    const IntegerSteps steps = inputs.value_steps();
    value_positions = steps.positions();
    const auto byte = [&](Expr at) {
        return inputs.value_byte(std::move(at), stored_granule, nearest_slot(inputs, slot, stored_granule));
    };
    if (steps.in_words()) {
        value_words = Func("value_words");
        value_words(lane, step, slot, granule, c) = steps.word(byte, lane, step);
    }
    const auto word = [&](Expr of_lane, Expr of_step) {
        return value_words(std::move(of_lane), std::move(of_step), slot, granule, c);
    };
    return steps.number(byte, word, d);
}

Expr AttentionStages::value_weight(const AttentionInputs &inputs, const Expr &of_slot, const Expr &of_granule) {
    Expr weight = weights(r, of_granule * kGranuleKeys + of_slot, c);
    if (!values_in_steps) {
        return weight;
    }
    const IntegerSteps steps = inputs.value_steps();
    Expr stored_granule = c * granules(chunk_keys) + granule;
    const auto of_block = [&](Expr block) {
        return inputs.stored_value.block_scale(std::move(block), stored_granule,
                                               nearest_slot(inputs, slot, stored_granule));
    };
    scaled_weights = Func("scaled_weights");
    scaled_weights(lane, r, step, slot, granule, c) =
        weights(r, granule * kGranuleKeys + slot, c) * steps.scale(of_block, step * steps.elements + lane);
    return select(one_value_scale, weight,
                  scaled_weights(d % steps.lanes, r, d / steps.elements, of_slot, of_granule, c));
}

// Of a score relative to a maximum, 0 where they are the same. Where products are scaled last, what is masked is scaled
// too, so that a row without keys needs a reference far above it.
Expr AttentionStages::relative_exponent(const Expr &score, const Expr &maximum) const {
    return scales_exponents() ? (score - select(maximum > kLowestReference, maximum, 0.0f)) * exponent_unit
                              : score - reference(maximum);
}

// The state is multiplied only where a reference moves, which is seldom after the first chunks if it may lag behind the
// maximum. Rows that have seen nothing have no reference.
Expr AttentionStages::lasting_reference(const Expr &before, const Expr &maximum) const {
    Expr slack = scales_exponents() ? kReferenceSlack / exponent_unit : Expr(kReferenceSlack);
    return select(before <= kLowestReference || maximum > before + slack, max(before, maximum), before);
}

Expr AttentionStages::value_of_pair(const Expr &element, const Expr &of_chunk) const {
    constexpr int kPairs = kGranuleKeys / 2;
    return chunk_value(element, 2 * (of_chunk % kPairs) + side, of_chunk / kPairs, c);
}

void AttentionStages::multiply_value_matrices(const AttentionInputs &inputs) {
    const auto blocks = [](Expr keys) { return (std::move(keys) + (kMatrixDepth - 1)) / kMatrixDepth; };
    const auto products = products_of_values(bfloat16_terms);
    over_key_blocks =
        RDom({{0, kMatrixDepth}, {0, static_cast<int>(products.size())}, {0, blocks(chunk_keys)}}, "over_key_blocks");
    over_key_blocks.where(over_key_blocks.z < blocks(inputs.key_count - c * chunk_keys));
    over_key_blocks.where(over_key_blocks.z < seen_blocks(r / kMatrixColumns, c));
    if (in_bands) {
        over_key_blocks.where(over_key_blocks.z >= unseen_blocks(r / joined_rows, c));
    }
    const TermPair terms = term_pair(over_key_blocks.y, products);
    Expr key = over_key_blocks.z * kMatrixDepth + over_key_blocks.x;
    if (in_bands) {
        // Weights have rows side by side, as they are computed, and values are turned, once for all rows of the tile.
        Expr value = chunk_value(d, k % kGranuleKeys, k / kGranuleKeys, c);
        if (!any_storage) {
            value_starts = Func("value_starts");
            value_starts(k, c) = inputs.value_start(clamp(c * chunk_keys + k, inputs.key_skip, inputs.key_count - 1));
            value = inputs.value_from(value_starts(k, c), element_of_head(inputs, d));
        }
        // As numbers whose upper half they are, bfloat16 values are turned too: schedules/simd/turned_stores.h.
        value_rows = Func("value_rows");
        value_rows(k, d, term, c) =
            bfloat16_terms > 1 ? bfloat16_term(value, term, bfloat16_terms) : upper_half(cast<float>(value));
        weight_pairs = Func("weight_pairs");
        weight_pairs(side, r, pair, term, c) = weight_term(weights(r, 2 * pair + side, c), term, bfloat16_terms);
        chunk_output(r, d, c) = 0.0f;
        chunk_output(r, d, c) += cast<float>(value_rows(key, d, terms.first, c)) *
                                 cast<float>(weight_pairs(key % 2, r, key / 2, terms.second, c));
        return;
    }
    value_pairs = Func("value_pairs");
    panel_output = Func("panel_output");
    value_pairs(side, lane, pair, panel, term, c) =
        bfloat16_term(value_of_pair(panel * kMatrixColumns + lane, pair), term, bfloat16_terms);
    weight_rows = Func("weight_rows");
    weight_rows(k, r, term, c) = bfloat16_term(weights(r, k, c), term, bfloat16_terms);
    panel_output(r, lane, panel, c) = 0.0f;
    panel_output(r, lane, panel, c) += cast<float>(weight_rows(key, r, terms.first, c)) *
                                       cast<float>(value_pairs(key % 2, lane, key / 2, panel, terms.second, c));
    chunk_output(r, d, c) = panel_output(r, d % kMatrixColumns, d / kMatrixColumns, c);
}

void AttentionStages::carry_rows(const AttentionInputs &inputs, const StageOptions &options) {
    multiply_values(inputs, options);
    Expr before = carries_maximum ? statistics_before(r)[1] : select(c > 0, running_max(r, c - 1), kMaskedScore);
    rescale(r, c) = exp2_nonpositive(relative_exponent(before, running_max(r, c)));

    state(r, d) = options.state_from_first ? undef<float>() : Expr(0.0f);
    Expr of_chunk = chunk_output(r, d, over_chunks);
    if (values_in_place) {
        of_chunk = select(seen_key(over_chunks) >= 0, of_chunk, 0.0f);
    }
    // Chosen before it is multiplied, lest some sums are rounded twice and others once.
    Expr found = options.state_from_first ? select(over_chunks > 0, state(r, d), 0.0f) : state(r, d);
    state(r, d) = found * rescale(r, over_chunks) + of_chunk;
    statistics(r) = Tuple(0.0f, kMaskedScore);
    const auto in_exponents = [&](const Expr &maximum) {
        return scales_exponents() ? select(maximum > kLowestReference, maximum * exponent_unit, kMaskedScore) : maximum;
    };
    Expr maximum = running_max(r, over_chunks);
    statistics(r) = Tuple(statistics(r)[0] * rescale(r, over_chunks) + chunk_sum(r, over_chunks),
                          carries_maximum ? maximum : in_exponents(maximum));

    Expr last_maximum = statistics(r)[1];
    normaliser(r) = normalise(statistics(r)[0], carries_maximum ? in_exponents(last_maximum) : last_maximum,
                              inputs.sinks(head_index()));
    const auto at = [&](Expr position) { return state(r, std::move(position)); };
    Expr sum = in_words           ? state(r, unsafe_promise_clamped(inputs.words().position(d), 0, value_positions - 1))
               : values_in_steps  ? inputs.value_steps().sum(at, d)
               : values_in_digits ? inputs.value_digits().sum(at, d)
               : in_byte_matrices ? state(r, inputs.value_digits().matrix_position(d))
               : in_bytes         ? state(r, inputs.value_signed_bytes().position(d))
               : values_in_integers ? inputs.value_pairs().sum(at, d)
                                    : state(r, d);
    output_scale(d) = scaled_output(inputs, 1.0f, d);
    output(d, r) = sum * normaliser(r)[0] * output_scale(d);
    output.output_buffer().dim(0).set_min(0);
    lse(r) = normaliser(r)[1];
    if (leaves_not_finite) {
        over_elements = RDom(0, inputs.value_dim(), "over_elements");
        not_finite = Func("not_finite");
        not_finite(r) = 0.0f;
        not_finite(r) += strict_float(state(r, over_elements) - state(r, over_elements));
        lse(r) += not_finite(r);
    }
    allow_any_stride(lse);
}

void AttentionStages::finish_single_chunk(const AttentionInputs &inputs, const StageOptions &options) {
    multiply_values(inputs, options);
    normaliser(r) = normalise(chunk_sum(r, 0), chunk_max(r, 0), inputs.sinks(head_index()));
    output(d, r) = Tuple(scaled_output(inputs, chunk_output(r, d, 0) * normaliser(r)[0], d), normaliser(r)[1]);
}

}  // namespace hattn::generators

#include "attention_stages.h"

#include "number_formats.h"
#include "softmax_math.h"

namespace hattn::generators {

using namespace Halide;

namespace {

// Pairs of elements along D that a loop may multiply in one pass. Queries and keys past the last are zeros.
constexpr int kPairGroup = 4;

Func named(const char *name) {
    return Func(name);
}

Expr zero_of(const Expr &value) {
    return cast(value.type(), 0);
}

Expr round_up(Expr value, int multiple) {
    return (value + (multiple - 1)) / multiple * multiple;
}

}  // namespace

Expr granules(Expr keys) {
    return (std::move(keys) + (kGranuleKeys - 1)) / kGranuleKeys;
}

Expr reference(Expr maximum) {
    return max(std::move(maximum), kLowestReference);
}

Expr nearest_element(const AttentionInputs &inputs, Expr d, Expr slot, const Expr &granule) {
    // A stage that brings rows into float32 clamps once per row, which costs less than loops without.
    const auto usually = [&](Expr value) { return inputs.any_storage ? value : likely(value); };
    Expr first_key = granule * kGranuleKeys;
    Expr in_range = min(usually(std::move(slot)), inputs.key_count - 1 - first_key);
    return inputs.value_element(std::move(d), granule, max(usually(in_range), inputs.key_skip - first_key));
}

Expr nearest_value(const AttentionInputs &inputs, Expr d, Expr slot, const Expr &granule) {
    return nearest_element(inputs, min(likely(std::move(d)), inputs.value_dim() - 1), std::move(slot), granule);
}

Expr scaled_output(const AttentionInputs &inputs, Expr value, Expr d) {
    return inputs.any_storage ? value * inputs.stored_value.channel_scales(std::move(d)) : value;
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

ScoreStages::ScoreStages(const AttentionInputs &inputs, const StageOptions &options)
    : over_dim(0, options.head > 0 ? Expr(options.head) : round_up(inputs.key_dim(), options.dim_multiple), "over_dim"),
      row(named("row")),
      head(named("head")),
      position(named("position")),
      first(named("first")),
      last(named("last")),
      query_tile(named("query_tile")),
      key_rows(named("key_rows")),
      dot(named("dot")),
      logits(named("logits")),
      single_head(inputs.heads() == 1),
      chunk_keys(options.chunk > 0 ? Expr(options.chunk) : inputs.key_count),
      chunk_count(options.chunk > 0 ? (inputs.key_count + (options.chunk - 1)) / options.chunk : Expr(1)),
      chunk(options.chunk),
      whole_lines(options.fetch_block > 0 && options.dim_multiple == kLineFloats),
      any_storage(inputs.any_storage),
      in_pairs(inputs.storage == KeyStorage::kBfloat16 || inputs.storage == KeyStorage::kBfloat16Matrices),
      in_matrices(inputs.storage == KeyStorage::kBfloat16Matrices),
      matrix_type(inputs.matrix_type),
      rows_aligned(inputs.rows_aligned),
      exp2(in_fragments() ? exp2_of_cuda : exp2_nonpositive),
      key_type(inputs.stored_key.type),
      query_type(inputs.query_type),
      inputs_(inputs) {
    // `likely` gives all but the last block of the head a loop without the clamp.
    const bool padded = options.dim_multiple > 1 || options.head > 0;
    const auto clamp_dim = [&](Expr dim) { return padded ? min(likely(std::move(dim)), inputs.key_dim() - 1) : dim; };
    Expr tile_row = min(r, inputs.rows() - 1);
    row(r) = inputs.query.dim(1).min() + tile_row / inputs.heads();
    head(r) = inputs.query.dim(2).min() + tile_row % inputs.heads();
    position(r) = row(r) + inputs.position_offset;

    first(r) = row(r) + inputs.first_offset;
    last(r) = min(row(r) + inputs.last_offset, inputs.key_count - 1);

    Expr query = inputs.query_element(clamp_dim(d), row_index(), head_index());
    if (!scales_products()) {
        query *= inputs.scale * options.unit;
    }
    if (inputs.any_storage) {
        query *= inputs.stored_key.channel_scales(clamp_dim(d));
    }
    query_tile(r, d) = in_fragments() ? query_of_row(d)
                       : padded       ? select(likely(d < inputs.key_dim()), query, zero_of(query))
                                      : query;
    Expr nothing = 0.0f;
    if (options.fetch_block > 0) {
        fetch_by_line(options);
        nothing = fetched_line(k, over_dim / kLineFloats, c);
    }
    Expr key_dim = inputs.any_storage ? min(likely(d), inputs.key_dim() - 1) : clamp_dim(d);
    Expr key_element = inputs.key_element(key_dim, key_index(k, c) / kGranuleKeys, key_index(k, c) % kGranuleKeys);
    key_rows(d, k, c) = in_fragments() ? key_of_row(d, key_index(k, c))
                        : in_pairs     ? select(likely(d < inputs.key_dim()), key_element, zero_of(key_element))
                                       : key_element;
    dot(r, k, c) = 0.0f;
    if (in_pairs) {
        query_pairs = named("query_pairs");
        query_pairs(side, r, pair) = cast<bfloat16_t>(query_tile(r, 2 * pair + side));
        in_matrices ? multiply_matrices() : multiply_pairs();
    } else if (in_fragments()) {
        dot(r, k, c) +=
            half_value(matrix_type, query_tile(r, over_dim)) * half_value(matrix_type, key_rows(over_dim, k, c));
    } else if (whole_lines) {
        over_lines = RDom({{0, kLineFloats}, {0, over_dim.x.extent() / kLineFloats}}, "over_lines");
        Expr element = over_lines.y * kLineFloats + over_lines.x;
        dot(r, k, c) += fetched_line(k, over_lines.y, c) + query_tile(r, element) * key_rows(element, k, c);
    } else {
        dot(r, k, c) += nothing + query_tile(r, over_dim) * key_rows(over_dim, k, c);
    }

    Expr key = c * chunk_keys + k;
    Expr likely_key = min(likely(key), inputs.key_count - 1);
    ScoreContext context{inputs,       r,           k,        c,   likely_key, row_index(), head_index(), position(r),
                         options.unit, &hook_tiles, &per_row, exp2};
    Expr product = scales_products() ? dot(r, k, c) * (inputs.scale * options.unit) : dot(r, k, c);
    Expr score = apply_score_hooks(options.hooks, product, context);
    logits(r, k, c) = select(key >= first(r) && key <= last(r), score, kMaskedScore);
}

// In the order of memory, which is what the memory and its hardware prefetchers are good at: with each line of the head
// the next `block` lines, not one of each row.
void ScoreStages::fetch_by_line(const StageOptions &options) {
    fetch_starts = named("fetch_starts");
    fetch_lines = named("fetch_lines");
    fetched_line = named("fetched_line");
    const int block = options.fetch_block;
    Expr first_key = k * block;
    // Keys of any type are brought into float32 a chunk at a time, so that the next block of them is in use already.
    Expr next_key = any_storage ? key_index(first_key, c + 1) : key_index(first_key + options.fetch_lead, c);
    fetch_starts(k, c) = Tuple(inputs_.value_start(key_index(first_key, c)), inputs_.key_start(next_key));
    Expr which = line * block + k;
    fetch_lines(k, line) = Tuple(inputs_.value_line(which, block), inputs_.key_line(which, block));
    Tuple starts = fetch_starts(k / block, c), lines = fetch_lines(k % block, line);
    Expr key_line = inputs_.prefetch_key(starts[1], lines[1]);
    fetched_line(k, line, c) = options.fetch_values ? inputs_.prefetch_value(starts[0], lines[0]) + key_line : key_line;
}

void ScoreStages::multiply_pairs() {
    over_pairs = RDom({{0, 2}, {0, kPairGroup}, {0, round_up(over_dim.x.extent(), 2 * kPairGroup) / (2 * kPairGroup)}},
                      "over_pairs");
    Expr which = over_pairs.z * kPairGroup + over_pairs.y;
    dot(r, k, c) +=
        cast<float>(query_pairs(over_pairs.x, r, which)) * cast<float>(key_rows(2 * which + over_pairs.x, k, c));
}

// One sum over the elements of the head, in blocks: as AMX takes the left side dense and the right side in pairs.
void ScoreStages::multiply_matrices() {
    over_dim_blocks = RDom({{0, kMatrixDepth}, {0, over_dim.x.extent() / kMatrixDepth}}, "over_dim_blocks");
    Expr element = over_dim_blocks.y * kMatrixDepth + over_dim_blocks.x;
    dot(r, k, c) += cast<float>(key_rows(element, k, c)) * cast<float>(query_pairs(element % 2, r, element / 2));
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
    return min(whole_lines ? likely(index) : index, inputs_.key_count - 1);
}

AttentionStages::AttentionStages(const AttentionInputs &inputs, const StageOptions &options)
    : ScoreStages(inputs, options),
      over_keys({{0, kGranuleKeys}, {0, granules(chunk_keys)}}, "over_keys"),
      over_chunks(0, chunk_count, "over_chunks"),
      earlier_chunks(0, chunk_count, "earlier_chunks"),
      chunk_max(named("chunk_max")),
      running_max(named("running_max")),
      weights(named("weights")),
      rescale(named("rescale")),
      chunk_sum(named("chunk_sum")),
      key_seen(named("key_seen")),
      chunk_value(named("chunk_value")),
      chunk_output(named("chunk_output")),
      state(named("state")),
      statistics(named("statistics")),
      normaliser(named("normaliser")),
      output(named("output")),
      lse(named("lse")),
      hides_keys(can_hide_keys(options.hooks)),
      value_type(inputs.stored_value.type) {
    if (options.slices == 0) {
        // The last chunk may be shorter; Halide trims loops to this condition.
        over_keys.where(over_keys.y < granules(inputs.key_count - c * chunk_keys));
    }
    Expr key = over_keys.y * kGranuleKeys + over_keys.x;
    chunk_max(r, c) = kMaskedScore;
    chunk_max(r, c) = max(chunk_max(r, c), logits(r, key, c));

    const bool own_reference = options.slices > 0 || options.one_loop_nest;
    // The running maximum is a prefix maximum over stored chunk maxima rather than a recurrence: a pure definition,
    // which Halide's sliding window computes once per chunk.
    earlier_chunks.where(earlier_chunks <= c);
    running_max(r, c) = kMaskedScore;
    running_max(r, c) = max(running_max(r, c), chunk_max(r, earlier_chunks));
    const Func &relative_to = own_reference ? chunk_max : running_max;

    Expr maximum = relative_to(r, c);
    if (in_fragments()) {
        take_fragment_maxima(options.slices);
        maximum = row_max(r, fragment_slice(k, options.chunk, options.slices), c);
    }
    weights(r, k, c) = exp2(logits(r, k, c) - reference(maximum));
    chunk_sum(r, c) = 0.0f;
    chunk_sum(r, c) += weights(r, key, c);

    Expr stored_granule = c * granules(chunk_keys) + granule;
    if (options.slices > 0 || in_matrices) {
        stored_granule = min(stored_granule, granules(inputs.key_count) - 1);
    }
    Expr value = in_fragments() ? value_of_row(inputs, stored_granule) : nearest_value(inputs, d, slot, stored_granule);
    if (hides_keys) {
        in_fragments() ? find_keys_seen_in_fragments(options.rows)
                       : find_seen_keys(options.rows > 0 ? Expr(options.rows) : inputs.rows());
        value = select(key_seen(granule * kGranuleKeys + slot, c) > 0.0f, value, zero_of(value));
    }
    chunk_value(d, slot, granule, c) = value;
    if (in_fragments()) {
        carry_fragments(inputs, options);
    } else if (options.slices > 0) {
        carry_slices(inputs, options);
    } else if (options.one_loop_nest) {
        finish_single_chunk(inputs);
    } else {
        carry_rows(inputs);
    }
}

void AttentionStages::find_seen_keys(const Expr &rows) {
    over_rows = RDom(0, rows, "over_rows");
    key_seen(k, c) = 0.0f;
    key_seen(k, c) = max(key_seen(k, c), weights(over_rows, k, c));
}

void AttentionStages::multiply_values(const AttentionInputs &inputs) {
    chunk_output(r, d, c) = 0.0f;
    if (!in_pairs) {
        Expr key = over_keys.y * kGranuleKeys + over_keys.x;
        chunk_output(r, d, c) += weights(r, key, c) * chunk_value(d, over_keys.x, over_keys.y, c);
        return;
    }
    constexpr int kPairs = kGranuleKeys / 2;
    value_pairs = named("value_pairs");
    value_pairs(side, d, pair, c) = chunk_value(d, 2 * (pair % kPairs) + side, pair / kPairs, c);
    if (in_matrices) {
        multiply_value_matrices(inputs);
        return;
    }
    weight_pairs = named("weight_pairs");
    weight_pairs(side, r, pair, c) = cast<bfloat16_t>(weights(r, 2 * pair + side, c));
    over_key_pairs = RDom({{0, 2}, {0, kPairs}, {0, granules(chunk_keys)}}, "over_key_pairs");
    over_key_pairs.where(over_key_pairs.z < granules(inputs.key_count - c * chunk_keys));
    Expr which = over_key_pairs.z * kPairs + over_key_pairs.y;
    chunk_output(r, d, c) += cast<float>(weight_pairs(over_key_pairs.x, r, which, c)) *
                             cast<float>(value_pairs(over_key_pairs.x, d, which, c));
}

void AttentionStages::multiply_value_matrices(const AttentionInputs &inputs) {
    weight_rows = named("weight_rows");
    weight_rows(k, r, c) = cast<bfloat16_t>(weights(r, k, c));
    const auto blocks = [](Expr keys) { return (std::move(keys) + (kMatrixDepth - 1)) / kMatrixDepth; };
    over_key_blocks = RDom({{0, kMatrixDepth}, {0, blocks(chunk_keys)}}, "over_key_blocks");
    over_key_blocks.where(over_key_blocks.y < blocks(inputs.key_count - c * chunk_keys));
    Expr key = over_key_blocks.y * kMatrixDepth + over_key_blocks.x;
    chunk_output(r, d, c) += cast<float>(weight_rows(key, r, c)) * cast<float>(value_pairs(key % 2, d, key / 2, c));
}

void AttentionStages::carry_rows(const AttentionInputs &inputs) {
    multiply_values(inputs);
    rescale(r, c) = exp2_nonpositive(select(c > 0, running_max(r, c - 1), kMaskedScore) - reference(running_max(r, c)));

    state(r, d) = 0.0f;
    state(r, d) = state(r, d) * rescale(r, over_chunks) + chunk_output(r, d, over_chunks);
    statistics(r) = Tuple(0.0f, kMaskedScore);
    statistics(r) =
        Tuple(statistics(r)[0] * rescale(r, over_chunks) + chunk_sum(r, over_chunks), running_max(r, over_chunks));

    normaliser(r) = normalise(statistics(r)[0], statistics(r)[1], inputs.sinks(head_index()));
    output(d, r) = scaled_output(inputs, state(r, d) * normaliser(r)[0], d);
    output.output_buffer().dim(0).set_min(0);
    lse(r) = normaliser(r)[1];
    allow_any_stride(lse);
}

void AttentionStages::finish_single_chunk(const AttentionInputs &inputs) {
    multiply_values(inputs);
    normaliser(r) = normalise(chunk_sum(r, 0), chunk_max(r, 0), inputs.sinks(head_index()));
    output(d, r) = Tuple(scaled_output(inputs, chunk_output(r, d, 0) * normaliser(r)[0], d), normaliser(r)[1]);
}

}  // namespace hattn::generators

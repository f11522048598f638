#include "unfused.h"

#include "softmax_math.h"

namespace hattn::generators {

using namespace Halide;

UnfusedScores::UnfusedScores(const AttentionInputs &inputs, const StageOptions &options)
    : ScoreStages(inputs, options),
      over_keys({{0, chunk_keys}, {0, chunk_count}}, "over_keys"),
      row_max("row_max"),
      row_sum("row_sum"),
      exponentials("exponentials"),
      weights("weights"),
      maximum("maximum"),
      sum("sum") {
    row_max(r) = kMaskedScore;
    row_max(r) = max(row_max(r), logits(r, over_keys.x, over_keys.y));
    exponentials(r, k, c) = exp2_nonpositive(logits(r, k, c) - reference(row_max(r)));
    row_sum(r) = 0.0f;
    row_sum(r) += exponentials(r, over_keys.x, over_keys.y);
    if (options.one_loop_nest) {
        weights(j, r) = Tuple(exponentials(r, j, 0), row_max(r), row_sum(r));
        return;
    }
    maximum(r) = row_max(r);
    sum(r) = row_sum(r);
    weights(j, r) = exponentials(r, j % options.chunk, j / options.chunk);
}

UnfusedValueInputs::UnfusedValueInputs(const AttentionInputs &inputs)
    : AttentionInputs(inputs),
      weights(Float(32), 2, "weights"),
      maximum(Float(32), 1, "maximum"),
      sum(Float(32), 1, "sum") {}

std::vector<Argument> UnfusedValueInputs::arguments() const {
    std::vector<Argument> all = AttentionInputs::arguments();
    all.insert(all.end(), {weights, maximum, sum});
    return all;
}

UnfusedValues::UnfusedValues(const UnfusedValueInputs &inputs, const StageOptions &options)
    : chunk_keys(options.chunk > 0 ? Expr(options.chunk) : inputs.key_count),
      chunk_granules(options.chunk > 0 ? Expr(options.chunk / kGranuleKeys) : granules(inputs.key_count)),
      over_keys({{0, kGranuleKeys}, {0, chunk_granules}}, "over_keys"),
      over_chunks(0, options.chunk > 0 ? (inputs.key_count + (options.chunk - 1)) / options.chunk : Expr(1),
                  "over_chunks"),
      row_weights("row_weights"),
      fetched("fetched"),
      key_seen("key_seen"),
      chunk_value("chunk_value"),
      chunk_output("chunk_output"),
      state("state"),
      normaliser("normaliser"),
      output("output"),
      lse("lse"),
      hides_keys(can_hide_keys(options.hooks)),
      fetches_chunk(options.fetch_chunk),
      any_storage(inputs.any_storage),
      value_type(inputs.stored_value.type) {
    // The last chunk may be shorter; Halide trims loops to this condition.
    over_keys.where(over_keys.y < granules(inputs.key_count - c * chunk_keys));

    Expr key = c * chunk_keys + k;
    Expr stored = inputs.weights(min(likely(key), inputs.key_count - 1), min(likely(r), inputs.rows() - 1));
    row_weights(r, k, c) = select(likely(key < inputs.key_count), stored, 0.0f);

    Expr value = nearest_value(inputs, d, slot, c * chunk_granules + granule);
    if (hides_keys) {
        over_rows = RDom(0, inputs.rows(), "over_rows");
        key_seen(k, c) = 0.0f;
        key_seen(k, c) = max(key_seen(k, c), is_seen(row_weights(over_rows, k, c)));
        value = select(key_seen(granule * kGranuleKeys + slot, c) > 0.0f, value, 0.0f);
    }
    chunk_value(d, slot, granule, c) = value;

    Expr nothing = 0.0f;
    if (fetches_chunk) {
        over_lines = RDom({{0, inputs.value_lines()}, {0, options.chunk}}, "over_lines");
        Expr next = min((c + 1) * options.chunk + over_lines.y, inputs.key_count - 1);
        fetched(c) = 0.0f;
        fetched(c) += inputs.prefetch_value(inputs.value_start(next), inputs.value_line(over_lines.x));
        nothing = fetched(c);
    }
    chunk_output(r, d, c) = nothing;
    chunk_output(r, d, c) +=
        row_weights(r, over_keys.y * kGranuleKeys + over_keys.x, c) * chunk_value(d, over_keys.x, over_keys.y, c);
    state(r, d) = 0.0f;
    state(r, d) += chunk_output(r, d, over_chunks);

    Expr row = min(likely(r), inputs.rows() - 1);
    Expr head = inputs.query.dim(2).min() + row % inputs.heads();
    normaliser(r) = normalise(inputs.sum(row), inputs.maximum(row), inputs.sinks(head));
    Expr result = scaled_output(inputs, state(r, d) * normaliser(r)[0], d);
    if (options.one_loop_nest) {
        output(d, r) = Tuple(result, normaliser(r)[1]);
        return;
    }
    output(d, r) = result;
    output.output_buffer().dim(0).set_min(0);
    lse(r) = normaliser(r)[1];
    allow_any_stride(lse);
}

}  // namespace hattn::generators

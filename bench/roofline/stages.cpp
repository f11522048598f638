#include "stages.h"

#include <algorithm>
#include <regex>
#include <stdexcept>

#include "generators/number_formats.h"

namespace hattn::roofline {

namespace {

// What a stage's work is counted in; see CallWork.
enum class Unit { kNone, kKeyProducts, kValueProducts, kScores, kQueries, kKeys, kValues, kState, kOutputs };

struct StageRow {
    const char *stage;
    Unit unit;
    double instructions;  // of vectors, for each of these
    double bytes;         // loaded and stored, for each
    std::vector<const char *> funcs;
    // Of Funcs that ask for lines ahead. They are computed in the innermost loops of the stage: where memory or its
    // queue is waited for, the products beside wait, or are done meanwhile. Samples cannot tell these apart.
    std::vector<const char *> fetching = {};
};

constexpr double kFloat = 4.0;              // bytes
constexpr double kStored = -1.0;            // times Dims::stored_bytes, in place of bytes: loaded, and stored again
constexpr double kExp2Instructions = 12.0;  // of exp2_strict(x - maximum), the shorter one

// The one place that knows Funcs by name; see generators/attention_stages.h and score_hooks.cpp.
const std::vector<StageRow> &stage_rows() {
    static const std::vector<StageRow> rows = {
        {"query transpose",
         Unit::kQueries,
         1.0,
         2 * kFloat,
         {"query_tile", "query_pairs", "query_words", "query_steps", "query_peak", "query_unit", "query_integers",
          "query_digits", "query_offsets", "query_matrices", "key_offsets"}},
        {"QK dot",
         Unit::kKeyProducts,
         0.0,
         0.0,
         {"dot", "dot_intm", "dot_global_wrapper", "side_sums", "quad_sums", "word_sums", "lane_sums", "step_sums",
          "lane_integers", "lane_floats", "line_sums", "quarter_sums", "quarter_scores", "key_scores", "byte_sums",
          "column_scores", "block_seen", "seen_blocks", "unseen_blocks"},
         {"fetch_lines", "fetch_starts", "fetched_line", "row_places", "asked", "asked_range", "asked_rows"}},
        {"bias and mask tiles",
         Unit::kScores,
         0.0,
         1.0 + kFloat,  // a mask's, into float32
         {"bias_tile", "mask_tile", "bias_tile_fetched", "mask_tile_fetched"}},
        {"logits, mask, hooks", Unit::kScores, 0.0, kFloat, {"logits"}},
        {"maxima", Unit::kScores, 1.0, kFloat, {"slot_max", "chunk_max", "running_max"}},
        {"weights (exp2)", Unit::kScores, kExp2Instructions, 2 * kFloat, {"weights"}},
        {"weights into other types",
         Unit::kScores,
         0.0,
         kFloat + 1.0,
         {"weight_rows", "weight_pairs", "weight_halves", "scaled_weights", "weight_unit", "weight_rate",
          "weight_scales", "largest_scale", "lane_scales", "weight_integers", "weight_digits", "block_digits",
          "lane_digits", "lane_blocks", "weight_words"}},
        {"chunk sum", Unit::kScores, 1.0, kFloat, {"slot_sums", "chunk_sum", "pair_sums"}, {"asked_ahead"}},
        {"keys into other types",
         Unit::kKeys,
         0.0,
         kStored,
         {"key_rows", "key_terms", "key_line", "key_pairs", "key_words", "words_of_four", "key_granule",
          "key_line_scales", "key_numbers", "key_block_scales"}},
        {"values into other types",
         Unit::kValues,
         0.0,
         kStored,
         {"value_pairs", "value_rows", "value_words", "value_integers", "value_bytes", "value_halves", "value_numbers",
          "word_numbers", "lines_of_values", "half_lines", "chunk_value"}},
        {"keys that rows see", Unit::kNone, 0.0, 0.0, {"key_seen", "seen_in_lane", "seen_keys", "seen_key"}},
        {"PV",
         Unit::kValueProducts,
         0.0,
         0.0,
         {"chunk_output", "chunk_output_global_wrapper", "panel_output", "panel_output_global_wrapper",
          "integer_output", "digit_sums", "block_sums", "panel_sums"},
         {"granule_lines", "next_granule", "next_lines", "next_start", "next_starts", "next_keys", "next_values",
          "asked_line"}},
        {"rescale, state", Unit::kState, 1.0, 2 * kFloat, {"rescale", "state", "statistics", "statistics_before"}},
        {"output transpose",
         Unit::kOutputs,
         1.0,
         2 * kFloat,
         {"normaliser", "state_in_output", "output_scale", "output", "not_finite", "lse"}},
        {"row limits, addresses",
         Unit::kNone,
         0.0,
         0.0,
         {"row", "head", "position", "first", "last", "unseen_rows", "alibi_slope", "query_starts", "key_starts",
          "value_starts"}},
        {"call, allocation",
         Unit::kNone,
         0.0,
         0.0,
         {"overhead", "halide_malloc", "halide_free", "waiting for parallel tasks to finish"}},
    };
    return rows;
}

bool has(const std::vector<const char *> &names, const std::string &name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

size_t row_of(const std::string &name) {
    // Halide numbers Funcs of one name, those that it makes of them before what it adds.
    static const std::regex number("_[0-9]+(?=_intm$|_global_wrapper$)");
    const std::string func = std::regex_replace(name, number, "");
    const std::vector<StageRow> &rows = stage_rows();
    for (size_t i = 0; i < rows.size(); ++i) {
        if (has(rows[i].funcs, func) || has(rows[i].fetching, func)) {
            return i;
        }
    }
    throw std::runtime_error("Func " + func +
                             " belongs to no stage: add it to stage_rows() in bench/roofline/stages.cpp");
}

double units(Unit unit, const CallWork &work, const Dims &dims) {
    switch (unit) {
    case Unit::kScores:
        return work.softmax_scores;
    case Unit::kQueries:
        return work.rows * dims.key;
    case Unit::kKeys:
        return work.keys * dims.key;
    case Unit::kValues:
        return work.keys * dims.value;
    case Unit::kState:
        return work.state_rows * dims.value;
    case Unit::kOutputs:
        return work.rows * dims.value;
    default:
        return 0.0;
    }
}

LeastWork least_work(const StageRow &row, const CallWork &work, KeyStorage storage, const Dims &dims) {
    const int terms = bfloat16_terms(storage);
    if (row.unit == Unit::kKeyProducts) {
        const auto products = static_cast<double>(generators::products_of_scores(terms).size());
        return {.products = 2.0 * products * work.key_scores * dims.key};
    }
    if (row.unit == Unit::kValueProducts) {
        const auto products = static_cast<double>(generators::products_of_values(terms).size());
        return {.products = 2.0 * products * work.value_scores * dims.value};
    }
    const double count = units(row.unit, work, dims);
    return {.operations = 2.0 * row.instructions * count,
            .bytes = (row.bytes == kStored ? 2.0 * dims.stored_bytes : row.bytes) * count};
}

}  // namespace

std::vector<StageTime> stage_times(const std::vector<FuncTime> &funcs, const CallWork &work, KeyStorage storage,
                                   const Dims &dims) {
    std::vector<StageTime> stages;
    for (const StageRow &row : stage_rows()) {
        stages.push_back({row.stage, 0.0, 0.0, least_work(row, work, storage, dims)});
    }
    for (const FuncTime &func : funcs) {
        const size_t row = row_of(func.func);
        stages[row].seconds += func.seconds;
        if (has(stage_rows()[row].fetching, func.func)) {
            stages[row].fetching += func.seconds;
        }
    }
    std::erase_if(stages, [](const StageTime &stage) { return stage.seconds == 0.0; });
    return stages;
}

}  // namespace hattn::roofline

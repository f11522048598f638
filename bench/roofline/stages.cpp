#include "stages.h"

#include <algorithm>
#include <stdexcept>

#include "generators/attention_stages.h"
#include "work.h"

namespace hattn::roofline {

namespace {

enum class Product { kNone, kKeys, kValues };

struct StageRow {
    const char *stage;
    Product product;
    std::vector<const char *> funcs;
};

// The one place that knows Funcs by name; see generators/attention_stages.h and score_hooks.cpp.
const std::vector<StageRow> &stage_rows() {
    static const std::vector<StageRow> rows = {
        {"query transpose", Product::kNone, {"query_starts", "query_tile", "query_pairs", "query_words"}},
        {"fetching ahead",
         Product::kNone,
         {"fetched", "fetch_lines", "fetch_starts", "fetched_line", "granule_lines", "next_granule", "next_lines",
          "next_start", "next_keys", "next_values", "row_places", "asked", "asked_range", "asked_rows"}},
        {"QK dot",
         Product::kKeys,
         {"dot", "dot_intm", "dot_global_wrapper", "side_sums", "word_sums", "block_seen", "seen_blocks"}},
        {"bias and mask tiles", Product::kNone, {"bias_tile", "mask_tile", "bias_tile_fetched", "mask_tile_fetched"}},
        {"logits, mask, hooks", Product::kNone, {"logits"}},
        {"maxima", Product::kNone, {"slot_max", "chunk_max", "running_max"}},
        {"weights (exp2)", Product::kNone, {"weights"}},
        {"weights into bfloat16", Product::kNone, {"weight_rows", "weight_pairs", "weight_halves"}},
        {"chunk sum", Product::kNone, {"slot_sums", "chunk_sum", "pair_sums", "asked_ahead"}},
        {"keys into float32, bfloat16",
         Product::kNone,
         {"key_rows", "key_terms", "key_starts", "key_line", "key_pairs", "words_of_four"}},
        {"values into bfloat16", Product::kNone, {"value_pairs", "value_rows"}},
        {"values of unseen keys",
         Product::kNone,
         {"key_seen", "seen_in_lane", "seen_keys", "seen_key", "value_starts", "chunk_value"}},
        {"PV",
         Product::kValues,
         {"chunk_output", "chunk_output_global_wrapper", "panel_output", "panel_output_global_wrapper"}},
        {"rescale, state", Product::kNone, {"rescale", "state", "statistics", "statistics_before"}},
        {"output transpose",
         Product::kNone,
         {"normaliser", "state_in_output", "output_scale", "output", "not_finite", "lse"}},
        {"row limits", Product::kNone, {"row", "head", "position", "first", "last", "unseen_rows", "alibi_slope"}},
        {"call, allocation",
         Product::kNone,
         {"overhead", "halide_malloc", "halide_free", "waiting for parallel tasks to finish"}},
    };
    return rows;
}

size_t row_of(const std::string &name) {
    const std::string func = name.substr(0, name.find('$'));  // Halide numbers Funcs of one name
    const std::vector<StageRow> &rows = stage_rows();
    for (size_t i = 0; i < rows.size(); ++i) {
        if (std::find(rows[i].funcs.begin(), rows[i].funcs.end(), func) != rows[i].funcs.end()) {
            return i;
        }
    }
    throw std::runtime_error("Func " + func +
                             " belongs to no stage: add it to stage_rows() in bench/roofline/stages.cpp");
}

int64_t round_up(int64_t value, int64_t multiple) {
    return multiple > 0 ? (value + multiple - 1) / multiple * multiple : value;
}

}  // namespace

std::vector<StageTime> stage_times(const std::vector<FuncTime> &funcs, double key_flops, double value_flops) {
    std::vector<StageTime> stages;
    for (const StageRow &row : stage_rows()) {
        stages.push_back({row.stage, 0.0,
                          row.product == Product::kKeys     ? key_flops
                          : row.product == Product::kValues ? value_flops
                                                            : 0.0});
    }
    for (const FuncTime &func : funcs) {
        stages[row_of(func.func)].seconds += func.seconds;
    }
    std::erase_if(stages, [](const StageTime &stage) { return stage.seconds == 0.0; });
    return stages;
}

double computed_scores(const cases::Case &c, const generators::KernelSpec &spec) {
    using generators::kGranuleKeys, generators::kJoinedRows, generators::kMatrixColumns, generators::kMatrixDepth;
    const bool matrices = multiplies_matrices(spec.storage);
    const int64_t rows = matrices ? std::min(spec.tile.rows, kJoinedRows * kMatrixColumns) : spec.tile.rows;
    const int64_t keys = spec.tile.keys == 0 ? 0 : matrices ? kMatrixDepth : kGranuleKeys;
    double scores = 0.0;
    for (int64_t row = 0; row < c.query_length; row += rows) {
        cases::Case part = c;  // rows that see the same, as a problem of their own
        part.batch = 1;
        part.query_length = std::min<int64_t>(rows, c.query_length - row);
        part.causal_offsets = {static_cast<int32_t>(c.kv_length - c.query_length + row)};
        const bench::VisibleKeys seen = bench::visible_keys(part, 0);
        scores += static_cast<double>(rows * round_up(seen.end - seen.begin, keys));
    }
    return scores * static_cast<double>(c.batch * c.query_heads);
}

}  // namespace hattn::roofline

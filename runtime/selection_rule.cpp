#include "selection_rule.h"

#include <algorithm>

#include "checked.h"
#include "flash_rule.h"
#include "row_tiles.h"
#include "tile_cost.h"
#include "usual_splits.h"

namespace hattn {

namespace {

// Up to this many rows per kv head split_kv, which cuts keys up for all threads, takes less time than flash; up to
// kDraftRows, where it fills no more rows of tiles. Measured, see docs/decisions/0028 and 0034.
constexpr int64_t kDecodeRows = 16;
constexpr int64_t kDraftRows = 32;
// The same where flash multiplies matrices, on a Xeon with AMX: from 5 rows on it takes 0.6 to 0.85 of the time of
// split_kv, 4 rows take 1.1 to 1.35 of it. See docs/decisions/0063.
constexpr int64_t kMatrixDecodeRows = 4;
// With hooks, and up to the second number over so few keys. Measured, see docs/decisions/0115.
constexpr int64_t kMatrixDecodeRowsOfHooks = 8, kFewKeysOfHooks = 128;

// With one query head per kv head, no hooks and float32, naive takes less time than split_kv for up to this many rows
// that fill more than half of its tile, and this many keys: it has rows in the lanes. Measured, see
// docs/decisions/0037.
constexpr int64_t kNaiveRows = 8;
constexpr int64_t kNaiveKeys = 512;

// Up to this many keys naive takes less time than tiles of others for prompts, whose rows see half of their keys: tiles
// of naive have few rows and as many keys as these see. Where matrices are multiplied of numbers as they are stored, up
// to the second number of keys, and where flash and split_kv multiply pairs, up to the third. Measured, see
// docs/decisions/0060, 0069 and 0088.
constexpr int64_t kNaivePrompt = 64, kNaivePromptOfMatrices = 32, kNaivePromptOfPairs = 16;

// There a row of the others' tiles takes so much of the time of one of naive; with hooks that float32 kernels have, or
// wide ones over stored types; in wide tiles of float32 up to kBriefPrompt rows; and where pairs or matrices of numbers
// as they are stored are multiplied. Measured, see docs/decisions/0115.
constexpr int64_t kPercentOfRows = 85, kPercentOfHookRows = 140, kPercentOfWideHookRows = 115;
constexpr int64_t kPercentOfBriefRows = 100, kPercentOfStoredRows = 150;
constexpr int64_t kBriefPrompt = 32, kWideTile = 16;

// Up to so many rows of a kv head are for split_kv, whose tiles are smaller, if they fill no more than 5/6 of the rows
// that flash takes for them, and both multiply the same. Of stored types, which each tile of split_kv brings into
// float32, up to kFewRows that fill no more than 3/4; where flash multiplies pairs of bfloat16, over so many keys at
// most. Measured, see docs/decisions/0065, 0080 and 0088.
constexpr int64_t kBadlyFilledRows = 160, kBadlyFilledKeysOfPairs = 1024;

// From so many keys on kernels that multiply matrices of bytes take less time than others with as many rows, and up to
// so many rows of a kv head as flash does for as many rows of tiles, of longer heads more. Measured, see
// docs/decisions/0095, 0112 and 0115.
constexpr int64_t kByteMatrixKeys = 256, kByteMatrixRows = 96;
constexpr int64_t kPercentOfByteMatrices = 100, kPercentOfLongByteMatrices = 120;

// Rows of tiles that the rows of a kv head take up, filled or not.
int64_t tile_rows(const Choice &choice, const Problem &problem, int64_t query_length) {
    return RowTiles(choice, query_length).computed_rows() * ceil_div(problem.group_size(), choice.heads);
}

// All heads of a kv head read the same keys, so they share a tile as far as it goes.
Choice choose_shared(const KernelSet &kernels, hattn_algorithm algorithm, const Problem &problem, int64_t query_length,
                     int64_t kv_length) {
    const int64_t rows = query_length * problem.group_size();
    const KernelInfo *kernel = fitting(kernels_of(kernels, algorithm, problem, query_length, kv_length), rows);
    const KernelInfo *values = algorithm == HATTN_ALGORITHM_UNFUSED ? fitting(kernels.unfused_values, rows) : nullptr;
    return {algorithm, kernel, values, std::min<int64_t>(kernel->tile.rows, problem.group_size()),
            UsualSplits(algorithm).keys(problem, query_length, kv_length)};
}

Choice choose_naive(const KernelSet &kernels, int64_t query_length) {
    return {HATTN_ALGORITHM_NAIVE, fitting(kernels.naive, query_length), nullptr, 1, 0};
}

// Numbers that are already what matrices are multiplied of.
bool multiplies_stored(const KernelSet &kernels) {
    return kernels.flash.front()->storage == KeyStorage::kBfloat16Matrices;
}

bool multiplies_pairs(const KernelSet &kernels) {
    return kernels.flash.front()->storage == KeyStorage::kBfloat16 &&
           kernels.split_kv.back()->storage == KeyStorage::kBfloat16;
}

// Rows that see most of the keys before them are none.
bool is_short_prompt(const KernelSet &kernels, const Problem &problem, int64_t query_length, int64_t kv_length) {
    const int64_t most = multiplies_stored(kernels)  ? kNaivePromptOfMatrices
                         : multiplies_pairs(kernels) ? kNaivePromptOfPairs
                                                     : kNaivePrompt;
    return problem.causal && kv_length <= most && query_length <= most && 5 * query_length >= 4 * kv_length;
}

// What a row of the others' tiles takes for a short prompt, in percent of one of naive.
int64_t percent_of_naive(const KernelSet &kernels, const Problem &problem, int64_t query_length) {
    if (multiplies_stored(kernels) || multiplies_pairs(kernels)) {
        return kPercentOfStoredRows;
    }
    const bool of_float32 = kernels.naive.front()->storage == KeyStorage::kFloat32;
    if (of_float32 && problem.hooks != 0) {
        return kPercentOfHookRows;
    }
    if (kernels.naive.back()->tile.rows < kWideTile) {
        return kPercentOfRows;
    }
    return problem.hooks != 0                           ? kPercentOfWideHookRows
           : of_float32 && query_length <= kBriefPrompt ? kPercentOfBriefRows
                                                        : kPercentOfRows;
}

bool may_fill_naive(const KernelSet &kernels, const Problem &problem) {
    return problem.group_size() == 1 && problem.hooks == 0 && kernels.naive.front()->storage == KeyStorage::kFloat32;
}

bool fills_naive(const KernelSet &kernels, const Problem &problem, int64_t query_length, int64_t kv_length) {
    const int64_t tile = kernels.naive.back()->tile.rows;
    return may_fill_naive(kernels, problem) && query_length <= std::min(tile, kNaiveRows) && 2 * query_length > tile &&
           kv_length <= kNaiveKeys;
}

// Whether few rows are better off in the small tiles of split_kv than in those of flash, of which they fill less.
bool fills_badly(const Problem &problem, const Choice &flash, const Choice &split_kv, int64_t query_length,
                 int64_t kv_length) {
    const int64_t rows = query_length * problem.group_size();
    const int64_t of_split_kv = tile_rows(split_kv, problem, query_length);
    const int64_t of_flash = tile_rows(flash, problem, query_length);
    const KernelInfo &kernel = *flash.kernel;
    if (kernel.storage == split_kv.kernel->storage && kernel.storage != KeyStorage::kAny) {
        return rows <= kBadlyFilledRows && 6 * of_split_kv <= 5 * of_flash;
    }
    if (rows > kFewRows) {
        return false;
    }
    const bool few_keys = kernel.storage != KeyStorage::kBfloat16 || kv_length <= kBadlyFilledKeysOfPairs;
    return few_keys && !multiplies_matrices(kernel.storage) && 4 * of_split_kv <= 3 * of_flash;
}

// Up to so many rows of a kv head split_kv takes less time than flash if it fills no more rows of tiles.
int64_t most_draft_rows(const KernelSet &kernels, const Problem &problem, int64_t kv_length) {
    if (!multiplies_stored(kernels)) {
        return kDraftRows;
    }
    if (problem.hooks == 0) {
        return kMatrixDecodeRows;
    }
    return kv_length <= kFewKeysOfHooks ? kDecodeRows : kMatrixDecodeRowsOfHooks;
}

// Whether rows are better off in matrices of bytes than in tiles of flash, of which they may fill more.
bool fills_byte_matrices(const KernelSet &kernels, const Problem &problem, const Choice &flash, const Choice &split_kv,
                         int64_t query_length, int64_t kv_length) {
    if (!multiplies_byte_matrices(split_kv.kernel->storage) || query_length * problem.group_size() > kByteMatrixRows) {
        return false;
    }
    const bool is_long = problem.key_dim > kUsualHead || problem.value_dim > kUsualHead;
    return cost_of_tiles(split_kv, problem, query_length, 1) *
               (is_long ? kPercentOfLongByteMatrices : kPercentOfByteMatrices) <=
           cost_of_few_rows(kernels, flash, problem, query_length, kv_length);
}

Choice choose_algorithm(const KernelSet &kernels, const Problem &problem, int64_t query_length, int64_t kv_length) {
    const int64_t rows = query_length * problem.group_size();
    const Choice split_kv = choose_shared(kernels, HATTN_ALGORITHM_SPLIT_KV, problem, query_length, kv_length);
    const int64_t draft_rows = most_draft_rows(kernels, problem, kv_length);
    if (rows <= std::min(kDecodeRows, draft_rows)) {
        return fills_naive(kernels, problem, query_length, kv_length) ? choose_naive(kernels, query_length) : split_kv;
    }
    const Choice flash = choose_flash(kernels, problem, query_length, kv_length);
    const Choice naive = choose_naive(kernels, query_length);
    const auto filled = [&](const Choice &choice) { return tile_rows(choice, problem, query_length); };
    // Tiles of naive have one head each.
    if (is_short_prompt(kernels, problem, query_length, kv_length)) {
        const int64_t least = std::min(filled(split_kv), filled(flash));
        if (100 * filled(naive) <= percent_of_naive(kernels, problem, query_length) * least) {
            return naive;
        }
        if (filled(flash) == least && !multiplies_pairs(kernels)) {
            return flash;
        }
    }
    const bool is_draft = rows <= draft_rows && filled(split_kv) <= filled(flash);
    const bool in_bytes = fills_byte_matrices(kernels, problem, flash, split_kv, query_length, kv_length);
    return is_draft || in_bytes || fills_badly(problem, flash, split_kv, query_length, kv_length) ? split_kv : flash;
}

}  // namespace

const std::vector<const KernelInfo *> &kernels_of(const KernelSet &kernels, hattn_algorithm algorithm,
                                                  const Problem &problem, int64_t query_length, int64_t kv_length) {
    if (algorithm == HATTN_ALGORITHM_FLASH) {
        return flash_kernels(kernels, problem, query_length, kv_length);
    }
    const bool in_matrices = algorithm == HATTN_ALGORITHM_SPLIT_KV && !kernels.matrix_split_kv.empty();
    return in_matrices && kv_length >= kByteMatrixKeys ? kernels.matrix_split_kv : kernels.of(algorithm);
}

int64_t most_naive_keys(const KernelSet &kernels, const Problem &problem) {
    return std::max(kNaivePrompt, may_fill_naive(kernels, problem) ? kNaiveKeys : 0);
}

const KernelInfo *fitting(const std::vector<const KernelInfo *> &by_rows, int64_t rows) {
    for (const KernelInfo *kernel : by_rows) {
        if (kernel->tile.rows >= rows) {
            return kernel;
        }
    }
    return by_rows.back();
}

Choice choose_by_rule(const KernelSet &kernels, const Problem &problem, int64_t query_length, int64_t kv_length) {
    switch (kernels.algorithm) {
    case HATTN_ALGORITHM_AUTO:
        return choose_algorithm(kernels, problem, query_length, kv_length);
    case HATTN_ALGORITHM_FLASH:
        return choose_flash(kernels, problem, query_length, kv_length);
    case HATTN_ALGORITHM_NAIVE:
        return choose_naive(kernels, query_length);
    default:
        return choose_shared(kernels, kernels.algorithm, problem, query_length, kv_length);
    }
}

}  // namespace hattn

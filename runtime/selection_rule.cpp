#include "selection_rule.h"

#include <algorithm>
#include <limits>

#include "checked.h"
#include "row_tiles.h"
#include "selection_entry.h"
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

// Up to this many keys of other types than float32 flash takes its small tile, where it multiplies as many rows at a
// time as the large one. Measured, see docs/decisions/0034.
constexpr int64_t kShortKeys = 1024;

// Where the large one multiplies more rows at a time, one of so many rows may be empty before it takes longer.
// Measured, see docs/decisions/0104.
constexpr int64_t kRowsForEmptyOne = 16;

// Up to this many rows per head it matters how they fill tiles.
constexpr int64_t kFewRows = 96;

// Up to so many rows of a kv head are for split_kv, whose tiles are smaller, if they fill no more than 5/6 of the rows
// that flash takes for them, and both multiply the same. Of stored types, which each tile of split_kv brings into
// float32, up to kFewRows that fill no more than 3/4; where flash multiplies pairs of bfloat16, over so many keys at
// most. Measured, see docs/decisions/0065, 0080 and 0088.
constexpr int64_t kBadlyFilledRows = 160, kBadlyFilledKeysOfPairs = 1024;

// From so many keys on flash takes less time with sums of two bfloat16 numbers than with float32, and with sums of
// three: of short heads products are less of the work, and of few keys chunks leave much empty. Entries of tunings that
// name a tile of the other family are of no use there. Measured, see docs/decisions/0068 and 0094.
constexpr int64_t kTwoTermKeys = 129, kThreeTermKeys = 385, kThreeTermKeysOfShortHeads = 1025;

// Up to so many rows of a kv head take less time with float32 than with sums of three. Measured, see
// docs/decisions/0112.
constexpr int64_t kFewTermRows = 96;

// From so many keys on kernels that multiply matrices of bytes take less time than others with as many rows, and up to
// so many rows of a kv head than flash. Measured, see docs/decisions/0095 and 0112.
constexpr int64_t kByteMatrixKeys = 256, kByteMatrixRows = 96;

// Over so many keys at most bfloat16 rows do not go in bands. Measured, see docs/decisions/0094.
constexpr int64_t kFewBandKeys = 128;

// Rows of one head in a tile that multiplies matrices and has room for more: those of a second head share what is made
// of keys and values, and see the same of them. Up to kFewMatrixRows rows per head, and of groups that so many heads do
// not divide, it matters how they fill tiles; of more than kCountedRows rows the first ones say enough. See
// docs/decisions/0067 and 0094.
constexpr int64_t kHeadPositions = 128;
constexpr int64_t kFewMatrixRows = 512, kCountedRows = 8192;

// Rows of tiles that the rows of a kv head take up, filled or not.
int64_t tile_rows(const Choice &choice, const Problem &problem, int64_t query_length) {
    return RowTiles(choice, query_length).computed_rows() * ceil_div(problem.group_size(), choice.heads);
}

// Whether one that multiplies more rows at a time takes longer all the same, as the small one fills fewer rows of
// tiles: of a prompt the last rows see all keys, twice as many as others.
bool is_too_large(const KernelInfo &large, const KernelInfo &small, const Problem &problem, int64_t query_length,
                  int64_t kv_length) {
    const int64_t rows = round_up(query_length, large.tile.rows);
    const int64_t empty = rows - round_up(query_length, small.tile.rows);
    const bool is_prompt = problem.causal && query_length == kv_length;
    return kRowsForEmptyOne * empty * (is_prompt ? 2 : 1) >= rows;
}

// Tiles over stored types bring keys into float32 once each: there the large one is usual beyond kShortKeys, or as it
// is filled if it is the faster one; and where matrices are multiplied, which takes less time than that, always.
bool is_large_usual(const KernelInfo &small, const KernelInfo &large, const Problem &problem, int64_t query_length,
                    int64_t kv_length) {
    if (large.storage != KeyStorage::kAny) {
        return multiplies_matrices(large.storage);
    }
    const bool is_faster = large.tile.row_vectors > small.tile.row_vectors;
    return is_faster ? !is_too_large(large, small, problem, query_length, kv_length) : kv_length > kShortKeys;
}

// The small tile, unless the large one is usual, or a few rows fill it better.
Choice choose_flash(const KernelSet &set, const Problem &problem, int64_t query_length, int64_t kv_length) {
    const std::vector<const KernelInfo *> &by_rows = flash_kernels(set, problem, query_length, kv_length);
    const KeyStorage storage = by_rows.front()->storage;
    std::span<const KernelInfo *const> kernels = by_rows;
    const auto in_bands = [](const KernelInfo *kernel) { return goes_in_bands(kernel->storage, kernel->tile.rows); };
    if (storage == KeyStorage::kBfloat16Matrices && kv_length <= kFewBandKeys && !in_bands(kernels.front())) {
        kernels = std::span(kernels.begin(), std::ranges::find_if(kernels, in_bands));
    }
    const bool is_large = is_large_usual(*kernels.front(), *kernels.back(), problem, query_length, kv_length);
    Choice choice =
        fill_flash_tiles(kernels, is_large ? kernels.back() : kernels.front(), problem, query_length, kv_length);
    fill_last_tiles(set, query_length, choice);
    return choice;
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

Choice choose_algorithm(const KernelSet &kernels, const Problem &problem, int64_t query_length, int64_t kv_length) {
    const int64_t rows = query_length * problem.group_size();
    const Choice split_kv = choose_shared(kernels, HATTN_ALGORITHM_SPLIT_KV, problem, query_length, kv_length);
    const int64_t draft_rows = multiplies_stored(kernels) ? kMatrixDecodeRows : kDraftRows;
    if (rows <= std::min(kDecodeRows, draft_rows)) {
        return fills_naive(kernels, problem, query_length, kv_length) ? choose_naive(kernels, query_length) : split_kv;
    }
    const Choice flash = choose_flash(kernels, problem, query_length, kv_length);
    const Choice naive = choose_naive(kernels, query_length);
    const auto filled = [&](const Choice &choice) { return tile_rows(choice, problem, query_length); };
    // Tiles of naive have one head each.
    if (is_short_prompt(kernels, problem, query_length, kv_length) &&
        2 * filled(naive) <= 3 * std::min(filled(split_kv), filled(flash))) {
        return naive;
    }
    const bool is_draft = rows <= draft_rows && filled(split_kv) <= filled(flash);
    const bool in_bytes = multiplies_byte_matrices(split_kv.kernel->storage) && rows <= kByteMatrixRows;
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

const std::vector<const KernelInfo *> &flash_kernels(const KernelSet &kernels, const Problem &problem,
                                                     int64_t query_length, int64_t kv_length) {
    const bool of_three = bfloat16_terms(kernels.flash.front()->storage) == 3;
    const int64_t fewest = !of_three                      ? kTwoTermKeys
                           : problem.key_dim < kShortHead ? kThreeTermKeysOfShortHeads
                                                          : kThreeTermKeys;
    const bool has_few_rows = of_three && query_length * problem.group_size() <= kFewTermRows;
    const bool in_terms = multiplies_terms(kernels.flash.front()->storage);
    const bool is_plain = in_terms && !kernels.is_flash_forced && (kv_length < fewest || has_few_rows);
    return is_plain ? kernels.plain_flash : kernels.flash;
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

Choice fill_flash_tiles(std::span<const KernelInfo *const> kernels, const KernelInfo *usual, const Problem &problem,
                        int64_t query_length, int64_t kv_length) {
    Choice best{HATTN_ALGORITHM_FLASH, usual, nullptr, 1, 0};
    const bool in_bands = goes_in_bands(usual->storage, usual->tile.rows);
    const int64_t heads_of_many =
        in_bands ? std::clamp<int64_t>(usual->tile.rows / kHeadPositions, 1, problem.group_size()) : 1;
    if (query_length > (in_bands ? kFewMatrixRows : kFewRows) && problem.group_size() % heads_of_many == 0) {
        best.heads = heads_of_many;
        return best;
    }
    kv_length -= std::max<int64_t>(query_length - kCountedRows, 0);
    query_length = std::min(query_length, kCountedRows);
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const KernelInfo *kernel : kernels) {
        const int64_t most_heads = std::min<int64_t>({problem.group_size(), kMaxTileHeads, kernel->tile.rows});
        // By numbers of blocks of heads: of as many blocks, more heads than those that suffice waste rows.
        for (int64_t heads = 1, blocks = problem.group_size(); heads <= most_heads;) {
            const Choice filled{HATTN_ALGORITHM_FLASH, kernel, nullptr, heads, 0};
            const int64_t cost = cost_of_tiles(filled, problem, query_length, kv_length);
            // Of many rows more heads see less that their last rows alone see.
            const bool more_heads = in_bands && query_length > kFewRows;
            const bool as_good = cost == least && kernel == usual && (best.kernel != usual || more_heads);
            if (cost < least || as_good) {
                least = cost;
                best.kernel = kernel;
                best.heads = heads;
            }
            if (blocks == 1) {
                break;
            }
            heads = ceil_div(problem.group_size(), blocks - 1);
            blocks = ceil_div(problem.group_size(), heads);
        }
    }
    return best;
}

void fill_last_tiles(const KernelSet &kernels, int64_t query_length, Choice &choice) {
    if (kernels.is_flash_forced) {
        return;
    }
    const KernelInfo &usual = *choice.kernel;
    int64_t least = RowTiles(choice, query_length).computed_rows();
    for (const std::vector<const KernelInfo *> *list : {&kernels.last_flash, &kernels.flash, &kernels.plain_flash}) {
        for (const KernelInfo *kernel : *list) {
            const bool has_fewer = kernel->tile.rows < usual.tile.rows && kernel->tile.rows >= choice.heads;
            if (!has_fewer || !sums_alike(*kernel, usual, *kernels.target)) {
                continue;
            }
            for (const int64_t tiles : {1, 2}) {
                Choice ended = choice;
                ended.last_kernel = kernel;
                ended.last_tiles = tiles;
                const RowTiles row_tiles(ended, query_length);
                if (row_tiles.hold_all() && row_tiles.computed_rows() < least) {
                    least = row_tiles.computed_rows();
                    choice.last_kernel = kernel;
                    choice.last_tiles = tiles;
                }
            }
        }
    }
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

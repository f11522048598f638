#include "flash_rule.h"

#include <algorithm>
#include <limits>

#include "checked.h"
#include "row_tiles.h"
#include "selection_entry.h"
#include "tile_cost.h"
#include "usual_splits.h"

namespace hattn {

namespace {

// Up to this many keys of other types than float32 flash takes its small tile, where it multiplies as many rows at a
// time as the large one. Measured, see docs/decisions/0034.
constexpr int64_t kShortKeys = 1024;

// Where the large one multiplies more rows at a time, one of so many rows may be empty before it takes longer.
// Measured, see docs/decisions/0104.
constexpr int64_t kRowsForEmptyOne = 16;

// From so many keys on flash takes less time with sums of two bfloat16 numbers than with float32, and with sums of
// three: of short heads products are less of the work, and of few keys chunks leave much empty. Entries of tunings that
// name a tile of the other family are of no use there. Measured, see docs/decisions/0068 and 0094.
constexpr int64_t kTwoTermKeys = 129, kThreeTermKeys = 385, kThreeTermKeysOfShortHeads = 1025;
// With hooks, which float32 kernels over any storage have all at once. Measured, see docs/decisions/0115.
constexpr int64_t kTermKeysOfHooks = 97;

// Up to so many rows of a kv head it matters how they fill tiles of either, of which a row with sums takes so much of
// the time of one with float32; over few keys more, with hooks in long heads too. Measured, see docs/decisions/0112 and
// 0115.
constexpr int64_t kFewTermRows = 96;
constexpr int64_t kPercentOfThreeTerms = 80, kPercentOfThreeTermsWithHooks = 58, kPercentOfFewKeysWithHooks = 70;
constexpr int64_t kPercentOfTwoTerms = 65, kPercentOfTwoTermsWithHooks = 45, kPercentOfTwoTermsOfFewKeys = 85;
constexpr int64_t kFewTwoTermKeys = 300, kFewKeysWithHooks = 200;

// Over so few keys bfloat16 rows of heads that are not long go in bands where these take no more than so much of the
// time of other tiles, and there are at least so many tiles of bands for all kv heads. Measured, see
// docs/decisions/0120.
constexpr int64_t kFewBandKeys = 128, kPercentOfFewBandKeys = 87, kFewestBandTiles = 4;

// Rows of one head in a tile that multiplies matrices and has room for more: those of a second head share what is made
// of keys and values, and see the same of them. Up to kFewMatrixRows rows per head, and of groups that so many heads do
// not divide, it matters how they fill tiles; of more than kCountedRows rows the first ones say enough. See
// docs/decisions/0067 and 0094.
constexpr int64_t kHeadPositions = 128;
constexpr int64_t kFewMatrixRows = 512, kCountedRows = 8192;

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

bool in_bands(const KernelInfo *kernel) {
    return goes_in_bands(kernel->storage, kernel->tile.rows);
}

// Whether tiles of bands take less time than others over few keys.
bool bands_pay(const Choice &bands, const Choice &others, const Problem &problem, int64_t query_length,
               int64_t kv_length) {
    const int64_t tiles = RowTiles(bands, query_length).count() * ceil_div(problem.group_size(), bands.heads);
    const auto cost = [&](const Choice &flash) { return cost_of_tiles(flash, problem, query_length, kv_length); };
    return tiles * problem.kv_heads >= kFewestBandTiles && 100 * cost(bands) <= kPercentOfFewBandKeys * cost(others);
}

// The small tile, unless the large one is usual, or a few rows fill it better.
Choice choose_flash_of(const KernelSet &set, const std::vector<const KernelInfo *> &by_rows, const Problem &problem,
                       int64_t query_length, int64_t kv_length) {
    const auto choose_of = [&](std::span<const KernelInfo *const> kernels) {
        const KernelInfo *small = kernels.front(), *large = kernels.back();
        const bool is_large = is_large_usual(*small, *large, problem, query_length, kv_length);
        return fill_flash_tiles(set, kernels, is_large ? large : small, problem, query_length, kv_length);
    };
    const auto bands = std::ranges::find_if(by_rows, in_bands);
    const bool has_few_keys = by_rows.front()->storage == KeyStorage::kBfloat16Matrices && kv_length <= kFewBandKeys;
    const bool is_long = std::max(problem.key_dim, problem.value_dim) > kUsualHead;
    const bool apart = has_few_keys && bands != by_rows.begin() && bands != by_rows.end();
    Choice choice = choose_of(apart ? std::span(by_rows.begin(), bands) : std::span(by_rows));
    if (apart && !is_long) {
        const Choice of_bands = choose_of(std::span(bands, by_rows.end()));
        if (bands_pay(of_bands, choice, problem, query_length, kv_length)) {
            choice = of_bands;
        }
    }
    fill_last_tiles(set, query_length, choice);
    return choice;
}

// Float32 kernels over any storage have all hooks at once.
bool has_all_hooks(const KernelSet &kernels, const Problem &problem) {
    return problem.hooks != 0 && kernels.plain_flash.front()->storage == KeyStorage::kAny;
}

// What a row of a tile of terms takes, in percent of one of float32.
int64_t percent_of_terms(const KernelSet &kernels, const Problem &problem, int64_t kv_length) {
    const bool all_hooks = has_all_hooks(kernels, problem);
    if (bfloat16_terms(kernels.flash.front()->storage) == 3) {
        const bool takes_more = kv_length < kFewKeysWithHooks || problem.key_dim > kUsualHead;
        return !all_hooks   ? kPercentOfThreeTerms
               : takes_more ? kPercentOfFewKeysWithHooks
                            : kPercentOfThreeTermsWithHooks;
    }
    return all_hooks                     ? kPercentOfTwoTermsWithHooks
           : kv_length < kFewTwoTermKeys ? kPercentOfTwoTermsOfFewKeys
                                         : kPercentOfTwoTerms;
}

int64_t fewest_term_keys(const KernelSet &kernels, const Problem &problem) {
    if (has_all_hooks(kernels, problem)) {
        return kTermKeysOfHooks;
    }
    if (bfloat16_terms(kernels.flash.front()->storage) < 3) {
        return kTwoTermKeys;
    }
    return problem.key_dim < kShortHead ? kThreeTermKeysOfShortHeads : kThreeTermKeys;
}

bool may_take_terms(const KernelSet &kernels) {
    return multiplies_terms(kernels.flash.front()->storage) && !kernels.is_flash_forced;
}

// Whether it is for tiles to say if rows are multiplied as terms.
bool may_take_either(const KernelSet &kernels, const Problem &problem, int64_t query_length, int64_t kv_length) {
    return may_take_terms(kernels) && kv_length >= fewest_term_keys(kernels, problem) &&
           query_length * problem.group_size() <= kFewTermRows;
}

Choice choose_either(const KernelSet &kernels, const Problem &problem, int64_t query_length, int64_t kv_length) {
    const auto choose_of = [&](const std::vector<const KernelInfo *> &by_rows) {
        return choose_flash_of(kernels, by_rows, problem, query_length, kv_length);
    };
    const auto cost = [&](const Choice &flash) {
        return cost_of_few_rows(kernels, flash, problem, query_length, kv_length);
    };
    const Choice plain = choose_of(kernels.plain_flash), in_terms = choose_of(kernels.flash);
    return cost(plain) <= cost(in_terms) ? plain : in_terms;
}

}  // namespace

Choice choose_flash(const KernelSet &kernels, const Problem &problem, int64_t query_length, int64_t kv_length) {
    if (may_take_either(kernels, problem, query_length, kv_length)) {
        return choose_either(kernels, problem, query_length, kv_length);
    }
    const std::vector<const KernelInfo *> &by_rows = flash_kernels(kernels, problem, query_length, kv_length);
    return choose_flash_of(kernels, by_rows, problem, query_length, kv_length);
}

int64_t cost_of_few_rows(const KernelSet &kernels, const Choice &flash, const Problem &problem, int64_t query_length,
                         int64_t kv_length) {
    const bool in_terms = multiplies_terms(flash.kernel->storage);
    return cost_of_tiles(flash, problem, query_length, 1) *
           (in_terms ? percent_of_terms(kernels, problem, kv_length) : 100);
}

const std::vector<const KernelInfo *> &flash_kernels(const KernelSet &kernels, const Problem &problem,
                                                     int64_t query_length, int64_t kv_length) {
    if (may_take_either(kernels, problem, query_length, kv_length)) {
        const Choice choice = choose_either(kernels, problem, query_length, kv_length);
        return multiplies_terms(choice.kernel->storage) ? kernels.flash : kernels.plain_flash;
    }
    const bool has_few_keys = may_take_terms(kernels) && kv_length < fewest_term_keys(kernels, problem);
    return has_few_keys ? kernels.plain_flash : kernels.flash;
}

Choice fill_flash_tiles(const KernelSet &set, std::span<const KernelInfo *const> kernels, const KernelInfo *usual,
                        const Problem &problem, int64_t query_length, int64_t kv_length) {
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
    int64_t least = std::numeric_limits<int64_t>::max(), fewest = least;
    for (const KernelInfo *kernel : kernels) {
        const int64_t most_heads = std::min<int64_t>({problem.group_size(), kMaxTileHeads, kernel->tile.rows});
        // By numbers of blocks of heads: of as many blocks, more heads than those that suffice waste rows.
        for (int64_t heads = 1, blocks = problem.group_size(); heads <= most_heads;) {
            Choice filled{HATTN_ALGORITHM_FLASH, kernel, nullptr, heads, 0};
            fill_last_tiles(set, query_length, filled);
            // Tiles for last rows take a little longer for as many.
            const int64_t cost =
                2 * cost_of_tiles(filled, problem, query_length, kv_length) + (filled.last_kernel ? 1 : 0);
            // Of many rows more heads see less that their last rows alone see.
            const bool more_heads = in_bands && query_length > kFewRows;
            const int64_t tiles = RowTiles(filled, query_length).count() * blocks;
            const bool as_good =
                cost == least && kernel == usual && (best.kernel != usual || more_heads || tiles < fewest);
            if (cost < least || as_good) {
                least = cost;
                fewest = tiles;
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

}  // namespace hattn

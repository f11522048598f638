#include "selection.h"

#include <algorithm>
#include <limits>

#include "checked.h"
#include "kernel_registry.h"
#include "status.h"

namespace hattn {

namespace {

// Up to this many rows per kv head, reading K and V once as vectors beats the wider arithmetic of rows in lanes.
constexpr int64_t kDecodeRows = 16;

// Up to this many keys flash takes its small tile. Measured, see schedules/targets.cpp.
constexpr int64_t kShortKeys = 2048;

// Up to this many rows per head it matters how they fill tiles.
constexpr int64_t kFewRows = 96;

const KernelInfo *only_kernel(const TargetInfo &target, KernelKind kind, uint32_t hooks) {
    const std::vector<const KernelInfo *> found = find_kernels(target, kind, hooks);
    require(!found.empty(), HATTN_INTERNAL_ERROR, "no ", kernel_kind_name(kind), " kernel for ", target.name,
            " with hooks ", hook_names(hooks));
    return found.front();
}

// Raw scores are taken before every hook, capped ones after the first.
uint32_t hooks_of_scores(const Problem &problem) {
    switch (problem.scores) {
    case HATTN_SCORES_RAW:
        return 0;
    case HATTN_SCORES_CAPPED:
        return problem.hooks & hook_bit("softcap");
    default:
        return problem.hooks;
    }
}

// The smallest tile that holds all rows, else the largest.
const KernelInfo *fitting(const std::vector<const KernelInfo *> &by_rows, int64_t rows) {
    for (const KernelInfo *kernel : by_rows) {
        if (kernel->tile.rows >= rows) {
            return kernel;
        }
    }
    return by_rows.back();
}

// Rows of a head fill flash tiles, unless they are few: then rows of several heads of a kv head do, in the kernel and
// the shape that leave the fewest rows of tiles empty.
Choice choose_flash(const std::vector<const KernelInfo *> &kernels, const Problem &problem, int64_t query_length,
                    int64_t kv_length) {
    const bool is_short = kv_length <= kShortKeys;
    const KernelInfo *usual = is_short ? kernels.front() : kernels.back();
    const KernelInfo *other = is_short ? kernels.back() : kernels.front();
    Choice best{HATTN_ALGORITHM_FLASH, usual, 1};
    if (query_length > kFewRows) {
        return best;
    }
    int64_t fewest = std::numeric_limits<int64_t>::max();
    for (const KernelInfo *kernel : {usual, other}) {
        for (int64_t heads = 1; heads <= std::min(problem.group_size(), kMaxTileHeads); ++heads) {
            const int64_t tiles =
                ceil_div(query_length, kernel->tile.rows / heads) * ceil_div(problem.group_size(), heads);
            if (tiles * kernel->tile.rows < fewest) {
                fewest = tiles * kernel->tile.rows;
                best = {HATTN_ALGORITHM_FLASH, kernel, heads};
            }
        }
    }
    return best;
}

void force_kernel(KernelSet &kernels, const KernelInfo *kernel, uint32_t hooks) {
    for (auto *list : {&kernels.naive, &kernels.flash, &kernels.split_kv}) {
        if (list->front()->kind == kernel->kind) {
            require(kernel->hooks == hooks, HATTN_INVALID_ARGUMENT, "HATTN_FORCE: kernel ", kernel->name,
                    " computes hooks ", hook_names(kernel->hooks), ", but the problem has ", hook_names(hooks));
            *list = {kernel};
        }
    }
}

}  // namespace

const std::vector<const KernelInfo *> &KernelSet::of(hattn_algorithm wanted) const {
    return wanted == HATTN_ALGORITHM_NAIVE ? naive : wanted == HATTN_ALGORITHM_FLASH ? flash : split_kv;
}

KernelSet select_kernels(const Problem &problem, const TargetInfo &target, const Force &force) {
    KernelSet kernels;
    kernels.target = &target;
    kernels.naive = find_kernels(target, KernelKind::kNaive, problem.hooks);
    kernels.flash = find_kernels(target, KernelKind::kFlash, problem.hooks);
    kernels.split_kv = find_kernels(target, KernelKind::kSplitKv, problem.hooks);
    for (hattn_algorithm algorithm : {HATTN_ALGORITHM_NAIVE, HATTN_ALGORITHM_FLASH, HATTN_ALGORITHM_SPLIT_KV}) {
        require(!kernels.of(algorithm).empty(), HATTN_INTERNAL_ERROR, "no ", algorithm_name(algorithm), " kernel for ",
                target.name, " with hooks ", hook_names(problem.hooks));
    }
    kernels.merge = only_kernel(target, KernelKind::kMerge, 0);
    kernels.scores = only_kernel(target, KernelKind::kScores, hooks_of_scores(problem));
    kernels.probabilities = only_kernel(target, KernelKind::kProbabilities, problem.hooks);

    kernels.algorithm = problem.algorithm;
    kernels.why_algorithm =
        problem.algorithm == HATTN_ALGORITHM_AUTO ? "built-in rule by rows per kv head" : "asked for";
    if (force.algorithm != HATTN_ALGORITHM_AUTO) {
        kernels.algorithm = force.algorithm;
        kernels.why_algorithm = "HATTN_FORCE=" + force.text;
    }
    require(kernels.algorithm != HATTN_ALGORITHM_UNFUSED, HATTN_NOT_SUPPORTED,
            "algorithm: is unfused, but only auto, naive, flash and split_kv are supported yet");
    if (force.kernel) {
        force_kernel(kernels, force.kernel, problem.hooks);
    }
    return kernels;
}

Choice choose(const KernelSet &kernels, const Problem &problem, int64_t query_length, int64_t kv_length) {
    const int64_t rows_of_kv_head = query_length * problem.group_size();
    hattn_algorithm algorithm = kernels.algorithm;
    if (algorithm == HATTN_ALGORITHM_AUTO) {
        const bool tiny =
            kv_length <= kernels.flash.front()->tile.keys && query_length <= kernels.naive.back()->tile.rows;
        algorithm = rows_of_kv_head <= kDecodeRows ? HATTN_ALGORITHM_SPLIT_KV
                    : tiny                         ? HATTN_ALGORITHM_NAIVE
                                                   : HATTN_ALGORITHM_FLASH;
    }
    if (algorithm == HATTN_ALGORITHM_FLASH) {
        return choose_flash(kernels.flash, problem, query_length, kv_length);
    }
    if (algorithm == HATTN_ALGORITHM_NAIVE) {
        return {algorithm, fitting(kernels.naive, query_length), 1};
    }
    // All heads of a kv head read the same keys, so they share a tile as far as it goes.
    const KernelInfo *kernel = fitting(kernels.split_kv, rows_of_kv_head);
    return {algorithm, kernel, std::min<int64_t>(kernel->tile.rows, problem.group_size())};
}

}  // namespace hattn

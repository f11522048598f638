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
    Choice best{HATTN_ALGORITHM_FLASH, usual, nullptr, 1};
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
                best = {HATTN_ALGORITHM_FLASH, kernel, nullptr, heads};
            }
        }
    }
    return best;
}

// Of the hooks, those that the values kernels know.
uint32_t hooks_of_values(uint32_t hooks) {
    const uint32_t hiding = hiding_hooks();
    return (hooks & hiding) != 0 ? hiding : 0;
}

void force_kernel(KernelSet &kernels, const KernelInfo *kernel, uint32_t hooks) {
    for (auto *list : kernels.all()) {
        if (list->front()->kind == kernel->kind) {
            const uint32_t wanted = kernel->kind == KernelKind::kUnfusedValues ? hooks_of_values(hooks) : hooks;
            require(serves(kernel->hooks, wanted), HATTN_INVALID_ARGUMENT, "HATTN_FORCE: kernel ", kernel->name,
                    " computes hooks ", hook_names(kernel->hooks), ", but the problem has ", hook_names(wanted));
            *list = {kernel};
        }
    }
    if (kernel->kind == KernelKind::kUnfusedScores || kernel->kind == KernelKind::kUnfusedValues) {
        for (auto *list : {&kernels.unfused_scores, &kernels.unfused_values}) {
            std::erase_if(*list, [&](const KernelInfo *other) { return other->tile.rows != kernel->tile.rows; });
        }
    }
}

}  // namespace

const std::vector<const KernelInfo *> &KernelSet::of(hattn_algorithm wanted) const {
    switch (wanted) {
    case HATTN_ALGORITHM_NAIVE:
        return naive;
    case HATTN_ALGORITHM_FLASH:
        return flash;
    case HATTN_ALGORITHM_UNFUSED:
        return unfused_scores;
    default:
        return split_kv;
    }
}

std::array<std::vector<const KernelInfo *> *, 5> KernelSet::all() {
    return {&naive, &flash, &split_kv, &unfused_scores, &unfused_values};
}

int64_t split_keys(hattn_algorithm algorithm) {
    return algorithm == HATTN_ALGORITHM_SPLIT_KV  ? kSplitKeys
           : algorithm == HATTN_ALGORITHM_UNFUSED ? kUnfusedSplitKeys
                                                  : 0;
}

bool may_choose(const KernelSet &kernels, hattn_algorithm algorithm) {
    // By its own choice the planner never takes unfused: nowhere was it measured to be faster, see
    // docs/decisions/0011-unfused-in-batches.md.
    return kernels.algorithm == algorithm ||
           (kernels.algorithm == HATTN_ALGORITHM_AUTO && algorithm != HATTN_ALGORITHM_UNFUSED);
}

KernelSet select_kernels(const Problem &problem, const TargetInfo &target, const Force &force) {
    KernelSet kernels;
    kernels.target = &target;
    kernels.naive = find_kernels(target, KernelKind::kNaive, problem.hooks);
    kernels.flash = find_kernels(target, KernelKind::kFlash, problem.hooks);
    kernels.split_kv = find_kernels(target, KernelKind::kSplitKv, problem.hooks);
    kernels.unfused_scores = find_kernels(target, KernelKind::kUnfusedScores, problem.hooks);
    kernels.unfused_values = find_kernels(target, KernelKind::kUnfusedValues, hooks_of_values(problem.hooks));
    for (const auto *list : kernels.all()) {
        require(!list->empty(), HATTN_INTERNAL_ERROR, "an algorithm has no kernel for ", target.name, " with hooks ",
                hook_names(problem.hooks));
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
        return {algorithm, fitting(kernels.naive, query_length), nullptr, 1};
    }
    // All heads of a kv head read the same keys, so they share a tile as far as it goes.
    const KernelInfo *kernel = fitting(kernels.of(algorithm), rows_of_kv_head);
    return {algorithm, kernel,
            algorithm == HATTN_ALGORITHM_UNFUSED ? fitting(kernels.unfused_values, rows_of_kv_head) : nullptr,
            std::min<int64_t>(kernel->tile.rows, problem.group_size())};
}

}  // namespace hattn

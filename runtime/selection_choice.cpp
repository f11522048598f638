// Of the kernels that fit a problem, which one computes a sequence.
#include <algorithm>
#include <optional>

#include "memory_kernels.h"
#include "selection.h"
#include "selection_entry.h"
#include "selection_rule.h"
#include "usual_splits.h"

namespace hattn {

namespace {

// Of a sequence with a window, the keys its rows see together.
int64_t seen_keys(const Problem &problem, int64_t query_length, int64_t kv_length) {
    const bool ends = problem.causal || problem.window_right >= 0;
    const int64_t right = problem.causal ? 0 : problem.window_right;
    return problem.window_left >= 0 && ends ? std::min(kv_length, problem.window_left + right + query_length)
                                            : kv_length;
}

}  // namespace

TuningCell tuning_cell(const Problem &problem, int64_t query_length, int64_t kv_length) {
    return cell_of(query_length, seen_keys(problem, query_length, kv_length));
}

bool has_tuning_class(const Problem &problem, int64_t query_length, int64_t kv_length) {
    static const int64_t most_keys = largest_of_exponent(kKeyClasses - 1);
    return seen_keys(problem, query_length, kv_length) <= most_keys;
}

const TuningEntry *nearest_entry(const TuningGrids &grids, const Problem &problem, int64_t query_length,
                                 int64_t kv_length) {
    // Beyond the last class short splits, good as they may be there, would be too many for a workspace.
    if (!has_tuning_class(problem, query_length, kv_length)) {
        return nullptr;
    }
    const TuningEntry *entry = grids.find(tuning_cell(problem, query_length, kv_length));
    // Which kernels of a device give the same bits is not known.
    return entry && entry->invariant && !entry->family.device.empty() ? nullptr : entry;
}

namespace {

// What an entry of these grids says, if there is one for the class.
std::optional<Choice> choose_by_grids(const KernelSet &kernels, const Problem &problem, const TuningGrids &grids,
                                      Decider decider, int64_t query_length, int64_t kv_length) {
    const TuningEntry *entry = nearest_entry(grids, problem, query_length, kv_length);
    Choice choice;
    if (!entry || entry->algorithm == HATTN_ALGORITHM_AUTO ||
        !choose_by_entry(kernels, problem, *entry, query_length, kv_length, choice)) {
        return std::nullopt;
    }
    choice.decider = decider;
    choice.entry = entry;
    return choice;
}

Choice choose_default(const KernelSet &kernels, const Problem &problem, int64_t query_length, int64_t kv_length) {
    const std::optional<Choice> shipped =
        choose_by_grids(kernels, problem, kernels.shipped, Decider::kShipped, query_length, kv_length);
    return shipped ? *shipped : choose_by_rule(kernels, problem, query_length, kv_length);
}

Choice choose_whole(const KernelSet &kernels, const Problem &problem, int64_t query_length, int64_t kv_length) {
    const std::optional<Choice> measured =
        choose_by_grids(kernels, problem, kernels.machine, Decider::kMachine, query_length, kv_length);
    if (measured && !measured->entry->invariant) {
        return *measured;
    }
    // At other lengths of an entry's class the default may be another one.
    const Choice usual = choose_default(kernels, problem, query_length, kv_length);
    return measured && sums_alike(*measured, usual, problem, *kernels.target) ? *measured : usual;
}

}  // namespace

Choice choose(const KernelSet &kernels, const Problem &problem, int64_t query_length, int64_t kv_length,
              bool keys_lie_apart) {
    Choice choice = choose_whole(kernels, problem, query_length, kv_length);
    if (!kernels.from_memory.empty()) {
        const int64_t keys = seen_keys(problem, query_length, kv_length);
        if ((keys_lie_apart && are_worth_asking_for(problem, keys)) || lie_in_memory(problem, keys)) {
            choice.kernel = in_place_of(choice.kernel, kernels.from_memory);
        }
    }
    if (choice.algorithm == HATTN_ALGORITHM_FLASH) {
        choice.split_keys = UsualSplits(choice.algorithm).keys(problem, query_length, kv_length);
    }
    return choice;
}

}  // namespace hattn

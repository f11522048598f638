#include "selection.h"

#include <algorithm>
#include <iterator>

#include "cpu_features.h"
#include "kernel_registry.h"
#include "memory_kernels.h"
#include "reach.h"
#include "status.h"
#include "tensor.h"

namespace hattn {

namespace {

const KernelInfo *score_kernel(const TargetInfo &target, KernelKind kind, KeyStorage storage, uint32_t hooks) {
    const std::vector<const KernelInfo *> found = find_kernels(target, kind, storage, hooks);
    require(!found.empty(), HATTN_INTERNAL_ERROR, "no ", kernel_kind_name(kind), " kernel for ", target.name,
            " with hooks ", hook_names(hooks));
    return found.front();
}

// Of the hooks, those that the values kernels know.
uint32_t hooks_of_values(uint32_t hooks) {
    const uint32_t hiding = hiding_hooks();
    return (hooks & hiding) != 0 ? hiding : 0;
}

// Whether kernels for this type alone take keys and values.
bool takes_all(hattn_dtype type, const Problem &problem) {
    const auto takes = [&](int64_t dim) {
        return dim % kWholeHead == 0 && dim >= shortest_head(type) && dim <= longest_head(type);
    };
    return problem.stored_as(type) && takes(problem.key_dim) && takes(problem.value_dim);
}

bool takes_lines_of(hattn_dtype type, const Problem &problem) {
    return takes_all(type, problem) && fills_lines(type, problem.key_dim) && fills_lines(type, problem.value_dim);
}

bool takes_rows_of_bfloat16(const Problem &problem) {
    return problem.all_bfloat16() && takes_all(HATTN_BFLOAT16, problem);
}

// Whether a kernel takes keys and values as they are stored.
bool takes_storage(const KernelInfo &kernel, const Problem &problem) {
    switch (kernel.storage) {
    case KeyStorage::kFloat32:
    case KeyStorage::kFloat32Matrices:
        return !problem.any_storage();
    case KeyStorage::kBfloat16:
    case KeyStorage::kBfloat16Matrices:
        return problem.all_bfloat16();
    case KeyStorage::kBfloat16Rows:
        return takes_rows_of_bfloat16(problem);
    case KeyStorage::kAny:
    case KeyStorage::kAnyMatrices:
        return true;
    case KeyStorage::kHalvesMatrices:
        return problem.has_two_terms();
    case KeyStorage::kInt8Lines:
    case KeyStorage::kInt4Lines:
    case KeyStorage::kInt8Matrices:
    case KeyStorage::kInt4Matrices:
        return takes_lines_of(type_of_all(kernel.storage), problem);
    default:
        return takes_all(type_of_all(kernel.storage), problem);
    }
}

std::string taken_storage(const KernelInfo &kernel) {
    const hattn_dtype all = type_of_all(kernel.storage);
    if (takes_lines(kernel.storage) || multiplies_byte_matrices(kernel.storage)) {
        return dtype_name(all) + " keys and values in heads of " +
               (fills_lines(all, 2 * kWholeLines) ? "multiples of " : "") + std::to_string(kWholeLines) + " elements";
    }
    if (all != HATTN_FLOAT32) {
        return dtype_name(all) + (kernel.storage == KeyStorage::kBfloat16Rows ? " queries, keys" : " keys") +
               " and values in heads of multiples of " + std::to_string(kWholeHead) + " elements, from " +
               std::to_string(shortest_head(all)) + " to " + std::to_string(longest_head(all));
    }
    if (kernel.storage == KeyStorage::kHalvesMatrices) {
        return "queries, keys and outputs of 16 bits and values of 16 or fewer";
    }
    return reads_float32(kernel.storage) ? "float32 keys and values" : "bfloat16 queries, keys and values";
}

// Kernels that take more of the problem for granted than those for its keys' type alone, or for any type.
std::vector<const KernelInfo *> closer_split_kv_kernels(const TargetInfo &target, const Problem &problem) {
    std::vector<KeyStorage> storages;
    for (KeyStorage storage : {KeyStorage::kInt8Lines, KeyStorage::kInt4Lines}) {
        if (takes_lines_of(type_of_all(storage), problem)) {
            storages.push_back(storage);
        }
    }
    if (takes_rows_of_bfloat16(problem)) {
        storages.push_back(KeyStorage::kBfloat16Rows);
    }
    if (problem.all_bfloat16()) {
        storages.push_back(KeyStorage::kBfloat16);
    }
    std::vector<const KernelInfo *> found;
    for (KeyStorage storage : storages) {
        std::ranges::copy(kernels_of_cpu(target, KernelKind::kSplitKv, storage, problem.hooks),
                          std::back_inserter(found));
    }
    return found;
}

// Those for the type of keys and values, if there are any, and for tiles of more rows those for any type; in place of
// each a closer one of as many rows.
std::vector<const KernelInfo *> split_kv_kernels(const TargetInfo &target, const Problem &problem, KeyStorage any) {
    const std::vector<const KernelInfo *> others = find_kernels(target, KernelKind::kSplitKv, any, problem.hooks);
    std::vector<const KernelInfo *> found;
    for (KeyStorage storage : kAllOfOneType) {
        if (takes_all(type_of_all(storage), problem)) {
            found = find_kernels(target, KernelKind::kSplitKv, storage, problem.hooks);
        }
    }
    const int rows = found.empty() ? 0 : found.back()->tile.rows;
    std::ranges::copy_if(others, std::back_inserter(found),
                         [&](const KernelInfo *kernel) { return kernel->tile.rows > rows; });
    const std::vector<const KernelInfo *> closer = closer_split_kv_kernels(target, problem);
    for (const KernelInfo *&kernel : found) {
        const auto of_rows =
            std::ranges::find(closer, kernel->tile.rows, [](const auto *other) { return other->tile.rows; });
        kernel = of_rows == closer.end() ? kernel : *of_rows;
    }
    return found;
}

// Those that multiply matrices, behind all that have half as many rows or fewer: more rows are several tiles.
std::vector<const KernelInfo *> matrix_split_kv_kernels(const TargetInfo &target, const Problem &problem,
                                                        const std::vector<const KernelInfo *> &usual) {
    for (KeyStorage storage : {KeyStorage::kInt8Matrices, KeyStorage::kInt4Matrices}) {
        const auto matrices = find_kernels(target, KernelKind::kSplitKv, storage, problem.hooks);
        if (matrices.empty() || !takes_storage(*matrices.front(), problem) ||
            !request_cpu_features(matrices.front()->cpu_features)) {
            continue;
        }
        std::vector<const KernelInfo *> found;
        std::ranges::copy_if(usual, std::back_inserter(found), [&](const KernelInfo *kernel) {
            return 2 * kernel->tile.rows <= matrices.front()->tile.rows;
        });
        found.insert(found.end(), matrices.begin(), matrices.end());
        return found;
    }
    return {};
}

// Where the CPU multiplies bfloat16 numbers, in matrices or else in pairs, and sums up in float32, in less time than it
// takes to multiply float32.
std::vector<const KernelInfo *> native_flash_kernels(const TargetInfo &target, const Problem &problem) {
    std::vector<KeyStorage> storages;
    if (problem.all_bfloat16()) {
        storages = {KeyStorage::kBfloat16Matrices, KeyStorage::kBfloat16};
    } else if (!problem.any_storage()) {
        storages = {KeyStorage::kFloat32Matrices};
    } else if (problem.v_dtype != HATTN_BFLOAT16) {  // whose subnormal numbers the instruction takes for zero
        storages = {problem.has_two_terms() ? KeyStorage::kHalvesMatrices : KeyStorage::kAnyMatrices};
    }
    for (KeyStorage storage : storages) {
        const auto found = kernels_of_cpu(target, KernelKind::kFlash, storage, problem.hooks);
        if (!found.empty() && request_cpu_features(found.front()->cpu_features)) {
            return found;
        }
    }
    return {};
}

// Takes those out of `flash` that multiply fewer rows at a time than another with as many keys.
std::vector<const KernelInfo *> take_last_flash(std::vector<const KernelInfo *> &flash) {
    const auto has_faster = [&](const KernelInfo *kernel) {
        return std::ranges::any_of(flash, [&](const KernelInfo *other) {
            return other->tile.keys == kernel->tile.keys && other->tile.row_vectors > kernel->tile.row_vectors;
        });
    };
    std::vector<const KernelInfo *> usual, last;
    for (const KernelInfo *kernel : flash) {
        (has_faster(kernel) ? last : usual).push_back(kernel);
    }
    flash = usual;
    return last;
}

void force_kernel(KernelSet &kernels, const KernelInfo *kernel, const Problem &problem) {
    for (auto *list : kernels.all()) {
        if (list->front()->kind == kernel->kind) {
            require(takes_storage(*kernel, problem), HATTN_INVALID_ARGUMENT, "HATTN_FORCE: kernel ", kernel->name,
                    " takes ", taken_storage(*kernel), ", but the problem has others");
            const uint32_t hooks = problem.hooks;
            const uint32_t wanted = kernel->kind == KernelKind::kUnfusedValues ? hooks_of_values(hooks) : hooks;
            require(serves(kernel->hooks, wanted), HATTN_INVALID_ARGUMENT, "HATTN_FORCE: kernel ", kernel->name,
                    " computes hooks ", hook_names(kernel->hooks), ", but the problem has ", hook_names(wanted));
            *list = {kernel};
        }
    }
    kernels.is_flash_forced = kernel->kind == KernelKind::kFlash;
    kernels.last_flash.clear();
    if (kernel->kind == KernelKind::kSplitKv) {
        kernels.matrix_split_kv.clear();
    }
    if (kernel->kind == KernelKind::kUnfusedScores || kernel->kind == KernelKind::kUnfusedValues) {
        for (auto *list : {&kernels.unfused_scores, &kernels.unfused_values}) {
            std::erase_if(*list, [&](const KernelInfo *other) { return other->tile.rows != kernel->tile.rows; });
            require(!list->empty(), HATTN_INVALID_ARGUMENT, "HATTN_FORCE: kernel ", kernel->name, " has tiles of ",
                    kernel->tile.rows, " rows, for which the library has no second kernel of unfused");
        }
    }
}

// Kernels of packs that fit the problem. The second kernel of unfused is the library's, so that tiles have to match.
void add_packed(KernelSet &kernels, const KernelPacks &packs, uint32_t hooks) {
    const auto has_storage = [&](const KernelInfo &kernel) {
        const auto is_alike = [&](const KernelInfo *own) {
            return own->kind == kernel.kind && own->storage == kernel.storage;
        };
        return std::ranges::any_of(kernels.plain_flash, is_alike) ||
               std::ranges::any_of(kernels.matrix_split_kv, is_alike) ||
               std::ranges::any_of(kernels.all(),
                                   [&](const auto *list) { return std::ranges::any_of(*list, is_alike); });
    };
    const auto has_second = [&](const KernelInfo &kernel) {
        return kernel.kind != KernelKind::kUnfusedScores ||
               std::any_of(kernels.unfused_values.begin(), kernels.unfused_values.end(),
                           [&](const KernelInfo *other) { return other->tile.rows == kernel.tile.rows; });
    };
    for (const auto &pack : packs.all()) {
        for (const KernelInfo &kernel : pack->kernels()) {
            if (std::string_view(kernel.target) == kernels.target->name && has_storage(kernel) &&
                serves(kernel.hooks, hooks) && has_second(kernel)) {
                kernels.packed.push_back(&kernel);
            }
        }
    }
}

}  // namespace

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

int64_t KernelSet::most_rows(hattn_algorithm wanted) const {
    int64_t rows = 0;
    for_each_of(wanted, [&](const KernelInfo &kernel) { rows = std::max<int64_t>(rows, kernel.tile.rows); });
    return rows;
}

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

KernelSet select_kernels(const Problem &problem, const TargetInfo &target, const Force &force,
                         const TuningDatabase &tuning, const KernelPacks &packs) {
    KernelSet kernels;
    kernels.target = &target;
    const KeyStorage any = problem.any_storage() ? KeyStorage::kAny : KeyStorage::kFloat32;
    kernels.naive = find_kernels(target, KernelKind::kNaive, any, problem.hooks);
    kernels.flash = kernels_of_cpu(target, KernelKind::kFlash, any, problem.hooks);
    kernels.last_flash = take_last_flash(kernels.flash);
    const std::vector<const KernelInfo *> plain_flash = kernels.flash;
    if (const auto native = native_flash_kernels(target, problem); !native.empty()) {
        kernels.flash = native;
    }
    kernels.split_kv = split_kv_kernels(target, problem, any);
    kernels.matrix_split_kv = matrix_split_kv_kernels(target, problem, kernels.split_kv);
    kernels.unfused_scores = find_kernels(target, KernelKind::kUnfusedScores, any, problem.hooks);
    kernels.unfused_values = find_kernels(target, KernelKind::kUnfusedValues, any, hooks_of_values(problem.hooks));
    for (const auto *list : kernels.all()) {
        require(!list->empty(), HATTN_INTERNAL_ERROR, "an algorithm has no kernel for ", target.name, " with hooks ",
                hook_names(problem.hooks));
    }
    kernels.merge = &only_kernel(target, KernelKind::kMerge);
    kernels.widen = &only_kernel(target, KernelKind::kWiden);
    kernels.narrow = &only_kernel(target, KernelKind::kNarrow);
    kernels.scores = score_kernel(target, KernelKind::kScores, any, hooks_of_scores(problem));
    kernels.probabilities = score_kernel(target, KernelKind::kProbabilities, any, problem.hooks);

    kernels.algorithm = problem.algorithm;
    kernels.why_algorithm = problem.algorithm == HATTN_ALGORITHM_AUTO ? "" : "algorithm asked for; ";
    if (force.algorithm != HATTN_ALGORITHM_AUTO) {
        kernels.algorithm = force.algorithm;
    }
    if (force.algorithm != HATTN_ALGORITHM_AUTO || force.target) {
        kernels.why_algorithm =
            "HATTN_FORCE=" + force.text + "; " + (force.algorithm == HATTN_ALGORITHM_AUTO ? kernels.why_algorithm : "");
    }
    if (force.kernel) {
        force_kernel(kernels, force.kernel, problem);
    }
    const auto keep_plain = [&](const std::vector<const KernelInfo *> &chosen_from) {
        if (std::ranges::any_of(chosen_from, [](const KernelInfo *kernel) { return leaves_not_finite(*kernel); })) {
            kernels.plain_flash = plain_flash;
        }
    };
    keep_plain(kernels.flash);
    if (!force.kernel) {
        kernels.from_memory = find_memory_kernels(target, problem);
        const TuningFamily family = family_of(problem, kernels.algorithm, &target);
        kernels.machine = tuning.machine.find(family);
        kernels.shipped = tuning.shipped().find(family);
        add_packed(kernels, packs, problem.hooks);
        keep_plain(kernels.packed);
    }
    kernels.reaches = reaches_of(kernels, problem);
    return kernels;
}

}  // namespace hattn

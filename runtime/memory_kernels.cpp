#include "memory_kernels.h"

#include <algorithm>
#include <cstdlib>
#include <span>
#include <string_view>

#include "cpu_features.h"
#include "machine_stamp.h"
#include "tensor.h"

namespace hattn {

namespace {

// What caches are taken to hold, wherever half of the last one is less. Two threads of Zen 4, with a third-level cache
// of 32 MiB that others use too, read from memory beyond so many bytes, those of a Xeon with one of 260 MiB beyond half
// of it: docs/decisions/0086 and 0099.
constexpr int64_t kCachedBytes = int64_t{20} << 20;

// What second-level caches are taken to hold of what is read by one call after the other: docs/decisions/0121.
constexpr int64_t kSecondLevelBytes = int64_t{2} << 20;

// Whether so many keys and values of each sequence of the batch are more bytes.
bool exceed(const Problem &problem, int64_t keys, int64_t bytes) {
    const int64_t bits =
        problem.key_dim * dtype_bits(problem.k_dtype) + problem.value_dim * dtype_bits(problem.v_dtype);
    const int64_t heads = std::max<int64_t>(problem.batch * problem.kv_heads, 1);
    return keys > 8 * bytes / std::max<int64_t>(bits, 1) / heads;
}

// Whether there is room for another row between those of two keys.
bool has_gaps(const hattn_tensor &side, int64_t elements) {
    return std::abs(side.stride[2]) >= 2 * elements;
}

}  // namespace

std::vector<const KernelInfo *> find_memory_kernels(const TargetInfo &target, const Problem &problem) {
    std::vector<const KernelInfo *> found;
    // Rings hold the last of any number of keys.
    // In this order: what the machine has is found out here, and not while a plan executes.
    if (!problem.ring && !lie_in_memory(problem, problem.kv_length) &&
        !are_worth_asking_for(problem, problem.kv_length)) {
        return found;
    }
    for (const KernelInfo &kernel : std::span(kernel_table().kernels, kernel_table().kernel_count)) {
        if (kernel.from_memory && kernel.hooks == problem.hooks && std::string_view(kernel.target) == target.name &&
            cpu_has_features(kernel.made_for) && cpu_has_features(kernel.cpu_features)) {
            found.push_back(&kernel);
        }
    }
    if (problem.ring && !found.empty()) {
        machine_stamp();  // found out here, not while a plan executes
    }
    return found;
}

bool lie_in_memory(const Problem &problem, int64_t keys) {
    // In this order: few problems have to know the machine, which is found out when it is first asked for.
    return exceed(problem, keys, kCachedBytes) && exceed(problem, keys, machine_stamp().l3_bytes / 2);
}

bool lie_apart(const Problem &problem, const hattn_attention_args &args) {
    const bool in_rows = problem.page_size == 0 && !problem.ring;
    return in_rows && has_gaps(args.k, problem.key_dim) && has_gaps(args.v, problem.value_dim);
}

bool are_worth_asking_for(const Problem &problem, int64_t keys) {
    static const bool is_measured = cpu_has_features("intel");
    return is_measured && exceed(problem, keys, kSecondLevelBytes);
}

const KernelInfo *in_place_of(const KernelInfo *kernel, const std::vector<const KernelInfo *> &from_memory) {
    const auto found = std::ranges::find_if(from_memory, [&](const KernelInfo *other) {
        return other->kind == kernel->kind && other->storage == kernel->storage && other->hooks == kernel->hooks &&
               other->tile == kernel->tile;
    });
    return found == from_memory.end() ? kernel : *found;
}

}  // namespace hattn

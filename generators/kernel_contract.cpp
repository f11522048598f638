#include "kernel_contract.h"

#include <sstream>

#include "kernel_spec.h"
#include "runtime/pack_file.h"

namespace hattn::generators {

namespace {

// Arguments by name, since order and meaning matter; outputs have places only.
void describe_family(std::ostream &text, const KernelFamily &family) {
    const schedules::Architecture &any = schedules::architectures().front();  // the contract is the same for all
    const schedules::TargetRow target = schedules::resolve_target(any, any.targets.front().name);
    const std::vector<KernelSpec> kernels = kernels_of(target, family);
    if (kernels.empty()) {
        return;  // such kernels take what those for any storage take
    }
    const KernelPipeline kernel = build_kernel(kernels.front(), target);
    text << family.name << "(user_context";
    for (const Halide::Argument &argument : kernel.arguments) {
        text << ", " << argument.name << " " << argument.type << " " << static_cast<int>(argument.dimensions);
    }
    text << ")";
    for (const Halide::Func &output : kernel.pipeline.outputs()) {
        for (const Halide::Type &type : output.types()) {
            text << " " << type << " " << output.dimensions();
        }
    }
    text << "\n";
}

}  // namespace

uint64_t kernel_contract() {
    std::ostringstream text;
    text << "granules of " << kGranuleKeys << " keys\n"
         << "tile {rows, keys, row_vectors, key_unroll, value_unroll}\n"
         << "user context {allocate(user_context, bytes), free(user_context, memory), ...}\n";
    for (const ScoreHook &hook : score_hooks()) {
        text << "hook " << hook.name << " " << hook.bit << " " << hook.can_hide_keys << "\n";
    }
    for_each_family([&](const KernelFamily &family) { describe_family(text, family); });
    return hash_bytes(text.str());
}

}  // namespace hattn::generators

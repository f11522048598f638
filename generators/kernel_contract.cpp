#include "kernel_contract.h"

#include <sstream>

#include "kernel_spec.h"
#include "runtime/pack_file.h"

namespace hattn::generators {

namespace {

// Arguments by name, since order and meaning matter; outputs have places only.
void describe_kind(std::ostream &text, KernelKind kind) {
    const schedules::TargetRow target = schedules::resolve_target(schedules::targets().front().name);
    const KernelPipeline kernel = build_kernel(kernels_of(target, kind).front(), target);
    text << kind_name(kind) << "(user_context";
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
    for_each_kind([&](KernelKind kind) { describe_kind(text, kind); });
    return hash_bytes(text.str());
}

}  // namespace hattn::generators

#include "kernel_contract.h"

#include <set>
#include <sstream>

#include "device_kernels.h"
#include "device_launch.h"
#include "kernel_spec.h"
#include "runtime/device/device_code.h"
#include "runtime/device/loaded_code.h"
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

std::string describe_arguments(const DeviceKernelSpec &spec, const DeviceTarget &target) {
    std::ostringstream text;
    text << kind_name(spec.kind) << "(user_context";
    for (const Halide::Argument &argument : build_kernel(spec, target).arguments) {
        text << ", " << argument.name << " " << argument.type << " " << static_cast<int>(argument.dimensions);
    }
    text << ")\n";
    return text.str();
}

// Every list of arguments that there is, whatever kernels tell it by, and which columns of a table they come from.
void describe_device_kernels(std::ostream &text) {
    std::set<std::string> lists;
    for_each_device_kernel([&](const DeviceKernelSpec &spec, const DeviceTarget &target) {
        if (spec.hooks == 0) {
            lists.insert(describe_arguments(spec, target));
        }
    });
    for (const std::string &list : lists) {
        text << "device " << list;
    }
    const schedules::gpu::UnitColumns columns = attention_columns(AttentionInputs::of_any_type(), "output");
    text << "packed units of " << columns.count << " columns";
    for (const auto &[name, column] : columns.values) {
        text << ", " << name << " " << column;
    }
    for (const auto &[name, column] : columns.offsets) {
        text << ", " << name << " " << column;
    }
    for (const std::string &name : columns.optional) {
        text << ", " << name << " or none";
    }
    const TensorTypes types;
    text << "\ndevice tile {rows, keys, head, slices, thread_rows, warpgroups}\n"
         << "device user context {copy_to_device, initialize_kernels, finalize_kernels, run, ...}\n"
         << "code of " << sizeof(PackedCodeHeader) << " bytes and zlib's, after " << loaded_code::definitions(types);
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
    describe_device_kernels(text);
    return hash_bytes(text.str());
}

}  // namespace hattn::generators

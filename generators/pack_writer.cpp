#include "pack_writer.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "device_objects.h"
#include "files.h"
#include "hattn/hattn.h"
#include "kernel_contract.h"
#include "kernel_object.h"
#include "runtime/pack_file.h"
#include "strict_reporter.h"
#include "tool.h"

namespace hattn::generators {

namespace {

namespace fs = std::filesystem;
using Halide::Target;
using nlohmann::ordered_json;

// What the functions do that kernels call of Halide's runtime: jump to those that their user context starts with, see
// ScratchFunctions of the CPU's kernels and LaunchFunctions of those of devices. The interface of a device goes to such
// a function alone, which knows it.
struct Jump {
    Target::Arch arch;
    const char *symbol, *instructions;
};
constexpr Jump kJumps[] = {
    {Target::X86, "halide_malloc", "jmp *(%rdi)"},
    {Target::X86, "halide_free", "jmp *8(%rdi)"},
    {Target::X86, "halide_copy_to_device", "jmp *(%rdi)"},
    {Target::X86, "halide_cuda_initialize_kernels", "jmp *8(%rdi)"},
    {Target::X86, "halide_cuda_finalize_kernels", "jmp *16(%rdi)"},
    {Target::X86, "halide_cuda_run", "jmp *24(%rdi)"},
    {Target::X86, "halide_cuda_device_interface", "xor %eax, %eax; ret"},
    {Target::X86, "halide_opencl_initialize_kernels", "jmp *8(%rdi)"},
    {Target::X86, "halide_opencl_finalize_kernels", "jmp *16(%rdi)"},
    {Target::X86, "halide_opencl_run", "jmp *24(%rdi)"},
    {Target::X86, "halide_opencl_device_interface", "xor %eax, %eax; ret"},
    {Target::ARM, "halide_malloc", "ldr x16, [x0]; br x16"},
    {Target::ARM, "halide_free", "ldr x16, [x0, #8]; br x16"},
};

std::string assembly(Target::Arch arch, uint64_t id) {
    std::ostringstream text;
    text << ".text\n";
    bool found = false;
    for (const Jump &jump : kJumps) {
        if (jump.arch == arch) {
            text << ".globl " << jump.symbol << "\n.type " << jump.symbol << ", %function\n"
                 << jump.symbol << ": " << jump.instructions << "\n";
            found = true;
        }
    }
    if (!found) {
        throw std::runtime_error("packs are not supported for this architecture");
    }
    text << ".section .rodata\n.balign 8\n.globl " << kPackIdSymbol << "\n.type " << kPackIdSymbol << ", %object\n"
         << kPackIdSymbol << ": .quad 0x" << hash_text(id) << "\n.size " << kPackIdSymbol << ", 8\n"
         << ".section .note.GNU-stack, \"\", %progbits\n";
    return text.str();
}

// Only what the library looks up is exported, so that equal names elsewhere in the process are not in the way.
std::string version_script() {
    std::string script("{ global: ");
    script += kPackIdSymbol;
    script += "; hattnkernel_*_argv; local: *; };\n";
    return script;
}

ordered_json hooks_json(HookMask hooks) {
    ordered_json names = ordered_json::array();
    for (const ScoreHook &hook : score_hooks()) {
        if (hooks & hook.bit) {
            names.push_back(hook.name);
        }
    }
    return names;
}

ordered_json describe(const NamedKernel &kernel) {
    const schedules::Tile &tile = kernel.spec.tile;
    return {{"name", kernel.spec.name(kernel.target.name)},
            {"target", kernel.target.instructions_of()},
            {"kind", kind_name(kernel.spec.kind)},
            {"storage", kStorageNames[static_cast<size_t>(kernel.spec.storage)]},
            {"needs", further_cpu_features(kernel.spec, kernel.target)},
            {"hooks", hooks_json(kernel.spec.hooks)},
            {"tile", {tile.rows, tile.keys, tile.row_vectors, tile.key_unroll, tile.value_unroll}},
            {"symbol", kernel.spec.symbol(kernel.target.name) + "_argv"}};
}

ordered_json describe(const NamedDeviceKernel &kernel, const LaunchNeeds &needs) {
    const schedules::gpu::Tile &tile = kernel.spec.tile;
    return {{"name", kernel.spec.name(kernel.target.name)},
            {"device", kernel.target.name},
            {"kind", kind_name(kernel.spec.kind)},
            {"hooks", hooks_json(kernel.spec.hooks)},
            {"tile", {tile.rows, tile.keys, tile.head, tile.slices, tile.thread_rows, tile.warpgroups ? 1 : 0}},
            {"matrix_type", static_cast<int>(kernel.spec.matrix_type)},
            {"any_float", kernel.spec.any_float()},
            {"shared_bytes", needs.shared_bytes},
            {"symbol", kernel.spec.symbol(kernel.target.name) + "_argv"}};
}

// Objects, and the rows that say what is in them.
struct Compiled {
    std::vector<std::string> objects;
    ordered_json of_cpu = ordered_json::array(), of_devices = ordered_json::array();
};

std::string text_of(const Compiled &compiled, uint64_t id) {
    const std::string version = std::to_string(HATTN_VERSION_MAJOR) + "." + std::to_string(HATTN_VERSION_MINOR) + "." +
                                std::to_string(HATTN_VERSION_PATCH);
    const ordered_json text = {{"library", version},
                               {"contract", hash_text(kernel_contract())},
                               {"id", hash_text(id)},
                               {"kernels", compiled.of_cpu},
                               {"device_kernels", compiled.of_devices}};
    return text.dump();
}

// Whether it did not throw, nor Halide warn.
template<typename Compile>
bool compiles(const std::string &name, const LeaveOut &leave_out, Compile compile) {
    std::string why;
    try {
        compile();
    } catch (const std::exception &error) {
        why = error.what();
    }
    const std::string warning = take_warning();
    why = why.empty() ? warning : why;
    if (!why.empty()) {
        leave_out(name, why);
    }
    return why.empty();
}

// An object each, by which progress is seen from outside.
void compile_for_cpu(const std::vector<NamedKernel> &kernels, const fs::path &folder, const LeaveOut &leave_out,
                     Compiled &compiled) {
    for (const NamedKernel &kernel : kernels) {
        const std::string name = kernel.spec.name(kernel.target.name), object = folder / (name + ".o");
        auto compile = [&] {
            KernelObject of_kernel;
            of_kernel.add(kernel.spec, kernel.target);
            of_kernel.write(name, object);
        };
        if (compiles(name, leave_out, compile)) {
            compiled.objects.push_back(object);
            compiled.of_cpu.push_back(describe(kernel));
        }
    }
}

// Likewise.
void compile_for_devices(const std::vector<NamedDeviceKernel> &kernels, const fs::path &folder,
                         const LeaveOut &leave_out, Compiled &compiled) {
    for (const NamedDeviceKernel &kernel : kernels) {
        const std::string name = kernel.spec.name(kernel.target.name), object = folder / (name + ".o");
        LaunchNeeds needs;
        if (compiles(name, leave_out, [&] { needs = write_device_object(kernel.spec, kernel.target, object); })) {
            compiled.objects.push_back(object);
            compiled.of_devices.push_back(describe(kernel, needs));
        }
    }
}

}  // namespace

void write_pack(const PackedKernels &kernels, const std::string &path, const LeaveOut &leave_out) {
    const TemporaryFolder folder;
    Compiled compiled;
    compile_for_cpu(kernels.of_cpu, folder.path(), leave_out, compiled);
    compile_for_devices(kernels.of_devices, folder.path(), leave_out, compiled);
    if (compiled.objects.empty()) {
        throw std::runtime_error("no kernel is left to be packed");
    }
    uint64_t id = hash_bytes("");
    for (const std::string &object : compiled.objects) {
        id = hash_bytes(read_file(object), id);
    }
    const char *instructions = kernels.of_cpu.empty() ? kernels.of_devices.front().target.halide_target
                                                      : kernels.of_cpu.front().target.halide_target;
    const std::string script = folder.path() / "exports.map", source = folder.path() / "jumps.s",
                      jumps = folder.path() / "jumps.o", library = folder.path() / "pack.so";
    write_file(script, version_script());
    write_file(source, assembly(Target(instructions).arch, id));
    run_tool("HATTN_AS", "as", {source, "-o", jumps});
    std::vector<std::string> arguments = {"-shared",          "-z",   "noexecstack", "-z",    "now",
                                          "--version-script", script, "-o",          library, jumps};
    arguments.insert(arguments.end(), compiled.objects.begin(), compiled.objects.end());
    run_tool("HATTN_LD", "ld", arguments);

    const std::string part = path + ".part";
    write_file(part, pack_file(read_file(library), text_of(compiled, id)));
    fs::rename(part, path);
}

}  // namespace hattn::generators

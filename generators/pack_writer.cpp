#include "pack_writer.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "hattn/hattn.h"
#include "kernel_contract.h"
#include "runtime/pack_file.h"
#include "tool.h"

namespace hattn::generators {

namespace {

namespace fs = std::filesystem;
using Halide::Target;
using nlohmann::ordered_json;

std::string read_file(const fs::path &path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream content;
    content << file.rdbuf();
    if (!file || !content) {
        throw std::runtime_error("cannot read " + path.string());
    }
    return content.str();
}

void write_file(const fs::path &path, const std::string &content) {
    std::ofstream file(path, std::ios::binary);
    file.write(content.data(), static_cast<std::streamsize>(content.size()));
    if (!file.flush()) {
        throw std::runtime_error("cannot write " + path.string());
    }
}

// What the two functions that kernels call for scratch memory do: jump to those their user context starts with, see
// ScratchFunctions.
struct Jumps {
    Target::Arch arch;
    const char *allocate, *free;
};
constexpr Jumps kJumps[] = {
    {Target::X86, "jmp *(%rdi)", "jmp *8(%rdi)"},
    {Target::ARM, "ldr x16, [x0]; br x16", "ldr x16, [x0, #8]; br x16"},
};

std::string assembly(Target::Arch arch, uint64_t id) {
    for (const Jumps &jumps : kJumps) {
        if (jumps.arch == arch) {
            std::ostringstream text;
            text << ".text\n"
                 << ".globl halide_malloc\n.type halide_malloc, %function\nhalide_malloc: " << jumps.allocate << "\n"
                 << ".globl halide_free\n.type halide_free, %function\nhalide_free: " << jumps.free << "\n"
                 << ".section .rodata\n.balign 8\n.globl " << kPackIdSymbol << "\n.type " << kPackIdSymbol
                 << ", %object\n"
                 << kPackIdSymbol << ": .quad 0x" << hash_text(id) << "\n.size " << kPackIdSymbol << ", 8\n"
                 << ".section .note.GNU-stack, \"\", %progbits\n";
            return text.str();
        }
    }
    throw std::runtime_error("packs are not supported for this architecture");
}

// Only what the library looks up is exported, so that equal names elsewhere in the process are not in the way.
std::string version_script() {
    std::string script("{ global: ");
    script += kPackIdSymbol;
    script += "; hattnkernel_*_argv; local: *; };\n";
    return script;
}

std::string describe(const std::vector<NamedKernel> &kernels, uint64_t id) {
    ordered_json rows = ordered_json::array();
    for (const NamedKernel &kernel : kernels) {
        const schedules::Tile &tile = kernel.spec.tile;
        ordered_json hooks = ordered_json::array();
        for (const ScoreHook &hook : score_hooks()) {
            if (kernel.spec.hooks & hook.bit) {
                hooks.push_back(hook.name);
            }
        }
        const bool untested = is_untested(kernel.spec) && kernel.target.stand_in.empty();
        rows.push_back({{"name", kernel.spec.name(kernel.target.name)},
                        {"target", kernel.target.instructions_of()},
                        {"kind", kind_name(kernel.spec.kind)},
                        {"storage", kStorageNames[static_cast<size_t>(kernel.spec.storage)]},
                        {"needs", further_cpu_features(kernel.spec, kernel.target)},
                        {"untested", untested},
                        {"hooks", hooks},
                        {"tile", {tile.rows, tile.keys, tile.row_vectors, tile.key_unroll, tile.value_unroll}},
                        {"symbol", kernel.spec.symbol(kernel.target.name) + "_argv"}});
    }
    const std::string version = std::to_string(HATTN_VERSION_MAJOR) + "." + std::to_string(HATTN_VERSION_MINOR) + "." +
                                std::to_string(HATTN_VERSION_PATCH);
    const ordered_json text = {
        {"library", version}, {"contract", hash_text(kernel_contract())}, {"id", hash_text(id)}, {"kernels", rows}};
    return text.dump();
}

// One object per set of instructions; returns their paths.
std::vector<std::string> compile_objects(const std::vector<NamedKernel> &kernels, const fs::path &folder) {
    std::map<std::string, std::vector<Halide::Module>> modules;
    for (const NamedKernel &kernel : kernels) {
        modules[halide_target(kernel.spec, kernel.target)].push_back(compile_kernel(kernel.spec, kernel.target));
    }
    std::vector<std::string> paths;
    for (const auto &[target, of_target] : modules) {
        paths.push_back(folder / ("kernels_" + std::to_string(paths.size()) + ".o"));
        Halide::link_modules("pack", of_target).compile({{Halide::OutputFileType::object, paths.back()}});
    }
    return paths;
}

}  // namespace

void write_pack(const std::vector<NamedKernel> &kernels, const std::string &path) {
    const TemporaryFolder folder;
    std::vector<std::string> objects = compile_objects(kernels, folder.path());
    uint64_t id = hash_bytes("");
    for (const std::string &object : objects) {
        id = hash_bytes(read_file(object), id);
    }
    const std::string script = folder.path() / "exports.map", source = folder.path() / "jumps.s",
                      jumps = folder.path() / "jumps.o", library = folder.path() / "pack.so";
    write_file(script, version_script());
    write_file(source, assembly(Target(kernels.front().target.halide_target).arch, id));
    run_tool("HATTN_AS", "as", {source, "-o", jumps});
    std::vector<std::string> arguments = {"-shared",          "-z",   "noexecstack", "-z",    "now",
                                          "--version-script", script, "-o",          library, jumps};
    arguments.insert(arguments.end(), objects.begin(), objects.end());
    run_tool("HATTN_LD", "ld", arguments);

    const std::string part = path + ".part";
    write_file(part, pack_file(read_file(library), describe(kernels, id)));
    fs::rename(part, path);
}

}  // namespace hattn::generators

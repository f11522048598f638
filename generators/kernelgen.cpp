// hattn-kernelgen: compiles the kernels ahead of time. The build calls it; see usage() for what it does.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>
#include <stdexcept>

#include "candidates.h"
#include "kernel_spec.h"
#include "kernel_table_writer.h"
#include "pack_writer.h"
#include "runtime/cpu_features.h"

namespace hattn::generators {

namespace {

using namespace Halide;
using schedules::resolve_stand_in;
using schedules::resolve_target;
using schedules::TargetRow;

std::string widest_runnable_target() {
    std::string widest;
    for (const TargetRow &row : schedules::targets()) {
        if (cpu_has_features(row.cpu_features)) {
            widest = row.name;
        }
    }
    if (widest.empty()) {
        throw std::runtime_error("this CPU runs none of the targets");
    }
    return widest;
}

KernelKind kind_of(const std::string &name) {
    KernelKind kind;
    if (!parse_kind(name, &kind)) {
        throw std::invalid_argument("unknown kernel kind '" + name + "'");
    }
    return kind;
}

// All kernels of one kind for one target, as one object file.
void write_object(const std::string &target_name, const std::string &kind, const std::string &path) {
    const TargetRow target = resolve_target(target_name);
    std::vector<Module> modules;
    for (const KernelSpec &spec : kernels_of(target, kind_of(kind))) {
        modules.push_back(compile_kernel(spec, target));
    }
    link_modules(kind + "_" + target_name, modules).compile({{OutputFileType::object, path}});
}

// Assembly and lowered statement of one kernel, for reading and for the code generation tests.
void emit_kernel(const std::string &name, const std::string &directory) {
    const NamedKernel kernel = kernel_named(name);
    compile_kernel(kernel.spec, kernel.target)
        .compile({{OutputFileType::assembly, directory + "/" + name + ".s"},
                  {OutputFileType::stmt, directory + "/" + name + ".stmt"}});
}

// Words that start with @ name files that hold more of them.
std::vector<std::string> read_names(const std::vector<std::string> &words) {
    std::vector<std::string> names;
    for (const std::string &word : words) {
        if (!word.starts_with('@')) {
            names.push_back(word);
            continue;
        }
        std::ifstream file(word.substr(1));
        if (!file) {
            throw std::runtime_error("cannot read " + word.substr(1));
        }
        names.insert(names.end(), std::istream_iterator<std::string>(file), {});
    }
    return names;
}

void pack_kernels(const std::string &path, const std::vector<std::string> &words) {
    std::vector<NamedKernel> kernels;
    std::set<std::string> names;
    for (const std::string &name : read_names(words)) {
        if (!names.insert(name).second) {
            throw std::invalid_argument("kernel '" + name + "' is named twice");
        }
        kernels.push_back(kernel_named(name));
    }
    if (kernels.empty()) {
        throw std::invalid_argument("a pack of no kernels");
    }
    write_pack(kernels, path);
}

void write_runtime(const std::string &path) {
    compile_standalone_runtime(path, Target("x86-64-linux"));
}

void write_table(const std::string &path) {
    std::ofstream out(path);
    write_kernel_table(out);
    if (!out.flush()) {
        throw std::runtime_error("cannot write " + path);
    }
}

// Names, of kernels without hooks.
void list_candidates(const std::string &target_name, const std::string &kind) {
    const TargetRow target = resolve_target(target_name);
    for (const schedules::Tile &tile : candidates(target, kind_of(kind))) {
        std::cout << KernelSpec{kind_of(kind), 0, tile}.name(target.name) << "\n";
    }
}

// What the tests verify beside the library's own kernels: all candidates without hooks, and one with all of them. If
// this CPU cannot run the target, kernels that stand in for them on the widest target it can.
void pack_candidates(const std::string &path, const std::string &target_name, const std::string &kind) {
    TargetRow target = resolve_target(target_name);
    HookMask all_hooks = 0;
    for (const KernelSpec &spec : kernels_of(target, kind_of(kind))) {
        all_hooks |= spec.hooks;
    }
    std::vector<schedules::Tile> tiles = candidates(target, kind_of(kind));
    if (!cpu_has_features(target.cpu_features)) {
        target = resolve_stand_in(target_name, widest_runnable_target());
    } else {
        std::erase_if(tiles, [own = tiles_of(target, kind_of(kind))](const schedules::Tile &tile) {
            return std::ranges::find(own, tile) != own.end();
        });
    }
    std::vector<NamedKernel> kernels;
    for (size_t i = 0; i < tiles.size(); ++i) {
        kernels.push_back({{kind_of(kind), 0, tiles[i]}, target});
        if (i == tiles.size() / 2) {
            kernels.push_back({{kind_of(kind), all_hooks, tiles[i]}, target});
        }
    }
    write_pack(kernels, path);
}

void list_kernels() {
    for_each_kernel(
        [](const KernelSpec &spec, const TargetRow &target) { std::cout << spec.name(target.name) << "\n"; });
}

// Halide's warnings point at schedules that do not do what they say, so here they are errors: reported together at the
// end.
class StrictReporter : public CompileTimeErrorReporter {
public:
    std::set<std::string> warnings;

    void warning(const char *message) override {
        warnings.insert(message);
    }
    [[noreturn]] void error(const char *message) override {
        throw std::runtime_error(message);
    }
};

int usage() {
    std::cerr << R"(usage: hattn-kernelgen object TARGET KIND FILE.o   compile the kernels of a kind for a target
       hattn-kernelgen table FILE.cpp            write the table of all kernels
       hattn-kernelgen runtime FILE.o            write Halide's runtime (thread pool)
       hattn-kernelgen emit KERNEL DIRECTORY     write assembly and lowered statement of one kernel
       hattn-kernelgen list                      print every kernel's name
       hattn-kernelgen candidates TARGET KIND    print the names of the kernels a tuner may choose from
       hattn-kernelgen pack FILE.so KERNEL...    compile kernels, by name, for loading at run time; @FILE: those named
                                                 in a file. Needs as and ld of binutils, or $HATTN_AS and $HATTN_LD
       hattn-kernelgen pack-candidates FILE.so TARGET KIND
                                                 the pack that verifies a tuner's kernels on this CPU, if need be with
                                                 the instructions of another target
)";
    return 2;
}

int run_command(int argc, char **argv) {
    const std::string command = argc > 1 ? argv[1] : "";
    if (command == "object" && argc == 5) {
        write_object(argv[2], argv[3], argv[4]);
    } else if (command == "table" && argc == 3) {
        write_table(argv[2]);
    } else if (command == "runtime" && argc == 3) {
        write_runtime(argv[2]);
    } else if (command == "emit" && argc == 4) {
        emit_kernel(argv[2], argv[3]);
    } else if (command == "pack" && argc >= 4) {
        pack_kernels(argv[2], {argv + 3, argv + argc});
    } else if (command == "candidates" && argc == 4) {
        list_candidates(argv[2], argv[3]);
    } else if (command == "pack-candidates" && argc == 5) {
        pack_candidates(argv[2], argv[3], argv[4]);
    } else if (command == "list" && argc == 2) {
        list_kernels();
    } else {
        return usage();
    }
    return 0;
}

int run(int argc, char **argv) {
    static StrictReporter reporter;
    set_custom_compile_time_error_reporter(&reporter);
    const int status = run_command(argc, argv);
    if (!reporter.warnings.empty()) {
        throw std::runtime_error(*reporter.warnings.begin());
    }
    return status;
}

}  // namespace

}  // namespace hattn::generators

int main(int argc, char **argv) {
    try {
        return hattn::generators::run(argc, argv);
    } catch (const std::exception &error) {
        std::cerr << "hattn-kernelgen: " << error.what() << "\n";
        return 1;
    }
}

// hattn-kernelgen: compiles the kernels ahead of time. The build calls it; see usage() for what it does.
#include <fstream>
#include <iostream>
#include <set>
#include <stdexcept>

#include "kernel_spec.h"
#include "kernel_table_writer.h"

namespace hattn::generators {

namespace {

using namespace Halide;
using schedules::Architecture;
using schedules::resolve_target;
using schedules::TargetRow;

KernelKind kind_of(const std::string &name) {
    KernelKind kind;
    if (!parse_kind(name, &kind)) {
        throw std::invalid_argument("unknown kernel kind '" + name + "'");
    }
    return kind;
}

Module compile(const KernelSpec &spec, const TargetRow &target) {
    KernelPipeline kernel = build_kernel(spec, target);
    return kernel.pipeline.compile_to_module(kernel.arguments, spec.symbol(target.name), Target(target.halide_target));
}

// All kernels of one kind for one target, as one object file.
void write_object(const Architecture &architecture, const std::string &target_name, const std::string &kind,
                  const std::string &path) {
    const TargetRow target = resolve_target(architecture, target_name);
    std::vector<Module> modules;
    for (const KernelSpec &spec : kernels_of(target, kind_of(kind))) {
        modules.push_back(compile(spec, target));
    }
    link_modules(kind + "_" + target_name, modules).compile({{OutputFileType::object, path}});
}

// Assembly and lowered statement of one kernel, for reading and for the code generation tests.
void emit_kernel(const Architecture &architecture, const std::string &name, const std::string &directory) {
    bool found = false;
    for_each_kernel(architecture, [&](const KernelSpec &spec, const TargetRow &target) {
        if (spec.name(target.name) == name) {
            compile(spec, target)
                .compile({{OutputFileType::assembly, directory + "/" + name + ".s"},
                          {OutputFileType::stmt, directory + "/" + name + ".stmt"}});
            found = true;
        }
    });
    if (!found) {
        throw std::invalid_argument("unknown kernel '" + name + "'");
    }
}

void write_runtime(const Architecture &architecture, const std::string &path) {
    compile_standalone_runtime(path, Target(architecture.halide_system));
}

void write_table(const Architecture &architecture, const std::string &path) {
    std::ofstream out(path);
    write_kernel_table(architecture, out);
    if (!out.flush()) {
        throw std::runtime_error("cannot write " + path);
    }
}

void list_kernels(const Architecture &architecture) {
    for_each_kernel(architecture, [](const KernelSpec &spec, const TargetRow &target) {
        std::cout << spec.name(target.name) << "\n";
    });
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
    std::cerr << "usage: hattn-kernelgen [--architecture NAME] COMMAND\n"
                 "The architecture is x86-64 or aarch64, by default that of this machine. Commands:\n"
                 "  object TARGET KIND FILE.o   compile the kernels of a kind for a target\n"
                 "  table FILE.cpp              write the table of all kernels\n"
                 "  runtime FILE.o              write Halide's runtime (thread pool)\n"
                 "  emit KERNEL DIRECTORY       write assembly and lowered statement of one kernel\n"
                 "  list                        print every kernel's name\n";
    return 2;
}

int run_command(const Architecture &architecture, const std::vector<std::string> &words) {
    const std::string command = words.empty() ? "" : words[0];
    if (command == "object" && words.size() == 4) {
        write_object(architecture, words[1], words[2], words[3]);
    } else if (command == "table" && words.size() == 2) {
        write_table(architecture, words[1]);
    } else if (command == "runtime" && words.size() == 2) {
        write_runtime(architecture, words[1]);
    } else if (command == "emit" && words.size() == 3) {
        emit_kernel(architecture, words[1], words[2]);
    } else if (command == "list" && words.size() == 1) {
        list_kernels(architecture);
    } else {
        return usage();
    }
    return 0;
}

int run(std::vector<std::string> words) {
    static StrictReporter reporter;
    set_custom_compile_time_error_reporter(&reporter);
    const bool named = words.size() > 1 && words[0] == "--architecture";
    const Architecture &architecture = named ? schedules::find_architecture(words[1]) : schedules::host_architecture();
    words.erase(words.begin(), words.begin() + (named ? 2 : 0));
    const int status = run_command(architecture, words);
    if (!reporter.warnings.empty()) {
        throw std::runtime_error(*reporter.warnings.begin());
    }
    return status;
}

}  // namespace

}  // namespace hattn::generators

int main(int argc, char **argv) {
    try {
        return hattn::generators::run({argv + 1, argv + argc});
    } catch (const std::exception &error) {
        std::cerr << "hattn-kernelgen: " << error.what() << "\n";
        return 1;
    }
}

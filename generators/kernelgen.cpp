// hattn-kernelgen: compiles the kernels ahead of time. The build calls it; see usage() for what it does.
#include <fstream>
#include <iostream>
#include <set>
#include <stdexcept>

#include "device_kernels.h"
#include "kernel_spec.h"
#include "kernel_table_writer.h"

namespace hattn::generators {

namespace {

using namespace Halide;
using schedules::resolve_target;
using schedules::TargetRow;

KernelKind kind_of(const std::string &name) {
    KernelKind kind;
    if (!parse_kind(name, &kind)) {
        throw std::invalid_argument("unknown kernel kind '" + name + "'");
    }
    return kind;
}

template<typename Spec, typename Row>
Module compile(const Spec &spec, const Row &target) {
    KernelPipeline kernel = build_kernel(spec, target);
    return kernel.pipeline.compile_to_module(kernel.arguments, spec.symbol(target.name), Target(target.halide_target));
}

// All kernels of one kind for one target, as one object file.
void write_object(const std::string &target_name, const std::string &kind, const std::string &path) {
    const TargetRow target = resolve_target(target_name);
    std::vector<Module> modules;
    for (const KernelSpec &spec : kernels_of(target, kind_of(kind))) {
        modules.push_back(compile(spec, target));
    }
    link_modules(kind + "_" + target_name, modules).compile({{OutputFileType::object, path}});
}

// Assembly and lowered statement of one kernel, for reading and for the code generation tests.
void emit_kernel(const std::string &name, const std::string &directory) {
    bool found = false;
    for_each_kernel([&](const KernelSpec &spec, const TargetRow &target) {
        if (spec.name(target.name) == name) {
            compile(spec, target)
                .compile({{OutputFileType::assembly, directory + "/" + name + ".s"},
                          {OutputFileType::stmt, directory + "/" + name + ".stmt"}});
            found = true;
        }
    });
    for_each_device_kernel([&](const DeviceKernelSpec &spec, const DeviceTarget &target) {
        if (spec.name(target.name) == name) {
            compile(spec, target)
                .compile({{OutputFileType::device_code, directory + "/" + name},
                          {OutputFileType::stmt, directory + "/" + name + ".stmt"}});
            found = true;
        }
    });
    if (!found) {
        throw std::invalid_argument("unknown kernel '" + name + "'");
    }
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

void list_kernels() {
    const auto print = [](const auto &spec, const auto &target) { std::cout << spec.name(target.name) << "\n"; };
    for_each_kernel(print);
    for_each_device_kernel(print);
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
    std::cerr << "usage: hattn-kernelgen object TARGET KIND FILE.o   compile the kernels of a kind for a target\n"
                 "       hattn-kernelgen table FILE.cpp            write the table of all kernels\n"
                 "       hattn-kernelgen runtime FILE.o            write Halide's runtime (thread pool)\n"
                 "       hattn-kernelgen emit KERNEL DIRECTORY     write assembly and lowered statement of one kernel\n"
                 "       hattn-kernelgen list                      print every kernel's name\n";
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

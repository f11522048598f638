// hattn-kernelgen: compiles the kernels ahead of time. The build calls it; see usage() for what it does.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <stdexcept>

#include "device_kernels.h"
#include "device_table_writer.h"
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

// What a launch asks for, of a module's one kernel.
struct LaunchShape : Internal::IRVisitor {
    int64_t threads = 1, shared_bytes = 0;

    using IRVisitor::visit;
    void visit(const Internal::Call *call) override {
        // (state, name, blocks x y z, threads x y z, bytes of shared memory, ...)
        if (Internal::ends_with(call->name, "_run")) {
            for (int i : {5, 6, 7}) {
                threads *= *Internal::as_const_int(Internal::simplify(call->args[i]));
            }
            shared_bytes = *Internal::as_const_int(Internal::simplify(call->args[8]));
        }
        IRVisitor::visit(call);
    }
};

// All kernels of a kind for a device, each as an object of its own, since Halide gives the device code of every kernel
// the same name; a response file that names them, for a linker; and what their launches ask for, for tests.
void write_device_objects(const std::string &target_name, const std::string &kind, const std::string &directory) {
    const DeviceTarget &target = schedules::gpu::find_device_target(target_name);
    std::filesystem::create_directories(directory);
    std::ofstream list(directory + "/objects.rsp"), launches(directory + "/launches.txt");
    for (const DeviceKernelSpec &spec : kernels_of(target, kind_of(kind))) {
        const std::string name = spec.name(target.name), path = directory + "/" + name + ".o";
        Module module = compile(spec, target);
        LaunchShape shape;
        module.functions().front().body.accept(&shape);
        module.compile({{OutputFileType::object, path}});
        list << path << "\n";
        launches << name << " " << shape.threads << " " << shape.shared_bytes << "\n";
    }
    if (!list.flush() || !launches.flush()) {
        throw std::runtime_error("cannot write to " + directory);
    }
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

// Halide's runtime, for the CPU and for some devices.
void write_runtime(const std::string &path, const std::vector<std::string> &devices) {
    std::string target = "x86-64-linux";
    for (const std::string &device : devices) {
        target += "-" + device;
    }
    compile_standalone_runtime(path, Target(target));
}

template<typename Write>
void write_source(const std::string &path, Write write) {
    std::ofstream out(path);
    write(out);
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
    std::cerr
        << "usage: hattn-kernelgen object TARGET KIND FILE.o          compile the kernels of a kind for a target\n"
           "       hattn-kernelgen device-objects DEVICE KIND FOLDER    the same for a device, an object each\n"
           "       hattn-kernelgen table FILE.cpp                   write the table of all kernels\n"
           "       hattn-kernelgen device-table FILE.cpp DEVICE...  write the table of the devices' kernels\n"
           "       hattn-kernelgen runtime FILE.o DEVICE...         write Halide's runtime\n"
           "       hattn-kernelgen emit KERNEL DIRECTORY            write code and lowered statement of one kernel\n"
           "       hattn-kernelgen list                             print every kernel's name\n";
    return 2;
}

int run_command(int argc, char **argv) {
    const std::string command = argc > 1 ? argv[1] : "";
    if (command == "object" && argc == 5) {
        write_object(argv[2], argv[3], argv[4]);
    } else if (command == "device-objects" && argc == 5) {
        write_device_objects(argv[2], argv[3], argv[4]);
    } else if (command == "table" && argc == 3) {
        write_source(argv[2], write_kernel_table);
    } else if (command == "device-table" && argc >= 3) {
        write_source(argv[2], [&](std::ostream &out) { write_device_table(out, {argv + 3, argv + argc}); });
    } else if (command == "runtime" && argc >= 3) {
        write_runtime(argv[2], {argv + 3, argv + argc});
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

#include "device_objects.h"

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "device_kernels.h"
#include "packed_code.h"

namespace hattn::generators {

using namespace Halide;

namespace {

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

}  // namespace

bool has_fat_binaries(const DeviceTarget &target) {
    return Target(target.halide_target).has_feature(Target::CUDA);
}

void write_device_objects(const std::string &device, KernelKind kind, const std::string &directory) {
    const DeviceChoice choice(device);
    const DeviceTarget &target = choice.target;
    std::filesystem::create_directories(directory);
    std::ofstream list(directory + "/objects.rsp"), launches(directory + "/launches.txt");
    for (const DeviceKernelSpec &spec : kernels_of(choice, kind)) {
        const std::string name = spec.name(target.name), path = directory + "/" + name + ".o";
        Module module = compile_kernel(spec, target);
        LaunchShape shape;
        module.functions().front().body.accept(&shape);
        if (has_fat_binaries(target)) {
            module.compile({{OutputFileType::device_code, directory + "/" + name + ".ptx"}});
        }
        with_packed_code(module).compile({{OutputFileType::object, path}});
        list << path << "\n";
        launches << name << " " << shape.threads << " " << shape.shared_bytes << "\n";
    }
    if (!list.flush() || !launches.flush()) {
        throw std::runtime_error("cannot write to " + directory);
    }
}

}  // namespace hattn::generators

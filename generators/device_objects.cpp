#include "device_objects.h"

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "device_kernels.h"
#include "files.h"
#include "packed_code.h"
#include "runtime/device/early_start.h"

namespace hattn::generators {

using namespace Halide;

namespace {

// Of a module's one kernel.
struct LaunchShape : Internal::IRVisitor {
    LaunchNeeds needs;

    using IRVisitor::visit;
    void visit(const Internal::Call *call) override {
        // (state, name, blocks x y z, threads x y z, bytes of shared memory, ...)
        if (Internal::ends_with(call->name, "_run")) {
            for (int i : {5, 6, 7}) {
                needs.threads *= *Internal::as_const_int(Internal::simplify(call->args[i]));
            }
            needs.shared_bytes = *Internal::as_const_int(Internal::simplify(call->args[8]));
        }
        IRVisitor::visit(call);
    }
};

}  // namespace

bool has_fat_binaries(const DeviceTarget &target) {
    return Target(target.halide_target).has_feature(Target::CUDA);
}

LaunchNeeds write_device_object(const DeviceKernelSpec &spec, const DeviceTarget &target, const std::string &object,
                                bool with_ptx) {
    Module module = compile_kernel(spec, target);
    LaunchShape shape;
    module.functions().front().body.accept(&shape);
    if (with_ptx) {
        const std::string base = object.substr(0, object.rfind('.')), ptx = base + ".ptx";
        module.compile({{OutputFileType::device_code, ptx}});
        const std::string early = with_early_start(read_file(ptx));
        if (early.empty()) {
            throw std::runtime_error(ptx + ": is no kernel that can start early");
        }
        write_file(base + ".early.ptx", early);
    }
    with_packed_code(module).compile({{OutputFileType::object, object}});
    return shape.needs;
}

void write_device_objects(const std::string &device, KernelKind kind, const std::string &directory) {
    const DeviceChoice choice(device);
    const DeviceTarget &target = choice.target;
    std::filesystem::create_directories(directory);
    std::ofstream list(directory + "/objects.rsp"), launches(directory + "/launches.txt");
    for (const DeviceKernelSpec &spec : kernels_of(choice, kind)) {
        const std::string name = spec.name(target.name), path = directory + "/" + name;
        const LaunchNeeds needs = write_device_object(spec, target, path + ".o", has_fat_binaries(target));
        list << '"' << path << ".o\"\n";  // folders may have spaces
        launches << name << " " << needs.threads << " " << needs.shared_bytes << "\n";
    }
    if (!list.flush() || !launches.flush()) {
        throw std::runtime_error("cannot write to " + directory);
    }
}

}  // namespace hattn::generators

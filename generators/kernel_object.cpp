#include "kernel_object.h"

#include "files.h"
#include "schedules/arm/bfloat16_dots.h"

namespace hattn::generators {

using namespace Halide;
using schedules::TargetRow;

namespace {

bool is_by_proxy(const KernelSpec &spec, const TargetRow &target) {
    return spec.storage == KeyStorage::kBfloat16 && target.bfloat16.by_proxy;
}

// What is not linked strictly forgets that any of its modules was strict, and is compiled in another way than these.
Module link(const std::string &name, const std::vector<Module> &modules, bool strictly) {
    return strictly ? link_strictly(name, modules) : link_modules(name, modules);
}

}  // namespace

void KernelObject::add(const KernelSpec &spec, const TargetRow &target) {
    modules_.push_back(compile_kernel(spec, target));
    is_strict_ = is_strict_ || is_strict(spec);
    if (is_by_proxy(spec, target)) {
        by_proxy_.push_back(spec.symbol(target.name));
    }
}

void KernelObject::write(const std::string &name, const std::string &path) const {
    link(name, modules_, is_strict_).compile({{OutputFileType::object, path}});
    if (!by_proxy_.empty()) {
        schedules::arm::replace_dots_in_object(path, by_proxy_);
    }
}

void emit_kernel(const KernelSpec &spec, const TargetRow &target, const std::string &directory) {
    const std::string path = directory + "/" + spec.name(target.name), assembly = path + ".s";
    link(spec.name(target.name), {compile_kernel(spec, target)}, is_strict(spec))
        .compile({{OutputFileType::assembly, assembly}, {OutputFileType::stmt, path + ".stmt"}});
    if (is_by_proxy(spec, target)) {
        write_file(assembly, schedules::arm::with_bfdot(read_file(assembly)));
    }
}

}  // namespace hattn::generators

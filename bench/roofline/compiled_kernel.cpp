#include "compiled_kernel.h"

#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>

#include "HalideRuntime.h"

namespace hattn::roofline {

namespace {

using generators::KernelPipeline;
using generators::KernelSpec;

void compile(const KernelSpec &spec, const std::string &target_name, bool profiled, const std::string &symbol,
             const std::filesystem::path &object) {
    const schedules::TargetRow row = schedules::resolve_target(schedules::host_architecture(), target_name);
    Halide::Target target = Halide::Target(halide_target(spec, row)).without_feature(Halide::Target::NoRuntime);
    if (profiled) {
        target.set_feature(Halide::Target::Profile);
    }
    KernelPipeline kernel = build_kernel(spec, row);
    kernel.pipeline.compile_to_module(kernel.arguments, symbol, target)
        .compile({{Halide::OutputFileType::object, object.string()}});
}

void link(const std::filesystem::path &object, const std::filesystem::path &library) {
    // -Bsymbolic: its own run-time library, whatever this program has.
    const std::string command =
        "cc -shared -Wl,-Bsymbolic -o '" + library.string() + "' '" + object.string() + "' -lpthread -ldl -lm";
    if (std::system(command.c_str()) != 0) {
        throw std::runtime_error("cannot link the kernel: " + command);
    }
}

}  // namespace

CompiledKernel::CompiledKernel(const KernelSpec &spec, const std::string &target, bool profiled,
                               const std::filesystem::path &folder)
    : name_(spec.symbol(target) + (profiled ? "_profiled" : "")) {
    const std::filesystem::path object = folder / (name_ + ".o"), library = folder / (name_ + ".so");
    compile(spec, target, profiled, name_, object);
    link(object, library);
    library_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (!library_) {
        throw std::runtime_error(dlerror());
    }
    function_ = symbol<Function>(name_ + "_argv");
}

CompiledKernel::~CompiledKernel() {
    if (library_) {
        symbol<void (*)()>("halide_profiler_reset")();  // else it prints a report of its own
        // The library stays loaded: the profiler's thread runs in it.
    }
}

template<typename T>
T CompiledKernel::symbol(const std::string &name) const {
    void *address = dlsym(library_, name.c_str());
    if (!address) {
        throw std::runtime_error(dlerror());
    }
    return reinterpret_cast<T>(address);
}

void CompiledKernel::start_profile(int microseconds) {
    symbol<void (*)()>("halide_profiler_reset")();
    symbol<halide_profiler_state *(*)()>("halide_profiler_get_state")()->sleep_time = microseconds;
}

Profile CompiledKernel::profile() const {
    // The only pipeline in this library.
    const auto *stats = symbol<halide_profiler_state *(*)()>("halide_profiler_get_state")()->pipelines;
    if (!stats) {
        throw std::runtime_error("Halide's profiler knows nothing of " + name_);
    }
    Profile result;
    result.samples = stats->samples;
    for (int i = 0; i < stats->num_funcs; ++i) {
        const halide_profiler_func_stats &func = stats->funcs[i];
        const std::string name = func.name;
        result.funcs.push_back({name.substr(0, name.find('$')), static_cast<double>(func.time) * 1e-9});
    }
    return result;
}

}  // namespace hattn::roofline

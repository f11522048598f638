// One kernel, compiled by Halide on the spot: as it is, or with Halide's sampling profiler in it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "generators/kernel_spec.h"

namespace hattn::roofline {

struct FuncTime {
    std::string func;  // without the number that Halide appends to repeated names
    double seconds;
};

struct Profile {
    std::vector<FuncTime> funcs;
    int samples = 0;
};

// A shared library of its own, with Halide's run-time library inside. Needs the C compiler to link it.
class CompiledKernel {
public:
    // folder: for files, which stay.
    CompiledKernel(const generators::KernelSpec &spec, const std::string &target, bool profiled,
                   const std::filesystem::path &folder);
    ~CompiledKernel();
    CompiledKernel(const CompiledKernel &) = delete;
    CompiledKernel &operator=(const CompiledKernel &) = delete;

    using Function = int (*)(void **arguments);
    Function function() const {
        return function_;
    }

    // Forgets all samples; from now on, one every `microseconds`.
    void start_profile(int microseconds);
    // Time per Func since then, summed over all calls.
    Profile profile() const;

private:
    template<typename T>
    T symbol(const std::string &name) const;

    std::string name_;
    void *library_ = nullptr;
    Function function_ = nullptr;
};

}  // namespace hattn::roofline

// The runtime's table of kernels, made of the generators' tables at run time. It takes the place of the generated one,
// so that the planner works as ever, while every row calls the one kernel of its kind that is installed.
#pragma once

#include <functional>
#include <string>

#include "compiled_kernel.h"

namespace hattn::roofline {

// A kernel that the table of targets does not list, say a tile to try. Before the first plan is made. Throws
// std::invalid_argument of a tile that no kernel can have.
void add_kernel(const generators::KernelSpec &spec, const std::string &target);

struct NamedSpec {
    generators::KernelSpec spec;
    std::string target;
};
NamedSpec find_spec(const std::string &kernel);

// Whether kernels of the kind compute attention, alone.
bool is_attention(KernelKind kind);

// What calls of kernels of attention run from now on.
void install(CompiledKernel::Function attention);

// Makes a kernel of another kind when it is first called: merge, widen, narrow and the like.
void make_others(std::function<CompiledKernel::Function(KernelKind)> make);

// Sees the arguments of every call of attention from now on; null: nobody does.
void watch_calls(std::function<void(void *const *arguments)> watcher);

}  // namespace hattn::roofline

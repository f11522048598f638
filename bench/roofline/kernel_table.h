// The runtime's table of kernels, made of the generators' tables at run time. It takes the place of the generated one,
// so that the planner works as ever, while every row calls the one kernel that is installed.
#pragma once

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

// What calls of attention kernels and of merge kernels run from now on.
void install(CompiledKernel::Function attention, CompiledKernel::Function merge);

}  // namespace hattn::roofline

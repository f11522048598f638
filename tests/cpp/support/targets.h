// The targets a build may hold, and a context per target that this machine can run.
#pragma once

#include <string>
#include <vector>

#include "handles.h"

namespace hattn::test {

const std::vector<std::string> &target_names();  // generic first

struct TargetContext {
    ContextPtr context;   // null: this machine cannot run the target
    std::string why_not;  // the library's words then
};
// Created on first use with two threads. Throws if the context fails although the CPU has what the target needs.
const TargetContext &context_for(const std::string &target);

// Letters, digits and underscores only, as a test's name has to be.
std::string as_test_name(const std::string &name);

}  // namespace hattn::test

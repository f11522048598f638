#include "targets.h"

#include <cctype>
#include <map>
#include <stdexcept>

#include "run.h"

namespace hattn::test {

namespace {

bool cpu_can_run(const std::string &target) {
#if defined(__x86_64__)
    if (target == "x86-avx2") {
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    }
    if (target == "x86-avx512") {
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    }
#endif
#if defined(__aarch64__)
    if (target == "arm-neon") {
        return true;  // part of the architecture
    }
#endif
    return target == "generic";
}

// Threads start when they are first needed, which allocates.
void start_threads(hattn_context *context) {
    cases::Case c;
    c.name = "start_threads";
    c.query_length = 200;
    cases::Problem problem(c);
    Outcome outcome = run(context, problem, HATTN_ALGORITHM_FLASH);
    if (!outcome.ok()) {
        throw std::runtime_error(outcome.text());
    }
}

}  // namespace

const std::vector<std::string> &target_names() {
#if defined(__x86_64__)
    static const std::vector<std::string> names = {"generic", "x86-avx2", "x86-avx512"};
#elif defined(__aarch64__)
    static const std::vector<std::string> names = {"generic", "arm-neon"};
#endif
    return names;
}

const TargetContext &context_for(const std::string &target) {
    static std::map<std::string, TargetContext> contexts;
    auto found = contexts.find(target);
    if (found == contexts.end()) {
        hattn_context_desc desc = HATTN_CONTEXT_DESC_INIT;
        desc.threads = 2;
        NewContext created = new_context("target=" + target, &desc);
        bool refused = created.outcome.status == HATTN_NOT_SUPPORTED && !cpu_can_run(target);
        if (!created.outcome.ok() && !refused) {
            throw std::runtime_error("target " + target + ": " + created.outcome.text());
        }
        if (created.context) {
            start_threads(created.context.get());
        }
        found = contexts.emplace(target, TargetContext{std::move(created.context), created.outcome.message}).first;
    }
    return found->second;
}

std::string as_test_name(const std::string &name) {
    std::string safe = name;
    for (char &letter : safe) {
        letter = std::isalnum(static_cast<unsigned char>(letter)) ? letter : '_';
    }
    return safe;
}

}  // namespace hattn::test

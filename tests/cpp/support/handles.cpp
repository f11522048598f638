#include "handles.h"

#include <cstdlib>
#include <stdexcept>

namespace hattn::test {

namespace {
constexpr const char *kVariable = "HATTN_FORCE";
}

ScopedForce::ScopedForce(const std::string &value) : was_set_(std::getenv(kVariable) != nullptr) {
    before_ = was_set_ ? std::getenv(kVariable) : "";
    if (value.empty()) {
        unsetenv(kVariable);
    } else {
        setenv(kVariable, value.c_str(), 1);
    }
}

ScopedForce::~ScopedForce() {
    if (was_set_) {
        setenv(kVariable, before_.c_str(), 1);
    } else {
        unsetenv(kVariable);
    }
}

NewContext new_context(const std::string &force, const hattn_context_desc *desc) {
    ScopedForce scope(force);
    hattn_context *context = nullptr;
    NewContext result;
    result.outcome = outcome_of(hattn_context_create(desc, &context));
    result.context.reset(context);
    return result;
}

ContextPtr make_context(int32_t threads, const std::string &force) {
    hattn_context_desc desc = HATTN_CONTEXT_DESC_INIT;
    desc.threads = threads;
    NewContext result = new_context(force, &desc);
    if (!result.outcome.ok()) {
        throw std::runtime_error("hattn_context_create with HATTN_FORCE=" + force + ": " + result.outcome.text());
    }
    return std::move(result.context);
}

PlanPtr make_plan(hattn_context *context, const hattn_attention_desc &desc) {
    hattn_plan *plan = nullptr;
    Outcome outcome = outcome_of(hattn_plan_create(context, &desc, &plan), context);
    if (!outcome.ok()) {
        throw std::runtime_error("hattn_plan_create: " + outcome.text());
    }
    return PlanPtr(plan);
}

}  // namespace hattn::test

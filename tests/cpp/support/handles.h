// Owners of the C interface's handles, and contexts with a forced choice.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "hattn/hattn.h"

namespace hattn::test {

struct HandleDeleter {
    void operator()(hattn_context *context) const {
        hattn_context_destroy(context);
    }
    void operator()(hattn_plan *plan) const {
        hattn_plan_destroy(plan);
    }
    void operator()(hattn_kv_cache *cache) const {
        hattn_kv_cache_destroy(cache);
    }
};
using ContextPtr = std::unique_ptr<hattn_context, HandleDeleter>;
using PlanPtr = std::unique_ptr<hattn_plan, HandleDeleter>;
using CachePtr = std::unique_ptr<hattn_kv_cache, HandleDeleter>;

// A status with the sentence that belongs to it.
struct Outcome {
    hattn_status status = HATTN_OK;
    std::string message;
    uint64_t allocations = 0;  // taken from the heap while a plan executed

    bool ok() const {
        return status == HATTN_OK;
    }
    std::string text() const {
        return std::string(hattn_status_name(status)) + ": " + message;
    }
};

inline Outcome outcome_of(hattn_status status, const hattn_context *context = nullptr) {
    return {status, status == HATTN_OK ? "" : hattn_last_error(context), 0};
}

// HATTN_FORCE for as long as it lives; empty: unset.
class ScopedForce {
public:
    explicit ScopedForce(const std::string &value);
    ~ScopedForce();
    ScopedForce(const ScopedForce &) = delete;
    ScopedForce &operator=(const ScopedForce &) = delete;

private:
    bool was_set_;
    std::string before_;
};

struct NewContext {
    ContextPtr context;
    Outcome outcome;
};
NewContext new_context(const std::string &force = "", const hattn_context_desc *desc = nullptr);
// Throws std::runtime_error with the library's message if the context cannot be had.
ContextPtr make_context(int32_t threads = 2, const std::string &force = "");

PlanPtr make_plan(hattn_context *context, const hattn_attention_desc &desc);  // throws likewise

}  // namespace hattn::test

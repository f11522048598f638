// What is chosen for a problem of a few numbers.
#pragma once

#include <cstdint>
#include <optional>

#include <nlohmann/json.hpp>

#include "handles.h"

namespace hattn::test {

struct PlannedProblem {
    int64_t query_heads = 2, kv_heads = 2;
    int64_t rows = 1, keys = 1;
    int64_t batch = 1;
    int64_t head_dim = 16;
    hattn_dtype dtype = HATTN_FLOAT32;                 // of queries and outputs
    std::optional<hattn_dtype> stored = std::nullopt;  // of keys and values; unset: as queries
    bool causal = false;
    float softcap = 0.0f;
    bool mask = false;  // [1, 1, rows, keys]
};

// The plan's explanation, hattn_plan_explain().
nlohmann::json planned(const ContextPtr &context, const PlannedProblem &problem);

// Of the kernel that computes the last rows of a head: `last_kernel`, or that of all rows.
int64_t rows_of_last_tile(const nlohmann::json &plan);

}  // namespace hattn::test

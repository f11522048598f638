// A problem to tune for, and the choices among which the winner is sought.
#pragma once

#include <cstdint>
#include <memory>

#include <nlohmann/json_fwd.hpp>

#include "tuned_problem.h"

namespace hattn::autotune {

// Attention as people run it; hooks are what makes kernels differ.
struct Shape {
    int64_t batch = 1, query_heads = 1, kv_heads = 1;
    int64_t query_length = 1, kv_length = 1;
    int64_t key_dim = 64, value_dim = 64;
    bool causal = true;
    int64_t window_left = -1;
    bool mask = false, bias = false, softcap = false, alibi = false;
    hattn_dtype dtype = HATTN_FLOAT32;  // of keys and values
    hattn_device device = HATTN_CPU;
    int32_t device_id = 0;

    int64_t group() const {
        return query_heads / kv_heads;
    }
    // That rows see between them, of a window all rows' together.
    int64_t seen_keys() const;
    // That keys and values take, scales included.
    double bytes_per_element() const;
};

// Throws nlohmann::json::exception or std::invalid_argument; members that are missing take their defaults.
Shape read_shape(const nlohmann::json &object);
nlohmann::ordered_json shape_json(const Shape &shape);

// What a plan for it is made from.
hattn_attention_desc desc_of(const Shape &shape);

// Queries and outputs have the dtype too, unless it is quantised: then they are float32, and 32 elements of a key or
// value share a scale.
cases::Case case_of(const Shape &shape);
const cases::StoredTypes &types_of(const Shape &shape);

// Of these, with random data that is a function of the shape alone.
std::unique_ptr<TunedProblem> make_problem(const Shape &shape);

}  // namespace hattn::autotune

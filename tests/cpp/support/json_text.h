// The library's JSON texts, parsed.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "handles.h"

namespace hattn::test {

// A function of its own, since compiling the parser takes as long as compiling many a test.
nlohmann::json parse_json(const std::string &text);

// query(buffer, capacity, &size) is hattn_info or hattn_plan_explain. Throws std::runtime_error with the library's
// message.
template<typename Query>
nlohmann::json json_of(Query query) {
    size_t size = 0;
    query(nullptr, 0, &size);
    std::vector<char> text(size);
    Outcome outcome = outcome_of(query(text.data(), size, &size));
    if (!outcome.ok()) {
        throw std::runtime_error(outcome.text());
    }
    return parse_json(text.data());
}

inline nlohmann::json info_of(hattn_context *context) {
    return json_of(
        [context](char *buffer, size_t capacity, size_t *size) { return hattn_info(context, buffer, capacity, size); });
}

inline nlohmann::json explanation_of(const hattn_plan *plan) {
    return json_of([plan](char *buffer, size_t capacity, size_t *size) {
        return hattn_plan_explain(plan, buffer, capacity, size);
    });
}

}  // namespace hattn::test

// Cases, and tuning databases with a choice for them.
#pragma once

#include <string>

#include "problem.h"
#include "support/json_text.h"
#include "support/run.h"
#include "support/tuning_file.h"

namespace hattn::test {

using nlohmann::json;

inline cases::Case some_case(int64_t rows, int64_t keys, int64_t query_heads = 4, int64_t kv_heads = 2) {
    cases::Case c;
    c.name = "tuned_" + std::to_string(rows) + "_" + std::to_string(keys);
    c.query_heads = query_heads;
    c.kv_heads = kv_heads;
    c.query_length = rows;
    c.kv_length = keys;
    c.key_dim = c.value_dim = 64;
    c.causal = true;
    return c;
}

inline json explain(hattn_context *context, const cases::Case &c, hattn_algorithm algorithm = HATTN_ALGORITHM_AUTO) {
    hattn_attention_desc desc = cases::desc_of(c);
    desc.algorithm = algorithm;
    return explanation_of(make_plan(context, desc).get());
}

// What the rule makes of a case when it is asked for an algorithm, as a choice.
inline json choice_of(const cases::Case &c, hattn_algorithm algorithm) {
    ContextPtr context = context_with_tuning("rule");
    const json plan = explain(context.get(), c, algorithm);
    const bool by_rule = plan.at("algorithm") == "flash";
    return {{"algorithm", plan.at("algorithm")},
            {"tile", plan.at("tile")},
            {"split_keys", by_rule ? json(0) : plan.at("split_keys")},
            {"heads", 0}};
}

inline json class_of(const cases::Case &c) {
    ContextPtr context = context_with_tuning("rule");
    return explain(context.get(), c).at("class");
}

// A database with one choice, for the class of the case.
inline json database_for(const cases::Case &c, const json &choice, bool invariant = false) {
    return tuning_document({tuning_entry(class_of(c), choice, invariant)});
}

}  // namespace hattn::test

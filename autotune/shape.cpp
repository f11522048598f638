#include "shape.h"

#include <stdexcept>

#include <nlohmann/json.hpp>

namespace hattn::autotune {

namespace {

constexpr float kSoftcap = 30.0f;

int64_t size(const nlohmann::json &object, const char *name, int64_t otherwise) {
    const int64_t value = object.value(name, otherwise);
    if (value < 1) {
        throw std::invalid_argument(std::string(name) + ": is " + std::to_string(value) + ", but must be positive");
    }
    return value;
}

}  // namespace

Shape read_shape(const nlohmann::json &object) {
    Shape shape;
    shape.batch = size(object, "batch", 1);
    shape.query_heads = size(object, "query_heads", 1);
    shape.kv_heads = size(object, "kv_heads", shape.query_heads);
    shape.query_length = size(object, "query_length", 1);
    shape.kv_length = size(object, "kv_length", 1);
    shape.key_dim = size(object, "key_dim", 64);
    shape.value_dim = size(object, "value_dim", shape.key_dim);
    shape.causal = object.value("causal", true);
    shape.window_left = object.value("window_left", int64_t{-1});
    shape.mask = object.value("mask", false);
    shape.bias = object.value("bias", false);
    shape.softcap = object.value("softcap", false);
    shape.alibi = object.value("alibi", false);
    if (shape.query_heads % shape.kv_heads != 0) {
        throw std::invalid_argument("query_heads: is " + std::to_string(shape.query_heads) +
                                    ", but must be a multiple of kv_heads, " + std::to_string(shape.kv_heads));
    }
    return shape;
}

nlohmann::ordered_json shape_json(const Shape &shape) {
    return {{"batch", shape.batch},
            {"query_heads", shape.query_heads},
            {"kv_heads", shape.kv_heads},
            {"query_length", shape.query_length},
            {"kv_length", shape.kv_length},
            {"key_dim", shape.key_dim},
            {"value_dim", shape.value_dim},
            {"causal", shape.causal},
            {"window_left", shape.window_left},
            {"mask", shape.mask},
            {"bias", shape.bias},
            {"softcap", shape.softcap},
            {"alibi", shape.alibi}};
}

hattn_attention_desc desc_of(const Shape &shape) {
    hattn_attention_desc desc;
    hattn_attention_desc_init(&desc);
    desc.batch = shape.batch;
    desc.query_heads = shape.query_heads;
    desc.kv_heads = shape.kv_heads;
    desc.query_length = shape.query_length;
    desc.kv_length = shape.kv_length;
    desc.key_dim = shape.key_dim;
    desc.value_dim = shape.value_dim;
    desc.causal = shape.causal;
    desc.window_left = shape.window_left;
    desc.softcap = shape.softcap ? kSoftcap : 0.0f;
    desc.has_mask = shape.mask;
    desc.has_bias = shape.bias;
    desc.has_alibi = shape.alibi;
    return desc;
}

cases::Case case_of(const Shape &shape) {
    cases::Case c;
    c.batch = shape.batch;
    c.query_heads = shape.query_heads;
    c.kv_heads = shape.kv_heads;
    c.query_length = shape.query_length;
    c.kv_length = shape.kv_length;
    c.key_dim = shape.key_dim;
    c.value_dim = shape.value_dim;
    c.causal = shape.causal;
    c.window_left = shape.window_left;
    c.mask = shape.mask ? cases::varying("qk") : cases::Operand{};
    c.bias = shape.bias ? cases::varying("qk") : cases::Operand{};
    c.softcap = shape.softcap ? kSoftcap : 0.0f;
    c.alibi = shape.alibi;
    c.name = "tuned_" + std::to_string(shape.query_length) + "_" + std::to_string(shape.kv_length);
    return c;
}

}  // namespace hattn::autotune

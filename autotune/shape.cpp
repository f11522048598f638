#include "shape.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

namespace hattn::autotune {

namespace {

constexpr float kSoftcap = 30.0f;

struct TypeRow {
    cases::StoredTypes types;
    double bytes_per_element;
};

constexpr TypeRow quantised(const char *name, hattn_dtype dtype, double bytes) {
    constexpr double kScaleBytes = 4.0 / 32.0;
    return {{name, HATTN_FLOAT32, dtype, dtype, HATTN_FLOAT32, cases::ScaleKind::kKey, cases::ScaleKind::kKey},
            bytes + kScaleBytes};
}

constexpr TypeRow of_one_type(const char *name, hattn_dtype dtype, double bytes) {
    return {{name, dtype, dtype, dtype, dtype}, bytes};
}

constexpr TypeRow kTypes[] = {
    of_one_type("float32", HATTN_FLOAT32, 4.0),   of_one_type("float16", HATTN_FLOAT16, 2.0),
    of_one_type("bfloat16", HATTN_BFLOAT16, 2.0), quantised("int8", HATTN_INT8, 1.0),
    quantised("int4", HATTN_INT4, 0.5),
};

const TypeRow &row_of(hattn_dtype dtype) {
    return *std::ranges::find_if(kTypes, [dtype](const TypeRow &row) { return row.types.k == dtype; });
}

hattn_dtype dtype_of(const std::string &name) {
    std::string known;
    for (const TypeRow &row : kTypes) {
        if (name == row.types.name) {
            return row.types.k;
        }
        known += std::string(known.empty() ? "" : ", ") + row.types.name;
    }
    throw std::invalid_argument("dtype: is \"" + name + "\", but must be one of " + known);
}

int64_t size(const nlohmann::json &object, const char *name, int64_t otherwise) {
    const int64_t value = object.value(name, otherwise);
    if (value < 1) {
        throw std::invalid_argument(std::string(name) + ": is " + std::to_string(value) + ", but must be positive");
    }
    return value;
}

constexpr std::pair<const char *, hattn_device> kDevices[] = {
    {"cpu", HATTN_CPU}, {"cuda", HATTN_CUDA}, {"opencl", HATTN_OPENCL}};

// "cuda", or "cuda:1" for the second one.
void read_device(const std::string &text, Shape &shape) {
    const size_t colon = text.find(':');
    const std::string name = text.substr(0, colon), id = colon == std::string::npos ? "0" : text.substr(colon + 1);
    const auto *row = std::ranges::find_if(kDevices, [&](const auto &device) { return name == device.first; });
    if (row == std::end(kDevices) || id.empty() || id.size() > 3 ||
        id.find_first_not_of("0123456789") != std::string::npos) {
        throw std::invalid_argument("device: is \"" + text + "\", but must be cpu, or opencl or cuda with :N after it");
    }
    shape.device = row->second;
    shape.device_id = std::stoi(id);
}

std::string device_text(const Shape &shape) {
    const auto *row = std::ranges::find_if(kDevices, [&](const auto &device) { return shape.device == device.second; });
    std::string text = row->first;
    if (shape.device_id > 0) {
        text += ':';
        text += std::to_string(shape.device_id);
    }
    return text;
}

}  // namespace

int64_t Shape::seen_keys() const {
    return causal && window_left >= 0 ? std::min(kv_length, window_left + query_length) : kv_length;
}

double Shape::bytes_per_element() const {
    return row_of(dtype).bytes_per_element;
}

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
    shape.dtype = dtype_of(object.value("dtype", "float32"));
    read_device(object.value("device", "cpu"), shape);
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
            {"alibi", shape.alibi},
            {"dtype", row_of(shape.dtype).types.name},
            {"device", device_text(shape)}};
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
    const cases::StoredTypes &types = row_of(shape.dtype).types;
    desc.dtype = types.q;
    desc.k_dtype = types.k;
    desc.v_dtype = types.v;
    desc.out_dtype = types.out;
    desc.device = shape.device;
    desc.device_id = shape.device_id;
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

const cases::StoredTypes &types_of(const Shape &shape) {
    return row_of(shape.dtype).types;
}

std::unique_ptr<TunedProblem> make_problem(const Shape &shape) {
    return std::make_unique<TunedProblem>(case_of(shape), types_of(shape), shape.device, shape.device_id);
}

}  // namespace hattn::autotune

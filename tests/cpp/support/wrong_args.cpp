#include "wrong_args.h"

#include <limits>

namespace hattn::test {

namespace {

using Args = hattn_attention_args;
constexpr hattn_status kInvalid = HATTN_INVALID_ARGUMENT;

std::string number(int64_t value) {
    return std::to_string(value);
}

WrongArgs tensor_wrong(const NamedTensor &tensor, const std::string &what, std::function<void(hattn_tensor &)> spoil,
                       Refusal refusal) {
    refusal.words.insert(refusal.words.begin(), tensor.name);
    auto member = tensor.member;
    return {std::string(tensor.name) + "_" + what,
            [member, spoil = std::move(spoil)](cases::Problem &problem) { spoil(problem.args.*member); },
            std::move(refusal)};
}

WrongArgs wrong_extent(const char *name, hattn_tensor Args::*member, int dim, int64_t extent, hattn_status status,
                       int64_t other) {
    return {std::string(name) + "_extent_" + number(dim) + "_is_" + (extent < 0 ? "negative" : number(extent)),
            [=](cases::Problem &problem) { (problem.args.*member).extent[dim] = extent; },
            {status, {name, number(extent), number(other)}}};
}

}  // namespace

cases::Case complete_case() {
    cases::Case c;
    c.name = "complete";
    c.batch = 2;
    c.query_heads = 6;
    c.kv_heads = 3;
    c.query_length = 5;
    c.kv_length = 9;
    c.key_dim = 8;
    c.value_dim = 12;
    c.causal = true;
    c.bias = cases::varying("bhqk");
    c.mask = cases::varying("bqk");
    c.alibi = true;
    c.sinks = cases::Sinks::kNormal;
    c.scores = HATTN_SCORES_MASKED;
    c.q_lengths = {5, 3};
    c.kv_lengths = {9, 4};
    c.causal_offsets = {4, 1};
    return c;
}

void PrintTo(const WrongArgs &wrong, std::ostream *stream) {
    *stream << wrong.name;
}

const std::vector<NamedTensor> &argument_tensors() {
    static const std::vector<NamedTensor> tensors = {
        {"q", &Args::q, false, false},       {"k", &Args::k, false, false},
        {"v", &Args::v, false, false},       {"out", &Args::out, true, false},
        {"lse", &Args::lse, true, true},     {"scores", &Args::scores, true, false},
        {"bias", &Args::bias, false, false}, {"mask", &Args::mask, false, false},
    };
    return tensors;
}

std::vector<WrongArgs> wrong_tensors() {
    std::vector<WrongArgs> list;
    for (const NamedTensor &tensor : argument_tensors()) {
        if (!tensor.optional) {
            list.push_back(tensor_wrong(tensor, "null", [](hattn_tensor &t) { t.data = nullptr; }, {kInvalid, {}}));
        }
        if (std::string(tensor.name) != "mask") {
            list.push_back(tensor_wrong(tensor, "misaligned",
                                        [](hattn_tensor &t) { t.data = static_cast<char *>(t.data) + 1; },
                                        {kInvalid, {"4"}}));
        }
        list.push_back(
            tensor_wrong(tensor, "dtype_int32", [](hattn_tensor &t) { t.dtype = HATTN_INT32; }, {kInvalid, {}}));
        list.push_back(tensor_wrong(tensor, "dtype_unknown",
                                    [](hattn_tensor &t) { t.dtype = unknown<hattn_dtype>(55); }, {kInvalid, {"55"}}));
        list.push_back(tensor_wrong(tensor, "device_cuda", [](hattn_tensor &t) { t.device = HATTN_CUDA; },
                                    {HATTN_NOT_SUPPORTED, {}}));
        list.push_back(tensor_wrong(tensor, "device_unknown",
                                    [](hattn_tensor &t) { t.device = unknown<hattn_device>(44); }, {kInvalid, {"44"}}));
        list.push_back(
            tensor_wrong(tensor, "struct_size_of_the_future", [](hattn_tensor &t) { t.struct_size = sizeof(t) + 4; },
                         {kInvalid, {"struct_size", number(sizeof(hattn_tensor) + 4), number(sizeof(hattn_tensor))}}));
        list.push_back(tensor_wrong(tensor, "struct_size_zero", [](hattn_tensor &t) { t.struct_size = 0; },
                                    {kInvalid, {"struct_size", "0"}}));
        for (int dim = 0; dim < 4; ++dim) {
            list.push_back(tensor_wrong(tensor, "extent_" + number(dim) + "_negative",
                                        [dim](hattn_tensor &t) { t.extent[dim] = -3; }, {kInvalid, {"-3"}}));
        }
    }
    constexpr hattn_status kCapacity = HATTN_CAPACITY_EXCEEDED;
    const std::vector<WrongArgs> extents = {
        wrong_extent("q", &Args::q, 0, 1, kInvalid, 2),
        wrong_extent("q", &Args::q, 0, 3, kCapacity, 2),
        wrong_extent("q", &Args::q, 1, 5, kInvalid, 6),
        wrong_extent("q", &Args::q, 1, 12, kInvalid, 6),
        wrong_extent("q", &Args::q, 2, 6, kCapacity, 5),
        wrong_extent("q", &Args::q, 3, 7, kInvalid, 8),
        wrong_extent("k", &Args::k, 0, 1, kInvalid, 2),
        wrong_extent("k", &Args::k, 0, 3, kInvalid, 2),
        wrong_extent("k", &Args::k, 1, 6, kInvalid, 3),
        wrong_extent("k", &Args::k, 1, 2, kInvalid, 3),
        wrong_extent("k", &Args::k, 2, 10, kCapacity, 9),
        wrong_extent("k", &Args::k, 3, 16, kInvalid, 8),
        wrong_extent("v", &Args::v, 0, 4, kInvalid, 2),
        wrong_extent("v", &Args::v, 1, 1, kInvalid, 3),
        wrong_extent("v", &Args::v, 2, 8, kInvalid, 9),
        wrong_extent("v", &Args::v, 2, 10, kCapacity, 9),
        wrong_extent("v", &Args::v, 3, 8, kInvalid, 12),
        wrong_extent("out", &Args::out, 0, 1, kInvalid, 2),
        wrong_extent("out", &Args::out, 1, 3, kInvalid, 6),
        wrong_extent("out", &Args::out, 2, 4, kInvalid, 5),
        wrong_extent("out", &Args::out, 3, 8, kInvalid, 12),
        wrong_extent("lse", &Args::lse, 0, 1, kInvalid, 2),
        wrong_extent("lse", &Args::lse, 1, 3, kInvalid, 6),
        wrong_extent("lse", &Args::lse, 2, 6, kInvalid, 5),
        wrong_extent("lse", &Args::lse, 3, 2, kInvalid, 1),
        wrong_extent("scores", &Args::scores, 0, 3, kInvalid, 2),
        wrong_extent("scores", &Args::scores, 1, 3, kInvalid, 6),
        wrong_extent("scores", &Args::scores, 2, 1, kInvalid, 5),
        wrong_extent("scores", &Args::scores, 3, 8, kInvalid, 9),
        wrong_extent("bias", &Args::bias, 0, 3, kInvalid, 2),
        wrong_extent("bias", &Args::bias, 0, 0, kInvalid, 2),
        wrong_extent("bias", &Args::bias, 1, 3, kInvalid, 6),
        wrong_extent("bias", &Args::bias, 2, 4, kInvalid, 5),
        wrong_extent("bias", &Args::bias, 3, 10, kInvalid, 9),
        wrong_extent("mask", &Args::mask, 0, 3, kInvalid, 2),
        wrong_extent("mask", &Args::mask, 1, 2, kInvalid, 6),
        wrong_extent("mask", &Args::mask, 2, 6, kInvalid, 5),
        wrong_extent("mask", &Args::mask, 3, 8, kInvalid, 9),
    };
    list.insert(list.end(), extents.begin(), extents.end());
    return list;
}

namespace {

WrongArgs stride(const NamedTensor &tensor, int dim, int64_t value, hattn_status status) {
    std::vector<std::string> words;
    if (status == kInvalid) {
        words.push_back(number(value));
    }
    return tensor_wrong(tensor,
                        "stride_" + number(dim) + "_is_" + (value < 0 ? "minus_" + number(-value) : number(value)),
                        [=](hattn_tensor &t) { t.stride[dim] = value; }, {status, words});
}

// `first` is moved to start `bytes` after the start of `second`.
WrongArgs overlap(const NamedTensor &first, const NamedTensor &second, int64_t bytes) {
    auto moved = first.member, fixed = second.member;
    return {std::string(first.name) + "_overlaps_" + second.name + "_by_" + (bytes < 0 ? "minus_" : "") +
                number(bytes < 0 ? -bytes : bytes),
            [=](cases::Problem &problem) {
                (problem.args.*moved).data = static_cast<char *>((problem.args.*fixed).data) + bytes;
            },
            {kInvalid, {first.name, "overlaps"}}};
}

}  // namespace

std::vector<WrongArgs> wrong_strides() {
    constexpr int64_t kOverflowing = std::numeric_limits<int64_t>::max() / 2;
    std::vector<WrongArgs> list;
    for (const NamedTensor &tensor : argument_tensors()) {
        std::string name = tensor.name;
        bool unit_last = name == "q" || name == "k" || name == "v" || name == "out" || name == "scores";
        for (int64_t value : {0, 2, -1}) {
            if (unit_last) {
                list.push_back(stride(tensor, 3, value, kInvalid));
            }
        }
        if (name != "mask") {  // its head stride counts for nothing
            list.push_back(stride(tensor, 1, kOverflowing, HATTN_OVERFLOW));
        }
        if (tensor.output) {
            for (int dim = 0; dim < 3; ++dim) {
                list.push_back(stride(tensor, dim, 0, kInvalid));
            }
            if (name != "lse") {
                list.push_back(stride(tensor, 2, 7, kInvalid));   // less than a row
                list.push_back(stride(tensor, 1, 13, kInvalid));  // a head within another's rows
                list.push_back(stride(tensor, 0, -1, kInvalid));  // as far as from element to element
            }
        }
    }
    for (const NamedTensor &output : argument_tensors()) {
        for (const NamedTensor &other : argument_tensors()) {
            if (output.output && output.member != other.member) {
                list.push_back(overlap(output, other, 0));
                list.push_back(overlap(output, other, 4));
            }
        }
    }
    return list;
}

std::vector<WrongArgs> wrong_vectors() {
    auto spoil = [](const char *name, std::function<void(cases::Problem &)> change, Refusal refusal) {
        return WrongArgs{name, std::move(change), std::move(refusal)};
    };
    using P = cases::Problem;
    std::string size = number(sizeof(Args)), larger = number(sizeof(Args) + 16);
    return {
        spoil("struct_size_of_the_future", [](P &p) { p.args.struct_size = sizeof(Args) + 16; },
              {kInvalid, {"struct_size", size, larger}}),
        spoil("struct_size_smaller", [](P &p) { p.args.struct_size = sizeof(Args) - 8; },
              {kInvalid, {"struct_size", number(sizeof(Args) - 8), size}}),
        spoil("struct_size_zero", [](P &p) { p.args.struct_size = 0; }, {kInvalid, {"struct_size", "0"}}),
        spoil("alibi_slopes_null", [](P &p) { p.args.alibi_slopes = nullptr; }, {kInvalid, {"alibi_slopes"}}),
        spoil("sinks_null", [](P &p) { p.args.sinks = nullptr; }, {kInvalid, {"sinks"}}),
        spoil("q_lengths_negative", [](P &p) { p.spec.q_lengths[1] = -1; }, {kInvalid, {"q_lengths", "-1", "5"}}),
        spoil("q_lengths_too_long", [](P &p) { p.spec.q_lengths[0] = 6; }, {kInvalid, {"q_lengths", "6", "5"}}),
        spoil("kv_lengths_negative", [](P &p) { p.spec.kv_lengths[0] = -7; }, {kInvalid, {"kv_lengths", "-7", "9"}}),
        spoil("kv_lengths_too_long", [](P &p) { p.spec.kv_lengths[1] = 10; }, {kInvalid, {"kv_lengths", "10", "9"}}),
        spoil("causal_offsets_too_large", [](P &p) { p.spec.causal_offsets[1] = std::numeric_limits<int32_t>::max(); },
              {kInvalid, {"causal_offsets", "2147483647"}}),
        spoil("causal_offsets_too_small", [](P &p) { p.spec.causal_offsets[0] = std::numeric_limits<int32_t>::min(); },
              {kInvalid, {"causal_offsets", "-2147483648"}}),
    };
}

}  // namespace hattn::test

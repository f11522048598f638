#include "case.h"

#include <sstream>

namespace hattn::cases {

Operand varying(std::string_view dimensions) {
    Operand operand;
    operand.given = true;
    constexpr std::string_view kLetters = "bhqk";
    for (size_t dim = 0; dim < kLetters.size(); ++dim) {
        operand.varies[dim] = dimensions.find(kLetters[dim]) != std::string_view::npos;
    }
    return operand;
}

uint64_t Case::seed() const {
    // FNV-1a.
    uint64_t hash = 14695981039346656037ull;
    for (unsigned char letter : name) {
        hash = (hash ^ letter) * 1099511628211ull;
    }
    return hash;
}

double Case::work() const {
    return static_cast<double>(batch) * static_cast<double>(query_heads) * static_cast<double>(query_length) *
           static_cast<double>(kv_length) * static_cast<double>(key_dim + value_dim);
}

std::vector<std::string> Case::hooks() const {
    std::vector<std::string> names;
    if (softcap > 0.0f) {
        names.emplace_back("softcap");
    }
    if (bias.given) {
        names.emplace_back("bias");
    }
    if (alibi) {
        names.emplace_back("alibi");
    }
    if (mask.given) {
        names.emplace_back("mask");
    }
    return names;
}

namespace {

void append(std::ostringstream &text, const char *label, const Operand &operand) {
    if (!operand.given) {
        return;
    }
    text << ' ' << label << "=[";
    for (size_t dim = 0; dim < operand.varies.size(); ++dim) {
        text << (operand.varies[dim] ? "bhqk"[dim] : '1');
    }
    text << ']';
}

void append(std::ostringstream &text, const char *label, const std::vector<int32_t> &values) {
    if (values.empty()) {
        return;
    }
    text << ' ' << label << "={";
    for (size_t i = 0; i < values.size(); ++i) {
        text << (i ? "," : "") << values[i];
    }
    text << '}';
}

}  // namespace

std::string describe(const Case &c) {
    std::ostringstream text;
    text << c.name << ": B=" << c.batch << " Hq=" << c.query_heads << " Hkv=" << c.kv_heads << " Sq=" << c.query_length
         << " Sk=" << c.kv_length << " Dk=" << c.key_dim << " Dv=" << c.value_dim;
    if (!std::isnan(c.scale)) {
        text << " scale=" << c.scale;
    }
    if (c.causal) {
        text << " causal";
    }
    if (c.window_left >= 0 || c.window_right >= 0) {
        text << " window=(" << c.window_left << ',' << c.window_right << ')';
    }
    if (c.softcap != 0.0f) {
        text << " softcap=" << c.softcap;
    }
    append(text, "bias", c.bias);
    append(text, "mask", c.mask);
    if (c.alibi) {
        text << " alibi";
    }
    append(text, "q_lengths", c.q_lengths);
    append(text, "kv_lengths", c.kv_lengths);
    append(text, "causal_offsets", c.causal_offsets);
    text << " sinks#" << static_cast<int>(c.sinks) << " scores#" << c.scores << " layout#" << static_cast<int>(c.layout)
         << " data#" << static_cast<int>(c.data) << " bias_values#" << static_cast<int>(c.bias_values)
         << " mask_values#" << static_cast<int>(c.mask_values) << " seed=" << c.seed();
    return text.str();
}

}  // namespace hattn::cases

#include <string>
#include <utility>

#include "case_list.h"

namespace hattn::cases {

namespace {

constexpr std::pair<Layout, const char *> kLayouts[] = {{Layout::kBhsd, "bhsd"},
                                                        {Layout::kBshd, "bshd"},
                                                        {Layout::kPackedQkv, "packed_qkv"},
                                                        {Layout::kPadded, "padded"},
                                                        {Layout::kEveryOther, "every_other"},
                                                        {Layout::kSharedKv, "shared_kv"},
                                                        {Layout::kSharedHead, "shared_head"}};

Case base(Layout layout, int64_t query_length, int64_t kv_length) {
    Case c;
    c.layout = layout;
    c.batch = 3;
    c.query_heads = 4;
    c.kv_heads = 2;
    c.query_length = layout == Layout::kPackedQkv ? kv_length : query_length;
    c.kv_length = kv_length;
    return c;
}

}  // namespace

std::vector<Case> storage_cases() {
    std::vector<Case> list;
    for (auto [layout, name] : kLayouts) {
        auto add = [&list, layout_name = name](const std::string &suffix, Case c) {
            c.name = std::string("layout_") + layout_name + suffix;
            list.push_back(std::move(c));
        };
        Case c = base(layout, 18, 41);
        add("", c);
        c.causal = true;
        c.key_dim = c.value_dim = 33;
        add("_causal_odd_dim", c);
        c.key_dim = c.value_dim = 64;
        c.kv_lengths = {41, 7, 20};
        add("_causal_lengths", c);
        Case one_row = base(layout, 1, layout == Layout::kPackedQkv ? 1 : 135);
        add("_one_row", one_row);
        if (layout != Layout::kPackedQkv) {
            c.value_dim = 20;
            c.key_dim = 24;
            c.bias = varying("hk");
            c.mask = varying("bqk");
            add("_unequal_dims_bias_mask", c);
        }
    }
    return list;
}

}  // namespace hattn::cases

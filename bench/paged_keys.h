// The keys and values of a problem in pages of a cache, which lie in no order.
#pragma once

#include <cstdint>
#include <vector>

#include "hattn/hattn.hpp"
#include "problem.h"

namespace hattn::bench {

class PagedKeys {
public:
    PagedKeys(Context &context, const cases::Problem &problem, int64_t page_size);

    // Points k, v, lengths and block table at the pages. They have to outlive args.
    void bind(hattn_attention_args &args) const;

private:
    void deal_out(const cases::Problem &problem, int64_t page_size);

    std::vector<int32_t> lengths_, table_;  // [B], [B, pages_per_sequence_]
    int64_t pages_per_sequence_;
    KvCache pool_;         // whose memory the pages have
    KvCache::View pages_;  // [pages, Hkv, page_size, D]
};

}  // namespace hattn::bench

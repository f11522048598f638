#include "paged_keys.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "random.h"

namespace hattn::bench {

namespace {

std::vector<int32_t> lengths_of(const cases::Case &c) {
    return c.kv_lengths.empty() ? std::vector<int32_t>(static_cast<size_t>(c.batch), static_cast<int32_t>(c.kv_length))
                                : c.kv_lengths;
}

KvCacheDesc pool_desc(const cases::Case &c, int64_t page_size) {
    KvCacheDesc desc;
    desc.batch = c.batch;
    desc.kv_heads = c.kv_heads;
    desc.capacity = c.kv_length;
    desc.key_dim = c.key_dim;
    desc.value_dim = c.value_dim;
    desc.page_size = page_size;
    return desc;
}

// 0 to count - 1 in no order (Fisher and Yates).
std::vector<int32_t> shuffled(int64_t count) {
    std::vector<int32_t> pages(static_cast<size_t>(count));
    std::iota(pages.begin(), pages.end(), 0);
    cases::Random random(16);
    for (int64_t n = count - 1; n > 0; --n) {
        std::swap(pages[static_cast<size_t>(n)], pages[static_cast<size_t>(random.integer(0, n))]);
    }
    return pages;
}

}  // namespace

PagedKeys::PagedKeys(Context &context, const cases::Problem &problem, int64_t page_size)
    : lengths_(lengths_of(problem.spec)),
      pages_per_sequence_((problem.spec.kv_length + page_size - 1) / page_size),
      pool_(context, pool_desc(problem.spec, page_size)),
      pages_(pool_.view()) {
    table_ = shuffled(pages_.k.extent[0]);
    deal_out(problem, page_size);
}

void PagedKeys::deal_out(const cases::Problem &problem, int64_t page_size) {
    const cases::Case &c = problem.spec;
    const std::pair<const hattn_tensor &, const hattn_tensor &> sides[] = {{problem.args.k, pages_.k},
                                                                           {problem.args.v, pages_.v}};
    for (const auto &[from, to] : sides) {
        cases::for_each_index({c.batch, c.kv_heads, c.kv_length, 1}, [&](int64_t b, int64_t h, int64_t j, int64_t) {
            const int64_t page = table_[static_cast<size_t>(b * pages_per_sequence_ + j / page_size)];
            std::memcpy(&cases::element<float>(to, page, h, j % page_size, 0), &cases::element<float>(from, b, h, j, 0),
                        static_cast<size_t>(from.extent[3]) * sizeof(float));
        });
    }
}

void PagedKeys::bind(hattn_attention_args &args) const {
    args.k = pages_.k;
    args.v = pages_.v;
    args.kv_lengths = lengths_.data();
    args.block_table = table_.data();
    args.block_table_stride = pages_per_sequence_;
}

}  // namespace hattn::bench

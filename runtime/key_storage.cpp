#include "key_storage.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>

#include "checked.h"
#include "sequence.h"
#include "status.h"
#include "tensor.h"

namespace hattn {

namespace {

// In steps of `unit` elements, from one page to the next and from one granule of a page to the next.
struct Steps {
    int64_t unit, page, granule;
};

Steps steps_of(const hattn_tensor &side, int64_t pages, int64_t granules) {
    const int64_t page = pages > 1 ? side.stride[0] : 0;
    const int64_t granule = granules > 1 ? kGranuleKeys * side.stride[2] : 0;
    const int64_t unit = std::max<int64_t>(1, std::gcd(page, granule));
    return {unit, page / unit, granule / unit};
}

// Where the granules of contiguous keys lie: one after the other.
constexpr auto kAscending = [] {
    std::array<int32_t, kMaxGranulesPerCall> granules{};
    std::iota(granules.begin(), granules.end(), 0);
    return granules;
}();

}  // namespace

int64_t granule_reach(const hattn_tensor &side, int64_t pages, const char *name) {
    return checked_multiply(pages, std::llabs(pages > 1 ? side.stride[0] : 0), name) +
           checked_multiply(side.extent[2], std::llabs(used_stride(side, 2)), name);
}

void check_granules(const Problem &problem, const hattn_tensor &side, const char *name) {
    if (!problem.scattered() || is_empty(side)) {
        return;
    }
    const int64_t pages = problem.page_size > 0 ? side.extent[0] : 1;
    const int64_t span = granule_reach(side, pages, name);
    if (problem.ring) {
        require(span <= kMaxGranuleReach, HATTN_NOT_SUPPORTED, name, ": extent[2] is ", side.extent[2],
                " and stride[2] is ", side.stride[2], ", which span ", span, " elements, but a ring may span at most ",
                kMaxGranuleReach);
    }
    require(span <= kMaxGranuleReach, HATTN_NOT_SUPPORTED, name, ": extent[0] is ", side.extent[0], ", stride[0] is ",
            side.stride[0], ", extent[2] is ", side.extent[2], " and stride[2] is ", side.stride[2], ", which span ",
            span, " elements, but pages may span at most ", kMaxGranuleReach);
}

const int32_t *ascending_granules() {
    return kAscending.data();
}

int64_t granule_unit(const Problem &problem, const hattn_tensor &side) {
    return problem.page_size > 0 ? steps_of(side, side.extent[0], problem.page_size / kGranuleKeys).unit
                                 : kGranuleKeys * used_stride(side, 2);
}

GranuleAddress locate_granules(const Problem &problem, const hattn_attention_args &args, const hattn_tensor &side,
                               int64_t batch, int64_t kv_head, const GranuleRange &range, int32_t *own) {
    const int64_t row_stride = used_stride(side, 2);
    if (problem.page_size > 0) {
        const int64_t granules = problem.page_size / kGranuleKeys;
        const Steps steps = steps_of(side, side.extent[0], granules);
        const int32_t *pages = args.block_table + batch * args.block_table_stride;
        for (int64_t i = 0; i < range.count; ++i) {
            const int64_t granule = range.first + i;
            own[i] = static_cast<int32_t>(pages[granule / granules] * steps.page + granule % granules * steps.granule);
        }
        return {address(side, 0, kv_head, 0), steps.unit, row_stride, own};
    }
    if (problem.ring) {
        const int64_t granules = args.k.extent[2] / kGranuleKeys;  // scales may have more rows
        for (int64_t i = 0; i < range.count; ++i) {
            own[i] = static_cast<int32_t>((range.first + i) % granules);
        }
        return {address(side, batch, kv_head, 0), kGranuleKeys * row_stride, row_stride, own};
    }
    const StoredRows rows(side, args.cu_seqlens_k, batch);
    return {address(side, rows.batch, kv_head, rows.first + range.first * kGranuleKeys), kGranuleKeys * row_stride,
            row_stride, kAscending.data()};
}

int64_t key_extent(const Problem &problem, const hattn_attention_args &args) {
    int64_t keys = problem.scattered() || args.cu_seqlens_k ? 0 : args.k.extent[2];
    for (int64_t b = 0; b < problem.batch; ++b) {
        if (args.cu_seqlens_k) {
            keys = std::max<int64_t>(keys, args.cu_seqlens_k[b + 1] - args.cu_seqlens_k[b]);
        } else if (problem.scattered()) {
            keys = std::max<int64_t>(keys, args.kv_lengths[b]);
        }
    }
    return keys;
}

}  // namespace hattn

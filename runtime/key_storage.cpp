#include "key_storage.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>

#include "checked.h"
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

}  // namespace

void check_granules(const Problem &problem, const hattn_tensor &side, const char *name) {
    if (problem.page_size > 0 && !is_empty(side)) {
        const Steps steps = steps_of(side, side.extent[0], problem.page_size / kGranuleKeys);
        const int64_t reach = checked_multiply(side.extent[0], std::llabs(steps.page), name) +
                              problem.page_size / kGranuleKeys * std::llabs(steps.granule);
        require(reach <= std::numeric_limits<int32_t>::max(), HATTN_NOT_SUPPORTED, name, ": stride[0] is ",
                side.stride[0], " and stride[2] is ", side.stride[2], ", but ", side.extent[0],
                " pages must be within 2^31 times the greatest common divisor of stride[0] and 16 * stride[2]");
    }
}

GranuleAddress locate_granules(const Problem &problem, const hattn_attention_args &args, const hattn_tensor &side,
                               int64_t batch, int64_t kv_head, const GranuleRange &range, int32_t *table) {
    const int64_t row_stride = side.stride[2];
    if (problem.page_size > 0) {
        const int64_t granules = problem.page_size / kGranuleKeys;
        const Steps steps = steps_of(side, side.extent[0], granules);
        const int32_t *pages = args.block_table + batch * args.block_table_stride;
        for (int64_t i = 0; i < range.count; ++i) {
            const int64_t granule = range.first + i;
            table[i] =
                static_cast<int32_t>(pages[granule / granules] * steps.page + granule % granules * steps.granule);
        }
        return {element<const float>(side, 0, kv_head, 0), steps.unit, row_stride};
    }
    // Rings are whole granules; a sequence that is none never comes to its end.
    const int64_t granules = problem.ring ? side.extent[2] / kGranuleKeys : std::numeric_limits<int64_t>::max();
    for (int64_t i = 0; i < range.count; ++i) {
        table[i] = static_cast<int32_t>((range.first + i) % granules);
    }
    return {element<const float>(side, batch, kv_head, 0), kGranuleKeys * row_stride, row_stride};
}

int64_t key_extent(const Problem &problem, const hattn_attention_args &args) {
    if (!problem.scattered()) {
        return args.k.extent[2];
    }
    return problem.batch == 0 ? 0 : *std::max_element(args.kv_lengths, args.kv_lengths + problem.batch);
}

void check_kernels_read(const Problem &problem) {
    require(problem.page_size == 0, HATTN_NOT_SUPPORTED, "page_size: is ", problem.page_size,
            ", but attention over pages is not supported yet");
    require(!problem.ring, HATTN_NOT_SUPPORTED, "ring: is 1, but attention over rings is not supported yet");
}

}  // namespace hattn

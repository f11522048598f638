#include "stored_keys.h"

#include "checked.h"
#include "tensor.h"

namespace hattn {

namespace {

constexpr float kOne = 1.0f;
constexpr int64_t kLineBytes = 64;

// Per channel, or one for all of them.
struct ChannelScales {
    const float *data = &kOne;
    int64_t stride = 0;

    ChannelScales(const hattn_tensor &scale, int64_t dim, int64_t kv_head) {
        if (scale.data && !scales_keys(scale, dim)) {
            data = element<const float>(scale, 0, scale.extent[1] > 1 ? kv_head : 0, 0);
            stride = scale.extent[3] > 1 ? scale.stride[3] : 0;
        }
    }
};

GranuleAddress locate_scales(const CallSite &site, const hattn_tensor &side, const hattn_tensor &scale, int64_t batch,
                             int64_t kv_head, const GranuleRange &range, int32_t *own) {
    if (!scale.data || !scales_keys(scale, side.extent[3])) {
        return {&kOne, 0, 0, ascending_granules()};
    }
    return locate_granules(site.plan.problem, site.args, scale, batch, kv_head, range, own);
}

}  // namespace

bool scales_keys(const hattn_tensor &scale, int64_t dim) {
    return scale.extent[0] != 1 || scale.extent[2] != 1 || (scale.extent[3] != 1 && scale.extent[3] != dim);
}

SideScales::SideScales(const CallSite &site, const hattn_tensor &side, const hattn_tensor &scale, int64_t batch,
                       int64_t kv_head, const GranuleRange &range)
    : at(locate_scales(site, side, scale, batch, kv_head, range, own)),
      blocks(ceil_div(side.extent[3], kScaleBlock)),
      block_stride(at.base == &kOne || scale.extent[3] == 1 ? 0 : scale.stride[3]),
      channels(ChannelScales(scale, side.extent[3], kv_head).data,
               {{side.extent[3], ChannelScales(scale, side.extent[3], kv_head).stride}}),
      of_keys(static_cast<const float *>(at.base),
              {{blocks, block_stride}, {kGranuleKeys, at.row_stride}, {range.count, at.unit}}),
      granules(at.table, {{range.count, 1}}) {}

StoredKeys::StoredKeys(const CallSite &site, const hattn_tensor &side, const hattn_tensor &scale, int64_t batch,
                       int64_t kv_head, const KeyRange &keys)
    : range{keys.begin / kGranuleKeys, ceil_div(keys.size(), kGranuleKeys)},
      at(locate_granules(site.plan.problem, site.args, side, batch, kv_head, range, own)),
      type(side.dtype),
      lines(static_cast<int32_t>(ceil_div(storage_bytes(side.dtype, side.extent[3]), kLineBytes))),
      elements(static_cast<const float *>(at.base),
               {{side.extent[3], 1}, {kGranuleKeys, at.row_stride}, {range.count, at.unit}}),
      granules(at.table, {{range.count, 1}}),
      halves(static_cast<const uint16_t *>(at.base),
             {{side.extent[3], 1}, {kGranuleKeys, at.row_stride}, {range.count, at.unit}}),
      bytes(static_cast<const uint8_t *>(at.base), {{storage_bytes(side.dtype, side.extent[3]), 1},
                                                    {kGranuleKeys, at.row_stride * dtype_bits(side.dtype) / 8},
                                                    {range.count, at.unit * dtype_bits(side.dtype) / 8}}),
      scales(site, side, scale, batch, kv_head, range) {}

void **StoredKeys::add_storage(void **next) {
    for (void *argument : {static_cast<void *>(&type), static_cast<void *>(&lines), static_cast<void *>(halves),
                           static_cast<void *>(bytes), static_cast<void *>(scales.channels),
                           static_cast<void *>(scales.of_keys), static_cast<void *>(scales.granules)}) {
        *next++ = argument;
    }
    return next;
}

}  // namespace hattn

#include "kv_storage.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "checked.h"
#include "key_storage.h"
#include "problem.h"
#include "scratch.h"
#include "status.h"
#include "structs.h"
#include "tensor.h"

namespace hattn {

namespace {

// Elements that rows are rounded up to: they start at bytes, on devices at words.
int64_t row_multiple(const hattn_kv_cache_desc &desc, hattn_dtype dtype) {
    return std::max<int64_t>((desc.device == HATTN_CPU ? 1 : kWordBytes) * 8 / dtype_bits(dtype), 1);
}

// A tensor like one side's storage, without memory.
hattn_tensor storage(const hattn_kv_cache_desc &desc, hattn_dtype dtype, int64_t dim) {
    const int64_t pages = desc.page_size > 0 ? desc.page_count : desc.batch;
    const int64_t rows = desc.page_size > 0 ? desc.page_size : desc.capacity;
    const int64_t extent[4] = {pages, desc.kv_heads, rows, dim};
    const char *factors = desc.page_size > 0 ? "page_count * kv_heads * page_size * head dimension"
                                             : "batch * kv_heads * capacity * head dimension";
    hattn_tensor tensor = HATTN_TENSOR_INIT;
    tensor.dtype = dtype;
    int64_t elements = 1;
    for (int d = 3; d >= 0; --d) {
        tensor.extent[d] = extent[d];
        tensor.stride[d] = elements;
        elements = checked_multiply(elements, extent[d], factors);
        elements = d == 3 ? round_up(elements, row_multiple(desc, dtype)) : elements;
    }
    checked_multiply(elements, dtype_bits(HATTN_FLOAT32), factors);
    if (desc.device != HATTN_CPU) {
        const int64_t units = dtype_bits(dtype) < 8 ? storage_bytes(dtype, elements) : elements;
        const bool paged = desc.page_size > 0;
        require(units <= kMaxDeviceElements, HATTN_NOT_SUPPORTED, paged ? "page_count" : "capacity", ": is ",
                paged ? desc.page_count : desc.capacity, ", which makes ", units,
                " elements of a side, but kernels of ", device_name(desc.device), " reach ", kMaxDeviceElements);
    } else if (desc.page_size > 0) {
        // Before anything is appended that nobody could attend to.
        const int64_t span = granule_reach(tensor, pages, factors);
        require(span <= kMaxGranuleReach, HATTN_NOT_SUPPORTED, "page_count: is ", desc.page_count,
                ", with which the pages of a side span ", span, " elements, but they may span at most ",
                kMaxGranuleReach);
    }
    return tensor;
}

// Pages are given out from the first one on, so that a pool that is mostly empty takes no more memory in huge pages;
// rows of sequences side by side would.
std::unique_ptr<ContextMemory> allocate(const hattn_kv_cache &cache, hattn_tensor &tensor) {
    const auto bytes = static_cast<size_t>(storage_bytes(tensor.dtype, tensor.extent[0] * tensor.stride[0]));
    auto memory = cache.desc.page_size > 0 ? ContextMemory::in_huge_pages(*cache.context, bytes, kScratchAlignment)
                                           : std::make_unique<ContextMemory>(*cache.context, bytes, kScratchAlignment);
    tensor.data = memory->data();
    return memory;
}

// Scales given once for all: [1, 1 or Hkv, 1, 1 or D].
void check_given_scales(const hattn_tensor &scale, const char *name, const hattn_tensor &rows) {
    require(is_quantized(rows.dtype), HATTN_INVALID_ARGUMENT, name, ": data is given, but the cache's type is ",
            NamedDtype{rows.dtype});
    check_tensor(scale, name, HATTN_FLOAT32);
    for (int d = 0; d < 4; ++d) {
        const int64_t most = d % 2 == 0 ? 1 : rows.extent[d];
        require(scale.extent[d] == 1 || scale.extent[d] == most, HATTN_INVALID_ARGUMENT, name, ": extent[", d, "] (",
                kKeyDimensions.name[d], ") is ", scale.extent[d], ", but must be 1", most > 1 ? " or " : "",
                most > 1 ? std::to_string(most) : "");
    }
}

std::vector<float> dense_scales(const hattn_tensor &from, const char *name) {
    std::vector<float> scales;
    for (int64_t h = 0; h < from.extent[1]; ++h) {
        for (int64_t d = 0; d < from.extent[3]; ++d) {
            const float scale = element<const float>(from, 0, h, 0)[d * from.stride[3]];
            require(std::isfinite(scale) && scale > 0.0f, HATTN_INVALID_ARGUMENT, name, ": of kv head ", h,
                    " and channel ", d, " is ", scale, ", but must be positive and finite: numbers are divided by it");
            scales.push_back(scale);
        }
    }
    return scales;
}

// Memory for a side. given: scales, or none.
void take_memory(const hattn_kv_cache &cache, std::vector<float> given, CachedSide &side) {
    const bool quantized = is_quantized(side.rows.dtype);
    if (cache.device) {
        side.device_rows = std::make_unique<DeviceCache::Memory>(*cache.device, side.rows);
        side.scales.data = given.empty() ? nullptr : given.data();
        if (quantized) {
            side.device_scales = std::make_unique<DeviceCache::Memory>(*cache.device, side.scales);
        }
        return;
    }
    side.row_memory = allocate(cache, side.rows);
    if (quantized) {
        side.scale_memory = allocate(cache, side.scales);
        std::copy(given.begin(), given.end(), static_cast<float *>(side.scales.data));
    }
}

void copy_page(const hattn_tensor &side, const PageCopy &copy) {
    const auto bytes = static_cast<size_t>(storage_bytes(side.dtype, copy.rows * side.stride[2]));
    for (int64_t h = 0; h < side.extent[1]; ++h) {
        std::memcpy(address(side, copy.to, h, 0), address(side, copy.from, h, 0), bytes);
    }
}

}  // namespace

CachedSide make_side(const hattn_kv_cache &cache, hattn_dtype dtype, int64_t dim, const hattn_tensor &given,
                     const char *name) {
    const hattn_kv_cache_desc &desc = cache.desc;
    CachedSide side;
    side.rows = storage(desc, dtype, dim);
    read_struct(&given, name);
    if (given.data) {
        check_given_scales(given, name, side.rows);
        side.scales = HATTN_TENSOR_INIT;
        const int64_t heads = given.extent[1], channels = given.extent[3];
        const int64_t extent[4] = {1, heads, 1, channels}, stride[4] = {heads * channels, channels, channels, 1};
        std::copy(extent, extent + 4, side.scales.extent);
        std::copy(stride, stride + 4, side.scales.stride);
    } else if (is_quantized(dtype)) {
        hattn_kv_cache_desc of_scales = desc;
        of_scales.capacity = std::max(desc.capacity, kLeastKeyScales);
        side.scales = storage(of_scales, HATTN_FLOAT32, ceil_div(dim, kScaleBlock));
        side.computes_scales = true;
    }
    take_memory(cache, given.data ? dense_scales(given, name) : std::vector<float>(), side);
    return side;
}

void check_outside(const hattn_kv_cache &cache, const hattn_tensor &tensor, const char *name) {
    for (const CachedSide *side : {&cache.keys, &cache.values}) {
        check_apart(tensor, name, side->rows, "the cache");
        check_apart(tensor, name, side->scales, "the cache");
    }
}

void copy_pages(const hattn_kv_cache &cache, std::span<const PageCopy> copies) {
    for (const PageCopy &copy : copies) {
        for (const CachedSide *side : {&cache.keys, &cache.values}) {
            copy_page(side->rows, copy);
            if (side->computes_scales) {
                copy_page(side->scales, copy);
            }
        }
    }
}

}  // namespace hattn

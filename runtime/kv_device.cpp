#include "kv_device.h"

#include <vector>

#include "device/device_cache.h"
#include "kv_runs.h"
#include "row_angles.h"

namespace hattn {

namespace {

DeviceCache::Side stored(const CachedSide &side) {
    return {side.rows, side.scales, side.computes_scales};
}

}  // namespace

void copy_on_device(const hattn_kv_cache &cache, std::span<const PageCopy> copies) {
    std::vector<RowRun> &runs = cache.device->no_runs();
    for (const PageCopy &copy : copies) {
        runs.push_back({copy.from, 0, copy.to, 0, copy.rows, 0});
    }
    const DeviceCache::Side sides[] = {stored(cache.keys), stored(cache.values)};
    cache.device->copy(sides, runs);
}

void append_on_device(const hattn_kv_cache &cache, const hattn_tensor &k, const hattn_tensor &v, const RowCounts &added,
                      const RowTurner *rope) {
    std::vector<RowRun> &runs = cache.device->no_runs();
    // Rows that belong to nobody have no angles.
    const RowCounts turned = {added.lengths, added.ends ? added.rows : added.most(cache.desc.batch), added.ends};
    for (int64_t b = 0; b < cache.desc.batch; ++b) {
        for_each_run(cache, b, 0, added.of(b), added.of(b), [&](const Run &run) {
            runs.push_back({added.entry(b), added.first(b) + run.row, run.page, run.at, run.rows,
                            rope ? place_of(turned, b, run.row) : 0});
        });
    }
    RowAngles &angles = cache.device->angles();
    if (rope) {
        compute_angles(*rope, cache.desc.batch, turned, angles);
    }
    const DeviceCache::Added sides[] = {{k, "k", stored(cache.keys), rope ? &angles : nullptr},
                                        {v, "v", stored(cache.values), nullptr}};
    cache.device->append(sides, runs);
}

}  // namespace hattn

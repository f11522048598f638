// Launches that write rows of a KV cache on a device.
#pragma once

#include <exception>
#include <memory_resource>
#include <span>
#include <vector>

#include "device_launch.h"
#include "device_memory.h"
#include "device_staging.h"
#include "row_runs.h"
#include "unit_record.h"

namespace hattn {

// The last member, or the last local, of what the queue reads: after a failure nothing is left in the queue that does.
class DrainedOnFailure {
public:
    explicit DrainedOnFailure(const DeviceQueue &queue) : queue_(queue) {}
    ~DrainedOnFailure() {
        if (std::uncaught_exceptions() > exceptions_) {
            queue_.drain();
        }
    }
    DrainedOnFailure(const DrainedOnFailure &) = delete;
    DrainedOnFailure &operator=(const DrainedOnFailure &) = delete;

private:
    const DeviceQueue &queue_;
    const int exceptions_ = std::uncaught_exceptions();
};

// A tensor and its memory. A tensor without data has memory of its own, as long as this lives.
struct DeviceRows {
    DeviceRows(DeviceQueue &queue, const hattn_tensor &given, const char *name);

    const hattn_tensor tensor;
    DeviceMemory memory;

private:
    const DrainedOnFailure drained_;
};

// Dense rows in float32 between two launches, those of all runs one after the other: [1, heads, rows, dim].
hattn_tensor wide_rows(int64_t heads, int64_t dim, std::span<const RowRun> runs);
// The same runs, with one end there.
enum class WideEnd { kWritten, kRead };
std::pmr::vector<RowRun> wide_runs(std::span<const RowRun> runs, WideEnd end, std::pmr::memory_resource *host);
// What these need.
void add_wide_bytes(int64_t heads, int64_t dim, std::span<const RowRun> runs, StagingBytes &bytes);

// From one type of float32, float16 and bfloat16 to another. Launched when made; `host`, where its tables are, has to
// stay until the queue is done, and so does this if it took memory of its own on the device.
class RowConversion {
public:
    // angles may be null. `runs` have to be some.
    RowConversion(DeviceQueue &queue, const DeviceRows &from, const DeviceRows &to, std::span<const RowRun> runs,
                  const RowAngles *angles, std::pmr::memory_resource *host);
    // What it needs.
    static void add_bytes(const DeviceQueue &queue, int64_t heads, std::span<const RowRun> runs,
                          const RowAngles *angles, StagingBytes &bytes);

private:
    const std::pmr::vector<AppendRecord> records_;
    const std::pmr::vector<float> host_cosines_, host_sines_;
    DeviceMemory cosines_, sines_;
    UnitTable table_;
    const DrainedOnFailure drained_;
};

// From float32 to integers. Likewise.
class RowQuantization {
public:
    // scales: as hattn_attention_args takes them, or those of each key, which are computed first.
    RowQuantization(DeviceQueue &queue, const DeviceRows &from, const DeviceRows &to, const DeviceRows &scales,
                    bool computes_scales, std::span<const RowRun> runs, std::pmr::memory_resource *host);
    static void add_bytes(const DeviceQueue &queue, int64_t heads, std::span<const RowRun> runs, StagingBytes &bytes);

private:
    DeviceMemory one_;  // stands for the scales that there are none of
    const std::pmr::vector<QuantizeRecord> records_;
    UnitTable table_;
    const DrainedOnFailure drained_;
};

}  // namespace hattn

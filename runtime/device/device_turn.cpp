#include "device_turn.h"

#include <memory_resource>
#include <optional>
#include <span>

#include "device_append.h"

namespace hattn {

namespace {

// The launches. Live until the queue is done if they took memory of their own on the device.
class TurnedRows {
public:
    TurnedRows(DeviceQueue &queue, const hattn_tensor &x, const hattn_tensor &out, bool in_place,
               std::span<const RowRun> runs, const RowAngles &angles, std::pmr::memory_resource *host)
        : from_(queue, x, "x"), to_(queue, out, "out") {
        if (!in_place) {
            turned_.emplace(queue, from_, to_, runs, &angles, host);
            return;
        }
        // A thread writes one element of a pair while another one reads it.
        wide_.emplace(queue, wide_rows(out.extent[1], out.extent[3], runs), "turned rows");
        turned_.emplace(queue, from_, *wide_, wide_runs(runs, WideEnd::kWritten, host), &angles, host);
        stored_.emplace(queue, *wide_, to_, wide_runs(runs, WideEnd::kRead, host), nullptr, host);
    }

    // What that needs.
    static void add_bytes(const DeviceQueue &queue, const hattn_tensor &out, bool in_place,
                          std::span<const RowRun> runs, const RowAngles &angles, StagingBytes &bytes) {
        RowConversion::add_bytes(queue, out.extent[1], runs, &angles, bytes);
        if (in_place) {
            RowConversion::add_bytes(queue, out.extent[1], runs, nullptr, bytes);
            add_wide_bytes(out.extent[1], out.extent[3], runs, bytes);
        }
    }

private:
    const DeviceRows from_, to_;
    std::optional<DeviceRows> wide_;
    std::optional<RowConversion> turned_, stored_;
};

}  // namespace

void launch_turns(const DeviceWork &work, const hattn_tensor &x, const hattn_tensor &out, bool in_place) {
    if (work.runs.empty()) {
        return;
    }
    StagingBytes bytes;
    TurnedRows::add_bytes(work.queue, out, in_place, work.runs, work.angles, bytes);
    discard_device_error();
    StagedCall call(work.staging, bytes);
    const TurnedRows turned(work.queue, x, out, in_place, work.runs, work.angles, call.host());
    call.finish(false);
}

}  // namespace hattn

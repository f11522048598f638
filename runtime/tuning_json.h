// Parts of tuning databases as JSON; the schema is in docs/tuning.md.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "device/device_stamp.h"
#include "machine_stamp.h"
#include "tuning.h"

namespace hattn {

nlohmann::ordered_json stamp_json(const MachineStamp &stamp);
// device: null for the CPU.
nlohmann::ordered_json class_json(const TuningFamily &family, const TuningCell &cell,
                                  const DeviceStamp *device = nullptr);
nlohmann::ordered_json tile_json(const KernelTile &tile);
nlohmann::ordered_json tile_json(const DeviceTile &tile);

}  // namespace hattn

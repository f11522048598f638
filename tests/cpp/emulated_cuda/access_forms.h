// Loads and stores.
#pragma once

#include <optional>

#include "lane_map.h"

namespace hattn::emulated_cuda {

// ld or st with its modifiers, as "ld.global.nc.v4.b32"; the vector's registers, or the one, each have
// `register_bytes` in the register file. Operands of a load are registers, then the address; of a store the address,
// then registers. Of ld.param, whose address is a constant (Instruction::offset), registers alone. Nothing if there is
// no such instruction.
std::optional<Form> access_form(const std::string &opcode, int register_bytes);

}  // namespace hattn::emulated_cuda

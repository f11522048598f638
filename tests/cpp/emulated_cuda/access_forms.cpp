#include "access_forms.h"

#include <cstring>
#include <sstream>

#include "memory.h"
#include "type_names.h"

namespace hattn::emulated_cuda {

namespace {

struct Opcode {
    bool loads = false;
    std::string space, type;
    int vector = 1;
};

std::optional<Opcode> parse(const std::string &text) {
    Opcode opcode;
    std::istringstream parts(text);
    std::string part;
    std::getline(parts, part, '.');
    if (part != "ld" && part != "st") {
        return {};
    }
    opcode.loads = part == "ld";
    std::getline(parts, opcode.space, '.');
    while (std::getline(parts, part, '.')) {
        if (part == "v2" || part == "v4") {
            opcode.vector = part[1] - '0';
        } else if (part != "nc" || !opcode.loads) {  // through another cache
            opcode.type = part;
            break;
        }
    }
    return std::getline(parts, part, '.') ? std::nullopt : std::optional(opcode);
}

// Numbers in memory are of type Stored; in a register of Register, signed ones extended.
template<typename Register, typename Stored>
Register in_register(const uint8_t *data) {
    Stored stored;
    std::memcpy(&stored, data, sizeof(stored));
    return static_cast<Register>(stored);
}

template<Space space, typename Register, typename Stored, int vector>
void load(const Instruction &instruction, Warp &warp) {
    const uint64_t *base = warp.lanes<uint64_t>(instruction.operands[vector]);
    for (int lane = 0; lane < kLanes; ++lane) {
        if (!warp.is_active(lane)) {
            continue;
        }
        const uint64_t address = base[lane] + static_cast<uint64_t>(instruction.offset);
        const uint8_t *data =
            warp.memory().for_reading(space, address, sizeof(Stored) * vector, warp.first_thread() + lane, lane);
        for (int i = 0; i < vector; ++i) {
            warp.lanes<Register>(instruction.operands[i])[lane] =
                in_register<Register, Stored>(data + i * sizeof(Stored));
        }
    }
}

template<Space space, typename Register, typename Stored, int vector>
void store(const Instruction &instruction, Warp &warp) {
    const uint64_t *base = warp.lanes<uint64_t>(instruction.operands[0]);
    for (int lane = 0; lane < kLanes; ++lane) {
        if (!warp.is_active(lane)) {
            continue;
        }
        Stored data[vector];
        for (int i = 0; i < vector; ++i) {
            data[i] = static_cast<Stored>(warp.lanes<Register>(instruction.operands[1 + i])[lane]);
        }
        const uint64_t address = base[lane] + static_cast<uint64_t>(instruction.offset);
        warp.memory().write(space, address, reinterpret_cast<const uint8_t *>(data), sizeof(data),
                            warp.first_thread() + lane, lane);
    }
}

template<typename Register, typename Stored>
void load_parameter(const Instruction &instruction, Warp &warp) {
    const auto value = in_register<Register, Stored>(warp.parameters() + instruction.offset);
    Register *to = warp.lanes<Register>(instruction.operands[0]);
    for (int lane = 0; lane < kLanes; ++lane) {
        to[lane] = warp.is_active(lane) ? value : to[lane];
    }
}

template<Space space, typename Register, typename Stored, int vector>
Execute execute_of(const Opcode &opcode) {
    return opcode.loads ? load<space, Register, Stored, vector> : store<space, Register, Stored, vector>;
}

template<typename Register, typename Stored>
Execute execute_of(const Opcode &opcode) {
    const bool shared = opcode.space == "shared";
    if (opcode.space == "param") {
        return opcode.loads && opcode.vector == 1 ? load_parameter<Register, Stored> : nullptr;
    }
    if (!shared && opcode.space != "global") {
        return nullptr;
    }
    switch (opcode.vector) {
    case 1:
        return shared ? execute_of<Space::kShared, Register, Stored, 1>(opcode)
                      : execute_of<Space::kGlobal, Register, Stored, 1>(opcode);
    case 2:
        return shared ? execute_of<Space::kShared, Register, Stored, 2>(opcode)
                      : execute_of<Space::kGlobal, Register, Stored, 2>(opcode);
    default:
        return shared ? execute_of<Space::kShared, Register, Stored, 4>(opcode)
                      : execute_of<Space::kGlobal, Register, Stored, 4>(opcode);
    }
}

// Nothing is known of bits but how many: those above them become 0.
template<typename Register, typename... Stored>
Execute execute_of_type(const Opcode &opcode) {
    Execute execute = nullptr;
    const auto try_type = [&](const std::string &name, Execute candidate) {
        execute = opcode.type == name ? candidate : execute;
    };
    (try_type(type_name<Stored>(), execute_of<Register, Stored>(opcode)), ...);
    (try_type("b" + std::to_string(sizeof(Stored) * 8), execute_of<Register, std::make_unsigned_t<Stored>>(opcode)),
     ...);
    (try_type("f" + std::to_string(sizeof(Stored) * 8), execute_of<Register, std::make_unsigned_t<Stored>>(opcode)),
     ...);
    return execute;
}

}  // namespace

std::optional<Form> access_form(const std::string &text, int register_bytes) {
    const std::optional<Opcode> opcode = parse(text);
    if (!opcode) {
        return {};
    }
    Form form;
    form.execute =
        register_bytes == 8
            ? execute_of_type<uint64_t, uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, uint64_t, int64_t>(
                  *opcode)
            : execute_of_type<uint32_t, uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t>(*opcode);
    if (!form.execute) {
        return {};
    }
    form.operand_bytes.assign(static_cast<size_t>(opcode->vector), register_bytes);
    if (opcode->space != "param") {
        form.operand_bytes.insert(opcode->loads ? form.operand_bytes.end() : form.operand_bytes.begin(), 8);
    }
    return form;
}

}  // namespace hattn::emulated_cuda

// A kernel in the form that it is run in: registers are places in a warp's register file, and every instruction is a
// function on a whole warp.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace hattn::emulated_cuda {

class Warp;
struct Instruction;
using Execute = void (*)(const Instruction &, Warp &);

inline constexpr int kLanes = 32;

// A register is an array over the lanes of a warp, of 4 bytes each or, for 64-bit ones, 8. A slot is where it starts in
// the register file, in bytes. Constants and special registers have slots too.
using Slot = uint32_t;
inline constexpr Slot kNoSlot = ~Slot{0};

enum class Flow : uint8_t { kNext, kBranch, kBarrier, kExit };

struct Instruction {
    Flow flow = Flow::kNext;
    bool guard_negated = false;
    Slot guard = kNoSlot;
    Execute execute = nullptr;   // kNext
    std::vector<Slot> operands;  // destinations first
    int64_t offset = 0;          // of the last address, in bytes
    int64_t first_offset = 0;    // of one before it
    uint32_t target = 0;         // kBranch: index of an instruction
    int line = 0;
    const std::string *text = nullptr;
};

struct Constant {
    Slot slot;
    int bytes;
    uint64_t bits;
};

enum SpecialRegister { kTidX, kTidY, kTidZ, kCtaidX, kCtaidY, kCtaidZ, kNtidX, kNtidY, kNtidZ, kSpecialRegisters };

struct Program {
    std::string name;
    std::vector<Instruction> code;
    std::vector<std::unique_ptr<std::string>> texts;  // of instructions
    std::vector<Constant> constants;
    std::array<Slot, kSpecialRegisters> special{};
    std::vector<int> parameter_bytes;
    std::vector<uint32_t> parameter_offsets;  // where ld.param finds them
    uint32_t register_file_bytes = 0;
    int barriers = 0;
    int most_threads = 0;  // of a block; 0: any number
};

}  // namespace hattn::emulated_cuda

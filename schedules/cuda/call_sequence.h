// Calls of functions that do not exist, in PTX as LLVM 21 writes it, and the instructions that take their place.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace hattn::schedules::cuda {

enum class InstructionKind {
    kProduct,
    kLoad,
    kCopy,
    kConditionalCopy,
    kOrder,
    kConversion,
    kExchange,
    kVote,
    // warpgroup_calls.h
    kSums,
    kMemoryProducts,
    kRegisterProducts,
    kResult,
};

struct Instruction {
    const char *call, *name;
    size_t operands;
    InstructionKind kind;
};
std::span<const Instruction> instructions();
// The one that a line has a call of; null: none.
const Instruction *instruction_in(const std::string &line);

// One call: from "{ // callseq" to "}", which LLVM writes as
//
//     .param .b32 param0;                          for each operand
//     st.param.b32 [param0], %r1;
//     .param .align 16 .b8 retval0[16];
//     call.uni (retval0), NAME, (param0, ...);
//     ld.param.v2.b64 {%rd1, %rd2}, [retval0];
//
// and with one result, which is a .b32 and may be unused, ld.param.b32 %r2, [retval0].
class CallSequence {
public:
    void take(const std::string &line);
    // Throws std::runtime_error where there are not the operands and results that the instruction has.
    void check() const;

    std::string text;
    std::vector<std::string> operands;
    std::array<std::string, 2> results;
    std::string word;                          // the only result
    const Instruction *instruction = nullptr;  // null: a call of another function
};

}  // namespace hattn::schedules::cuda

// PTX as text: entries, and their statements as words. What statements mean is for decode.h. Syntax as in the PTX ISA
// documentation, of that what LLVM's backend writes.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace hattn::emulated_cuda {

// %r1, 0f3F800000, [%rd1+4], {%r1, %r2}: the words in it, with what brackets they are.
struct PtxOperand {
    enum class Kind { kPlain, kAddress, kVector } kind = Kind::kPlain;
    std::vector<std::string> words;  // kAddress: base and offset, if there is one
};

struct PtxStatement {
    int line = 0;       // counted from 1
    std::string guard;  // register of the predicate; empty: none
    bool guard_negated = false;
    std::string opcode;
    std::vector<PtxOperand> operands;
    std::string text;
};

struct PtxParameter {
    std::string name;
    int bytes = 0;
};

struct PtxEntry {
    std::string name;
    int most_threads = 0;  // of a block (.maxntid); 0: any number
    std::vector<PtxParameter> parameters;
    std::map<std::string, int> register_bits;  // by name up to the number, as "%rd"
    std::vector<PtxStatement> statements;
    std::map<std::string, size_t> labels;  // the statement that follows
};

// Throws Fault where a line is not understood.
std::vector<PtxEntry> parse_ptx(std::string_view text);

}  // namespace hattn::emulated_cuda

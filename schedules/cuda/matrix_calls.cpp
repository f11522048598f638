#include "matrix_calls.h"

#include <algorithm>
#include <array>
#include <regex>
#include <sstream>
#include <stdexcept>

namespace hattn::schedules::cuda {

namespace {

constexpr size_t kMostOperands = 10;

struct Instruction {
    const char *call, *name;
    size_t operands;
};
// Of two that start alike the longer one first.
constexpr Instruction kInstructions[] = {
    {kFloat16Call, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", kMostOperands},
    {kBfloat16Call, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", kMostOperands},
    {kTransposedLoadCall, "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", 1},
    {kMatrixLoadCall, "ldmatrix.sync.aligned.m8n8.x4.shared.b16", 1},
};

const Instruction *instruction_in(const std::string &line) {
    for (const Instruction &instruction : kInstructions) {
        if (line.find(instruction.call) != std::string::npos) {
            return &instruction;
        }
    }
    return nullptr;
}

[[noreturn]] void fail(const std::string &line) {
    throw std::runtime_error("PTX calls an instruction for matrices in an unknown way: " + line);
}

// One call: from "{ // callseq" to "}", which LLVM writes as
//
//     .param .b32 param0;                          for each operand
//     st.param.b32 [param0], %r1;
//     .param .align 16 .b8 retval0[16];
//     call.uni (retval0), NAME, (param0, ...);
//     ld.param.v2.b64 {%rd1, %rd2}, [retval0];
class CallSequence {
public:
    void take(const std::string &line) {
        static const std::regex store(R"(\s*st\.param\.b32\s+\[param(\d+)\], (\S+);)");
        static const std::regex load(R"(\s*ld\.param\.v2\.b64\s+\{(%rd\d+), (%rd\d+)\}, \[retval0\];)");
        std::smatch match;
        if (std::regex_match(line, match, store)) {
            const size_t operand = std::stoul(match[1]);
            if (operand >= kMostOperands) {
                fail(line);
            }
            operands_[operand] = match[2];
        } else if (std::regex_match(line, match, load)) {
            results_ = {match[1], match[2]};
        } else if (line.find("call.uni") != std::string::npos) {
            instruction_ = instruction_in(line);
        }
        text_ += line + "\n";
    }

    // The instruction, or the call of another function as it was. Results are packed as the caller takes them apart;
    // ptxas makes nothing of that.
    std::string text() const {
        if (!instruction_) {
            return text_;
        }
        const auto end = operands_.begin() + instruction_->operands;
        if (results_[0].empty() || std::any_of(operands_.begin(), end, [](auto &o) { return o.empty(); })) {
            fail(text_);
        }
        std::ostringstream out;
        out << "{\n.reg .b32 %mma<14>;\n";
        std::array<std::string, kMostOperands> registers = operands_;
        for (size_t i = 0; i < instruction_->operands; ++i) {
            if (operands_[i].front() != '%') {
                registers[i] = "%mma" + std::to_string(4 + i);
                out << "mov.b32 " << registers[i] << ", " << operands_[i] << ";\n";
            }
        }
        const auto &[c0, c1, c2, c3, a0, a1, a2, a3, b0, b1] = registers;
        out << instruction_->name << " {%mma0, %mma1, %mma2, %mma3}, ";
        if (instruction_->operands == 1) {
            out << '[' << c0 << "];\n";
        } else {
            out << '{' << a0 << ", " << a1 << ", " << a2 << ", " << a3 << "}, {" << b0 << ", " << b1 << "}, {" << c0
                << ", " << c1 << ", " << c2 << ", " << c3 << "};\n";
        }
        out << "mov.b64 " << results_[0] << ", {%mma0, %mma1};\n"
            << "mov.b64 " << results_[1] << ", {%mma2, %mma3};\n}\n";
        return out.str();
    }

private:
    std::string text_;
    std::array<std::string, kMostOperands> operands_;
    std::array<std::string, 2> results_;
    const Instruction *instruction_ = nullptr;
};

}  // namespace

std::string replace_matrix_calls(const std::string &ptx) {
    std::istringstream lines(ptx);
    std::string result;
    bool in_declaration = false, in_call = false;
    CallSequence call;
    for (std::string line; std::getline(lines, line);) {
        if (line.find(".extern .func") != std::string::npos && instruction_in(line)) {
            in_declaration = true;
        }
        const bool begins = line.find("{ // callseq") != std::string::npos;
        if (begins) {
            call = CallSequence();
            in_call = true;
        }
        if (in_call) {
            call.take(line);
        } else if (!in_declaration) {
            result += line + "\n";
        }
        if (in_declaration && line.find(';') != std::string::npos) {
            in_declaration = false;
        }
        if (in_call && line.find("} // callseq") != std::string::npos) {
            result += call.text();
            in_call = false;
        }
    }
    for (const Instruction &instruction : kInstructions) {
        if (const size_t at = result.find(instruction.call); at != std::string::npos) {
            fail(result.substr(at, 80));
        }
    }
    return result;
}

void replace_matrix_calls(const Halide::Module &module) {
    Halide::Buffer<> code = module.get_device_code_buffer();
    auto *data = static_cast<char *>(code.data());
    const size_t size = code.number_of_elements();
    const size_t length = std::find(data, data + size, '\0') - data;
    const std::string text = replace_matrix_calls(std::string(data, length));
    if (text.size() > length + 1) {
        throw std::runtime_error("device code grew with its matrix products");
    }
    std::fill(std::copy_n(text.data(), std::min(text.size(), length), data), data + length, '\n');
}

}  // namespace hattn::schedules::cuda

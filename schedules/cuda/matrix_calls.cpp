#include "matrix_calls.h"

#include <algorithm>
#include <array>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <vector>

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

bool mentions(const std::string &line, const std::set<std::string> &names) {
    static const std::regex name(R"(%rd\d+)");
    const std::sregex_iterator first(line.begin(), line.end(), name);
    return std::any_of(first, std::sregex_iterator(), [&](const auto &match) { return names.count(match.str()) > 0; });
}

// How the code takes 64-bit registers apart, each in one of two ways:
//
//     mov.b64 {%r1, %r2}, %rd1;
//     cvt.u32.u64 %r1, %rd1;    { .reg .b32 tmp; mov.b64 {tmp, %r2}, %rd1; }
class UnpackedWords {
public:
    using Words = std::array<std::string, 2>;

    // Whether a line is one of these.
    bool take(const std::string &line) {
        static const std::regex both(R"(\s*mov\.b64\s+\{(%r\d+), (%r\d+)\}, (%rd\d+);)");
        static const std::regex lower(R"(\s*cvt\.u32\.u64\s+(%r\d+), (%rd\d+);)");
        static const std::regex upper(R"(\s*\{ \.reg \.b32 tmp; mov\.b64 \{tmp, (%r\d+)\}, (%rd\d+); \})");
        std::smatch match;
        if (std::regex_match(line, match, both)) {
            add(match[3], 0, match[1]);
            add(match[3], 1, match[2]);
        } else if (std::regex_match(line, match, lower)) {
            add(match[2], 0, match[1]);
        } else if (std::regex_match(line, match, upper)) {
            add(match[2], 1, match[1]);
        } else {
            return false;
        }
        return true;
    }

    const Words &of(const std::string &name) const {
        const auto found = words_.find(name);
        if (found == words_.end() || found->second[0].empty() || found->second[1].empty() || repeated_.count(name)) {
            fail(name + " is not taken apart once");
        }
        return found->second;
    }

private:
    void add(const std::string &name, size_t which, const std::string &word) {
        std::string &own = words_[name][which];
        if (!own.empty()) {
            repeated_.insert(name);
        }
        own = word;
    }

    std::set<std::string> repeated_;
    std::map<std::string, Words> words_;
};

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

    // The instruction, or the call of another function as it was.
    std::string text(const UnpackedWords &unpacked) const {
        if (!instruction_) {
            return text_;
        }
        const auto end = operands_.begin() + instruction_->operands;
        if (results_[0].empty() || std::any_of(operands_.begin(), end, [](auto &o) { return o.empty(); })) {
            fail(text_);
        }
        const auto &[d0, d1] = unpacked.of(results_[0]);
        const auto &[d2, d3] = unpacked.of(results_[1]);
        const auto &[c0, c1, c2, c3, a0, a1, a2, a3, b0, b1] = operands_;
        std::ostringstream out;
        out << instruction_->name << " {" << d0 << ", " << d1 << ", " << d2 << ", " << d3 << "}, ";
        if (instruction_->operands == 1) {
            out << '[' << c0 << "];\n";
        } else {
            out << '{' << a0 << ", " << a1 << ", " << a2 << ", " << a3 << "}, {" << b0 << ", " << b1 << "}, {" << c0
                << ", " << c1 << ", " << c2 << ", " << c3 << "};\n";
        }
        return out.str();
    }

    // Registers that the instruction does without.
    std::set<std::string> packed_results() const {
        return instruction_ ? std::set<std::string>(results_.begin(), results_.end()) : std::set<std::string>();
    }

private:
    std::string text_;
    std::array<std::string, kMostOperands> operands_;
    std::array<std::string, 2> results_;
    const Instruction *instruction_ = nullptr;
};

// Device code in pieces: lines, and calls in their place.
class DeviceCode {
public:
    explicit DeviceCode(const std::string &ptx) {
        std::istringstream lines(ptx);
        bool in_declaration = false, in_call = false;
        for (std::string line; std::getline(lines, line);) {
            in_declaration =
                in_declaration || (line.find(".extern .func") != std::string::npos && instruction_in(line));
            if (line.find("{ // callseq") != std::string::npos) {
                calls_.emplace_back();
                in_call = true;
            }
            if (in_call) {
                calls_.back().take(line);
            } else if (!in_declaration) {
                lines_.push_back({line, calls_.size()});
                words_.take(line);
            }
            in_declaration = in_declaration && line.find(';') == std::string::npos;
            in_call = in_call && line.find("} // callseq") == std::string::npos;
        }
    }

    std::string with_instructions() const {
        std::set<std::string> packed;
        for (const CallSequence &call : calls_) {
            packed.merge(call.packed_results());
        }
        std::string result;
        size_t calls = 0;
        const auto add_calls = [&](size_t end) {
            for (; calls < end; ++calls) {
                result += calls_[calls].text(words_);
            }
        };
        for (const auto &[line, calls_before] : lines_) {
            add_calls(calls_before);
            if (!mentions(line, packed)) {
                result += line + "\n";
            } else if (!UnpackedWords().take(line)) {
                fail(line);
            }
        }
        add_calls(calls_.size());
        return result;
    }

private:
    struct Line {
        std::string text;
        size_t calls_before;
    };
    std::vector<Line> lines_;
    std::vector<CallSequence> calls_;
    UnpackedWords words_;
};

}  // namespace

std::string replace_matrix_calls(const std::string &ptx) {
    const std::string result = DeviceCode(ptx).with_instructions();
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

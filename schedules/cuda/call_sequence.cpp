#include "call_sequence.h"

#include <algorithm>
#include <regex>

#include "matrix_calls.h"
#include "ptx_lines.h"
#include "warpgroup_calls.h"

namespace hattn::schedules::cuda {

namespace {

constexpr size_t kMostOperands = 80;

// Of two that start alike the longer one first.
constexpr Instruction kInstructions[] = {
    {kFloat16Call, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 10, InstructionKind::kProduct},
    {kBfloat16Call, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", 10, InstructionKind::kProduct},
    {kTransposedLoadCall, "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", 1, InstructionKind::kLoad},
    {kMatrixLoadCall, "ldmatrix.sync.aligned.m8n8.x4.shared.b16", 1, InstructionKind::kLoad},
    {kConditionalCopyCall, "cp.async.cg.shared.global", 8, InstructionKind::kConditionalCopy},
    {kCopyCall, "cp.async.cg.shared.global", 7, InstructionKind::kCopy},
    {kCommitCall, "cp.async.commit_group", 0, InstructionKind::kOrder},
    {kWaitCall, "cp.async.wait_group", 1, InstructionKind::kOrder},
    {kBfloat16PairCall, "cvt.rn.bf16x2.f32", 2, InstructionKind::kConversion},
    {kAnyLaneCall, "vote.sync.any.pred", 1, InstructionKind::kVote},
    {kExchangeCall, "shfl.sync.bfly.b32", 2, InstructionKind::kExchange},
    {kWarpgroupSumsCall, "", 6, InstructionKind::kSums},
    {kWarpgroupFenceCall, "wgmma.fence.sync.aligned", 0, InstructionKind::kOrder},
    {kWarpgroupMemoryCall, "", 9, InstructionKind::kMemoryProducts},
    {kWarpgroupRegistersCall, "", 11, InstructionKind::kRegisterProducts},
    {kWarpgroupCommitCall, "wgmma.commit_group.sync.aligned", 0, InstructionKind::kOrder},
    {kWarpgroupWaitCall, "wgmma.wait_group.sync.aligned", 1, InstructionKind::kOrder},
    {kWarpgroupResultCall, "", 2, InstructionKind::kResult},
};

}  // namespace

std::span<const Instruction> instructions() {
    return kInstructions;
}

const Instruction *instruction_in(const std::string &line) {
    for (const Instruction &instruction : kInstructions) {
        if (line.find(instruction.call) != std::string::npos) {
            return &instruction;
        }
    }
    return nullptr;
}

void CallSequence::take(const std::string &line) {
    static const std::regex store(R"(\s*st\.param\.b32\s+\[param(\d+)\], (\S+);)");
    static const std::regex load(R"(\s*ld\.param\.v2\.b64\s+\{(%rd\d+), (%rd\d+)\}, \[retval0\];)");
    static const std::regex load_word(R"(\s*ld\.param\.b32\s+(%r\d+), \[retval0\];)");
    std::smatch match;
    if (std::regex_match(line, match, store)) {
        const size_t operand = std::stoul(match[1]);
        if (operand >= kMostOperands) {
            fail_at(line);
        }
        operands.resize(std::max(operands.size(), operand + 1));
        operands[operand] = match[2];
    } else if (std::regex_match(line, match, load)) {
        results = {match[1], match[2]};
    } else if (std::regex_match(line, match, load_word)) {
        word = match[1];
    } else if (line.find("call.uni") != std::string::npos) {
        instruction = instruction_in(line);
    }
    text += line + "\n";
}

void CallSequence::check() const {
    const InstructionKind kind = instruction->kind;
    const bool has_results =
        kind == InstructionKind::kProduct || kind == InstructionKind::kLoad || kind == InstructionKind::kResult;
    const bool has_word =
        kind == InstructionKind::kConversion || kind == InstructionKind::kExchange || kind == InstructionKind::kVote;
    if (results[0].empty() == has_results || (has_word && word.empty()) || operands.size() < instruction->operands ||
        std::any_of(operands.begin(), operands.end(), [](auto &o) { return o.empty(); })) {
        fail_at(text);
    }
}

}  // namespace hattn::schedules::cuda

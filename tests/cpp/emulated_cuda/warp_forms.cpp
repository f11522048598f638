// Registers made of parts, and what the threads of a warp compute together.
#include "warp_forms.h"

#include <algorithm>
#include <cstring>

#include "fault.h"
#include "half_floats.h"
#include "matrix_fragments.h"
#include "memory.h"

namespace hattn::emulated_cuda {

namespace {

// mov.b64 {%r1, %r2}, %rd1 and the like.
template<typename Whole, typename Part>
void unpack(const Instruction &instruction, Warp &warp) {
    constexpr int kParts = sizeof(Whole) / sizeof(Part);
    for (int lane = 0; lane < kLanes; ++lane) {
        const Raw<Whole> whole = warp.lanes<Raw<Whole>>(instruction.operands[kParts])[lane];
        for (int i = 0; warp.is_active(lane) && i < kParts; ++i) {
            warp.lanes<Raw<Part>>(instruction.operands[i])[lane] =
                static_cast<Part>(whole >> (8 * sizeof(Part) * static_cast<size_t>(i)));
        }
    }
}

template<typename Whole, typename Part>
void pack(const Instruction &instruction, Warp &warp) {
    constexpr int kParts = sizeof(Whole) / sizeof(Part);
    for (int lane = 0; lane < kLanes; ++lane) {
        Raw<Whole> whole = 0;
        for (int i = 0; i < kParts; ++i) {
            const auto part = static_cast<Part>(warp.lanes<Raw<Part>>(instruction.operands[1 + i])[lane]);
            whole |= static_cast<Raw<Whole>>(part) << (8 * sizeof(Part) * static_cast<size_t>(i));
        }
        if (warp.is_active(lane)) {
            warp.lanes<Raw<Whole>>(instruction.operands[0])[lane] = whole;
        }
    }
}

template<typename Whole, typename Part>
void add_parts(Forms &forms) {
    constexpr size_t kParts = sizeof(Whole) / sizeof(Part);
    const std::string bits = std::to_string(sizeof(Whole) * 8), parts = std::to_string(kParts);
    std::vector<int> bytes(kParts, sizeof(Raw<Part>));
    bytes.push_back(sizeof(Raw<Whole>));
    forms[unpacking("mov.b" + bits, kParts)] = {unpack<Whole, Part>, bytes};
    bytes.pop_back();
    bytes.insert(bytes.begin(), sizeof(Raw<Whole>));
    forms[packing("mov.b" + bits, kParts)] = {pack<Whole, Part>, bytes};
}

// D = A B + C. Products of 16-bit numbers and their sums are computed in double precision and rounded once: the PTX ISA
// leaves order and rounding of the sums open.
template<float (*value)(uint16_t)>
void multiply_matrices(const Instruction &instruction, Warp &warp) {
    if (!warp.all_active()) {
        throw Fault(kLaunchFailed, "not all threads of a warp take part");
    }
    constexpr int kFirstA = 4, kFirstB = 8, kFirstC = 10;
    double a[kMmaM][kMmaK], b[kMmaK][kMmaN], c[kMmaM][kMmaN];
    const auto element = [&](int first, int i, int lane) {
        const uint32_t pair = warp.lanes<uint32_t>(instruction.operands[first + i / 2])[lane];
        return value(static_cast<uint16_t>(i % 2 == 0 ? pair : pair >> 16));
    };
    for (int lane = 0; lane < kLanes; ++lane) {
        for (int i = 0; i < kMmaElementsA; ++i) {
            const MatrixPosition at = position_in_a(lane, i);
            a[at.row][at.column] = element(kFirstA, i, lane);
        }
        for (int i = 0; i < kMmaElementsB; ++i) {
            const MatrixPosition at = position_in_b(lane, i);
            b[at.row][at.column] = element(kFirstB, i, lane);
        }
        for (int i = 0; i < kMmaElementsC; ++i) {
            const MatrixPosition at = position_in_c(lane, i);
            c[at.row][at.column] = from_raw<float>(warp.lanes<uint32_t>(instruction.operands[kFirstC + i])[lane]);
        }
    }
    for (int lane = 0; lane < kLanes; ++lane) {
        for (int i = 0; i < kMmaElementsC; ++i) {
            const MatrixPosition at = position_in_c(lane, i);
            double sum = c[at.row][at.column];
            for (int k = 0; k < kMmaK; ++k) {
                sum += a[at.row][k] * b[k][at.column];
            }
            warp.lanes<uint32_t>(instruction.operands[i])[lane] = to_raw(static_cast<float>(sum));
        }
    }
}

// What the lane holds whose number differs by a mask.
void exchange_lanes(const Instruction &instruction, Warp &warp) {
    if (!warp.all_active()) {
        throw Fault(kLaunchFailed, "not all threads of a warp take part");
    }
    uint32_t held[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
        held[lane] = warp.lanes<uint32_t>(instruction.operands[1])[lane];
    }
    for (int lane = 0; lane < kLanes; ++lane) {
        const uint32_t mask = warp.lanes<uint32_t>(instruction.operands[2])[lane];
        warp.lanes<uint32_t>(instruction.operands[0])[lane] = held[static_cast<uint32_t>(lane) ^ (mask % kLanes)];
    }
}

// Whether a predicate is true in any lane.
void vote_any(const Instruction &instruction, Warp &warp) {
    if (!warp.all_active()) {
        throw Fault(kLaunchFailed, "not all threads of a warp take part");
    }
    const uint32_t *votes = warp.lanes<uint32_t>(instruction.operands[1]);
    const bool any = std::any_of(votes, votes + kLanes, [](uint32_t vote) { return (vote & 1u) != 0; });
    std::fill_n(warp.lanes<uint32_t>(instruction.operands[0]), kLanes, any ? 1u : 0u);
}

// Of launches that follow one another: here each is done when the next one begins.
void nothing(const Instruction &, Warp &) {}

// Four matrices of 8 x 8 from shared memory, a row from each lane's address.
template<bool transposed>
void load_matrices(const Instruction &instruction, Warp &warp) {
    if (!warp.all_active()) {
        throw Fault(kLaunchFailed, "not all threads of a warp take part");
    }
    constexpr int kMatrices = 4;
    uint16_t rows[kLanes][kSmallMatrix];
    const uint32_t *base = warp.lanes<uint32_t>(instruction.operands[kMatrices]);
    for (int lane = 0; lane < kLanes; ++lane) {
        const uint64_t address = base[lane] + static_cast<uint64_t>(instruction.offset);
        const uint8_t *row =
            warp.memory().for_reading(Space::kShared, address, sizeof(rows[lane]), warp.first_thread() + lane, lane);
        std::memcpy(rows[lane], row, sizeof(rows[lane]));
    }
    for (int lane = 0; lane < kLanes; ++lane) {
        for (int matrix = 0; matrix < kMatrices; ++matrix) {
            const auto element = [&](int i) {
                const MatrixPosition at = position_in_small(lane, i, transposed);
                return uint32_t{rows[matrix * kSmallMatrix + at.row][at.column]};
            };
            warp.lanes<uint32_t>(instruction.operands[matrix])[lane] = element(0) | element(1) << 16;
        }
    }
}

}  // namespace

std::string unpacking(const std::string &opcode, size_t parts) {
    return opcode + " to " + std::to_string(parts);
}

std::string packing(const std::string &opcode, size_t parts) {
    return opcode + " from " + std::to_string(parts);
}

void add_warp_forms(Forms &forms) {
    add_parts<uint64_t, uint32_t>(forms);
    add_parts<uint64_t, uint16_t>(forms);
    add_parts<uint32_t, uint16_t>(forms);
    const std::vector<int> registers(14, 4);
    forms["mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"] = {multiply_matrices<bfloat16_value>, registers};
    forms["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"] = {multiply_matrices<float16_value>, registers};
    const std::vector<int> loaded(5, 4);
    forms["ldmatrix.sync.aligned.m8n8.x4.shared.b16"] = {load_matrices<false>, loaded};
    forms["ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"] = {load_matrices<true>, loaded};
    forms["shfl.sync.bfly.b32"] = {exchange_lanes, loaded};
    forms["vote.sync.any.pred"] = {vote_any, {4, 4, 4}};
    forms["griddepcontrol.launch_dependents"] = forms["griddepcontrol.wait"] = {nothing, {}};
}

}  // namespace hattn::emulated_cuda

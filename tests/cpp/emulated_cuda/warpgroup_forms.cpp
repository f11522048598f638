#include "warpgroup_forms.h"

#include <array>
#include <cstring>
#include <vector>

#include "fault.h"
#include "half_floats.h"
#include "matrix_fragments.h"
#include "memory.h"

namespace hattn::emulated_cuda {

namespace {

constexpr int kDepth = 16, kMostColumns = 256;
constexpr int kWarpRows = kMmaM;  // of the warpgroup's 64, by the warp's number
constexpr int kWarpsOfGroup = 4;
constexpr int kColumnElements = 2;  // of a thread, in eight columns: two in each of its two rows
constexpr const char *kName = "wgmma.mma_async.sync.aligned";

// "Matrix Descriptor Format" and "Shared Memory Matrix Layout", with swizzling of 128 bytes: rows of 128 bytes, eight
// of them 1024 apart or as the stride says, of whose addresses bits 4 to 6 are exclusive-or'd with bits 7 to 9.
class SharedMatrix {
public:
    explicit SharedMatrix(uint64_t descriptor)
        : start_(field(descriptor, 0)), leading_(field(descriptor, 16)), stride_(field(descriptor, 32)) {
        constexpr uint64_t kSwizzle128 = 1;
        if (descriptor >> 62 != kSwizzle128 || (descriptor >> 49 & 7u) != 0) {
            throw Fault(kIllegalInstruction,
                        "the emulator knows matrices with swizzling of 128 bytes that are aligned");
        }
    }

    // Of an element whose row lies along what is summed over.
    uint64_t along_rows(int row, int k) const {
        return swizzled(start_ + row / 8 * stride_ + row % 8 * kRow + k * kBytes);
    }
    // Of one whose column does: rows are what is summed over, parts of 64 columns are apart.
    uint64_t along_columns(int k, int column) const {
        return swizzled(start_ + column / 64 * leading_ + k / 8 * stride_ + k % 8 * kRow + column % 64 * kBytes);
    }

private:
    static constexpr uint64_t kRow = 128, kBytes = 2;

    static uint64_t field(uint64_t descriptor, int first) {
        return (descriptor >> first & 0x3fffu) << 4;
    }
    static uint64_t swizzled(uint64_t address) {
        return address ^ (address >> 7 & 7u) << 4;
    }

    uint64_t start_, leading_, stride_;
};

uint64_t same_in_all(const uint64_t *lanes) {
    for (int lane = 1; lane < kLanes; ++lane) {
        if (lanes[lane] != lanes[0]) {
            throw Fault(kIllegalInstruction, "a matrix descriptor differs between threads of a warp", lane);
        }
    }
    return lanes[0];
}

// Each read is one thread's, in turn.
class Reader {
public:
    explicit Reader(Warp &warp) : warp_(warp) {}

    uint16_t bits(uint64_t address) {
        lane_ = (lane_ + 1) % kLanes;
        uint16_t bits = 0;
        const uint8_t *data =
            warp_.memory().for_reading_of_warpgroup(address, sizeof bits, warp_.first_thread() + lane_, lane_);
        std::memcpy(&bits, data, sizeof bits);
        return bits;
    }

private:
    Warp &warp_;
    int lane_ = 0;
};

// D = A B + D, or A B. Products and sums as of mma.sync, see warp_forms.cpp. A warp has its 16 rows of A and D, and
// reads all of B. The results are there at once, but nobody may touch them before they have been waited for.
template<float (*value)(uint16_t), bool a_in_memory>
void multiply(const Instruction &instruction, Warp &warp) {
    if (!warp.all_active()) {
        throw Fault(kLaunchFailed, "not all threads of a warp take part");
    }
    constexpr size_t kFlags = a_in_memory ? 5 : 4, kOperandsA = a_in_memory ? 1 : 4;
    const size_t sums = instruction.operands.size() - kFlags - 1 - kOperandsA;
    const int columns = static_cast<int>(sums) * kColumnElements;
    const auto flag = [&](size_t i) {
        return warp.lanes<uint32_t>(instruction.operands[sums + kOperandsA + 1 + i])[0];
    };
    if (flag(1) != 1 || flag(2) != 1 || (a_in_memory && flag(3) != 0)) {
        throw Fault(kIllegalInstruction, "the emulator knows no negated matrices, and no transposed A");
    }
    const bool adds = flag(0) != 0, over_rows = flag(kFlags - 1) != 0;
    const SharedMatrix b(same_in_all(warp.lanes<uint64_t>(instruction.operands[sums + kOperandsA])));
    Reader reader(warp);
    static thread_local double of_a[kWarpRows][kDepth], of_b[kDepth][kMostColumns];
    for (int k = 0; k < kDepth; ++k) {
        for (int column = 0; column < columns; ++column) {
            of_b[k][column] = value(reader.bits(over_rows ? b.along_columns(k, column) : b.along_rows(column, k)));
        }
    }
    if constexpr (a_in_memory) {
        const SharedMatrix a(same_in_all(warp.lanes<uint64_t>(instruction.operands[sums])));
        const int first = warp.first_thread() / kLanes % kWarpsOfGroup * kWarpRows;
        for (int row = 0; row < kWarpRows; ++row) {
            for (int k = 0; k < kDepth; ++k) {
                of_a[row][k] = value(reader.bits(a.along_rows(first + row, k)));
            }
        }
    } else {
        for (int lane = 0; lane < kLanes; ++lane) {
            for (int i = 0; i < kMmaElementsA; ++i) {
                const MatrixPosition at = position_in_a(lane, i);
                const uint32_t pair =
                    warp.lanes<uint32_t>(instruction.operands[sums + static_cast<size_t>(i / 2)])[lane];
                of_a[at.row][at.column] = value(static_cast<uint16_t>(i % 2 == 0 ? pair : pair >> 16));
            }
        }
    }
    for (size_t i = 0; i < sums; ++i) {
        uint32_t *sum = warp.lanes<uint32_t>(instruction.operands[i]);
        for (int lane = 0; lane < kLanes; ++lane) {
            const MatrixPosition at = position_in_c(lane, static_cast<int>(i % kMmaElementsC));
            const size_t column = i / kMmaElementsC * kMmaN + static_cast<size_t>(at.column);
            double total = adds ? from_raw<float>(sum[lane]) : 0.0;
            for (int k = 0; k < kDepth; ++k) {
                total += of_a[at.row][k] * of_b[k][column];
            }
            sum[lane] = to_raw(static_cast<float>(total));
        }
    }
    warp.start_multiplying(instruction.operands.data(), sums);
}

void fence(const Instruction &, Warp &warp) {
    warp.fence_products();
}

void commit(const Instruction &, Warp &warp) {
    warp.commit_products();
}

void wait(const Instruction &instruction, Warp &warp) {
    if (warp.lanes<uint32_t>(instruction.operands[0])[0] != 0) {
        throw Fault(kIllegalInstruction, "the emulator waits for all products of a warpgroup");
    }
    warp.wait_for_products();
}

void fence_proxy(const Instruction &, Warp &warp) {
    for (int lane = 0; lane < kLanes; ++lane) {
        if (warp.is_active(lane)) {
            warp.memory().show_to_warpgroups(warp.first_thread() + lane);
        }
    }
}

}  // namespace

std::string warpgroup_form_name(const PtxStatement &statement) {
    const bool in_memory = statement.operands.size() > 1 && statement.operands[1].kind == PtxOperand::Kind::kPlain;
    return statement.opcode + (in_memory ? " of memory" : " of registers");
}

void add_warpgroup_forms(Forms &forms) {
    for (int columns = 8; columns <= kMostColumns; columns += 8) {
        const std::vector<int> sums(static_cast<size_t>(columns / kColumnElements), 4);
        const auto add = [&](const char *type, Execute of_memory, Execute of_registers) {
            const std::string name =
                std::string(kName) + ".m64n" + std::to_string(columns) + "k16.f32." + type + "." + type;
            const auto form = [&](std::vector<int> others) {
                others.insert(others.begin(), sums.begin(), sums.end());
                return others;
            };
            forms[name + " of memory"] = {of_memory, form({8, 8, 4, 4, 4, 4, 4})};
            forms[name + " of registers"] = {of_registers, form({4, 4, 4, 4, 8, 4, 4, 4, 4})};
        };
        add("bf16", multiply<bfloat16_value, true>, multiply<bfloat16_value, false>);
        add("f16", multiply<float16_value, true>, multiply<float16_value, false>);
    }
    forms["wgmma.fence.sync.aligned"] = {fence, {}};
    forms["wgmma.commit_group.sync.aligned"] = {commit, {}};
    forms["wgmma.wait_group.sync.aligned"] = {wait, {4}};
    forms["fence.proxy.async.shared::cta"] = {fence_proxy, {}};
}

}  // namespace hattn::emulated_cuda

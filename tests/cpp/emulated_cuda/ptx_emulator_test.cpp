// What instructions of the emulator compute, and that it stops where a GPU would or might.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "fault.h"
#include "small_kernel.h"

namespace {

using namespace hattn::emulated_cuda;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

uint32_t bits(float value) {
    return std::bit_cast<uint32_t>(value);
}

// One instruction on numbers by their bits: %r2 = operation(%r3, %r4, ...).
uint32_t computed(const std::string &operation, const std::vector<uint32_t> &operands) {
    std::string body;
    for (size_t i = 0; i < operands.size(); ++i) {
        body += "ld.global.b32 %r" + std::to_string(3 + i) + ", [%rd1+" + std::to_string(4 * i) + "];\n";
    }
    std::vector<uint32_t> memory = operands;
    memory.resize(4);
    run(body + operation + "\nst.global.b32 [%rd1+12], %r2;", memory, {.threads = 1});
    return memory[3];
}

float number(const std::string &operation, const std::vector<float> &operands) {
    std::vector<uint32_t> as_bits;
    for (float operand : operands) {
        as_bits.push_back(bits(operand));
    }
    return std::bit_cast<float>(computed(operation, as_bits));
}

TEST(PtxNumbers, MinimumAndMaximumTakeTheNumberBesideNan) {
    EXPECT_EQ(number("max.f32 %r2, %r3, %r4;", {kNan, 2.0f}), 2.0f);
    EXPECT_EQ(number("max.f32 %r2, %r3, %r4;", {-kInf, kNan}), -kInf);
    EXPECT_EQ(number("min.f32 %r2, %r3, %r4;", {2.0f, kNan}), 2.0f);
    EXPECT_TRUE(std::isnan(number("max.NaN.f32 %r2, %r3, %r4;", {kNan, 2.0f})));
    EXPECT_TRUE(std::isnan(number("max.f32 %r2, %r3, %r4;", {kNan, kNan})));
    EXPECT_FALSE(std::signbit(number("max.f32 %r2, %r3, %r4;", {-0.0f, 0.0f})));
    EXPECT_TRUE(std::signbit(number("min.f32 %r2, %r3, %r4;", {0.0f, -0.0f})));
}

TEST(PtxNumbers, ComparisonsKnowNan) {
    const auto holds = [](const std::string &comparison, float a, float b) {
        return computed("setp." + comparison + ".f32 %p1, %r3, %r4;\nselp.b32 %r2, 1, 0, %p1;", {bits(a), bits(b)}) ==
               1;
    };
    for (const char *ordered : {"eq", "ne", "lt", "le", "gt", "ge", "num"}) {
        EXPECT_FALSE(holds(ordered, kNan, 1.0f)) << ordered;
    }
    for (const char *unordered : {"equ", "neu", "ltu", "leu", "gtu", "geu", "nan"}) {
        EXPECT_TRUE(holds(unordered, 1.0f, kNan)) << unordered;
    }
    EXPECT_TRUE(holds("gt", 2.0f, 1.0f) && holds("ne", 2.0f, 1.0f) && !holds("leu", 2.0f, 1.0f));
}

TEST(PtxNumbers, AreRoundedOnce) {
    const float a = 1.0f + 0x1p-12f;
    EXPECT_EQ(number("fma.rn.f32 %r2, %r3, %r3, %r4;", {a, -(1.0f + 0x1p-11f)}), 0x1p-24f);
    EXPECT_EQ(number("ex2.approx.ftz.f32 %r2, %r3;", {-130.0f}), 0.0f);
    EXPECT_EQ(number("ex2.approx.f32 %r2, %r3;", {-130.0f}), 0x1p-130f);
}

TEST(PtxNumbers, BecomeIntegersInRange) {
    const auto integer = [](float value) {
        return static_cast<int32_t>(computed("cvt.rzi.s32.f32 %r2, %r3;", {bits(value)}));
    };
    EXPECT_EQ(integer(-2.7f), -2);
    EXPECT_EQ(integer(1e20f), std::numeric_limits<int32_t>::max());
    EXPECT_EQ(integer(-kInf), std::numeric_limits<int32_t>::min());
    EXPECT_EQ(integer(kNan), 0);
}

TEST(PtxNumbers, Of16BitsGoToNearestEven) {
    EXPECT_EQ(computed("cvt.rn.bf16x2.f32 %r2, %r3, %r4;", {bits(1.0f + 0x1p-8f), bits(1.0f + 3 * 0x1p-8f)}),
              0x3f803f82u);
    EXPECT_EQ(computed("cvt.rn.f16x2.f32 %r2, %r3, %r4;", {bits(1.0f), bits(65536.0f)}), 0x3c007c00u);
    EXPECT_EQ(number("mov.b32 {%rs1, %rs2}, %r3;\ncvt.f32.f16 %r2, %rs2;", {std::bit_cast<float>(0x3e000000u)}), 1.5f);
}

TEST(PtxIntegers, KeepTheirSign) {
    EXPECT_EQ(computed("div.s32 %r2, %r3, 2;", {static_cast<uint32_t>(-7)}), static_cast<uint32_t>(-3));
    EXPECT_EQ(computed("rem.s32 %r2, %r3, 4;", {static_cast<uint32_t>(-7)}), static_cast<uint32_t>(-3));
    EXPECT_EQ(computed("shr.s32 %r2, %r3, 40;", {0x80000000u}), 0xffffffffu);
    EXPECT_EQ(computed("shr.u32 %r2, %r3, 31;", {0x80000000u}), 1u);
    EXPECT_EQ(computed("mul.wide.s32 %rd2, %r3, -2;\nmov.b64 {%r5, %r2}, %rd2;", {3}), 0xffffffffu);
    EXPECT_EQ(computed("popc.b32 %r2, %r3;", {0xf0000001u}), 5u);
    EXPECT_EQ(computed("bfe.u32 %r2, %r3, 22, 1;", {1u << 22}), 1u);
    EXPECT_EQ(computed("bfe.s32 %r2, %r3, 4, 4;", {0x180u}), static_cast<uint32_t>(-8));
    EXPECT_EQ(computed("bfe.s32 %r2, %r3, 28, 8;", {0x70000000u}), 7u);
    EXPECT_EQ(computed("bfe.s32 %r2, %r3, 28, 8;", {0x90000000u}), static_cast<uint32_t>(-7));
    EXPECT_EQ(computed("bfe.s32 %r2, %r3, 4, 0;", {0xffffffffu}), 0u);
    EXPECT_EQ(computed("prmt.b32 %r2, %r3, %r4, 0x5410U;", {0x11112222u, 0x33334444u}), 0x44442222u);
}

TEST(PtxPaths, MeetAgain) {
    // Odd threads add 10 in a loop, as often as their number.
    const std::string body = R"(
    mov.b32 %r2, 0;
    and.b32 %r3, %r1, 1;
    setp.eq.b32 %p1, %r3, 0;
    @%p1 bra $even;
    mov.b32 %r4, 0;
$loop:
    add.s32 %r2, %r2, 10;
    add.s32 %r4, %r4, 1;
    setp.lt.s32 %p2, %r4, %r1;
    @%p2 bra $loop;
$even:
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    bar.sync 0;
    st.global.b32 [%rd3], %r2;)";
    std::vector<uint32_t> memory(48);
    run(body, memory, {.threads = 48});
    for (uint32_t thread = 0; thread < memory.size(); ++thread) {
        EXPECT_EQ(memory[thread], thread % 2 * 10 * thread) << thread;
    }
}

struct Wrong {
    const char *name;
    const char *body;
    int result;
    const char *message;
    SmallLaunch sizes;
};

void PrintTo(const Wrong &wrong, std::ostream *stream) {
    *stream << wrong.name;
}

class PtxFault : public testing::TestWithParam<Wrong> {};

TEST_P(PtxFault, IsReported) {
    std::vector<uint32_t> memory(64);
    try {
        run(GetParam().body, memory, GetParam().sizes);
        FAIL() << "nothing was found";
    } catch (const Fault &fault) {
        EXPECT_EQ(fault.result, GetParam().result);
        EXPECT_NE(std::string(fault.what()).find(GetParam().message), std::string::npos) << fault.what();
    }
}

constexpr const char *kNeighbour = R"(
    mul.wide.u32 %rd2, %r1, 4;
    st.shared.b32 [%rd2], %r1;
    bar.sync 0;
    xor.b32 %r2, %r1, 1;
    mul.wide.u32 %rd3, %r2, 4;
    ld.shared.b32 %r3, [%rd3];)";

const Wrong kWrong[] = {
    {"UnknownInstruction", "tanh.approx.f32 %r2, %r1;", kIllegalInstruction, "tanh.approx.f32", {}},
    {"WrongRegister", "add.s32 %r2, %r1, %rd1;", kInvalidPtx, "%rd1 is not a register of 32 bits", {}},
    {"GlobalBehindTheEnd", "st.global.b32 [%rd1+256], %r1;", kIllegalAddress, "not allocated", {}},
    {"GlobalBeforeTheStart", "ld.global.b32 %r2, [%rd1+-4];", kIllegalAddress, "not allocated", {}},
    {"GlobalPartlyBehindTheEnd", "ld.global.v4.b32 {%r2, %r3, %r4, %r5}, [%rd1+256];", kIllegalAddress, "16 bytes", {}},
    {"SharedBehindTheEnd",
     "mov.b64 %rd2, 128;\nst.shared.b32 [%rd2], %r1;",
     kIllegalAddress,
     "launch has 128",
     {.shared_bytes = 128}},
    {"Misaligned", "st.global.b32 [%rd1+2], %r1;", kMisalignedAddress, "misaligned", {}},
    {"MisalignedVector", "ld.global.v2.b32 {%r2, %r3}, [%rd1+4];", kMisalignedAddress, "misaligned", {}},
    {"SharedThatNothingWrote",
     "mov.b64 %rd2, 0;\nld.shared.b32 %r2, [%rd2];",
     kLaunchFailed,
     "nothing was written",
     {.shared_bytes = 4}},
    {"BarrierOnOnePath",
     "setp.lt.u32 %p1, %r1, 5;\n@%p1 bra $out;\nbar.sync 0;\n$out:",
     kLaunchFailed,
     "divergent barrier",
     {}},
    {"BarrierThatAWarpNeverReaches",
     "setp.lt.u32 %p1, %r1, 32;\n@%p1 bra $out;\nbar.sync 0;\n$out:",
     kLaunchFailed,
     "divergent barrier",
     {.threads = 64}},
    {"SharedReadWithoutBarrier",
     kNeighbour,
     kLaunchFailed,
     "race with another thread",
     {.shared_bytes = 128, .left_out = {.barrier = 1}}},
    {"SharedReadOfAnotherWarpWithoutBarrier",
     "mul.wide.u32 %rd2, %r1, 4;\nst.shared.b32 [%rd2], %r1;\nbar.sync 0;\nld.shared.b32 %r2, [4];\n"
     "setp.eq.b32 %p1, %r1, 1;\n@%p1 st.shared.b32 [4], 99;",
     kLaunchFailed,
     "race with another thread",
     {.threads = 64, .shared_bytes = 256}},
    {"GlobalWriteOfTwoThreads", "st.global.b32 [%rd1], %r1;", kLaunchFailed, "race with another thread", {}},
    {"GlobalWriteOfTwoBlocks",
     "mov.u32 %r2, %ctaid.x;\nst.global.b32 [%rd1], %r2;",
     kLaunchFailed,
     "race with another block",
     {.threads = 1, .blocks = 2}},
    {"MatrixProductOnOnePath",
     "setp.lt.u32 %p1, %r1, 5;\n@%p1 bra $out;\n"
     "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r2, %r3, %r4, %r5}, {%r6, %r7, %r8, %r9}, {%r10, %r11}, "
     "{%r2, %r3, %r4, %r5};\n$out:",
     kLaunchFailed,
     "not all threads",
     {}},
};

INSTANTIATE_TEST_SUITE_P(All, PtxFault, testing::ValuesIn(kWrong),
                         [](const auto &parameter) { return parameter.param.name; });

// Each thread copies 16 bytes, twice in groups of their own, and adds a word of its neighbour's to one of its own.
constexpr const char *kCopies = R"(
    mul.lo.u32 %r2, %r1, 16;
    mul.wide.u32 %rd2, %r1, 16;
    add.s64 %rd3, %rd1, %rd2;
    cp.async.cg.shared.global [%r2], [%rd3], 16, 16;
    cp.async.commit_group;
    add.s32 %r3, %r2, 1024;
    and.b32 %r4, %r2, 16;
    cp.async.cg.shared.global [%r3], [%rd3+1024], 16, %r4;
    cp.async.commit_group;
    cp.async.wait_group 1;
    bar.sync 0;
    xor.b32 %r5, %r1, 1;
    mul.wide.u32 %rd4, %r5, 16;
    ld.shared.b32 %r6, [%rd4+4];
    cp.async.wait_group 0;
    ld.shared.b32 %r7, [%rd2+1032];
    add.s32 %r8, %r6, %r7;
    st.global.b32 [%rd3], %r8;)";

TEST(PtxCopies, ArriveWhereTheyAreWaitedFor) {
    std::vector<uint32_t> memory(512);
    for (uint32_t i = 0; i < 512; ++i) {
        memory[i] = i;
    }
    // What is stored in the end was read by others before, and they have ended.
    EXPECT_NO_THROW(run(kCopies, memory, {.threads = 64, .shared_bytes = 2048}));
    for (uint32_t thread = 0; thread < 64; ++thread) {
        const uint32_t neighbours = (thread ^ 1u) * 4 + 1, own = thread % 2 == 0 ? 0 : 256 + thread * 4 + 2;
        EXPECT_EQ(memory[thread * 4], neighbours + own) << thread;
    }
}

TEST(PtxCopies, AreMissedWithoutWaitOrBarrier) {
    const std::string body = kCopies, commit = "cp.async.commit_group;";
    const size_t last = body.rfind(commit);
    const std::string uncommitted = std::string(body).erase(last, commit.size());
    const std::string unfinished = body + "\ncp.async.cg.shared.global [%r2], [%rd3], 16, 0;\nbar.sync 0;";
    struct {
        std::string body;
        LeftOut left_out;
        const char *message;
    } const runs[] = {
        {body, {}, "nothing was found"},
        {body, {.wait = 1}, "under way"},
        {body, {.wait = 2}, "under way"},
        {body, {.barrier = 1}, "race with another thread"},
        {uncommitted, {}, "under way"},
        {unfinished, {}, "race with another thread"},
        {"cp.async.cg.shared.global [0], [%rd1], 16, 0;", {}, "under way"},
        {"mul.lo.u32 %r2, %r1, 16;\ncp.async.cg.shared.global [%r2], [%rd1], 16, 0;", {}, "ends while copies"},
    };
    for (const auto &[text, left_out, message] : runs) {
        std::vector<uint32_t> memory(512);
        std::string found = "nothing was found";
        try {
            run(text, memory, {.threads = 64, .shared_bytes = 2048, .left_out = left_out});
        } catch (const Fault &fault) {
            found = fault.what();
        }
        EXPECT_NE(found.find(message), std::string::npos) << found << "\n" << text;
    }
}

TEST(PtxLaunch, HasNoMoreThreadsThanTheKernelIsFor) {
    const Program program = decode(parse_ptx(R"(
.visible .entry kernel()
.maxntid 64
.minnctapersm 2
{
    ret;
}
)")
                                       .at(0));
    Allocations allocations;
    const auto result = [&](uint32_t threads) {
        try {
            launch(program, {{1, 1, 1}, {threads, 1, 1}, 0}, nullptr, allocations, {});
        } catch (const Fault &fault) {
            return fault.result;
        }
        return 0;
    };
    EXPECT_EQ(result(64), 0);
    EXPECT_EQ(result(65), kOutOfResources);
}

TEST(PtxRace, IsNoneWithABarrierOrWhereNothingChanges) {
    std::vector<uint32_t> memory(64);
    EXPECT_NO_THROW(run(kNeighbour, memory, {.shared_bytes = 128}));
    EXPECT_NO_THROW(run("st.global.b32 [%rd1], 7;", memory, {.threads = 64, .blocks = 3}));
    EXPECT_EQ(memory[0], 7u);
}

}  // namespace

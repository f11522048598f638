// Calls in device code become instructions, where that is right.
#include "schedules/cuda/matrix_calls.h"

#include <gtest/gtest.h>

#include <array>
#include <stdexcept>

#include "schedules/cuda/warpgroup_calls.h"

namespace {

namespace cuda = hattn::schedules::cuda;

// As LLVM writes it.
std::string call(const std::string &name, const std::vector<std::string> &operands, const std::string &results) {
    std::string text = "{ // callseq 0, 0\n";
    for (size_t i = 0; i < operands.size(); ++i) {
        const std::string param = "param" + std::to_string(i);
        text += ".param .b32 " + param + ";\nst.param.b32 [" + param + "], " + operands[i] + ";\n";
    }
    return text + "call.uni (retval0), " + name + ", (param0);\n" + results + "} // callseq 0\n";
}

const std::string kMatrices = call(cuda::kMatrixLoadCall, {"%r1"}, "ld.param.v2.b64 {%rd1, %rd2}, [retval0];\n");
const std::string kUnpacked = "mov.b64 {%r2, %r3}, %rd1;\nmov.b64 {%r4, %r5}, %rd2;\n";
const std::string kLoad = "ld.global.nc.v4.b32 {%r2, %r3, %r4, %r5}, [%rd1+16];\n";
const std::string kCopy = call(cuda::kCopyCall, {"%r1", "0", "%r6", "%r2", "%r3", "%r4", "%r5"}, "");

TEST(MatrixCalls, BecomeInstructions) {
    EXPECT_EQ(cuda::replace_matrix_calls(kMatrices + kUnpacked),
              "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r2, %r3, %r4, %r5}, [%r1];\n");
    EXPECT_EQ(cuda::replace_matrix_calls(kLoad + "bar.sync 0;\n" + kCopy),
              "bar.sync 0;\ncp.async.cg.shared.global [%r1], [%rd1+16], 16, %r6;\n");
    EXPECT_EQ(cuda::replace_matrix_calls(call(cuda::kCommitCall, {}, "") + call(cuda::kWaitCall, {"1"}, "")),
              "cp.async.commit_group;\ncp.async.wait_group 1;\n");
    EXPECT_EQ(
        cuda::replace_matrix_calls(call(cuda::kBfloat16PairCall, {"%r1", "%r2"}, "ld.param.b32 %r3, [retval0];\n")),
        "cvt.rn.bf16x2.f32 %r3, %r2, %r1;\n");
    EXPECT_EQ(cuda::replace_matrix_calls(call(cuda::kExchangeCall, {"%r1", "2"}, "ld.param.b32 %r3, [retval0];\n")),
              "shfl.sync.bfly.b32 %r3, %r1, 2, 31, -1;\n");
    const std::string registers = "\t.reg .b32 %r<10>;\n";
    const std::string copy_if =
        call(cuda::kConditionalCopyCall, {"%r1", "2048", "%r6", "%r2", "%r3", "%r4", "%r5", "%r7"}, "");
    EXPECT_EQ(cuda::replace_matrix_calls(registers + kLoad + copy_if),
              ".reg .pred %when<1>;\n" + registers +
                  "setp.ne.s32 %when0, %r7, 0;\n@%when0 cp.async.cg.shared.global [%r1+2048], [%rd1+16], 16, %r6;\n");
    EXPECT_EQ(
        cuda::replace_matrix_calls(registers + call(cuda::kAnyLaneCall, {"%r1"}, "ld.param.b32 %r3, [retval0];\n")),
        ".reg .pred %when<1>;\n" + registers +
            "setp.ne.s32 %when0, %r1, 0;\nvote.sync.any.pred %when0, %when0, -1;\nselp.b32 %r3, 1, 0, %when0;\n");
    const std::string other = call("of_others", {"%r1"}, "");
    EXPECT_EQ(cuda::replace_matrix_calls(other), other);
}

// The code puts the word where it has another value before, or after: it does so still.
TEST(MatrixCalls, KeepRegistersThatHaveOtherValues) {
    const std::string registers = "\t.reg .b32 %r<10>;\n", zero = "mov.b32 %r2, 0;\n";
    EXPECT_EQ(cuda::replace_matrix_calls(registers + kMatrices + zero + kUnpacked),
              ".reg .b32 %late<1>;\n" + registers +
                  "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%late0, %r3, %r4, %r5}, [%r1];\n" + zero +
                  "mov.b32 %r2, %late0;\n");
    const std::string another = "ld.global.v2.b32 {%r9, %r4}, [%rd4];\n";
    EXPECT_EQ(cuda::replace_matrix_calls(registers + kMatrices + kUnpacked + another),
              ".reg .b32 %late<1>;\n" + registers +
                  "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r2, %r3, %late0, %r5}, [%r1];\nmov.b32 %r4, %late0;\n" +
                  another);
}

// What is copied is at a multiple of eight elements: only an index that is rounded down to one is taken as it is.
TEST(MatrixCalls, CopyFromIndicesAsTheyAre) {
    const auto from = [](const std::string &index, const std::string &bytes) {
        return index + bytes + "add.s64 %rd1, %rd3, %rd2;\n" + kLoad + kCopy;
    };
    const std::string copy = "add.s64 %rd1, %rd3, %rd2;\ncp.async.cg.shared.global [%r1], [%rd1+16], 16, %r6;\n";
    const std::string shift = "shr.s32 %r7, %r8, 3;\n", product = "mul.wide.s32 %rd2, %r7, 16;\n";
    EXPECT_EQ(cuda::replace_matrix_calls(from(shift, product)), shift + "\tmul.wide.s32 \t%rd2, %r8, 2;\n" + copy);
    for (const std::string &other :
         {std::string("shr.s32 %r7, %r8, 2;\n"), std::string("shr.u32 %r7, %r8, 3;\n"), shift + "mov.b32 %r7, 0;\n"}) {
        EXPECT_EQ(cuda::replace_matrix_calls(from(other, product)), other + product + copy);
    }
    EXPECT_EQ(cuda::replace_matrix_calls(from(shift, "mul.wide.s32 %rd2, %r7, 8;\n")),
              shift + "mul.wide.s32 %rd2, %r7, 8;\n" + copy);
}

// 64 rows by eight columns, from registers, in two steps along rows; `begin`: what sums begin with.
std::string warpgroup_product(const std::array<std::string, 4> &begin, const std::string &between,
                              const std::string &behind) {
    return call(cuda::kWarpgroupSumsCall, {"0", "0", begin[0], begin[1], begin[2], begin[3]}, "") +
           call(cuda::kWarpgroupFenceCall, {}, "") +
           call(cuda::kWarpgroupRegistersCall,
                {"0", "1", "2", "1", "0", "8", "1024", "%r40", "%r41", "%r42", "%r43", "%r44", "%r45", "%r46", "%r47"},
                "") +
           call(cuda::kWarpgroupCommitCall, {}, "") + between + call(cuda::kWarpgroupWaitCall, {"0"}, "") +
           call(cuda::kWarpgroupResultCall, {"0", "0"}, "ld.param.v2.b64 {%rd1, %rd2}, [retval0];\n") + kUnpacked +
           behind;
}

const std::string kHead = ".version 7.0\n.target sm_80\n\t.reg .b32 %r<50>;\n";

std::string products_in(const std::string &sums, const std::string &first_adds) {
    const std::string name = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {" + sums + "}, ";
    // Of a matrix at 1024 bytes, and of the next 32 bytes of its rows.
    return "mov.b64 %matrix0, 4611686293305294912;\n" + name + "{%r40, %r41, %r42, %r43}, %matrix0, " + first_adds +
           ", 1, 1, 0;\nmov.b64 %matrix1, 4611686293305294914;\n" + name +
           "{%r44, %r45, %r46, %r47}, %matrix1, 1, 1, 1, 0;\n";
}

const std::string kWarpgroupHead = ".version 8.0\n.target sm_90a\n.reg .b32 %suma<4>;\n.reg .b32 %word<1>;\n"
                                   ".reg .b64 %matrix<3>;\n\t.reg .b32 %r<50>;\n";
const std::string kWaited = "wgmma.commit_group.sync.aligned;\n";
const std::string kDone = "wgmma.wait_group.sync.aligned 0;\n\n";

TEST(WarpgroupCalls, AddUpWhereResultsAreWanted) {
    // From zeros.
    EXPECT_EQ(cuda::replace_matrix_calls(kHead + warpgroup_product({"0f00000000", "0", "0", "0"}, "", "")),
              kWarpgroupHead + "\nwgmma.fence.sync.aligned;\n" + products_in("%r2, %r3, %r4, %r5", "0") + "\n" +
                  kWaited + kDone);
    // Where they begin, and are written elsewhere too.
    const std::string before = "mov.b32 %r2, 1;\n";
    EXPECT_EQ(cuda::replace_matrix_calls(kHead + before + warpgroup_product({"%r2", "%r9", "%r4", "%r5"}, "", "")),
              kWarpgroupHead + before + "mov.b32 %r3, %r9;\n\nwgmma.fence.sync.aligned;\n" +
                  products_in("%r2, %r3, %r4, %r5", "1") + "\n" + kWaited + kDone);
}

TEST(WarpgroupCalls, KeepRegistersThatHaveOtherValues) {
    const std::string before = "mov.b32 %r2, 1;\n", use = "add.s32 %r20, %r2, 1;\n";
    EXPECT_EQ(cuda::replace_matrix_calls(kHead + before + warpgroup_product({"%r2", "%r3", "%r4", "%r5"}, use, "")),
              kWarpgroupHead + before + "mov.b32 %suma0, %r2;\n\nwgmma.fence.sync.aligned;\n" +
                  products_in("%suma0, %r3, %r4, %r5", "1") + "\n" + kWaited + use + kDone + "mov.b32 %r2, %suma0;\n");
}

// Results that are taken apart elsewhere, as at the end of a loop, which stands before it: every way there counts.
TEST(WarpgroupCalls, FollowBranchesToResults) {
    const auto moves = [](const std::string &on_the_way) {
        const std::string product = warpgroup_product({"%r2", "%r3", "%r4", "%r5"}, "", "");
        const size_t apart = product.find(kUnpacked);
        const std::string latch = "$L_1:\n" + kUnpacked + "@%p1 bra $L_2;\nret;\n";
        const std::string text = "mov.b32 %r2, 1;\nbra.uni $L_2;\n" + latch + "$L_2:\n" + product.substr(0, apart) +
                                 "@%p2 bra $L_1;\n" + on_the_way + "bra.uni $L_1;\n";
        return cuda::replace_matrix_calls(kHead + text).find("mov.b32 %r2, %suma0;") != std::string::npos;
    };
    EXPECT_FALSE(moves(""));
    EXPECT_FALSE(moves("add.s32 %r20, %r21, 1;\n"));
    EXPECT_TRUE(moves("add.s32 %r20, %r2, 1;\n"));
}

TEST(WarpgroupCalls, AreRefusedTwiceOrInPart) {
    const std::string once = warpgroup_product({"0", "0", "0", "0"}, "", "");
    const std::string result =
        call(cuda::kWarpgroupResultCall, {"0", "1"}, "ld.param.v2.b64 {%rd3, %rd4}, [retval0];\n");
    for (const std::string &wrong : {once + once, result + "mov.b64 {%r12, %r13}, %rd3;\nmov.b64 {%r14, %r15}, %rd4;\n",
                                     std::string(once).replace(once.find("1024"), 4, "1040")}) {
        EXPECT_THROW(cuda::replace_matrix_calls(kHead + wrong), std::runtime_error) << wrong;
    }
    EXPECT_THROW(cuda::replace_matrix_calls("\t.reg .b32 %r<50>;\n" + once), std::runtime_error) << "no target";
}

TEST(MatrixCalls, AreRefusedWhereResultsAreTakenApartInOtherWays) {
    const std::string wrong[] = {
        kMatrices + "mov.b64 {%r2, %r3}, %rd1;\n",
        kMatrices + kUnpacked + "mov.b64 {%r6, %r7}, %rd1;\n",
        kMatrices + kUnpacked + "add.s64 %rd3, %rd1, 1;\n",
    };
    for (const std::string &text : wrong) {
        EXPECT_THROW(cuda::replace_matrix_calls(text), std::runtime_error) << text;
    }
}

TEST(MatrixCalls, AreRefusedWhereACopyIsNotOfALoad) {
    const std::string wrong[] = {
        kCopy,
        kCopy + kLoad,
        kLoad + "add.s64 %rd1, %rd1, 8;\n" + kCopy,
        kLoad + "$L__BB0_1:\n" + kCopy,
        kLoad + kCopy + "add.s32 %r7, %r4, 1;\n",
        kLoad + kCopy + kCopy,
        kLoad + kCopy + call(cuda::kMatrixLoadCall, {"%r4"}, "ld.param.v2.b64 {%rd7, %rd8}, [retval0];\n") +
            "mov.b64 {%r12, %r13}, %rd7;\nmov.b64 {%r14, %r15}, %rd8;\n",
        kLoad + kCopy + call("of_others", {"%r5"}, ""),
        "mov.b32 %r3, 0;\n" + kLoad + kCopy,
        "ld.global.nc.v4.b32 {%r3, %r2, %r4, %r5}, [%rd1];\n" + kCopy,
    };
    for (const std::string &text : wrong) {
        EXPECT_THROW(cuda::replace_matrix_calls(text), std::runtime_error) << text;
    }
}

}  // namespace

// CUDA kernels that start while the one before them ends: their text, and which launches ask for it. On the driver of
// stub_cuda, which refuses to start a kernel early that does not wait.
#include "runtime/device/early_start.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "support/cuda_execute.h"

namespace {

using namespace hattn;

const std::string kHead =
    "//\n.version 7.0\n.target sm_80\n.address_size 64\n.visible .entry kernel(\n.param .u64 a\n)\n";

TEST(EarlyStart, KernelsWaitBeforeAnythingElse) {
    EXPECT_EQ(with_early_start(kHead + ".maxntid 128\n{\n.reg .b32 %r<2>;\nret;\n}\n"),
              "//\n.version 7.8\n.target sm_90\n.address_size 64\n.visible .entry kernel(\n.param .u64 a\n)\n"
              ".maxntid 128\n{\ngriddepcontrol.wait;\ngriddepcontrol.launch_dependents;\n.reg .b32 %r<2>;\nret;\n}\n");
}

TEST(EarlyStart, WhatIsForSuchGpusAlreadyStaysSo) {
    const std::string text = with_early_start(".version 8.0\n.target sm_90a\n.visible .entry kernel()\n{\nret;\n}\n");
    EXPECT_TRUE(text.starts_with(".version 8.0\n.target sm_90a\n")) << text;
    EXPECT_NE(text.find("griddepcontrol.wait;"), std::string::npos) << text;
}

TEST(EarlyStart, OfTextThatIsNoKernelThereIsNone) {
    for (const std::string &text : {std::string(), kHead, std::string(".visible .entry kernel()\n{\nret;\n}\n"),
                                    std::string(".version 7.0\n.visible .entry kernel()\n{\nret;\n}\n"),
                                    std::string(".version 7.0\n.target sm_80\n.func f()\n{\nret;\n}\n")}) {
        EXPECT_EQ(with_early_start(text), "") << text;
    }
}

class EarlyStartDeathTest : public test::CudaQueue {
public:
    // In a process of its own, since what is known of a driver and what is loaded is kept.
    void print_launches(const char *capability, const char *driver) {
        setenv("HATTN_STUB_CUDA_CAPABILITY", capability, 1);
        setenv("HATTN_STUB_CUDA_VERSION", driver, 1);
        test::Execute execute(test::some_keys(1), HATTN_ALGORITHM_SPLIT_KV);
        start_log();
        const bool ok = execute.run(test::new_stream(test::new_context(0))).ok();
        size_t early = 0, late = 0;
        for (const std::string &line : log_lines("launch ")) {
            early += line.find(" early=1 ") != std::string::npos;
            late += line.find(" early=0 ") != std::string::npos;
        }
        std::fprintf(stderr, "ok %d, early %zu, late %zu.\n", ok, early, late);
        TearDown();  // which the end of the process leaves out
        std::exit(0);
    }
};

TEST_F(EarlyStartDeathTest, LaunchesAskForItWhereGpuAndDriverKnowIt) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    for (const auto &[capability, driver, counts] :
         {std::array{"80", "13000", "early 0, late 2"}, std::array{"89", "13000", "early 0, late 2"},
          std::array{"90", "12000", "early 0, late 2"}, std::array{"90", "12030", "early 2, late 0"},
          std::array{"120", "13000", "early 2, late 0"}}) {
        EXPECT_EXIT(print_launches(capability, driver), testing::ExitedWithCode(0), std::string("ok 1, ") + counts);
    }
}

}  // namespace

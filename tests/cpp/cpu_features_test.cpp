// What the library knows about the CPU at hand.
#include "runtime/cpu_features.h"

#include <gtest/gtest.h>

#include <sstream>

namespace {

using namespace hattn;

std::string model_in(const char *text) {
    std::istringstream info(text);
    return cpu_model_in(info);
}

TEST(CpuModel, IsTheNameWhereThereIsOne) {
    EXPECT_EQ(model_in("processor\t: 0\nmodel\t\t: 1\nmodel name\t: AMD EPYC 7763 64-Core Processor\nstepping\t: 1\n"),
              "AMD EPYC 7763 64-Core Processor");
}

TEST(CpuModel, IsTheCodesOfEveryKindOfCoreOnArm) {
    const char *big_and_little =
        "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: 0xd05\n\n"
        "processor\t: 1\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: 0xd05\n\n"
        "processor\t: 2\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: 0xd0b\n";
    EXPECT_EQ(model_in(big_and_little), "implementer 0x41 part 0xd05 + implementer 0x41 part 0xd0b");
}

TEST(CpuModel, IsUnknownWhereTheSystemDoesNotTell) {
    EXPECT_EQ(model_in(""), "unknown");
    EXPECT_EQ(model_in("processor\t: 0\nmodel name\t:\n:\nCPU part\n"), "unknown");
}

TEST(CpuFeatures, AreAllNeeded) {
#if defined(__aarch64__)
    const std::string has = "asimd";
#else
    const std::string has = "sse4.1";
#endif
    EXPECT_TRUE(cpu_has_features(""));
    EXPECT_TRUE(cpu_has_features(has.c_str()));
    EXPECT_FALSE(cpu_has_features("no-such-feature"));
    EXPECT_FALSE(cpu_has_features((has + " no-such-feature").c_str()));
}

}  // namespace

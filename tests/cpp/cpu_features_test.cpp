// What the library knows about the CPU at hand.
#include "runtime/cpu_features.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

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
    EXPECT_TRUE(cpu_has_features(("no-such-feature|" + has).c_str()));
    EXPECT_TRUE(cpu_has_features((has + "|no-such-feature " + has).c_str()));
    EXPECT_FALSE(cpu_has_features((has + " no-such-feature|nor-this").c_str()));
    EXPECT_FALSE(cpu_has_features((has + " no-such-feature").c_str()));
}

#if defined(__aarch64__)
// In the words of the system, which tells tests under an emulator of the machine that it runs on.
TEST(CpuFeatures, AreThoseOfTheEmulatedCpu) {
    const char *cpu = std::getenv("QEMU_CPU");
    if (!cpu) {
        GTEST_SKIP() << "not emulated, or any CPU";
    }
    const bool has_all = std::string(cpu) == "max";
    EXPECT_TRUE(cpu_has_features("asimd"));
    EXPECT_EQ(cpu_has_features("asimddp"), has_all);
    EXPECT_EQ(cpu_has_features("bf16"), has_all);
}
#endif

#if defined(__x86_64__)
// In the words of the system, which says nothing of features that it does not support.
TEST(CpuFeatures, AreThoseTheSystemReports) {
    std::ifstream file("/proc/cpuinfo");
    std::string line;
    while (std::getline(file, line) && !line.starts_with("flags")) {
    }
    std::istringstream words(line);
    const std::set<std::string> flags{std::istream_iterator<std::string>(words), {}};
    ASSERT_TRUE(flags.contains("fpu"));
    const std::pair<const char *, const char *> features[] = {
        {"sse4.1", "sse4_1"},
        {"avx2", "avx2"},
        {"fma", "fma"},
        {"avx512f", "avx512f"},
        {"avx512vl", "avx512vl"},
        {"avx512bw", "avx512bw"},
        {"avx512dq", "avx512dq"},
        {"avx512cd", "avx512cd"},
        {"avx512ifma", "avx512ifma"},
        {"avx512vbmi", "avx512vbmi"},
        {"avx512bf16", "avx512_bf16"},
        {"avx512vnni", "avx512_vnni"},
        {"avx512vbmi2", "avx512_vbmi2"},
        {"avx512bitalg", "avx512_bitalg"},
        {"gfni", "gfni"},
        {"amx_bf16", "amx_bf16"},
        {"amx_int8", "amx_int8"},
    };
    for (const auto &[feature, flag] : features) {
        EXPECT_EQ(cpu_has_features(feature), flags.contains(flag)) << feature;
    }
}

TEST(CpuFeatures, KnowWhoMadeTheCpu) {
    std::ifstream info("/proc/cpuinfo");
    const std::string text(std::istreambuf_iterator<char>(info), {});
    const bool amd = std::regex_search(text, std::regex("vendor_id\\s*: AuthenticAMD\n"));
    EXPECT_EQ(cpu_has_features("amd"), amd);
    EXPECT_EQ(cpu_has_features("intel"), std::regex_search(text, std::regex("vendor_id\\s*: GenuineIntel\n")));
    EXPECT_EQ(cpu_has_features("amdfam19h"), amd && std::regex_search(text, std::regex("cpu family\\s*: 25\n")));
    EXPECT_EQ(cpu_has_features("amdfam1ah"), amd && std::regex_search(text, std::regex("cpu family\\s*: 26\n")));
}

TEST(CpuFeatures, AreGrantedWhereTheyAreThere) {
    EXPECT_TRUE(request_cpu_features(""));
    EXPECT_TRUE(request_cpu_features("avx2 fma"));
    EXPECT_EQ(request_cpu_features("avx512bf16 amx_bf16"), cpu_has_features("amx_bf16"));
}
#endif

// A folder of control groups, gone at the end.
class Groups {
public:
    Groups() {
        std::string name = testing::TempDir() + "hattn-groups-XXXXXX";
        root_ = mkdtemp(name.data());
    }
    ~Groups() {
        std::filesystem::remove_all(root_);
    }
    void write(const std::string &path, const std::string &text) const {
        std::filesystem::create_directories((root_ / path).parent_path());
        std::ofstream(root_ / path) << text;
    }
    double quota(const std::string &groups) const {
        std::istringstream text(groups);
        return cpu_quota_in(text, root_);
    }

private:
    std::filesystem::path root_;
};

TEST(CpuQuota, IsTheLeastOfAGroupAndThoseItIsIn) {
    const Groups groups;
    groups.write("a/cpu.max", "250000 100000\n");
    groups.write("a/b/cpu.max", "max 100000\n");
    groups.write("a/c/cpu.max", "100000 200000\n");
    EXPECT_DOUBLE_EQ(groups.quota("0::/a/b\n"), 2.5);
    EXPECT_DOUBLE_EQ(groups.quota("0::/a/c\n"), 0.5);
    EXPECT_DOUBLE_EQ(groups.quota("0::/\n"), 0.0);
    EXPECT_DOUBLE_EQ(groups.quota("0::/elsewhere\n"), 0.0);
    EXPECT_DOUBLE_EQ(groups.quota(""), 0.0);
    EXPECT_DOUBLE_EQ(groups.quota("nonsense\n0:\n0::\n0::a\n"), 0.0);
}

TEST(CpuQuota, OfAContainerIsThatOfItsRoot) {
    const Groups groups;
    groups.write("cpu.max", "150000 100000\n");
    EXPECT_DOUBLE_EQ(groups.quota("0::/\n"), 1.5);
    EXPECT_DOUBLE_EQ(groups.quota("0::/outside/of/it\n"), 1.5);
}

TEST(CpuQuota, OfVersionOne) {
    const Groups groups;
    groups.write("cpu/docker/cpu.cfs_quota_us", "300000\n");
    groups.write("cpu/docker/cpu.cfs_period_us", "100000\n");
    groups.write("cpu/free/cpu.cfs_quota_us", "-1\n");
    groups.write("cpu/free/cpu.cfs_period_us", "100000\n");
    EXPECT_DOUBLE_EQ(groups.quota("5:cpu,cpuacct:/docker\n4:cpuset:/free\n"), 3.0);
    EXPECT_DOUBLE_EQ(groups.quota("5:cpuacct,cpu:/free\n"), 0.0);
    EXPECT_DOUBLE_EQ(groups.quota("4:cpuset:/docker\n"), 0.0);
}

TEST(Cores, AreThoseOfTheProcessWhateverAThreadIsBoundTo) {
    const int cores = available_cores();
    EXPECT_GE(cores, 1);
    EXPECT_LE(cores, process_cores().count());
    int bound = 0;
    std::thread([&] {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(sched_getcpu(), &one);
        ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
        bound = available_cores();
    }).join();
    EXPECT_EQ(bound, cores);
}

}  // namespace

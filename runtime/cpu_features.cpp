#include "cpu_features.h"

#include <sched.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

namespace hattn {

namespace {

#if defined(__x86_64__)
// Products of matrices (AMX), of a type that has a bit of CPUID leaf 7, if the operating system keeps their registers,
// which XCR0 says, see Intel's manual, volume 1, "Programming with Intel AMX".
constexpr unsigned kAmxBf16 = 1u << 22, kAmxInt8 = 1u << 25;
__attribute__((target("xsave"))) bool has_amx(unsigned type) {
    constexpr unsigned kXsave = 1u << 27, kTile = 1u << 24;
    constexpr unsigned long long kTileState = 3u << 17;  // configuration and data
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & kXsave) || (__builtin_ia32_xgetbv(0) & kTileState) != kTileState) {
        return false;
    }
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & type) && (d & kTile);
}

// Of AMD's CPUs, as CPUID leaf 1 has it. Not all compilers know the newer ones by name.
bool is_amd_family(unsigned family) {
    constexpr unsigned kExtended = 0xf;
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__builtin_cpu_is("amd") || !__get_cpuid(1, &a, &b, &c, &d)) {
        return false;
    }
    const unsigned base = a >> 8 & 0xf, more = a >> 20 & 0xff;
    return (base == kExtended ? base + more : base) == family;
}

bool cpu_has(const std::string &feature) {
    // The compiler's builtin takes literals alone. It includes the operating system's support for the wider registers.
    __builtin_cpu_init();
    if (feature == "sse4.1")
        return __builtin_cpu_supports("sse4.1");
    if (feature == "avx2")
        return __builtin_cpu_supports("avx2");
    if (feature == "fma")
        return __builtin_cpu_supports("fma");
    if (feature == "avx512f")
        return __builtin_cpu_supports("avx512f");
    if (feature == "avx512vl")
        return __builtin_cpu_supports("avx512vl");
    if (feature == "avx512bw")
        return __builtin_cpu_supports("avx512bw");
    if (feature == "avx512dq")
        return __builtin_cpu_supports("avx512dq");
    if (feature == "avx512cd")
        return __builtin_cpu_supports("avx512cd");
    if (feature == "avx512ifma")
        return __builtin_cpu_supports("avx512ifma");
    if (feature == "avx512vbmi")
        return __builtin_cpu_supports("avx512vbmi");
    if (feature == "avx512vbmi2")
        return __builtin_cpu_supports("avx512vbmi2");
    if (feature == "avx512vnni")
        return __builtin_cpu_supports("avx512vnni");
    if (feature == "avx512bitalg")
        return __builtin_cpu_supports("avx512bitalg");
    if (feature == "avx512bf16")
        return __builtin_cpu_supports("avx512bf16");
    if (feature == "gfni")
        return __builtin_cpu_supports("gfni");
    // No features, but who made the CPU, and its family (Zen 3, and Zen 4 if it has AVX-512; Zen 5): for what is faster
    // there.
    if (feature == "amd")
        return __builtin_cpu_is("amd");
    if (feature == "intel")
        return __builtin_cpu_is("intel");
    if (feature == "amdfam19h")
        return is_amd_family(0x19);
    if (feature == "amdfam1ah")
        return is_amd_family(0x1a);
    if (feature == "amx_bf16")
        return has_amx(kAmxBf16);
    if (feature == "amx_int8")
        return has_amx(kAmxInt8);
    return false;
}
#elif defined(__aarch64__)
bool cpu_has(const std::string &feature) {
    const auto has = [](unsigned long bit) { return (getauxval(AT_HWCAP) & bit) != 0; };
    if (feature == "asimd")
        return has(HWCAP_ASIMD);
    if (feature == "asimddp")
        return has(HWCAP_ASIMDDP);
    if (feature == "bf16")
        return (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0;
    return false;
}
#else
#error "hattn is built for x86-64 and aarch64, see docs/add-a-target.md"
#endif

// What a line of /proc/cpuinfo, "key   : value", says about a key; empty if it is about another.
std::string value_of(const std::string &line, const std::string &key) {
    const size_t colon = line.find(':');
    const bool about_key = colon != std::string::npos && line.find_last_not_of(" \t", colon - 1) + 1 == key.size();
    return about_key && line.starts_with(key) && colon + 2 <= line.size() ? line.substr(colon + 2) : "";
}

// Of alternatives, with bars between them.
bool cpu_has_one_of(const std::string &features) {
    std::istringstream alternatives(features);
    std::string feature;
    while (std::getline(alternatives, feature, '|')) {
        if (cpu_has(feature)) {
            return true;
        }
    }
    return false;
}

}  // namespace

bool cpu_has_features(const char *features) {
    std::istringstream words(features);
    std::string word;
    while (words >> word) {
        if (!cpu_has_one_of(word)) {
            return false;
        }
    }
    return true;
}

bool request_cpu_features(const char *features) {
#if defined(__x86_64__)
    // Linux gives a process the 8 KiB of AMX per thread on request: its Documentation/arch/x86/xstate.rst.
    constexpr int kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    if (std::string(features).find("amx") != std::string::npos) {
        return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
    }
#else
    static_cast<void>(features);
#endif
    return true;
}

std::string cpu_model_in(std::istream &info) {
    std::string line, implementer, models;
    while (std::getline(info, line)) {
        const std::string name = value_of(line, "model name"), part = value_of(line, "CPU part");
        if (!name.empty()) {
            return name;
        }
        const std::string by = value_of(line, "CPU implementer");
        implementer = by.empty() ? implementer : by;
        const std::string core = "implementer " + implementer + " part " + part;
        if (!part.empty() && models.find(core) == std::string::npos) {
            models += (models.empty() ? "" : " + ") + core;
        }
    }
    return models.empty() ? "unknown" : models;
}

std::string cpu_model() {
    std::ifstream info("/proc/cpuinfo");
    return cpu_model_in(info);
}

CpuSet CpuSet::of(pid_t thread) {
    CpuSet cores;
    if (sched_getaffinity(thread, cores.bytes(), cores.masks_.data()) != 0) {
        return {};
    }
    return cores;
}

CpuSet process_cores() {
    return CpuSet::of(getpid());
}

namespace {

// "200000 100000", or "max 100000".
double quota_of_version_2(const std::string &folder) {
    std::ifstream file(folder + "/cpu.max");
    double quota = 0.0, period = 0.0;
    return file >> quota >> period && quota > 0.0 && period > 0.0 ? quota / period : 0.0;
}

double quota_of_version_1(const std::string &folder) {
    double quota = 0.0, period = 0.0;
    const bool is_there =
        std::ifstream(folder + "/cpu.cfs_quota_us") >> quota && std::ifstream(folder + "/cpu.cfs_period_us") >> period;
    return is_there && quota > 0.0 && period > 0.0 ? quota / period : 0.0;  // -1: none
}

}  // namespace

double cpu_quota_in(std::istream &groups, const std::string &root) {
    double least = 0.0;
    std::string line;
    while (std::getline(groups, line)) {  // hierarchy:controllers:path
        const size_t first = line.find(':'), second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) {
            continue;
        }
        const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
        const bool is_version_2 = controllers == ",,";
        if (!is_version_2 && controllers.find(",cpu,") == std::string::npos) {
            continue;
        }
        std::string path = line.substr(second + 1);
        for (;;) {
            path = path == "/" ? "" : path;
            const double quota =
                is_version_2 ? quota_of_version_2(root + path) : quota_of_version_1(root + "/cpu" + path);
            least = quota > 0.0 && (least <= 0.0 || quota < least) ? quota : least;
            if (path.empty()) {
                break;
            }
            const size_t slash = path.rfind('/');
            path.erase(slash == std::string::npos ? 0 : slash);
        }
    }
    return least;
}

int available_cores() {
    const int cores = std::max(process_cores().count(), 1);
    std::ifstream groups("/proc/self/cgroup");
    const double quota = cpu_quota_in(groups, "/sys/fs/cgroup");
    return quota > 0.0 && quota < cores ? std::max(static_cast<int>(std::ceil(quota)), 1) : cores;
}

}  // namespace hattn

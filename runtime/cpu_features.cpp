#include "cpu_features.h"

#include <sched.h>

#include <fstream>
#include <sstream>

namespace hattn {

namespace {

bool cpu_has(const std::string &feature) {
#if defined(__x86_64__)
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
#endif
    return false;
}

}  // namespace

bool cpu_has_features(const char *features) {
    std::istringstream words(features);
    std::string word;
    while (words >> word) {
        if (!cpu_has(word)) {
            return false;
        }
    }
    return true;
}

std::string cpu_model() {
    std::ifstream info("/proc/cpuinfo");
    std::string line;
    while (std::getline(info, line)) {
        const size_t colon = line.find(':');
        if (line.rfind("model name", 0) == 0 && colon != std::string::npos && colon + 2 <= line.size()) {
            return line.substr(colon + 2);
        }
    }
    return "unknown";
}

int available_cores() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) != 0) {
        return 1;
    }
    const int count = CPU_COUNT(&set);
    return count > 0 ? count : 1;
}

}  // namespace hattn

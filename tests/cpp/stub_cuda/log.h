// What the driver of stub_cuda was asked for, and what it was told to fail at.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace hattn::stub_cuda {

inline std::mutex driver_mutex;  // of everything that threads share

template<typename... Values>
void log(const char *format, Values... values) {
    const std::lock_guard lock(driver_mutex);
    if (const char *path = std::getenv("HATTN_STUB_CUDA_LOG")) {
        if (std::FILE *file = std::fopen(path, "a")) {
            std::fprintf(file, format, values...);
            std::fclose(file);
        }
    }
}

inline int unless_failing(const char *function, int failure) {
    const char *failing = std::getenv("HATTN_STUB_CUDA_FAIL");
    return failing && std::strcmp(failing, function) == 0 ? failure : 0;
}

}  // namespace hattn::stub_cuda

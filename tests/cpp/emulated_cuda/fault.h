// What a kernel did that it must not.
#pragma once

#include <stdexcept>
#include <string>

namespace hattn::emulated_cuda {

// Results of the CUDA Driver API.
inline constexpr int kNoBinary = 209, kInvalidPtx = 218, kNotFound = 500, kIllegalAddress = 700, kOutOfResources = 701,
                     kIllegalInstruction = 715, kMisalignedAddress = 716, kLaunchFailed = 719;

struct Fault : std::runtime_error {
    Fault(int code, const std::string &text, int lane_of_warp = -1)
        : runtime_error(text), result(code), lane(lane_of_warp) {}
    int result;
    int lane;  // the thread of the warp at hand; -1: not of one thread
};

}  // namespace hattn::emulated_cuda

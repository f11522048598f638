// CUDA kernels that start while the one before them in their stream ends (programmatic dependent launch, CUDA C++
// Programming Guide; griddepcontrol, PTX ISA 7.8).
#pragma once

#include <string>

namespace hattn {

// The GPUs that can, and the first driver with which streams that do so can be captured as graphs; as
// cuDeviceGetAttribute and cuDriverGetVersion have them.
inline constexpr int kEarlyStartCapability = 9;  // major
inline constexpr int kEarlyStartDriver = 12030;

// A kernel as such GPUs take it: before anything else its blocks wait for the kernel before to be done, with all that
// it has written, and then let those of the next one start when all of them have. (Not the other way round: the blocks
// of one kernel wait at a time, and leave room for other streams.) "" if the text is not that of a kernel.
std::string with_early_start(std::string ptx);

}  // namespace hattn

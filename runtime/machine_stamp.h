// What tunings depend on: the library, its kernels, and the machine.
#pragma once

#include <cstdint>
#include <string>

namespace hattn {

struct MachineStamp {
    std::string library;                    // version
    std::string kernels;                    // hash of the kernel table, 16 hexadecimal digits
    std::string cpu;                        // model name
    int64_t l1d_bytes, l2_bytes, l3_bytes;  // of one instance; 0 where the system does not tell
    int cores;                              // of the machine, whatever this process may use

    bool operator==(const MachineStamp &) const = default;
};

// A word for the machine alone, of letters and digits, by which files of several are told apart.
std::string machine_word(const MachineStamp &stamp);

// Of the running library and machine; found out once.
const MachineStamp &machine_stamp();

}  // namespace hattn

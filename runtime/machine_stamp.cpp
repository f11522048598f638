#include "machine_stamp.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "cpu_features.h"
#include "hattn/hattn.h"
#include "kernel_table.h"

namespace hattn {

namespace {

// FNV-1a over names, which say everything about a kernel but its code; the version says that.
std::string hash_of_kernels() {
    uint64_t hash = 0xcbf29ce484222325;
    const KernelTable &table = kernel_table();
    for (size_t i = 0; i < table.kernel_count; ++i) {
        for (const char *letter = table.kernels[i].name;; ++letter) {
            hash = (hash ^ static_cast<unsigned char>(*letter)) * 0x100000001b3;
            if (*letter == 0) {
                break;
            }
        }
    }
    std::array<char, 17> text{};
    std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(hash));
    return text.data();
}

// What Linux says about the first core's data cache of a level; glibc's sysconf() is wrong on virtual machines.
int64_t cache_bytes(int wanted_level) {
    for (int index = 0;; ++index) {
        const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
        std::string type, size;
        int level = 0;
        if (!(std::ifstream(folder + "level") >> level) || !(std::ifstream(folder + "type") >> type) ||
            !(std::ifstream(folder + "size") >> size)) {
            return 0;
        }
        if (level == wanted_level && type != "Instruction") {
            const int64_t unit = size.back() == 'M' ? 1 << 20 : size.back() == 'K' ? 1 << 10 : 1;
            return std::strtoll(size.c_str(), nullptr, 10) * unit;
        }
    }
}

}  // namespace

const MachineStamp &machine_stamp() {
    static const MachineStamp stamp = {hattn_version(),
                                       hash_of_kernels(),
                                       cpu_model(),
                                       cache_bytes(1),
                                       cache_bytes(2),
                                       cache_bytes(3),
                                       static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN))};
    return stamp;
}

}  // namespace hattn

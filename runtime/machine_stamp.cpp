#include "machine_stamp.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <span>

#include "cpu_features.h"
#include "hattn/hattn.h"
#include "kernel_table.h"
#include "pack_file.h"

namespace hattn {

namespace {

// Of names, which say everything about a kernel but its code; the version says that.
std::string hash_of_kernels() {
    const KernelTable &table = kernel_table();
    return hash_of_names(std::span(table.kernels, table.kernel_count), [](const KernelInfo &) { return true; });
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

std::string machine_word(const MachineStamp &stamp) {
    constexpr size_t kDigits = 8;
    std::string text = stamp.cpu;
    for (const int64_t number : {stamp.l1d_bytes, stamp.l2_bytes, stamp.l3_bytes, int64_t{stamp.cores}}) {
        text += ' ' + std::to_string(number);
    }
    return hash_text(hash_bytes(text)).substr(0, kDigits);
}

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

// What the CPU at hand can do, in the words that kernel targets use.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <array>
#include <cstddef>
#include <istream>
#include <string>
#include <vector>

namespace hattn {

// features: space separated, alternatives with bars between them: "avx2 amd|intel". Unknown words are taken as not
// available.
bool cpu_has_features(const char *features);

// Asks the operating system for what it gives a process on request alone, among features that the CPU has; false if it
// refuses.
bool request_cpu_features(const char *features);

// Model name, e.g. for stamping tunings; "unknown" where the system does not tell. On ARM, which has codes in place of
// names, those of every kind of core: "implementer 0x41 part 0xd05 + implementer 0x41 part 0xd0b".
std::string cpu_model();
std::string cpu_model_in(std::istream &info);  // in a text like /proc/cpuinfo

// A set of cores, of more than Linux can be built for (8192). Threads may make one as they begin: it takes nothing from
// the heap.
class CpuSet {
public:
    // Those that a thread may run on, 0: the calling one. Empty if the system does not tell.
    static CpuSet of(pid_t thread);

    bool is_empty() const {
        return count() == 0;
    }
    size_t bytes() const {
        return sizeof(masks_);
    }
    const cpu_set_t *get() const {
        return masks_.data();
    }
    int count() const {
        return CPU_COUNT_S(bytes(), get());
    }
    bool operator==(const CpuSet &other) const {
        return CPU_EQUAL_S(bytes(), get(), other.get());
    }

private:
    std::array<cpu_set_t, 16> masks_{};  // of 1024 cores each
};

// Those that the process's first thread may run on: others may be bound to one of them.
CpuSet process_cores();

// How many cores' time Linux lets a control group have, which is a limit of containers: the least of the group's, which is a
// text like /proc/self/cgroup, and of those it is in; 0: no limit. `root`: where groups are mounted, /sys/fs/cgroup.
double cpu_quota_in(std::istream &groups, const std::string &root);

// How many threads of this process run at once: of its first thread's cores, no more than its quota of time allows.
int available_cores();

}  // namespace hattn

// The benchmarks, as data: problems of the same type as the tests', what they are measured against and what they should
// reach.
#pragma once

#include <string>
#include <vector>

#include "case.h"

namespace hattn::bench {

// What is timed, and by that which of the machine's limits it is held against.
enum class Work {
    kArithmetic,  // attention: operations of the two products over visible keys, against multiply-adds in registers
    kReading,     // attention: visible bytes of k and v, against reading as many
    kCalling,     // attention so small that the call is all there is: microseconds
    kAppending    // one token to every sequence of a KV cache: bytes of k and v, against a memcpy of as many
};

enum class Set { kPrefill, kDecode, kOther };

// What a case should reach, each at least unless said; 0: no such goal.
struct Goal {
    double share = 0.0;        // of the machine's limit
    double versus = 1.0;       // time of the fastest peer over ours
    double onnxruntime = 0.0;  // time of this peer over ours
    double torch = 0.0;        // likewise
    double beside = 0.0;       // at most: our time over that of the case named by BenchCase::beside
    double bound = 0.0;        // at most: our time over Figures::bound
    double seconds = 0.0;      // at most
};

struct BenchCase {
    cases::Case problem;
    std::string title;  // what it is, beside B1 Hq16 Hkv8 D128, causal, float32
    Set set = Set::kOther;
    Work work = Work::kArithmetic;
    int threads = 0;             // 0: as many as the run was asked for
    bool force_avx2 = false;     // on a machine that has AVX-512; others skip the case
    std::string algorithm = {};  // forced; empty: the planner's choice
    std::string beside = {};     // name of the case to compare with
    int64_t page_size = 0;       // keys per page, the pages in no order; 0: keys side by side
    Goal goal = {};
};

const char *set_name(Set set);     // "prefill", "decode", "other"
const char *work_name(Work work);  // "arithmetic", "reading", "calling", "appending"

const std::vector<BenchCase> &bench_cases();

}  // namespace hattn::bench

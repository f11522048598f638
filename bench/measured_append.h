// One token appended to every sequence of a KV cache, beside a memcpy of as many bytes to memory that is as cold: rows
// of a cache are written once and not again for long. Counts the bytes it writes.
#pragma once

#include "measured.h"
#include "tensor_data.h"

namespace hattn::bench {

class MeasuredAppend : public Measured {
public:
    // batch, heads, head size and capacity (kv_length) are the problem's.
    MeasuredAppend(Context context, const BenchCase &bench_case);

    std::string check() override;
    double run() override;
    void measure_limits() override;
    Figures figures() const override;
    std::string label() const override;
    int threads() const override {
        return 1;
    }
    std::vector<NamedTensor> tensors() const override {
        return {};
    }

private:
    void append();

    cases::TensorData k_, v_;   // [B, Hkv, 1, D]
    cases::TensorData copies_;  // as many bytes, side by side, as outgrow the caches
    int64_t copies_made_ = 0;
    int32_t capacity_, length_ = 0;
    Context context_;
    KvCache cache_;
    double bytes_, best_seconds_, best_copy_seconds_;
    int64_t written_ = -1;  // bytes of the cache that an append changes; counted by check()
};

}  // namespace hattn::bench

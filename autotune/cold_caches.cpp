#include "cold_caches.h"

#include <cstddef>

namespace hattn::autotune {

namespace {

constexpr size_t kLine = 64;

#if defined(__x86_64__)
constexpr bool kFlushes = true;

void flush(const cases::TensorData &tensor) {
    for (size_t at = 0; tensor.given() && at < tensor.storage->size(); at += kLine) {
        __builtin_ia32_clflush(tensor.storage->data() + at);
    }
}
#else
constexpr bool kFlushes = false;

void flush(const cases::TensorData &) {}
#endif

}  // namespace

ColdCaches::ColdCaches(double cache_bytes) : sweep_(kFlushes ? 0 : static_cast<size_t>(1.5 * cache_bytes)) {}

void ColdCaches::evict(const cases::TypedProblem &problem) {
    for (const cases::TensorData *tensor : {&problem.q, &problem.k, &problem.v, &problem.k_scale, &problem.v_scale,
                                            &problem.twin.bias, &problem.twin.mask}) {
        flush(*tensor);
    }
    for (size_t at = 0; at < sweep_.size(); at += kLine) {
        ++sweep_[at];
    }
}

}  // namespace hattn::autotune

// A KV cache next to plain vectors that say what it must hold.
#pragma once

#include <cstdint>
#include <vector>

#include "handles.h"
#include "problem.h"
#include "random.h"

namespace hattn::test {

hattn_kv_cache_desc cache_desc(int64_t batch, int64_t kv_heads, int64_t capacity, int64_t key_dim, int64_t value_dim);
CachePtr make_cache(hattn_context *context, const hattn_kv_cache_desc &desc);  // throws std::runtime_error

class CacheModel {
public:
    CacheModel(hattn_context *context, const hattn_kv_cache_desc &desc);

    hattn_kv_cache *cache() const {
        return cache_.get();
    }
    const hattn_kv_cache_desc &desc() const {
        return desc_;
    }
    const std::vector<int32_t> &lengths() const {
        return lengths_;
    }
    int32_t longest() const;

    // Appends `rows` random rows, of which the leading lengths[b] count; empty: all. The model follows if the cache
    // accepts.
    Outcome append(int64_t rows, const std::vector<int32_t> &lengths, cases::Random &random,
                   cases::Layout layout = cases::Layout::kBhsd);
    Outcome truncate(const std::vector<int32_t> &lengths);
    Outcome reset();

    // Empty if lengths and contents of the cache are the model's.
    std::string difference() const;
    // k and v of the model as dense [B, Hkv, longest, D]; rows past a sequence are NaN.
    cases::TensorData keys() const {
        return dense(keys_, desc_.key_dim);
    }
    cases::TensorData values() const {
        return dense(values_, value_dim());
    }
    int64_t value_dim() const {
        return desc_.value_dim > 0 ? desc_.value_dim : desc_.key_dim;
    }

private:
    using Rows = std::vector<std::vector<float>>;  // [b * Hkv + h], appended rows end to end

    cases::TensorData dense(const Rows &rows, int64_t dim) const;
    void take(Rows &rows, const hattn_tensor &tensor, const std::vector<int32_t> &counts) const;

    hattn_kv_cache_desc desc_;
    CachePtr cache_;
    Rows keys_, values_;
    std::vector<int32_t> lengths_;
};

}  // namespace hattn::test

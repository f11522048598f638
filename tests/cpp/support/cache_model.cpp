#include "cache_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "input_data.h"

namespace hattn::test {

hattn_kv_cache_desc cache_desc(int64_t batch, int64_t kv_heads, int64_t capacity, int64_t key_dim, int64_t value_dim) {
    hattn_kv_cache_desc desc;
    hattn_kv_cache_desc_init(&desc);
    desc.batch = batch;
    desc.kv_heads = kv_heads;
    desc.capacity = capacity;
    desc.key_dim = key_dim;
    desc.value_dim = value_dim;
    return desc;
}

CachePtr make_cache(hattn_context *context, const hattn_kv_cache_desc &desc) {
    hattn_kv_cache *cache = nullptr;
    Outcome outcome = outcome_of(hattn_kv_cache_create(context, &desc, &cache), context);
    if (!outcome.ok()) {
        throw std::runtime_error("hattn_kv_cache_create: " + outcome.text());
    }
    return CachePtr(cache);
}

CacheModel::CacheModel(hattn_context *context, const hattn_kv_cache_desc &desc)
    : desc_(desc),
      cache_(make_cache(context, desc)),
      keys_(static_cast<size_t>(desc.batch * desc.kv_heads)),
      values_(keys_.size()),
      lengths_(static_cast<size_t>(desc.batch), 0) {}

int32_t CacheModel::longest() const {
    return lengths_.empty() ? 0 : *std::max_element(lengths_.begin(), lengths_.end());
}

void CacheModel::take(Rows &rows, const hattn_tensor &tensor, const std::vector<int32_t> &counts) const {
    for (int64_t b = 0; b < desc_.batch; ++b) {
        for (int64_t h = 0; h < desc_.kv_heads; ++h) {
            std::vector<float> &own = rows[static_cast<size_t>(b * desc_.kv_heads + h)];
            for (int64_t i = 0; i < counts[static_cast<size_t>(b)]; ++i) {
                const float *row = &cases::element<float>(tensor, b, h, i, 0);
                own.insert(own.end(), row, row + tensor.extent[3]);
            }
        }
    }
}

Outcome CacheModel::append(int64_t rows, const std::vector<int32_t> &lengths, cases::Random &random,
                           cases::Layout layout) {
    const std::array<int, 4> order = layout == cases::Layout::kBshd ? std::array{0, 2, 1, 3} : std::array{0, 1, 2, 3};
    cases::TensorData k = cases::make_tensor(HATTN_FLOAT32, {desc_.batch, desc_.kv_heads, rows, desc_.key_dim}, order);
    cases::TensorData v = cases::make_tensor(HATTN_FLOAT32, {desc_.batch, desc_.kv_heads, rows, value_dim()}, order);
    cases::fill_normal(k.view, random.bits());
    cases::fill_normal(v.view, random.bits());
    hattn_status status = hattn_kv_append(cache(), &k.view, &v.view, lengths.empty() ? nullptr : lengths.data());
    if (status == HATTN_OK) {
        std::vector<int32_t> counts = lengths;
        counts.resize(lengths_.size(), static_cast<int32_t>(rows));
        take(keys_, k.view, counts);
        take(values_, v.view, counts);
        for (size_t b = 0; b < lengths_.size(); ++b) {
            lengths_[b] += counts[b];
        }
    }
    return outcome_of(status);
}

Outcome CacheModel::truncate(const std::vector<int32_t> &lengths) {
    hattn_status status = hattn_kv_cache_truncate(cache(), lengths.data());
    if (status == HATTN_OK) {
        lengths_ = lengths;
        for (size_t n = 0; n < keys_.size(); ++n) {
            auto rows = static_cast<size_t>(lengths_[n / static_cast<size_t>(desc_.kv_heads)]);
            keys_[n].resize(rows * static_cast<size_t>(desc_.key_dim));
            values_[n].resize(rows * static_cast<size_t>(value_dim()));
        }
    }
    return outcome_of(status);
}

Outcome CacheModel::reset() {
    hattn_status status = hattn_kv_cache_reset(cache());
    if (status == HATTN_OK) {
        std::fill(lengths_.begin(), lengths_.end(), 0);
        for (Rows *rows : {&keys_, &values_}) {
            std::fill(rows->begin(), rows->end(), std::vector<float>());
        }
    }
    return outcome_of(status);
}

cases::TensorData CacheModel::dense(const Rows &rows, int64_t dim) const {
    cases::TensorData tensor = cases::make_tensor(HATTN_FLOAT32, {desc_.batch, desc_.kv_heads, longest(), dim});
    auto stride = static_cast<size_t>(tensor.view.stride[1]);
    std::fill_n(tensor.floats(), rows.size() * stride, NAN);
    for (size_t n = 0; n < rows.size(); ++n) {
        std::copy(rows[n].begin(), rows[n].end(), tensor.floats() + n * stride);
    }
    return tensor;
}

std::string CacheModel::difference() const {
    std::vector<int32_t> actual(lengths_.size(), -1);
    Outcome outcome = outcome_of(hattn_kv_cache_lengths(cache(), actual.data()));
    if (!outcome.ok() || actual != lengths_) {
        return "lengths differ; " + outcome.text();
    }
    hattn_tensor k = HATTN_TENSOR_INIT, v = HATTN_TENSOR_INIT;
    outcome = outcome_of(hattn_kv_cache_view(cache(), &k, &v));
    if (!outcome.ok()) {
        return outcome.text();
    }
    for (const auto &[view, rows] : {std::pair{&k, &keys_}, std::pair{&v, &values_}}) {
        for (size_t n = 0; n < rows->size(); ++n) {
            auto heads = static_cast<size_t>(desc_.kv_heads);
            for (size_t at = 0; at < (*rows)[n].size(); ++at) {
                auto dim = static_cast<size_t>(view->extent[3]);
                float value =
                    cases::element<float>(*view, static_cast<int64_t>(n / heads), static_cast<int64_t>(n % heads),
                                          static_cast<int64_t>(at / dim), static_cast<int64_t>(at % dim));
                if (value != (*rows)[n][at]) {
                    return "contents differ in sequence " + std::to_string(n / heads);
                }
            }
        }
    }
    return "";
}

}  // namespace hattn::test

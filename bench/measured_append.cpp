#include "measured_append.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <string_view>
#include <vector>

#include "input_data.h"
#include "stopwatch.h"

namespace hattn::bench {

namespace {

KvCacheDesc cache_desc(const cases::Case &c) {
    KvCacheDesc desc;
    desc.dtype = HATTN_FLOAT32;
    desc.batch = c.batch;
    desc.kv_heads = c.kv_heads;
    desc.capacity = c.kv_length;
    desc.key_dim = c.key_dim;
    desc.value_dim = c.value_dim;
    return desc;
}

cases::TensorData token(const cases::Case &c, int64_t dim, uint64_t seed) {
    cases::TensorData data = cases::make_tensor(HATTN_FLOAT32, {c.batch, c.kv_heads, 1, dim});
    cases::fill_normal(data.view, seed);
    return data;
}

// Whether row `at` of every sequence and head of the cache is that of the token.
bool holds(const hattn_tensor &cache, int64_t at, const hattn_tensor &token) {
    bool same = true;
    cases::for_each_index(cases::extents_of(token), [&](int64_t b, int64_t h, int64_t, int64_t d) {
        same = same && cases::element<float>(cache, b, h, at, d) == cases::element<float>(token, b, h, 0, d);
    });
    return same;
}

// A hash of every row of the cache.
std::vector<size_t> row_hashes(const KvCache::View &view) {
    std::vector<size_t> hashes;
    for (const hattn_tensor &side : {view.k, view.v}) {
        const size_t bytes = static_cast<size_t>(side.extent[3]) * sizeof(float);
        cases::for_each_index({side.extent[0], side.extent[1], side.extent[2], 1},
                              [&](int64_t b, int64_t h, int64_t row, int64_t) {
                                  const float &first = cases::element<float>(side, b, h, row, 0);
                                  std::string_view row_bytes(reinterpret_cast<const char *>(&first), bytes);
                                  hashes.push_back(std::hash<std::string_view>()(row_bytes));
                              });
    }
    return hashes;
}

// Bytes of the rows whose hashes differ.
int64_t changed_bytes(const KvCache::View &view, const std::vector<size_t> &before) {
    const std::vector<size_t> after = row_hashes(view);
    const auto keys = static_cast<size_t>(view.k.extent[0] * view.k.extent[1] * view.k.extent[2]);
    int64_t bytes = 0;
    for (size_t row = 0; row < after.size(); ++row) {
        const hattn_tensor &side = row < keys ? view.k : view.v;
        bytes += after[row] != before[row] ? side.extent[3] * static_cast<int64_t>(sizeof(float)) : 0;
    }
    return bytes;
}

constexpr int64_t kCopies = 256;

}  // namespace

MeasuredAppend::MeasuredAppend(Context context, const BenchCase &bench_case)
    : k_(token(bench_case.problem, bench_case.problem.key_dim, 1)),
      v_(token(bench_case.problem, bench_case.problem.value_dim, 2)),
      copies_(cases::make_tensor(HATTN_FLOAT32, {1, kCopies, 2, cases::element_count(k_.view)})),
      capacity_(static_cast<int32_t>(bench_case.problem.kv_length)),
      context_(std::move(context)),
      cache_(context_, cache_desc(bench_case.problem)),
      bytes_(static_cast<double>(k_.storage->size() + v_.storage->size())),
      best_seconds_(std::numeric_limits<double>::infinity()),
      best_copy_seconds_(std::numeric_limits<double>::infinity()) {
    // So that no copy is the first to touch its pages.
    std::memset(copies_.storage->data(), 1, copies_.storage->size());
}

std::string MeasuredAppend::label() const {
    return "hattn_kv_append" + (written_ < 0 ? "" : ", bytes written: " + std::to_string(written_));
}

std::string MeasuredAppend::check() {
    KvCache::View view = cache_.view();
    const std::vector<size_t> before = row_hashes(view);
    append();
    written_ = changed_bytes(view, before);
    if (written_ != static_cast<int64_t>(bytes_)) {
        return "of the cache " + std::to_string(written_) + " bytes were written, but the tokens have " +
               std::to_string(static_cast<int64_t>(bytes_));
    }
    if (!holds(view.k, length_ - 1, k_.view) || !holds(view.v, length_ - 1, v_.view)) {
        return "the cache does not hold what was appended";
    }
    return "";
}

void MeasuredAppend::append() {
    cache_.append(k_.view, v_.view);
    ++length_;
}

double MeasuredAppend::run() {
    if (length_ == capacity_) {
        cache_.reset();
        length_ = 0;
    }
    Stopwatch watch;
    append();
    double seconds = watch.seconds();
    best_seconds_ = std::min(best_seconds_, seconds);
    return seconds;
}

void MeasuredAppend::measure_limits() {
    look_at_limit([this](double) {
        auto *to = copies_.storage->data() + copies_made_++ % kCopies * static_cast<int64_t>(bytes_);
        Stopwatch watch;
        std::memcpy(to, k_.storage->data(), k_.storage->size());
        std::memcpy(to + k_.storage->size(), v_.storage->data(), v_.storage->size());
        best_copy_seconds_ = std::min(best_copy_seconds_, watch.seconds());
    });
}

Figures MeasuredAppend::figures() const {
    return {best_seconds_, "byte", bytes_ / best_seconds_, bytes_ / best_copy_seconds_, "memcpy"};
}

}  // namespace hattn::bench

#include "kv_cache.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace hattn_python {
namespace {

constexpr const char *kBatch = "the batch of the cache";

// A shared lock taken without the GIL; destroyed with it held.
std::shared_lock<std::shared_mutex> lock_shared(std::shared_mutex &mutex) {
    nb::gil_scoped_release release;
    return std::shared_lock(mutex);
}

}  // namespace

KvCache::KvCache(int64_t batch, int64_t kv_heads, int64_t capacity, int64_t key_dim, int64_t value_dim,
                 hattn_dtype dtype)
    : context_(make_context()), batch_(batch) {
    hattn_kv_cache_desc desc;
    hattn_kv_cache_desc_init(&desc);
    desc.dtype = dtype;
    desc.batch = batch;
    desc.kv_heads = kv_heads;
    desc.capacity = capacity;
    desc.key_dim = key_dim;
    desc.value_dim = value_dim;
    hattn_kv_cache *cache = nullptr;
    check(hattn_kv_cache_create(context_.get(), &desc, &cache), context_.get());
    cache_.reset(cache);
}

template<typename Change>
void KvCache::change(Change change) {
    hattn_status status = HATTN_OK;
    {
        nb::gil_scoped_release release;
        const std::unique_lock lock(mutex_);
        status = change(cache_.get());
    }
    check(status, context_.get());
}

void KvCache::append(nb::handle k, nb::handle v, nb::handle lengths) {
    const Array k_array = Array::readable(k, "k"), v_array = Array::readable(v, "v");
    const hattn_tensor k_tensor = k_array.tensor(Layout::kBhsd), v_tensor = v_array.tensor(Layout::kBhsd);
    std::vector<int32_t> rows;
    if (!lengths.is_none())
        rows = Array::readable(lengths, "lengths").integers(batch_, kBatch);
    change([&](hattn_kv_cache *cache) {
        return hattn_kv_append(cache, &k_tensor, &v_tensor, rows.empty() ? nullptr : rows.data());
    });
}

void KvCache::truncate(nb::handle lengths) {
    const std::vector<int32_t> kept = Array::readable(lengths, "lengths").integers(batch_, kBatch);
    change([&](hattn_kv_cache *cache) { return hattn_kv_cache_truncate(cache, kept.data()); });
}

void KvCache::reset() {
    change([](hattn_kv_cache *cache) { return hattn_kv_cache_reset(cache); });
}

std::vector<int32_t> KvCache::read_lengths() const {
    std::vector<int32_t> lengths(static_cast<size_t>(batch_));
    check(hattn_kv_cache_lengths(cache_.get(), lengths.data()), context_.get());
    return lengths;
}

std::vector<int32_t> KvCache::lengths() const {
    const auto lock = lock_shared(mutex_);
    return read_lengths();
}

// Not hattn_kv_cache_attend(): a plan for the whole capacity serves every step of a decode loop.
nb::tuple KvCache::attend(nb::handle q, nb::handle out, const Problem &problem, bool return_lse) const {
    const auto lock = lock_shared(mutex_);
    Keys keys{HATTN_TENSOR_INIT, HATTN_TENSOR_INIT, 0};
    check(hattn_kv_cache_view(cache_.get(), &keys.k, &keys.v), context_.get());
    keys.capacity = keys.k.extent[2];
    std::vector<int32_t> lengths = read_lengths();
    const int32_t longest = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
    keys.k.extent[2] = keys.v.extent[2] = longest;

    AttentionCall call(problem, q, keys);
    if (call.desc().batch != batch_)
        raise(PyExc_ValueError, (call.args().cu_seqlens_q ? "cu_seqlens_q: number of sequences is " : "q: batch is ") +
                                    std::to_string(call.desc().batch) + ", but the cache has " +
                                    std::to_string(batch_));
    call.set_kv_lengths(std::move(lengths));
    Session &session = Session::current();
    const hattn_plan *plan = session.plan(call.desc());
    nb::tuple outputs = call.make_outputs(out, return_lse);
    session.execute(plan, call.args());
    return outputs;
}

}  // namespace hattn_python

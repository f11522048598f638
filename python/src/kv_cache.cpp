#include "kv_cache.h"

#include <algorithm>
#include <mutex>
#include <numeric>

#include "given_queue.h"

namespace hattn_python {
namespace {

constexpr const char *kBatch = "the batch of the cache";

template<typename T>
nb::object array_of(const hattn_tensor &tensor, nb::handle owner) {
    const int64_t per_byte = tensor.dtype == HATTN_INT4 ? 2 : 1;
    size_t shape[4];
    int64_t strides[4];
    for (int i = 0; i < 4; ++i) {
        const int64_t units = i == 3 ? per_byte : 1;
        shape[i] = static_cast<size_t>((tensor.extent[i] + units - 1) / units);
        strides[i] = i == 3 ? 1 : tensor.stride[i] / per_byte;
    }
    static const T nothing{};  // of no sequences
    return nb::cast(nb::ndarray<nb::numpy, const T>(tensor.data ? tensor.data : &nothing, 4, shape, owner, strides));
}

bool has_scales(const hattn_tensor &storage) {
    return storage.dtype == HATTN_INT8 || storage.dtype == HATTN_INT4;
}

nb::object read_only(const hattn_tensor &tensor, nb::handle owner) {
    switch (tensor.dtype) {
    case HATTN_FLOAT16:
    case HATTN_BFLOAT16:
        return array_of<uint16_t>(tensor, owner);
    case HATTN_INT8:
        return array_of<int8_t>(tensor, owner);
    case HATTN_INT4:
        return array_of<uint8_t>(tensor, owner);
    default:
        return array_of<float>(tensor, owner);
    }
}

void require_host(const hattn_tensor &storage, const std::string &what) {
    if (storage.device != HATTN_CPU)
        raise(PyExc_NotImplementedError, what + ": the cache is on a device, of whose memory there are no arrays");
}

// How many rows of a tensor sequences have: as `lengths`, [batch] integers, or `cu_seqlens`, [batch + 1], say, if they
// are not None.
class Rows {
public:
    Rows(nb::handle lengths, nb::handle cu_seqlens, int64_t batch) {
        if (!lengths.is_none())
            lengths_ = Array::readable(lengths, "lengths").integers(batch, kBatch);
        if (!cu_seqlens.is_none())
            ends_ =
                Array::readable(cu_seqlens, "cu_seqlens").integers(batch + 1, "one more than the batch of the cache");
    }

    const int32_t *lengths() const {
        return lengths_.empty() ? nullptr : lengths_.data();
    }
    const int32_t *ends() const {
        return ends_.data();
    }
    // Of all sequences, where the tensor has so many.
    int64_t count(int64_t all) const {
        return !ends_.empty()      ? ends_.back()
               : !lengths_.empty() ? std::accumulate(lengths_.begin(), lengths_.end(), int64_t{0})
                                   : all;
    }

private:
    std::vector<int32_t> lengths_, ends_;
};

}  // namespace

KvCache::KvCache(int64_t batch, int64_t kv_heads, int64_t capacity, int64_t key_dim, int64_t value_dim,
                 hattn_dtype dtype, int64_t page_size, int64_t page_count, int64_t window,
                 std::optional<hattn_dtype> value_dtype, nb::handle k_scale, nb::handle v_scale, hattn_device device,
                 int32_t device_id, std::optional<uintptr_t> queue)
    : context_(make_context()), batch_(batch) {
    hattn_kv_cache_desc desc;
    hattn_kv_cache_desc_init(&desc);
    desc.dtype = dtype;
    desc.batch = batch;
    desc.kv_heads = kv_heads;
    desc.capacity = capacity;
    desc.key_dim = key_dim;
    desc.value_dim = value_dim;
    desc.page_size = page_size;
    desc.page_count = page_count;
    desc.window = window;
    desc.value_dtype = value_dtype.value_or(dtype);
    desc.device = device;
    desc.device_id = device_id;
    const GivenQueue given_queue(queue);
    desc.queue = given_queue.get();
    std::vector<Array> alive;
    const auto scale = [&](nb::handle given, const char *name, hattn_tensor &tensor) {
        if (given.is_none())
            return;
        alive.push_back(Array::readable(given, name));
        tensor = alive.back().tensor(Layout::kBhsd, kFloat32);
    };
    scale(k_scale, "k_scale", desc.k_scale);
    scale(v_scale, "v_scale", desc.v_scale);
    hattn_kv_cache *cache = nullptr;
    hattn_status status;
    {
        const ReleasedGil released;
        status = hattn_kv_cache_create(context_.get(), &desc, &cache);
    }
    check(status, context_.get());
    cache_.reset(cache);
}

template<typename Call>
void KvCache::put_into_queue(Call call, bool keeps, std::pair<Array, Array> arrays) {
    std::pair<Array, Array> read;  // by now; what its owners do when it goes is done without the lock
    change([&](hattn_kv_cache *cache) {
        const hattn_status status = call(cache);
        if (keeps && status == HATTN_OK) {
            read = std::exchange(being_read_[next_read_], std::move(arrays));
            next_read_ = (next_read_ + 1) % kCallsUnderWay;
        }
        return status;
    });
}

template<typename Change>
void KvCache::change(Change change) {
    hattn_status status = HATTN_OK;
    {
        const ReleasedGil released;
        std::unique_lock gate(gate_);
        const std::unique_lock lock(mutex_);
        gate.unlock();
        status = change(cache_.get());
    }
    check(status, context_.get());
}

template<typename Read>
hattn_status KvCache::read(Read read) const {
    std::shared_lock<std::shared_mutex> lock(mutex_, std::defer_lock);
    {
        const ReleasedGil released;
        const std::lock_guard gate(gate_);
        lock.lock();
    }
    return read(cache_.get());
}

void KvCache::append(nb::handle k, nb::handle v, Layout layout, nb::handle lengths, nb::handle cu_seqlens,
                     const RopeOptions *rope, nb::handle positions, bool keeps) {
    Array k_array = Array::readable(k, "k"), v_array = Array::readable(v, "v");
    const hattn_tensor k_tensor = k_array.tensor(layout, kFloats), v_tensor = v_array.tensor(layout, kFloats);
    const Rows rows(lengths, cu_seqlens, batch_);
    const RopeCall rope_call(rope, positions, cu_seqlens.is_none() ? batch_ : 1, k_tensor.extent[2]);
    rope_call.check_tables(k_tensor.extent[3]);
    // Without rows nothing is put into the queue.
    const bool is_read = rows.count(batch_ * k_tensor.extent[2]) > 0;
    const auto append = [&](hattn_kv_cache *cache) {
        return cu_seqlens.is_none() ? hattn_kv_append_rope(cache, &k_tensor, &v_tensor, rows.lengths(), rope_call.get())
                                    : hattn_kv_append_packed(cache, &k_tensor, &v_tensor, rows.ends(), rope_call.get());
    };
    put_into_queue(append, keeps && is_read, {std::move(k_array), std::move(v_array)});
}

nb::object KvCache::apply_rope(nb::handle x, nb::handle out, Layout layout, nb::handle lengths, nb::handle cu_seqlens,
                               const RopeOptions &rope, nb::handle positions, bool keeps) {
    TurnedArrays arrays(x, out, layout, !lengths.is_none());
    const hattn_tensor from = arrays.from(), to = arrays.to();
    const Rows rows(lengths, cu_seqlens, batch_);
    const RopeCall call(&rope, positions, cu_seqlens.is_none() ? batch_ : 1, from.extent[2]);
    call.check_tables(from.extent[3]);
    const auto turn = [&](hattn_kv_cache *cache) {
        return cu_seqlens.is_none() ? hattn_kv_rope_apply(cache, call.get(), &from, &to, rows.lengths())
                                    : hattn_kv_rope_apply_packed(cache, call.get(), &from, &to, rows.ends());
    };
    const bool is_read = rows.count(batch_ * from.extent[2]) > 0;
    put_into_queue(turn, keeps && is_read, arrays.take());
    return arrays.made();
}

void KvCache::fork(int64_t source, int64_t target, int64_t length) {
    change([&](hattn_kv_cache *cache) { return hattn_kv_cache_fork(cache, source, target, length); });
}

void KvCache::truncate(nb::handle lengths) {
    const std::vector<int32_t> kept = Array::readable(lengths, "lengths").integers(batch_, kBatch);
    change([&](hattn_kv_cache *cache) { return hattn_kv_cache_truncate(cache, kept.data()); });
}

void KvCache::reset() {
    change([](hattn_kv_cache *cache) { return hattn_kv_cache_reset(cache); });
}

std::vector<int32_t> KvCache::lengths() const {
    std::vector<int32_t> lengths(static_cast<size_t>(batch_));
    check(read([&](const hattn_kv_cache *cache) { return hattn_kv_cache_lengths(cache, lengths.data()); }),
          context_.get());
    return lengths;
}

nb::tuple KvCache::pages() const {
    int64_t used = 0, available = 0;
    check(read([&](const hattn_kv_cache *cache) { return hattn_kv_cache_pages(cache, &used, &available); }),
          context_.get());
    return nb::make_tuple(used, available);
}

nb::object KvCache::block_table() const {
    std::unique_ptr<int32_t[]> copy;
    int64_t stride = 0;
    const hattn_status status = read([&](const hattn_kv_cache *cache) {
        const int32_t *table = nullptr;
        const hattn_status found = hattn_kv_cache_block_table(cache, &table, &stride);
        if (found == HATTN_OK) {
            copy = std::make_unique<int32_t[]>(static_cast<size_t>(batch_ * stride));
            std::copy_n(table, batch_ * stride, copy.get());
        }
        return found;
    });
    check(status, context_.get());
    const size_t shape[] = {static_cast<size_t>(batch_), static_cast<size_t>(stride)};
    const nb::capsule owner(copy.get(), [](void *memory) noexcept { delete[] static_cast<int32_t *>(memory); });
    return nb::cast(nb::ndarray<nb::numpy, int32_t>(copy.release(), 2, shape, owner));
}

nb::tuple KvCache::view(nb::handle self) {
    const KvCache &cache = *nb::cast<const KvCache *>(self);
    hattn_tensor k = HATTN_TENSOR_INIT, v = HATTN_TENSOR_INIT;
    check(hattn_kv_cache_view(cache.cache_.get(), &k, &v), cache.context_.get());
    require_host(k, "view");
    return nb::make_tuple(read_only(k, self), read_only(v, self));
}

nb::tuple KvCache::scales(nb::handle self) {
    const KvCache &cache = *nb::cast<const KvCache *>(self);
    hattn_tensor k = HATTN_TENSOR_INIT, v = HATTN_TENSOR_INIT;
    check(hattn_kv_cache_view(cache.cache_.get(), &k, &v), cache.context_.get());
    require_host(k, "scales");
    hattn_tensor k_scale = HATTN_TENSOR_INIT, v_scale = HATTN_TENSOR_INIT;
    check(hattn_kv_cache_scales(cache.cache_.get(), &k_scale, &v_scale), cache.context_.get());
    return nb::make_tuple(has_scales(k) ? read_only(k_scale, self) : nb::none(),
                          has_scales(v) ? read_only(v_scale, self) : nb::none());
}

Keys KvCache::keys() const {
    Keys keys{HATTN_TENSOR_INIT, HATTN_TENSOR_INIT, 0, false};
    check(hattn_kv_cache_view(cache_.get(), &keys.k, &keys.v), context_.get());
    return keys;
}

int64_t KvCache::bind(AttentionCall &call, nb::handle out) const {
    if (call.desc().batch != batch_)
        raise(PyExc_ValueError, (call.args().cu_seqlens_q ? "cu_seqlens_q: number of sequences is " : "q: batch is ") +
                                    std::to_string(call.desc().batch) + ", but the cache has " +
                                    std::to_string(batch_));
    int64_t keys = 0;
    const auto bind_and_count = [&](const hattn_kv_cache *cache) {
        const hattn_status bound = call.bind(cache);
        keys = bound == HATTN_OK ? call.key_extent() : 0;
        return bound;
    };
    check(read(bind_and_count), context_.get());
    call.set_out(out);
    return keys;
}

// Not hattn_kv_cache_attend(): a plan for the whole capacity serves every step of a decode loop.
nb::tuple KvCache::attend(nb::handle q, nb::handle out, const Problem &problem, bool return_lse) const {
    AttentionCall call(problem, q, keys());
    int64_t made_for = bind(call, out);
    const std::shared_ptr<Session> session = Session::current();
    const PlanPointer plan = session->plan(call.desc(), true);
    while (true) {
        nb::tuple outputs = call.make_outputs(out, return_lse, made_for);
        int64_t keys = made_for;  // scores have room for so many; others, if the cache has changed meanwhile
        const hattn_status status = read([&](const hattn_kv_cache *cache) {
            const hattn_status bound = call.bind(cache);
            if (bound == HATTN_OK && problem.scores != HATTN_SCORES_NONE)
                keys = call.key_extent();
            return bound == HATTN_OK && keys == made_for ? session->execute(plan.get(), call.args()) : bound;
        });
        check_call(status, context_.get(), true, call.batch_name());
        if (keys == made_for)
            return outputs;
        made_for = keys;
    }
}

size_t KvCache::device_workspace(nb::handle q, nb::handle out, const Problem &problem) const {
    AttentionCall call(problem, q, keys());
    bind(call, out);
    size_t bytes = 0;
    const PlanPointer plan = Session::current()->plan(call.desc(), true);
    check(hattn_plan_device_workspace_size(plan.get(), &bytes), context_.get());
    return bytes;
}

}  // namespace hattn_python

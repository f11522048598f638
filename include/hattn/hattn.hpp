/* hattn: C++ interface (C++17). Ownership, exceptions and defaults over hattn/hattn.h; every number is computed behind
 * the C functions, whose comments say what arguments mean.
 *
 *     hattn::Context context;
 *     hattn::AttentionDesc desc;          // batch, heads, lengths and head sizes; the rest has defaults
 *     hattn::AttentionArgs args;
 *     args.q = hattn::bhsd(q, {1, 16, 512, 128});
 *     ...
 *     context.attention(desc, args);
 *
 * A function that fails throws hattn::Error, and then nothing the caller owns has been written.
 * Objects move and do not copy. One that was moved from may only be assigned to or destroyed.
 */
#ifndef HATTN_HATTN_HPP
#define HATTN_HATTN_HPP

#include <hattn/hattn.h>

#include <array>
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace hattn {

/* A status other than HATTN_OK; what() is the sentence of hattn_last_error(). */
class Error : public std::runtime_error {
public:
    Error(hattn_status status, const std::string &message) : std::runtime_error(message), status_(status) {}

    hattn_status status() const noexcept {
        return status_;
    }

private:
    hattn_status status_;
};

/* Throws Error unless status is HATTN_OK. context may be null. */
inline void check(hattn_status status, const hattn_context *context) {
    if (status == HATTN_OK) {
        return;
    }
    const std::string message = hattn_last_error(context);
    throw Error(status, message.empty() ? hattn_status_name(status) : message);
}

inline std::string version() {
    return hattn_version();
}

/* ---- tensors -------------------------------------------------------------------------------------------------- */

using Extents = std::array<std::int64_t, 4>; /* [batch, heads, sequence, head dimension] */
using Strides = std::array<std::int64_t, 4>; /* of the same dimensions, in elements */

/* The hattn_dtype of a C++ element type. 16-bit and packed types have no C++ type of their own: say their dtype. */
template<typename T>
constexpr hattn_dtype dtype_of() {
    using Element = std::remove_cv_t<T>;
    static_assert(std::is_same_v<Element, float> || std::is_same_v<Element, std::int8_t> ||
                      std::is_same_v<Element, std::int32_t> || std::is_same_v<Element, bool>,
                  "hattn::dtype_of: float, std::int8_t, std::int32_t or bool");
    if (std::is_same_v<Element, float>) {
        return HATTN_FLOAT32;
    }
    if (std::is_same_v<Element, std::int8_t>) {
        return HATTN_INT8;
    }
    return std::is_same_v<Element, bool> ? HATTN_BOOL : HATTN_INT32;
}

/* A view of memory on the CPU. It owns nothing, and the memory must outlive its use. Input tensors are only read, so
 * pointers to const are accepted; a view of one must not be used as an output. */
inline hattn_tensor view(const void *data, hattn_dtype dtype, const Extents &extents, const Strides &strides) {
    hattn_tensor tensor = HATTN_TENSOR_INIT;
    tensor.data = const_cast<void *>(data);
    tensor.dtype = dtype;
    for (std::size_t i = 0; i < extents.size(); i++) {
        tensor.extent[i] = extents[i];
        tensor.stride[i] = strides[i];
    }
    return tensor;
}

template<typename T>
hattn_tensor view(T *data, const Extents &extents, const Strides &strides) {
    return view(data, dtype_of<T>(), extents, strides);
}

/* Contiguous memory in the order batch, heads, sequence, head dimension. Also for an lse: extents {B, H, S, 1}. Rows of
 * int4 start at bytes. */
inline hattn_tensor bhsd(const void *data, hattn_dtype dtype, const Extents &extents) {
    const std::int64_t row = dtype == HATTN_INT4 ? (extents[3] + 1) / 2 * 2 : extents[3];
    /* Too large ones wrap here, and are refused by the library. */
    const auto times = [](std::int64_t a, std::int64_t b) {
        return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
    };
    return view(data, dtype, extents, {times(times(extents[1], extents[2]), row), times(extents[2], row), row, 1});
}

template<typename T>
hattn_tensor bhsd(T *data, const Extents &extents) {
    return bhsd(data, dtype_of<T>(), extents);
}

/* Contiguous memory in the order batch, sequence, heads, head dimension. The extents stay in logical order, B H S D. */
inline hattn_tensor bshd(const void *data, hattn_dtype dtype, const Extents &extents) {
    hattn_tensor tensor = bhsd(data, dtype, {extents[0], extents[2], extents[1], extents[3]});
    std::swap(tensor.extent[1], tensor.extent[2]);
    std::swap(tensor.stride[1], tensor.stride[2]);
    return tensor;
}

template<typename T>
hattn_tensor bshd(T *data, const Extents &extents) {
    return bshd(data, dtype_of<T>(), extents);
}

/* ---- descriptions: the C structures, born with their defaults ---------------------------------------------------- */

struct ContextDesc : hattn_context_desc {
    ContextDesc() : hattn_context_desc(HATTN_CONTEXT_DESC_INIT) {}
};

struct AttentionDesc : hattn_attention_desc {
    AttentionDesc() {
        hattn_attention_desc_init(this);
    }
};

struct AttentionArgs : hattn_attention_args {
    AttentionArgs() {
        hattn_attention_args_init(this);
    }
};

struct Queue : hattn_queue {
    explicit Queue(void *of_driver = nullptr, void *in_context = nullptr)
        : hattn_queue{sizeof(hattn_queue), in_context, of_driver} {}
};

struct KvCacheDesc : hattn_kv_cache_desc {
    KvCacheDesc() {
        hattn_kv_cache_desc_init(this);
    }
};

struct Rope : hattn_rope {
    Rope() {
        hattn_rope_init(this);
    }
};

/* Memory for the workspace of one execute at a time. */
class Workspace {
public:
    explicit Workspace(std::size_t bytes) : size_(bytes), data_(::operator new(bytes, kAlignment)) {}

    void *data() const noexcept {
        return data_.get();
    }
    std::size_t size() const noexcept {
        return size_;
    }

private:
    static constexpr std::align_val_t kAlignment{64}; /* bytes, as hattn_attention_args asks for */
    struct Free {
        void operator()(void *memory) const noexcept {
            ::operator delete(memory, kAlignment);
        }
    };

    std::size_t size_;
    std::unique_ptr<void, Free> data_;
};

namespace detail {

template<auto destroy>
struct Destroy {
    template<typename T>
    void operator()(T *object) const noexcept {
        destroy(object);
    }
};

template<typename T, auto destroy>
using Handle = std::unique_ptr<T, Destroy<destroy>>;

/* Reads a JSON text from get(buffer, capacity, size), which first tells its size. */
template<typename Get>
std::string read_text(const hattn_context *context, Get get) {
    std::size_t size = 0;
    const hattn_status status = get(nullptr, 0, &size);
    if (status != HATTN_CAPACITY_EXCEEDED) {
        check(status, context);
    }
    std::string text(size, '\0');
    check(get(text.data(), text.size(), &size), context);
    text.resize(size == 0 ? 0 : size - 1); /* the final zero */
    return text;
}

}  // namespace detail

/* ---- objects ---------------------------------------------------------------------------------------------------- */

/* Threads, allocator, tuning database. Must outlive its plans and caches. Not for concurrent use. */
class Context {
public:
    explicit Context(const hattn_context_desc &desc = ContextDesc()) {
        hattn_context *context = nullptr;
        check(hattn_context_create(&desc, &context), nullptr);
        handle_.reset(context);
    }

    hattn_context *handle() const noexcept {
        return handle_.get();
    }

    /* JSON: version, targets, kernels, tuning database. */
    std::string info() {
        return detail::read_text(handle(), [this](char *buffer, std::size_t capacity, std::size_t *size) {
            return hattn_info(handle(), buffer, capacity, size);
        });
    }

    /* What was wrong with the tuning database or its kernels, "" if nothing was. */
    std::string warning() const {
        return hattn_context_warning(handle());
    }

    /* A kernel pack, or a folder of them. */
    void load_kernels(const std::string &path) {
        check(hattn_context_load_kernels(handle(), path.c_str()), handle());
    }

    /* Plans, allocates a workspace, executes; args.workspace is ignored. */
    void attention(const hattn_attention_desc &desc, const hattn_attention_args &args) {
        check(hattn_attention(handle(), &desc, &args), handle());
    }

    /* outs[n], out: [B, H, S, D]; lses[n], lse: [B, H, S, 1]; as many outs as lses. queue: of the tensors' device, or
     * null: the library's own. */
    void merge_states(const std::vector<hattn_tensor> &outs, const std::vector<hattn_tensor> &lses,
                      const hattn_tensor &out, const hattn_tensor &lse, const hattn_queue *queue = nullptr) {
        if (outs.size() != lses.size()) {
            throw Error(HATTN_INVALID_ARGUMENT, "outs: has " + std::to_string(outs.size()) + " states, but lses has " +
                                                    std::to_string(lses.size()));
        }
        const auto count = static_cast<std::int32_t>(outs.size());
        check(hattn_merge_states_in_queue(handle(), queue, count, outs.data(), lses.data(), &out, &lse), handle());
    }

    /* out = x, [B, H, S, D], with row i of sequence b turned to position offsets[b] + i (null: i), or to rope's
     * positions. queue: of the tensors' device, or null: the library's own. */
    void rope_apply(const hattn_rope &rope, const hattn_tensor &x, const hattn_tensor &out,
                    const std::int32_t *offsets = nullptr, const std::int32_t *lengths = nullptr,
                    const hattn_queue *queue = nullptr) {
        check(hattn_rope_apply_in_queue(handle(), queue, &rope, &x, &out, offsets, lengths), handle());
    }

private:
    detail::Handle<hattn_context, hattn_context_destroy> handle_;
};

/* The library's own queue of a device, for memory that executes without a queue can use: hattn_device_queue(). */
inline hattn_queue device_queue(hattn_device device, std::int32_t device_id = 0) {
    hattn_queue queue = HATTN_QUEUE_INIT;
    check(hattn_device_queue(device, device_id, &queue), nullptr);
    return queue;
}

/* Capacities and options, decided once; immutable, may be executed concurrently with a workspace each. */
class Plan {
public:
    Plan(Context &context, const hattn_attention_desc &desc) : context_(context.handle()) {
        hattn_plan *plan = nullptr;
        check(hattn_plan_create(context_, &desc, &plan), context_);
        handle_.reset(plan);
    }

    hattn_plan *handle() const noexcept {
        return handle_.get();
    }

    /* Bytes that args.workspace must have. */
    std::size_t workspace_size() const {
        std::size_t bytes = 0;
        check(hattn_plan_workspace_size(handle(), &bytes), context_);
        return bytes;
    }

    /* Bytes that args.device_workspace must have, if it is given. */
    std::size_t device_workspace_size() const {
        std::size_t bytes = 0;
        check(hattn_plan_device_workspace_size(handle(), &bytes), context_);
        return bytes;
    }

    void execute(const hattn_attention_args &args) const {
        check(hattn_plan_execute(handle(), &args), context_);
    }

    /* JSON: algorithm, kernel, target, tile parameters, tasks, workspace bytes, why. */
    std::string explain() const {
        return detail::read_text(context_, [this](char *buffer, std::size_t capacity, std::size_t *size) {
            return hattn_plan_explain(handle(), buffer, capacity, size);
        });
    }

    /* The same of a sequence of so many query rows and keys. */
    std::string explain(std::int64_t query_length, std::int64_t kv_length) const {
        return detail::read_text(context_, [&](char *buffer, std::size_t capacity, std::size_t *size) {
            return hattn_plan_explain_sequence(handle(), query_length, kv_length, buffer, capacity, size);
        });
    }

private:
    hattn_context *context_;
    detail::Handle<hattn_plan, hattn_plan_destroy> handle_;
};

/* Keys and values of a batch of sequences. */
class KvCache {
public:
    KvCache(Context &context, const hattn_kv_cache_desc &desc) : context_(context.handle()), batch_(desc.batch) {
        hattn_kv_cache *cache = nullptr;
        check(hattn_kv_cache_create(context.handle(), &desc, &cache), context_);
        handle_.reset(cache);
    }

    hattn_kv_cache *handle() const noexcept {
        return handle_.get();
    }

    /* k: [B, Hkv, S, Dk], v: [B, Hkv, S, Dv]; lengths: [B], how many rows of each sequence count, or null: all S; rope:
     * how the keys are turned, or null. */
    void append(const hattn_tensor &k, const hattn_tensor &v, const std::int32_t *lengths = nullptr,
                const hattn_rope *rope = nullptr) {
        check(hattn_kv_append_rope(handle(), &k, &v, lengths, rope), context_);
    }

    /* Of packed rows: k [1, Hkv, T, Dk], v [1, Hkv, T, Dv]; cu_seqlens: [B + 1], 0, then where each sequence ends. */
    void append_packed(const hattn_tensor &k, const hattn_tensor &v, const std::int32_t *cu_seqlens,
                       const hattn_rope *rope = nullptr) {
        check(hattn_kv_append_packed(handle(), &k, &v, cu_seqlens, rope), context_);
    }

    /* out = x, [B, H, S, Dk], turned to the last places of each sequence, or to rope's positions: queries whose keys have
     * been appended. lengths: [B], how many of the S rows each sequence has, or null. */
    void rope_apply(const hattn_rope &rope, const hattn_tensor &x, const hattn_tensor &out,
                    const std::int32_t *lengths = nullptr) {
        check(hattn_kv_rope_apply(handle(), &rope, &x, &out, lengths), context_);
    }

    /* Of packed rows: x, out [1, H, T, Dk]; cu_seqlens as append_packed() takes them. */
    void rope_apply_packed(const hattn_rope &rope, const hattn_tensor &x, const hattn_tensor &out,
                           const std::int32_t *cu_seqlens) {
        check(hattn_kv_rope_apply_packed(handle(), &rope, &x, &out, cu_seqlens), context_);
    }

    /* Sequence `to` becomes the first `length` keys of sequence `from`; -1: all. */
    void fork(std::int64_t from, std::int64_t to, std::int64_t length = -1) {
        check(hattn_kv_cache_fork(handle(), from, to, length), context_);
    }

    /* Keys held, per sequence. */
    std::vector<std::int32_t> lengths() const {
        std::vector<std::int32_t> lengths(static_cast<std::size_t>(batch_));
        check(hattn_kv_cache_lengths(handle(), lengths.data()), context_);
        return lengths;
    }

    /* lengths: [B], each from 0 to the sequence's current one. */
    void truncate(const std::vector<std::int32_t> &lengths) {
        if (lengths.size() != static_cast<std::size_t>(batch_)) {
            throw Error(HATTN_INVALID_ARGUMENT, "lengths: has " + std::to_string(lengths.size()) +
                                                    " entries, but the cache has " + std::to_string(batch_) +
                                                    " sequences");
        }
        check(hattn_kv_cache_truncate(handle(), lengths.data()), context_);
    }

    void reset() {
        check(hattn_kv_cache_reset(handle()), context_);
    }

    struct View {
        hattn_tensor k, v; /* [B, Hkv, capacity, D], of a ring rounded up to 16, or [pages, Hkv, page_size, D] */
    };

    /* The whole storage. */
    View view() const {
        View result = {HATTN_TENSOR_INIT, HATTN_TENSOR_INIT};
        check(hattn_kv_cache_view(handle(), &result.k, &result.v), context_);
        return result;
    }

    /* Of the storage; no data where its type has no scales. */
    View scales() const {
        View result = {HATTN_TENSOR_INIT, HATTN_TENSOR_INIT};
        check(hattn_kv_cache_scales(handle(), &result.k, &result.v), context_);
        return result;
    }

    struct Pages {
        std::int64_t used, available;
    };

    /* Of a paged cache. */
    Pages pages() const {
        Pages result = {0, 0};
        check(hattn_kv_cache_pages(handle(), &result.used, &result.available), context_);
        return result;
    }

    struct BlockTable {
        const std::int32_t *data; /* [B, stride], -1 past the last page of a sequence */
        std::int64_t stride;
    };

    /* Of a paged cache; valid until the next change. */
    BlockTable block_table() const {
        BlockTable result = {nullptr, 0};
        check(hattn_kv_cache_block_table(handle(), &result.data, &result.stride), context_);
        return result;
    }

    /* Fills in the cache's part of desc and args, for plans of one's own; valid until the next change. */
    void bind(hattn_attention_desc &desc, hattn_attention_args &args) const {
        check(hattn_kv_cache_bind(handle(), &desc, &args), context_);
    }

    /* Attention of args.q over the cached keys; k, v, their extents and lengths are the cache's. */
    void attend(const hattn_attention_desc &desc, const hattn_attention_args &args) {
        check(hattn_kv_cache_attend(handle(), &desc, &args), context_);
    }

private:
    hattn_context *context_;
    std::int64_t batch_;
    detail::Handle<hattn_kv_cache, hattn_kv_cache_destroy> handle_;
};

}  // namespace hattn

#endif /* HATTN_HATTN_HPP */

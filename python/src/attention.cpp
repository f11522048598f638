#include "attention.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "released_gil.h"
#include "session.h"

namespace hattn_python {
namespace {

constexpr const char *kQueryHeads = "the number of heads of q";
constexpr int64_t kPageSizes[] = {16, 32, 64, 128};

// Pointer for a vector the C interface takes as "null: not given".
template<typename T>
const T *data_or_null(const std::vector<T> &values, bool given) {
    static constexpr T kNone{};
    if (!given)
        return nullptr;
    return values.empty() ? &kNone : values.data();
}

// Where packed sequences end.
std::vector<int32_t> sequence_ends(nb::handle object, const char *name) {
    std::vector<int32_t> ends = Array::readable(object, name).integers();
    if (ends.empty())
        raise(PyExc_ValueError, std::string(name) + ": is empty, but must have at least 1 entry");
    return ends;
}

// Rows of the longest sequence, at most `rows`: what is wrong with the ends is the library's to say.
int64_t longest(const std::vector<int32_t> &ends, int64_t rows) {
    int64_t most = 0;
    for (size_t b = 0; b + 1 < ends.size(); ++b)
        most = std::max(most, int64_t{ends[b + 1]} - ends[b]);
    return std::min(most, rows);
}

// As an execute of the library refuses them: ends of sequences of `most` rows in an array of `rows`, and lengths of up
// to `most`.
void check_ends(const std::vector<int32_t> &ends, const std::string &name, int64_t rows, const char *array,
                int64_t most, const char *limit) {
    const auto entry = [&](size_t b) { return name + "[" + std::to_string(b) + "]: is " + std::to_string(ends[b]); };
    if (ends.front() != 0)
        raise(PyExc_ValueError, entry(0) + ", but must be 0");
    for (size_t b = 1; b < ends.size(); ++b) {
        if (ends[b] < ends[b - 1])
            raise(PyExc_ValueError, entry(b) + ", but the entry before is " + std::to_string(ends[b - 1]));
        if (const int64_t count = int64_t{ends[b]} - ends[b - 1]; count > most)
            raise(PyExc_ValueError, name + ": sequence " + std::to_string(b - 1) + " has " + std::to_string(count) +
                                        " rows, but " + limit + " is " + std::to_string(most));
    }
    if (ends.back() != rows)
        raise(PyExc_ValueError, entry(ends.size() - 1) + ", but " + array + " has " + std::to_string(rows) + " rows");
}

void check_lengths(const std::vector<int32_t> &lengths, const char *name, int64_t most, const char *limit) {
    for (size_t b = 0; b < lengths.size(); ++b) {
        if (lengths[b] < 0 || lengths[b] > most)
            raise(PyExc_ValueError, std::string(name) + "[" + std::to_string(b) + "]: is " +
                                        std::to_string(lengths[b]) + ", but must be from 0 to " + limit + ", " +
                                        std::to_string(most));
    }
}

Keys import_keys(nb::handle k, nb::handle v, Layout layout, std::vector<Array> &alive) {
    alive.push_back(Array::readable(k, "k"));
    alive.push_back(Array::readable(v, "v"));
    Keys keys{alive[0].stored_tensor(layout), alive[1].stored_tensor(layout), 0, true};
    keys.capacity = keys.k.extent[2];
    return keys;
}

}  // namespace

AttentionCall::AttentionCall(const Problem &problem, nb::handle q, const Keys &keys)
    : layout_(problem.layout), counts_bytes_(keys.counts_bytes), given_lse_(problem.lse) {
    hattn_attention_desc_init(&desc_);
    hattn_attention_args_init(&args_);
    arrays_.push_back(Array::readable(q, "q"));
    args_.q = arrays_.back().tensor(layout_, kFloats);
    args_.k = keys.k;
    args_.v = keys.v;
    describe(problem, keys);
    pack(problem);
    add_arrays(problem);
    if (!problem.block_table.is_none())
        add_block_table(problem.block_table);
    add_queue(problem);
}

void AttentionCall::describe(const Problem &problem, const Keys &keys) {
    desc_.dtype = args_.q.dtype;
    desc_.k_dtype = args_.k.dtype;
    desc_.v_dtype = args_.v.dtype;
    desc_.out_dtype = args_.q.dtype;
    if (counts_bytes_ && args_.k.dtype == HATTN_INT4 && args_.k.extent[3] == args_.q.extent[3] + 1)
        args_.k.extent[3] = args_.q.extent[3];
    desc_.device = problem.device;
    desc_.device_id = problem.device_id;
    desc_.batch = args_.q.extent[0];
    desc_.query_heads = args_.q.extent[1];
    desc_.kv_heads = keys.k.extent[1];
    desc_.query_length = args_.q.extent[2];
    desc_.kv_length = keys.capacity;
    desc_.key_dim = args_.q.extent[3];
    desc_.value_dim = keys.v.extent[3];
    desc_.scale = problem.scale;
    desc_.causal = problem.causal;
    desc_.window_left = problem.window_left;
    desc_.window_right = problem.window_right;
    desc_.softcap = problem.softcap;
    desc_.has_bias = !problem.bias.is_none();
    desc_.has_mask = !problem.mask.is_none();
    desc_.has_alibi = !problem.alibi_slopes.is_none();
    desc_.has_sinks = !problem.sinks.is_none();
    desc_.scores = problem.scores;
    desc_.algorithm = problem.algorithm;
    desc_.threads = problem.threads;
}

// The plan's batch and capacities are those of the sequences.
void AttentionCall::pack(const Problem &problem) {
    if (!problem.cu_seqlens_q.is_none()) {
        cu_seqlens_q_ = sequence_ends(problem.cu_seqlens_q, "cu_seqlens_q");
        args_.cu_seqlens_q = cu_seqlens_q_.data();
        desc_.batch = static_cast<int64_t>(cu_seqlens_q_.size()) - 1;
        desc_.query_length = longest(cu_seqlens_q_, args_.q.extent[2]);
        desc_.packed_queries = std::max<int64_t>(args_.q.extent[2], 1);
    }
    if (!problem.cu_seqlens_k.is_none()) {
        cu_seqlens_k_ = sequence_ends(problem.cu_seqlens_k, "cu_seqlens_k");
        if (static_cast<int64_t>(cu_seqlens_k_.size()) != desc_.batch + 1)
            raise(PyExc_ValueError, "cu_seqlens_k: has " + std::to_string(cu_seqlens_k_.size()) +
                                        " entries, but the batch + 1 is " + std::to_string(desc_.batch + 1));
        args_.cu_seqlens_k = cu_seqlens_k_.data();
        desc_.kv_length = longest(cu_seqlens_k_, args_.k.extent[2]);
    }
}

const char *AttentionCall::batch_name() const {
    return args_.cu_seqlens_q ? "the number of sequences in cu_seqlens_q" : "the batch of q";
}

void AttentionCall::add_arrays(const Problem &problem) {
    const int64_t batch = desc_.batch;
    const auto broadcast = [&](const nb::object &object, const char *name, const Dtypes &allowed,
                               hattn_tensor &tensor) {
        if (object.is_none())
            return;
        arrays_.push_back(Array::readable(object, name));
        tensor = arrays_.back().broadcast_tensor(allowed);
    };
    const auto floats = [&](const nb::object &object, const char *name, std::vector<float> &values) {
        if (!object.is_none())
            values = Array::readable(object, name).floats(desc_.query_heads, kQueryHeads);
        return data_or_null(values, !object.is_none());
    };
    const auto integers = [&](const nb::object &object, const char *name, std::vector<int32_t> &values) {
        if (!object.is_none())
            values = Array::readable(object, name).integers(batch, batch_name());
        return data_or_null(values, !object.is_none());
    };
    broadcast(problem.bias, "bias", kFloat32, args_.bias);
    broadcast(problem.mask, "mask", kBool, args_.mask);
    const auto scale = [&](const nb::object &object, const char *name, hattn_tensor &tensor) {
        if (object.is_none())
            return;
        arrays_.push_back(Array::readable(object, name));
        tensor = arrays_.back().tensor(problem.layout, kFloat32);
    };
    scale(problem.k_scale, "k_scale", args_.k_scale);
    scale(problem.v_scale, "v_scale", args_.v_scale);
    if (problem.v_scale_of_channels || args_.v_scale.extent[3] > 1)
        halve_last_byte_of_values(args_.v_scale.extent[3]);
    args_.alibi_slopes = floats(problem.alibi_slopes, "alibi_slopes", alibi_slopes_);
    args_.sinks = floats(problem.sinks, "sinks", sinks_);
    args_.q_lengths = integers(problem.q_lengths, "q_lengths", q_lengths_);
    args_.kv_lengths = integers(problem.kv_lengths, "kv_lengths", kv_lengths_);
    args_.causal_offsets = integers(problem.causal_offsets, "causal_offset", causal_offsets_);
    if (problem.causal_offset) {
        causal_offsets_.assign(static_cast<size_t>(batch), *problem.causal_offset);
        args_.causal_offsets = data_or_null(causal_offsets_, true);
    }
}

void AttentionCall::add_block_table(const nb::object &table) {
    const Array array = Array::readable(table, "block_table");
    const hattn_tensor pages = array.broadcast_tensor(kInt32);
    if (pages.extent[2] != desc_.batch)
        raise(PyExc_ValueError, "block_table: has " + std::to_string(pages.extent[2]) + " rows, but " + batch_name() +
                                    " is " + std::to_string(desc_.batch));
    desc_.page_size = args_.k.extent[2];
    if (std::ranges::find(kPageSizes, desc_.page_size) == std::end(kPageSizes))
        raise(PyExc_ValueError, "k: extent[2] (page size) is " + std::to_string(desc_.page_size) +
                                    ", but with a block_table must be 16, 32, 64 or 128");
    desc_.kv_length = pages.extent[3] * desc_.page_size;
    const auto *entries = static_cast<const int32_t *>(pages.data);
    block_table_.assign(entries, entries + pages.extent[2] * pages.extent[3]);
    args_.block_table = data_or_null(block_table_, true);
    args_.block_table_stride = pages.extent[3];
}

void AttentionCall::add_queue(const Problem &problem) {
    queue_ = GivenQueue(problem.queue);
    args_.queue = queue_.get();
    if (!problem.device_workspace.is_none()) {
        arrays_.push_back(Array::readable(problem.device_workspace, "device_workspace"));
        args_.device_workspace = arrays_.back().data();
        args_.device_workspace_size = arrays_.back().elements();
    }
}

hattn_status AttentionCall::bind(const hattn_kv_cache *cache) {
    return hattn_kv_cache_bind(cache, &desc_, &args_);
}

int64_t AttentionCall::key_extent() const {
    if (desc_.page_size == 0 && desc_.ring == 0)
        return args_.k.extent[2];
    const int32_t *lengths = args_.kv_lengths;
    return !lengths || desc_.batch == 0 ? 0 : *std::max_element(lengths, lengths + desc_.batch);
}

// If values of `value_dim` elements end in the middle of a byte. One scale for each 32 elements never looks like that.
void AttentionCall::halve_last_byte_of_values(int64_t value_dim) {
    if (!counts_bytes_ || args_.v.dtype != HATTN_INT4 || args_.v.extent[3] != value_dim + 1 || value_dim % 2 == 0)
        return;
    args_.v.extent[3] = value_dim;
    desc_.value_dim = value_dim;
}

void AttentionCall::set_out(nb::handle out) {
    if (out.is_none())
        return;
    const hattn_tensor given = Array::writable(out, "out").tensor(layout_, kFloats);
    desc_.out_dtype = given.dtype;
    halve_last_byte_of_values(given.extent[3]);
}

// What an execute would refuse, in its words.
void AttentionCall::check_lengths_given() const {
    if (args_.cu_seqlens_q && args_.q.extent[0] != 1)
        raise(PyExc_ValueError, "q: extent[0] (batch) is " + std::to_string(args_.q.extent[0]) +
                                    ", but the batch of packed queries is 1");
    if (args_.cu_seqlens_q && args_.q_lengths)
        raise(PyExc_ValueError, "q_lengths: is given, but cu_seqlens_q is too");
    if (args_.cu_seqlens_k && args_.kv_lengths)
        raise(PyExc_ValueError, "kv_lengths: is given, but cu_seqlens_k is too");
    if (args_.block_table && !args_.kv_lengths && desc_.batch > 0)
        raise(PyExc_ValueError, "kv_lengths: is null, but must be given with a block_table");
}

std::map<std::pair<int64_t, int64_t>, int64_t> AttentionCall::sequences() const {
    check_lengths_given();
    constexpr const char *kQueryLength = "the query length of q", *kKvLength = "the kv length of k";
    if (args_.cu_seqlens_q)
        check_ends(cu_seqlens_q_, "cu_seqlens_q", args_.q.extent[2], "q", desc_.query_length, kQueryLength);
    if (args_.cu_seqlens_k)
        check_ends(cu_seqlens_k_, "cu_seqlens_k", args_.k.extent[2], "k", desc_.kv_length, kKvLength);
    check_lengths(kv_lengths_, "kv_lengths", desc_.kv_length, kKvLength);
    check_lengths(q_lengths_, "q_lengths", desc_.query_length, kQueryLength);
    std::map<std::pair<int64_t, int64_t>, int64_t> found;
    const bool ragged = args_.q_lengths || args_.kv_lengths || args_.cu_seqlens_q || args_.cu_seqlens_k;
    const auto length = [](size_t b, int64_t whole, const std::vector<int32_t> &lengths,
                           const std::vector<int32_t> &ends) {
        return !ends.empty() ? int64_t{ends[b + 1]} - ends[b] : !lengths.empty() ? lengths[b] : whole;
    };
    for (size_t b = 0; ragged && b < static_cast<size_t>(desc_.batch); ++b) {
        ++found[{length(b, desc_.query_length, q_lengths_, cu_seqlens_q_),
                 length(b, desc_.kv_length, kv_lengths_, cu_seqlens_k_)}];
    }
    return found;
}

nb::object AttentionCall::add_out(nb::handle out) {
    nb::object made;
    if (out.is_none()) {
        const bool swapped = layout_ == Layout::kBshd;
        const int64_t *extent = args_.q.extent;
        made = empty_array({extent[0], extent[swapped ? 2 : 1], extent[swapped ? 1 : 2], desc_.value_dim},
                           desc_.out_dtype);
    } else {
        made = nb::borrow(out);
    }
    arrays_.push_back(Array::writable(made, "out", out.is_none() && desc_.out_dtype == HATTN_BFLOAT16));
    args_.out = arrays_.back().tensor(layout_, kFloats);
    return made;
}

nb::tuple AttentionCall::make_outputs(nb::handle out, bool return_lse, int64_t keys) {
    const nb::object made = add_out(out);
    nb::object lse = nb::none(), scores = nb::none();
    if (return_lse) {
        lse = given_lse_.is_none() ? empty_float32({args_.q.extent[0], args_.q.extent[1], args_.q.extent[2]})
                                   : given_lse_;
        arrays_.push_back(Array::writable(lse, "lse"));
        args_.lse = arrays_.back().row_tensor();
    }
    if (desc_.scores != HATTN_SCORES_NONE) {
        scores = empty_float32({desc_.batch, desc_.query_heads, desc_.query_length, keys});
        arrays_.push_back(Array::writable(scores, "scores"));
        args_.scores = arrays_.back().tensor(Layout::kBhsd, kFloat32);
    }
    return nb::make_tuple(made, lse, scores);
}

nb::tuple attention(nb::handle q, nb::handle k, nb::handle v, nb::handle out, const Problem &problem, bool return_lse) {
    std::vector<Array> alive;
    const Keys keys = import_keys(k, v, problem.layout, alive);
    AttentionCall call(problem, q, keys);
    call.set_out(out);
    const std::shared_ptr<Session> session = Session::current();
    const PlanPointer plan = session->plan(call.desc());
    nb::tuple outputs = call.make_outputs(out, return_lse, call.key_extent());
    check_call(session->execute(plan.get(), call.args()), session->context(), false, call.batch_name());
    return outputs;
}

namespace {

// Calls tell(session, plan, call) with what attention() would do.
template<typename Tell>
auto with_plan(nb::handle q, nb::handle k, nb::handle v, nb::handle out, const Problem &problem, Tell tell) {
    std::vector<Array> alive;
    const Keys keys = import_keys(k, v, problem.layout, alive);
    AttentionCall call(problem, q, keys);
    call.set_out(out);
    const std::shared_ptr<Session> session = Session::current();
    const PlanPointer plan = session->plan(call.desc());
    return tell(session->context(), plan.get(), call);
}

}  // namespace

std::string explain(nb::handle q, nb::handle k, nb::handle v, nb::handle out, const Problem &problem) {
    return with_plan(q, k, v, out, problem,
                     [](const hattn_context *context, const hattn_plan *plan, const AttentionCall &) {
                         return query_text(context, [plan](char *buffer, size_t capacity, size_t *size) {
                             return hattn_plan_explain(plan, buffer, capacity, size);
                         });
                     });
}

nb::list explain_sequences(nb::handle q, nb::handle k, nb::handle v, nb::handle out, const Problem &problem) {
    return with_plan(
        q, k, v, out, problem, [](const hattn_context *context, const hattn_plan *plan, const AttentionCall &call) {
            nb::list sequences;
            for (const auto &[lengths, count] : call.sequences()) {
                const auto [rows, keys] = lengths;
                const std::string text = query_text(context, [&](char *buffer, size_t capacity, size_t *size) {
                    return hattn_plan_explain_sequence(plan, rows, keys, buffer, capacity, size);
                });
                sequences.append(nb::make_tuple(count, rows, keys, text));
            }
            return sequences;
        });
}

nb::tuple merge_states(const nb::list &outs, const nb::list &lses, nb::handle given_out, nb::handle given_lse,
                       std::optional<uintptr_t> queue) {
    if (outs.size() != lses.size())
        raise(PyExc_ValueError,
              "lses: has " + std::to_string(lses.size()) + " states, but outs has " + std::to_string(outs.size()));
    if (outs.size() == 0)
        raise(PyExc_ValueError, "outs: is empty, but must have at least one state");
    if (!std::in_range<int32_t>(outs.size()))
        raise(PyExc_ValueError, "outs: has too many states");
    std::vector<Array> alive;
    std::vector<hattn_tensor> out_tensors, lse_tensors;
    for (size_t i = 0; i < outs.size(); ++i) {
        alive.push_back(Array::readable(outs[i], "outs"));
        out_tensors.push_back(alive.back().tensor(Layout::kBhsd, kFloats));
        alive.push_back(Array::readable(lses[i], "lses"));
        lse_tensors.push_back(alive.back().row_tensor());
    }
    const int64_t *extent = out_tensors[0].extent;
    const hattn_dtype dtype = out_tensors[0].dtype;
    nb::object out =
        given_out.is_none() ? empty_array({extent[0], extent[1], extent[2], extent[3]}, dtype) : nb::borrow(given_out);
    nb::object lse = given_lse.is_none() ? empty_float32({extent[0], extent[1], extent[2]}) : nb::borrow(given_lse);
    const bool bits = given_out.is_none() && dtype == HATTN_BFLOAT16;
    const Array to = Array::writable(out, "out", bits), to_lse = Array::writable(lse, "lse");
    const hattn_tensor out_tensor = to.tensor(Layout::kBhsd, kFloats), lse_tensor = to_lse.row_tensor();
    const GivenQueue merges_in(queue);
    const std::shared_ptr<Session> session = Session::current();
    hattn_status status = HATTN_OK;
    {
        const ReleasedGil released;
        status = hattn_merge_states_in_queue(session->context(), merges_in.get(), static_cast<int32_t>(outs.size()),
                                             out_tensors.data(), lse_tensors.data(), &out_tensor, &lse_tensor);
    }
    check(status, session->context());
    return nb::make_tuple(out, lse);
}

}  // namespace hattn_python

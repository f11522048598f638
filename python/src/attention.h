// One attention call of the Python module: options and arrays in, C structures out.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

#include "array.h"
#include "given_queue.h"
#include "hattn/hattn.h"

namespace hattn_python {

// Every option of hattn.attention(), set by the Python layer where it is not the default. Array members are None where
// not given.
struct Problem {
    Layout layout = Layout::kBhsd;
    float scale = NAN;  // NaN: 1/sqrt(key dimension)
    bool causal = false;
    int64_t window_left = -1;
    int64_t window_right = -1;
    float softcap = 0;
    hattn_scores scores = HATTN_SCORES_NONE;
    hattn_algorithm algorithm = HATTN_ALGORITHM_AUTO;
    int32_t threads = 0;
    hattn_device device = HATTN_CPU;  // that computes
    int32_t device_id = 0;
    std::optional<uintptr_t> queue;            // of a device: a CUstream or cl_command_queue
    nb::object device_workspace = nb::none();  // uint8, on the device
    nb::object lse = nb::none();               // where lse goes; default: a new NumPy array
    std::optional<int32_t> causal_offset;      // the same for every sequence; excludes causal_offsets
    nb::object causal_offsets = nb::none();
    nb::object q_lengths = nb::none();
    nb::object kv_lengths = nb::none();
    nb::object cu_seqlens_q = nb::none();
    nb::object cu_seqlens_k = nb::none();
    nb::object block_table = nb::none();  // int32 [B, pages], contiguous
    nb::object bias = nb::none();
    nb::object mask = nb::none();
    nb::object alibi_slopes = nb::none();
    nb::object sinks = nb::none();
    nb::object k_scale = nb::none();  // rank 4, in the order of hattn.h
    nb::object v_scale = nb::none();
    bool v_scale_of_channels = false;  // as its extents do not tell where there is one channel
};

// The keys and values of a call, and how many of the keys there may ever be (what the plan is made for).
struct Keys {
    hattn_tensor k;
    hattn_tensor v;
    int64_t capacity;
    bool counts_bytes = false;  // extents of int4 heads are those of whole bytes, of which the last may be half used
};

// Holds everything the C structures point to.
class AttentionCall {
public:
    // q: array of the problem's layout. Throws what the arrays throw; extents are left to the library.
    AttentionCall(const Problem &problem, nb::handle q, const Keys &keys);

    // args() points into vectors whose storage moves along, but nothing needs it.
    AttentionCall(const AttentionCall &) = delete;
    AttentionCall &operator=(const AttentionCall &) = delete;

    const hattn_attention_desc &desc() const {
        return desc_;
    }
    const hattn_attention_args &args() const {
        return args_;
    }

    // Attention over a cache, which must not change while args() is in use. desc() is the same each time.
    hattn_status bind(const hattn_kv_cache *cache);
    // Sk, as the library counts it.
    int64_t key_extent() const;

    // The output has the type of `out`, or of q if that is None. Values have its head dimension, where bytes leave it
    // open.
    void set_out(nb::handle out);

    const char *batch_name() const;  // for messages

    // How many sequences have so many query rows and keys; empty where no lengths are given. Throws what attention()
    // throws for lengths.
    std::map<std::pair<int64_t, int64_t>, int64_t> sequences() const;

    // Adopts `out` or, if it is None, makes the output array; makes lse and scores as asked for.
    // Returns (out, lse or None, scores or None).
    nb::tuple make_outputs(nb::handle out, bool return_lse, int64_t keys);  // scores have room for so many

private:
    void describe(const Problem &problem, const Keys &keys);
    void halve_last_byte_of_values(int64_t value_dim);
    void check_lengths_given() const;
    void pack(const Problem &problem);
    void add_arrays(const Problem &problem);
    void add_block_table(const nb::object &table);
    void add_queue(const Problem &problem);
    nb::object add_out(nb::handle out);

    Layout layout_;
    bool counts_bytes_;
    nb::object given_lse_;
    hattn_attention_desc desc_;
    hattn_attention_args args_;
    std::vector<Array> arrays_;  // kept alive while args_ is in use
    std::vector<float> alibi_slopes_, sinks_;
    // Copies: what is checked is what is used, whatever other threads write meanwhile.
    std::vector<int32_t> block_table_, q_lengths_, kv_lengths_, causal_offsets_, cu_seqlens_q_, cu_seqlens_k_;
    GivenQueue queue_;
};

// (out, lse or None, scores or None)
nb::tuple attention(nb::handle q, nb::handle k, nb::handle v, nb::handle out, const Problem &problem, bool return_lse);

// The plan's JSON text.
std::string explain(nb::handle q, nb::handle k, nb::handle v, nb::handle out, const Problem &problem);
// [(number of sequences, their rows, keys, text), ...] where lengths are given.
nb::list explain_sequences(nb::handle q, nb::handle k, nb::handle v, nb::handle out, const Problem &problem);

// (out, lse) of states given as sequences of arrays [B, H, S, D] and [B, H, S]. out, lse: where results go, or None:
// new NumPy arrays; queue: of a device, that all are on.
nb::tuple merge_states(const nb::list &outs, const nb::list &lses, nb::handle given_out, nb::handle given_lse,
                       std::optional<uintptr_t> queue);

}  // namespace hattn_python

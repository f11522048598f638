// hattn._hattn: the C interface for the Python layer in python/hattn/, which checks options and converts results.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "attention.h"
#include "kv_cache.h"
#include "openmp_threads.h"
#include "rope.h"
#include "session.h"
#include "tuner.h"

namespace {

namespace nb = nanobind;
using namespace hattn_python;

std::string info() {
    const std::shared_ptr<Session> session = Session::current();
    hattn_context *context = session->context();
    return query_text(context, [context](char *buffer, size_t capacity, size_t *size) {
        return hattn_info(context, buffer, capacity, size);
    });
}

void bind_enums(nb::module_ &module) {
    nb::enum_<Layout>(module, "Layout").value("bhsd", Layout::kBhsd).value("bshd", Layout::kBshd);
    nb::enum_<hattn_algorithm>(module, "Algorithm")
        .value("auto", HATTN_ALGORITHM_AUTO)
        .value("naive", HATTN_ALGORITHM_NAIVE)
        .value("flash", HATTN_ALGORITHM_FLASH)
        .value("split_kv", HATTN_ALGORITHM_SPLIT_KV)
        .value("unfused", HATTN_ALGORITHM_UNFUSED);
    nb::enum_<hattn_scores>(module, "Scores")
        .value("none", HATTN_SCORES_NONE)
        .value("raw", HATTN_SCORES_RAW)
        .value("capped", HATTN_SCORES_CAPPED)
        .value("masked", HATTN_SCORES_MASKED)
        .value("probabilities", HATTN_SCORES_PROBABILITIES);
    nb::enum_<hattn_device>(module, "Device")
        .value("cpu", HATTN_CPU)
        .value("opencl", HATTN_OPENCL)
        .value("cuda", HATTN_CUDA);
    nb::enum_<hattn_dtype>(module, "DType")
        .value("float32", HATTN_FLOAT32)
        .value("float16", HATTN_FLOAT16)
        .value("bfloat16", HATTN_BFLOAT16)
        .value("int8", HATTN_INT8)
        .value("int4", HATTN_INT4);
}

void bind_problem(nb::module_ &module) {
    const auto optional = nb::for_setter(nb::arg("value").none());
    nb::class_<Problem>(module, "Problem")
        .def(nb::init<>())
        .def_rw("layout", &Problem::layout)
        .def_rw("scale", &Problem::scale)
        .def_rw("causal", &Problem::causal)
        .def_rw("window_left", &Problem::window_left)
        .def_rw("window_right", &Problem::window_right)
        .def_rw("softcap", &Problem::softcap)
        .def_rw("scores", &Problem::scores)
        .def_rw("algorithm", &Problem::algorithm)
        .def_rw("threads", &Problem::threads)
        .def_rw("device", &Problem::device)
        .def_rw("device_id", &Problem::device_id)
        .def_rw("queue", &Problem::queue, optional)
        .def_rw("device_workspace", &Problem::device_workspace, optional)
        .def_rw("lse", &Problem::lse, optional)
        .def_rw("causal_offset", &Problem::causal_offset, optional)
        .def_rw("causal_offsets", &Problem::causal_offsets, optional)
        .def_rw("q_lengths", &Problem::q_lengths, optional)
        .def_rw("kv_lengths", &Problem::kv_lengths, optional)
        .def_rw("cu_seqlens_q", &Problem::cu_seqlens_q, optional)
        .def_rw("cu_seqlens_k", &Problem::cu_seqlens_k, optional)
        .def_rw("block_table", &Problem::block_table, optional)
        .def_rw("bias", &Problem::bias, optional)
        .def_rw("mask", &Problem::mask, optional)
        .def_rw("alibi_slopes", &Problem::alibi_slopes, optional)
        .def_rw("sinks", &Problem::sinks, optional)
        .def_rw("k_scale", &Problem::k_scale, optional)
        .def_rw("v_scale", &Problem::v_scale, optional)
        .def_rw("v_scale_of_channels", &Problem::v_scale_of_channels);
}

void bind_rope(nb::module_ &module) {
    const auto optional = nb::for_setter(nb::arg("value").none());
    nb::class_<RopeOptions>(module, "RopeOptions")
        .def(nb::init<>())
        .def_rw("interleaved", &RopeOptions::interleaved)
        .def_rw("rotary_dim", &RopeOptions::rotary_dim)
        .def_rw("base", &RopeOptions::base)
        .def_rw("scaling_factor", &RopeOptions::scaling_factor)
        .def_rw("cos", &RopeOptions::cos, optional)
        .def_rw("sin", &RopeOptions::sin, optional);
    module.def("apply_rope", &apply_rope, nb::arg("x").none(), nb::arg("out").none(), nb::arg("layout"),
               nb::arg("rope"), nb::arg("positions").none(), nb::arg("offsets").none(), nb::arg("lengths").none(),
               nb::arg("queue").none());
}

void bind_kv_cache(nb::module_ &module) {
    nb::class_<KvCache>(module, "KvCache")
        .def(nb::init<int64_t, int64_t, int64_t, int64_t, int64_t, hattn_dtype, int64_t, int64_t, int64_t,
                      std::optional<hattn_dtype>, nb::handle, nb::handle, hattn_device, int32_t,
                      std::optional<uintptr_t>>(),
             nb::arg("batch"), nb::arg("kv_heads"), nb::arg("capacity"), nb::arg("key_dim"), nb::arg("value_dim"),
             nb::arg("dtype"), nb::arg("page_size"), nb::arg("page_count"), nb::arg("window"),
             nb::arg("value_dtype").none(), nb::arg("k_scale").none(), nb::arg("v_scale").none(), nb::arg("device"),
             nb::arg("device_id"), nb::arg("queue").none())
        .def("append", &KvCache::append, nb::arg("k").none(), nb::arg("v").none(), nb::arg("layout"),
             nb::arg("lengths").none(), nb::arg("cu_seqlens").none(), nb::arg("rope").none(),
             nb::arg("positions").none(), nb::arg("keeps"))
        .def("apply_rope", &KvCache::apply_rope, nb::arg("x").none(), nb::arg("out").none(), nb::arg("layout"),
             nb::arg("lengths").none(), nb::arg("cu_seqlens").none(), nb::arg("rope"), nb::arg("positions").none(),
             nb::arg("keeps"))
        .def("fork", &KvCache::fork)
        .def("pages", &KvCache::pages)
        .def("block_table", &KvCache::block_table)
        .def("view", [](nb::handle self) { return KvCache::view(self); })
        .def("scales", [](nb::handle self) { return KvCache::scales(self); })
        .def("lengths", &KvCache::lengths)
        .def("truncate", &KvCache::truncate, nb::arg("lengths").none())
        .def("reset", &KvCache::reset)
        .def("attend", &KvCache::attend, nb::arg("q").none(), nb::arg("out").none(), nb::arg("problem"),
             nb::arg("return_lse"))
        .def("device_workspace", &KvCache::device_workspace, nb::arg("q").none(), nb::arg("out").none(),
             nb::arg("problem"));
}

void bind_tuner(nb::module_ &module) {
    nb::class_<Tuner>(module, "Tuner")
        .def(nb::init<int>())
        .def("machine", &Tuner::machine)
        .def("problem_class", &Tuner::problem_class)
        .def("tune", &Tuner::tune)
        .def("compare", &Tuner::compare);
    module.def("tuning_database", &tuning_database);
}

}  // namespace

NB_MODULE(_hattn, module) {
    remember_process();
    module.attr("version") = hattn_version();
    bind_enums(module);
    bind_problem(module);
    bind_rope(module);
    bind_kv_cache(module);
    bind_tuner(module);
    module.def("info", &info);
    module.def("check_memory", &check_memory, nb::arg("name"), nb::arg("array"));
    module.def("set_leak_warnings", &nb::set_leak_warnings);
    module.def("attention", &attention, nb::arg("q").none(), nb::arg("k").none(), nb::arg("v").none(),
               nb::arg("out").none(), nb::arg("problem"), nb::arg("return_lse"));
    module.def("explain", &explain, nb::arg("q").none(), nb::arg("k").none(), nb::arg("v").none(),
               nb::arg("out").none(), nb::arg("problem"));
    module.def("explain_sequences", &explain_sequences, nb::arg("q").none(), nb::arg("k").none(), nb::arg("v").none(),
               nb::arg("out").none(), nb::arg("problem"));
    module.def("merge_states", &merge_states, nb::arg("outs"), nb::arg("lses"), nb::arg("out").none(),
               nb::arg("lse").none(), nb::arg("queue").none());
}

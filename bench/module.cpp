// The Python module _bench: the cases and their measurement for run.py, in whose process the peers run too.
#include <limits>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>
#include <nlohmann/json.hpp>

#include "machine_limits.h"
#include "measured.h"
#include "stopwatch.h"

namespace nb = nanobind;

namespace hattn::bench {

namespace {

using nlohmann::json;

json operand(const cases::Operand &given) {
    return given.given ? json(given.varies) : json();
}

json describe(const Goal &goal) {
    return {{"share", goal.share},   {"versus", goal.versus}, {"onnxruntime", goal.onnxruntime}, {"torch", goal.torch},
            {"beside", goal.beside}, {"bound", goal.bound},   {"seconds", goal.seconds}};
}

json describe(const BenchCase &bench_case) {
    const cases::Case &c = bench_case.problem;
    return {
        {"name", c.name},
        {"title", bench_case.title},
        {"set", set_name(bench_case.set)},
        {"work", work_name(bench_case.work)},
        {"threads", bench_case.threads},
        {"why_not", why_not(bench_case)},
        {"beside", bench_case.beside},
        {"page_size", bench_case.page_size},
        {"goal", describe(bench_case.goal)},
        {"batch", c.batch},
        {"query_heads", c.query_heads},
        {"kv_heads", c.kv_heads},
        {"query_length", c.query_length},
        {"kv_length", c.kv_length},
        {"key_dim", c.key_dim},
        {"value_dim", c.value_dim},
        {"causal", c.causal},
        {"window_left", c.window_left},
        {"window_right", c.window_right},
        {"softcap", c.softcap},
        {"smooth_softmax", c.sinks == cases::Sinks::kSmooth},
        {"has_sinks", c.sinks != cases::Sinks::kNone},
        {"has_alibi", c.alibi},
        {"bias_varies", operand(c.bias)},
        {"mask_varies", operand(c.mask)},
        {"kv_lengths", c.kv_lengths},
    };
}

std::string cases_as_json() {
    json list = json::array();
    for (const BenchCase &bench_case : bench_cases()) {
        list.push_back(describe(bench_case));
    }
    return list.dump();
}

std::unique_ptr<Measured> open_case(const std::string &name, int threads) {
    for (const BenchCase &bench_case : bench_cases()) {
        if (bench_case.problem.name == name) {
            return measured(bench_case, threads);
        }
    }
    throw nb::value_error(("no case is named " + name).c_str());
}

// Seconds of the fastest run of those that fit into `turn` seconds; one at least.
double run_for(Measured &measured, double turn) {
    Stopwatch watch;
    double best = std::numeric_limits<double>::infinity();
    do {
        best = std::min(best, measured.run());
    } while (watch.seconds() < turn);
    return best;
}

// Views of the memory, which live no longer than `self`. A dimension that broadcasts has stride 0.
nb::dict tensors(nb::handle self) {
    nb::dict arrays;
    for (const NamedTensor &named : nb::cast<Measured &>(self).tensors()) {
        const hattn_tensor &tensor = named.tensor;
        if (!tensor.data) {
            continue;
        }
        size_t shape[4];
        int64_t strides[4];
        for (int dim = 0; dim < 4; ++dim) {
            shape[dim] = static_cast<size_t>(tensor.extent[dim]);
            strides[dim] = tensor.extent[dim] == 1 ? 0 : tensor.stride[dim];
        }
        nb::dlpack::dtype dtype = tensor.dtype == HATTN_BOOL ? nb::dtype<uint8_t>() : nb::dtype<float>();
        arrays[named.name] = nb::ndarray<nb::numpy>(tensor.data, 4, shape, self, strides, dtype);
    }
    return arrays;
}

double read_bandwidth(const std::vector<nb::ndarray<nb::numpy, const uint8_t, nb::c_contig>> &arrays, int threads,
                      double seconds) {
    std::vector<Span> spans;
    for (const auto &array : arrays) {
        spans.push_back({array.data(), array.size()});
    }
    return measure_read(spans, threads, seconds);
}

nb::dict figures(const Measured &measured) {
    Figures best = measured.figures();
    nb::dict result;
    result["seconds"] = best.seconds;
    result["unit"] = best.unit;
    result["speed"] = best.speed;
    result["limit"] = best.limit;
    result["limit_name"] = best.limit_name;
    result["held_limit"] = best.held_limit;
    result["bound"] = best.bound;
    return result;
}

}  // namespace

}  // namespace hattn::bench

NB_MODULE(_bench, m) {
    using namespace hattn::bench;
    m.def("cases", cases_as_json, "All cases, as a JSON list.");
    m.def("widest_isa", [] { return std::string(isa_name(widest_isa())); });
    m.def("matrix_flops", measure_matrix_flops, nb::arg("threads"), nb::arg("seconds"),
          "Operations per second on bfloat16 matrices in registers; 0: the CPU has no instruction for them.");
    m.def("bfloat16_flops", measure_bfloat16_flops, nb::arg("threads"), nb::arg("seconds"),
          "Operations per second on bfloat16 pairs in registers; 0: the CPU has no instruction for them.");
    m.def("read_bandwidth", read_bandwidth, nb::arg("arrays"), nb::arg("threads"), nb::arg("seconds"),
          "Bytes per second of reading the arrays again and again.");
    nb::class_<Measured>(m, "Measured", "A case at work; see measured.h.")
        .def("check", &Measured::check, "Runs once; a sentence if the result is wrong, else an empty string.")
        .def("run_for", run_for, nb::arg("seconds"), "Seconds of the fastest run of those that fit.")
        .def("measure_limits", &Measured::measure_limits)
        .def("measure_held_limit", &Measured::measure_held_limit, nb::arg("seconds"))
        .def("figures", figures, "Of the best run so far; see Figures in measured.h.")
        .def("tensors", tensors, "Name -> array over the memory of the case; a bool mask as uint8.")
        .def_prop_ro("label", &Measured::label)
        .def_prop_ro("threads", &Measured::threads);
    m.def("open", open_case, nb::arg("name"), nb::arg("threads") = 0, "Makes data, plan and workspace.");
}

#include "kernel_tiles.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "cost_model.h"
#include "device_cost.h"

namespace hattn::autotune {

namespace {

using nlohmann::json;

// Of a device, heads padded to more than so many times the default's are not used, see
// runtime/device/device_choice.cpp.
constexpr int kMostPadding = 2;

const json &row_named(const json &rows, const std::string &name) {
    for (const json &row : rows) {
        if (row.at("name") == name) {
            return row;
        }
    }
    throw std::runtime_error("hattn_info: has no " + name);
}

// All of the CPU, or of the device that a target names.
const json &kernels_of(const json &info, const Shape &shape, const std::string &target) {
    return (shape.device == HATTN_CPU ? info : row_named(info.at("devices"), target)).at("kernels");
}

// Tiles of flash can be split as well on devices, see runtime/device/device_choice.cpp.
bool computes(const json &kernel, const Shape &shape, const std::string &algorithm) {
    const std::string kind = kernel.at("algorithm");
    return kind == algorithm || kind == algorithm + "_scores" ||
           (shape.device != HATTN_CPU && algorithm == "split_kv" && kind == "flash");
}

// Kernels for keys and values in memory are no choice: plans take them by themselves, in place of the one with the same
// tile.
bool is_from_memory(const json &kernel) {
    return kernel.value("from_memory", false);
}

// Whether a kernel can take the place of another of its algorithm, with another tile. Where a CPU has kernels made for
// it, plans take no others of their family but those of packs.
bool can_replace(const json &kernel, const json &usual) {
    const auto differs = [&](const char *name) { return kernel.value(name, json()) != usual.value(name, json()); };
    const char *const common[] = {"target", "hooks", "storage", "matrix_type"};
    const bool made_for_others = kernel.at("pack").is_null() && differs("for_this_cpu") && !is_from_memory(usual);
    if (std::any_of(std::begin(common), std::end(common), differs) || made_for_others || is_from_memory(kernel)) {
        return false;
    }
    const Tile tile = kernel.at("tile"), usual_tile = usual.at("tile");
    return usual_tile.head <= tile.head && tile.head <= kMostPadding * usual_tile.head;
}

// Whether its code is for the device of a shape.
bool runs_on(const json &kernel, const json &info, const Shape &shape, const std::string &target) {
    if (shape.device == HATTN_CPU || !kernel.at("tile").value("warpgroups", false)) {
        return true;
    }
    const json &found = row_named(info.at("devices"), target).at("found");
    return found.at(static_cast<size_t>(shape.device_id)).at("warpgroups");
}

// Those of devices that plans take by themselves: the others are not made for speed, see docs/devices.md.
bool may_win(const Shape &shape, const std::string &algorithm) {
    return shape.device == HATTN_CPU || algorithm == "flash" || algorithm == "split_kv";
}

bool has_kernels(const json &info, const Shape &shape, const std::string &target, const std::string &algorithm) {
    const json &rows = kernels_of(info, shape, target);
    return std::any_of(rows.begin(), rows.end(), [&](const json &row) { return computes(row, shape, algorithm); });
}

}  // namespace

std::vector<AlgorithmKernels> kernels_for(const Bench &bench, const Request &request, Problems &problems) {
    const Shape &shape = request.shapes.front();
    const auto explain = [&](const std::string &algorithm) {
        return Trial(problems, request.usual, bench.machine.threads, algorithm_of(algorithm)).explain(0);
    };
    const std::string target = explain(request.algorithm).at("target");
    std::vector<AlgorithmKernels> all;
    for (const std::string algorithm : {"naive", "flash", "split_kv", "unfused"}) {
        if ((request.algorithm != "auto" && request.algorithm != algorithm) || !may_win(shape, algorithm) ||
            !has_kernels(bench.info, shape, target, algorithm)) {
            continue;
        }
        const json &rows = kernels_of(bench.info, shape, target);
        json usual;
        try {
            usual = row_named(rows, explain(algorithm).at("kernel"));
        } catch (const hattn::Error &error) {
            if (error.status() == HATTN_NOT_SUPPORTED) {
                continue;  // kernels of this algorithm need more shared memory than the device has
            }
            throw;
        }
        AlgorithmKernels kernels{algorithm, {}};
        for (const json &row : rows) {
            if (computes(row, shape, algorithm) && can_replace(row, usual) && runs_on(row, bench.info, shape, target)) {
                kernels.tiles.push_back(row.at("tile").get<Tile>());
            }
        }
        all.push_back(std::move(kernels));
    }
    return all;
}

Model::Model(const Bench &bench, const Request &request, const std::string &target)
    : shape_(request.shapes.front()), machine_(bench.machine) {
    if (shape_.device == HATTN_CPU) {
        lanes_ = row_named(bench.info.at("targets"), target).at("lanes");
    } else {
        const json &found = row_named(bench.info.at("devices"), target).at("found");
        compute_units_ = found.at(static_cast<size_t>(shape_.device_id)).at("compute_units");
    }
}

double Model::predicted_seconds(const Candidate &candidate) const {
    return shape_.device == HATTN_CPU
               ? autotune::predicted_seconds(candidate, shape_, machine_, static_cast<int>(lanes_))
               : predicted_device_seconds(candidate, shape_, compute_units_);
}

}  // namespace hattn::autotune

#include "kernel_table.h"

#include <deque>
#include <stdexcept>

#include "generators/candidates.h"
#include "runtime/kernel_table.h"

namespace hattn {

namespace roofline {

namespace {

using generators::KernelSpec;

CompiledKernel::Function installed_attention, installed_merge;

int call_attention(void **arguments) {
    return installed_attention(arguments);
}

int call_merge(void **arguments) {
    return installed_merge(arguments);
}

struct Tables {
    std::deque<NamedSpec> specs;
    std::deque<std::string> names;  // addresses stay
    std::vector<TargetInfo> targets;
    std::vector<ScoreHookInfo> hooks;
    std::vector<KernelInfo> kernels;
    KernelTable table = {};

    Tables() {
        for (const schedules::TargetRow &row : schedules::host_architecture().targets) {
            targets.push_back({row.name.c_str(), row.cpu_features, row.lanes});
        }
        for (const generators::ScoreHook &hook : generators::score_hooks()) {
            hooks.push_back({hook.name, hook.bit, hook.can_hide_keys, hook.has_neutral});
        }
        generators::for_each_kernel(
            schedules::host_architecture(),
            [this](const KernelSpec &spec, const schedules::TargetRow &target) { add(spec, target); });
    }

    void add(const KernelSpec &spec, const schedules::TargetRow &target) {
        specs.push_back({spec, target.name});
        names.push_back(spec.name(target.name));
        const char *name = names.back().c_str();
        names.push_back(target.name);
        const schedules::Tile &tile = spec.tile;
        const bool merges = spec.kind == KernelKind::kMerge;
        // Both lists of kinds are in one order, see generators/kernel_table_writer.cpp.
        kernels.push_back({name,
                           names.back().c_str(),
                           spec.kind,
                           spec.storage,
                           generators::further_cpu_features(spec, target),
                           spec.hooks,
                           {tile.rows, tile.keys, tile.row_vectors, tile.key_unroll, tile.value_unroll},
                           merges ? call_merge : call_attention,
                           generators::made_for(spec, target),
                           spec.from_memory});
        // Without candidates, and packs do not fit.
        table = {
            targets.data(), targets.size(), hooks.data(), hooks.size(), kernels.data(), kernels.size(), nullptr, 0, 0};
    }
};

Tables &tables() {
    static Tables instance;
    return instance;
}

}  // namespace

void add_kernel(const KernelSpec &spec, const std::string &target) {
    const schedules::TargetRow row = schedules::resolve_target(schedules::host_architecture(), target);
    if (const std::string why = generators::why_illegal(row, spec.kind, spec.tile); !why.empty()) {
        throw std::invalid_argument("--tile: " + why);
    }
    tables().add(spec, row);
}

NamedSpec find_spec(const std::string &kernel) {
    for (const NamedSpec &known : tables().specs) {
        if (known.spec.name(known.target) == kernel) {
            return known;
        }
    }
    throw std::invalid_argument("--kernel: \"" + kernel + "\" is no kernel of this build (see hattn info)");
}

void install(CompiledKernel::Function attention, CompiledKernel::Function merge) {
    installed_attention = attention;
    installed_merge = merge;
}

}  // namespace roofline

const KernelTable &kernel_table() {
    return roofline::tables().table;
}

}  // namespace hattn

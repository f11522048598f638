#include "kernel_table.h"

#include <array>
#include <deque>
#include <stdexcept>
#include <utility>

#include "generators/candidates.h"
#include "runtime/kernel_table.h"

namespace hattn {

namespace roofline {

namespace {

using generators::KernelSpec;

constexpr size_t kKinds = static_cast<size_t>(KernelKind::kAppend) + 1;

// By kind; of attention by the first.
std::array<CompiledKernel::Function, kKinds> installed;
std::function<void(void *const *)> watching;
std::function<CompiledKernel::Function(KernelKind)> make_other;

constexpr size_t place_of(KernelKind kind) {
    return static_cast<size_t>(kind);
}

int call_attention(void **arguments) {
    if (watching) {
        watching(arguments);
    }
    return installed[place_of(KernelKind::kNaive)](arguments);
}

template<KernelKind kKind>
int call_of_kind(void **arguments) {
    CompiledKernel::Function &function = installed[place_of(kKind)];
    if (!function) {
        function = make_other(kKind);
    }
    return function(arguments);
}

CompiledKernel::Function caller(KernelKind kind) {
    switch (kind) {
    case KernelKind::kMerge:
        return call_of_kind<KernelKind::kMerge>;
    case KernelKind::kWiden:
        return call_of_kind<KernelKind::kWiden>;
    case KernelKind::kNarrow:
        return call_of_kind<KernelKind::kNarrow>;
    case KernelKind::kBlockScales:
        return call_of_kind<KernelKind::kBlockScales>;
    default:
        return call_attention;
    }
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
        // Both lists of kinds are in one order, see generators/kernel_table_writer.cpp.
        kernels.push_back({name,
                           names.back().c_str(),
                           spec.kind,
                           spec.storage,
                           generators::further_cpu_features(spec, target),
                           spec.hooks,
                           {tile.rows, tile.keys, tile.row_vectors, tile.key_unroll, tile.value_unroll},
                           caller(spec.kind),
                           generators::made_for(spec, target),
                           spec.from_memory != generators::FromMemory::kNo});
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

bool is_attention(KernelKind kind) {
    return kind == KernelKind::kNaive || kind == KernelKind::kFlash || kind == KernelKind::kSplitKv;
}

void install(CompiledKernel::Function attention) {
    installed[place_of(KernelKind::kNaive)] = attention;
}

void make_others(std::function<CompiledKernel::Function(KernelKind)> make) {
    make_other = std::move(make);
}

void watch_calls(std::function<void(void *const *arguments)> watcher) {
    watching = std::move(watcher);
}

}  // namespace roofline

const KernelTable &kernel_table() {
    return roofline::tables().table;
}

}  // namespace hattn

#include "kernel_spec.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <string_view>

#include "attention_stages.h"

namespace hattn::generators {

using schedules::TargetRow;
using schedules::Tile;

namespace {

constexpr KernelFamily kFamilies[] = {
    {KernelKind::kNaive, "naive"},
    {KernelKind::kFlash, "flash"},
    {KernelKind::kSplitKv, "split_kv"},
    {KernelKind::kUnfusedScores, "unfused_scores"},
    {KernelKind::kUnfusedValues, "unfused_values"},
    {KernelKind::kScores, "scores"},
    {KernelKind::kProbabilities, "probabilities"},
    {KernelKind::kMerge, "merge"},
    {KernelKind::kNaive, "stored_naive", KeyStorage::kAny},
    {KernelKind::kFlash, "stored_flash", KeyStorage::kAny},
    {KernelKind::kSplitKv, "stored_split_kv", KeyStorage::kAny},
    {KernelKind::kUnfusedScores, "stored_unfused_scores", KeyStorage::kAny},
    {KernelKind::kUnfusedValues, "stored_unfused_values", KeyStorage::kAny},
    {KernelKind::kScores, "stored_scores", KeyStorage::kAny},
    {KernelKind::kProbabilities, "stored_probabilities", KeyStorage::kAny},
    {KernelKind::kSplitKv, "float16_split_kv", KeyStorage::kAllFloat16},
    {KernelKind::kSplitKv, "bfloat16_split_kv", KeyStorage::kAllBfloat16},
    {KernelKind::kSplitKv, "int8_split_kv", KeyStorage::kAllInt8},
    {KernelKind::kSplitKv, "int4_split_kv", KeyStorage::kAllInt4},
    {KernelKind::kSplitKv, "int8_lines_split_kv", KeyStorage::kInt8Lines},
    {KernelKind::kSplitKv, "int4_lines_split_kv", KeyStorage::kInt4Lines},
    {KernelKind::kSplitKv, "memory_split_kv", KeyStorage::kFloat32, FromMemory::kSecondLevel},
    {KernelKind::kSplitKv, "ahead_split_kv", KeyStorage::kFloat32, FromMemory::kAhead},
    {KernelKind::kSplitKv, "memory_float16_split_kv", KeyStorage::kAllFloat16, FromMemory::kSecondLevel},
    {KernelKind::kSplitKv, "memory_bfloat16_split_kv", KeyStorage::kAllBfloat16, FromMemory::kSecondLevel},
    {KernelKind::kSplitKv, "memory_int8_lines_split_kv", KeyStorage::kInt8Lines, FromMemory::kSecondLevel},
    {KernelKind::kFlash, "bfloat16_flash", KeyStorage::kBfloat16},
    {KernelKind::kSplitKv, "bfloat16_pairs_split_kv", KeyStorage::kBfloat16},
    {KernelKind::kSplitKv, "bfloat16_rows_split_kv", KeyStorage::kBfloat16Rows},
    {KernelKind::kSplitKv, "memory_bfloat16_rows_split_kv", KeyStorage::kBfloat16Rows, FromMemory::kSecondLevel},
    {KernelKind::kFlash, "amx_flash", KeyStorage::kBfloat16Matrices},
    {KernelKind::kFlash, "amx_float32_flash", KeyStorage::kFloat32Matrices},
    {KernelKind::kFlash, "amx_stored_flash", KeyStorage::kAnyMatrices},
    {KernelKind::kFlash, "amx_halves_flash", KeyStorage::kHalvesMatrices},
    {KernelKind::kSplitKv, "amx_int8_split_kv", KeyStorage::kInt8Matrices},
    {KernelKind::kSplitKv, "amx_int4_split_kv", KeyStorage::kInt4Matrices},
    {KernelKind::kWiden, "widen"},
    {KernelKind::kNarrow, "narrow"},
    {KernelKind::kBlockScales, "block_scales"},
    {KernelKind::kQuantize, "quantize"},
    {KernelKind::kAppend, "append"},
};

const char *family_name(KernelKind kind, KeyStorage storage, FromMemory from_memory) {
    return std::find_if(std::begin(kFamilies), std::end(kFamilies),
                        [&](const KernelFamily &row) {
                            return row.kind == kind && row.storage == storage && row.from_memory == from_memory;
                        })
        ->name;
}

// Score outputs are bound by the memory they write; one tile serves: two vectors of rows, 32 keys.
Tile scores_tile(const TargetRow &target) {
    return {2 * target.lanes, 32};
}

}  // namespace

std::vector<Tile> tiles_of(const TargetRow &target, KernelKind kind) {
    switch (kind) {
    case KernelKind::kNaive:
        return target.naive_tiles;
    case KernelKind::kFlash:
        return target.flash_tiles;
    case KernelKind::kSplitKv:
        return target.split_kv_tiles;
    case KernelKind::kUnfusedScores:
        return target.unfused_scores_tiles;
    case KernelKind::kUnfusedValues:
        return target.unfused_values_tiles;
    case KernelKind::kScores:
    case KernelKind::kProbabilities:
        return {scores_tile(target)};
    case KernelKind::kAppend:
        return {};  // of devices alone
    default:
        return {Tile{}};
    }
}

namespace {

// Of flash over float32 or any storage.
const std::vector<schedules::CpuTiles> &cpu_flash_tiles(const TargetRow &target, KeyStorage storage) {
    return storage == KeyStorage::kFloat32 ? target.cpu_tiles : target.stored_cpu_tiles;
}

bool has(const std::vector<Tile> &tiles, const Tile &tile) {
    return std::ranges::find(tiles, tile) != tiles.end();
}

const char *memory_cpus(const TargetRow &target, const Tile &tile, FromMemory from_memory) {
    return from_memory == FromMemory::kAhead ? target.memory_cpus.ahead(tile) : target.memory_cpus.of(tile);
}

}  // namespace

bool may_be_from_memory(const TargetRow &target, KeyStorage storage, const Tile &tile, FromMemory from_memory) {
    return *memory_cpus(target, tile, from_memory) != '\0' &&
           (target.split_kv.has_head_in_lanes(tile) ||
            fetches_in_passes({KernelKind::kSplitKv, storage, 0, tile}, target));
}

std::vector<Tile> tiles_of(const TargetRow &target, const KernelFamily &family) {
    if (family.from_memory != FromMemory::kNo) {
        std::vector<Tile> tiles = tiles_of(target, KernelFamily{family.kind, "", family.storage});
        std::erase_if(tiles, [&](const Tile &tile) {
            return !may_be_from_memory(target, family.storage, tile, family.from_memory);
        });
        return tiles;
    }
    // Unfused runs where it is asked for only, so that over other storage than float32 a small and a large tile serve.
    static constexpr int kStoredUnfusedRows[] = {8, 32};
    if (family.storage == KeyStorage::kBfloat16) {
        return family.kind == KernelKind::kFlash ? target.bfloat16.flash_tiles : target.bfloat16.split_kv_tiles;
    }
    if (family.storage == KeyStorage::kBfloat16Rows) {
        return target.bfloat16.row_split_kv_tiles;
    }
    if (family.storage == KeyStorage::kBfloat16Matrices) {
        std::vector<Tile> tiles = target.matrices.flash_tiles;
        tiles.insert(tiles.end(), target.matrices.band_flash_tiles.begin(), target.matrices.band_flash_tiles.end());
        return tiles;
    }
    if (multiplies_terms(family.storage)) {
        return target.matrices.term_flash_tiles;
    }
    if (storage_bits(type_of_all(family.storage)) == 16) {
        return target.halves_split_kv_tiles;
    }
    if (multiplies_byte_matrices(family.storage)) {
        return target.byte_matrices.split_kv_tiles;
    }
    if (takes_lines(family.storage)) {
        return family.storage == KeyStorage::kInt8Lines ? target.int8_line_split_kv_tiles
                                                        : target.int4_line_split_kv_tiles;
    }
    if (family.storage == KeyStorage::kAllInt4 && !target.int4_split_kv_tiles.empty()) {
        return target.int4_split_kv_tiles;
    }
    if (type_of_all(family.storage) != HATTN_FLOAT32) {
        return target.one_type_split_kv_tiles;
    }
    const bool stored_split = family.storage == KeyStorage::kAny && family.kind == KernelKind::kSplitKv;
    std::vector<Tile> tiles = stored_split ? target.stored_split_kv_tiles : tiles_of(target, family.kind);
    if (family.kind == KernelKind::kFlash) {
        for (const schedules::CpuTiles &of_cpu : cpu_flash_tiles(target, family.storage)) {
            std::ranges::copy_if(of_cpu.tiles, std::back_inserter(tiles),
                                 [&](const Tile &tile) { return !has(tiles, tile); });
        }
    }
    if (family.storage == KeyStorage::kAny &&
        (family.kind == KernelKind::kUnfusedScores || family.kind == KernelKind::kUnfusedValues)) {
        std::erase_if(tiles, [](const Tile &tile) {
            return std::find(std::begin(kStoredUnfusedRows), std::end(kStoredUnfusedRows), tile.rows) ==
                   std::end(kStoredUnfusedRows);
        });
    }
    return tiles;
}

namespace {

HookMask bit_of(const char *hook) {
    const auto named = [hook](const ScoreHook &row) { return std::string_view(row.name) == hook; };
    return std::ranges::find_if(score_hooks(), named)->bit;
}

// Of kernels that go in bands: in these what a hook takes is the larger part, so that no kernel has one for nothing
// where problems are met, which have a mask beside another hook. Of three terms the rest is as fast with float32.
std::vector<HookMask> band_hook_sets(KeyStorage storage) {
    std::vector<HookMask> sets = kernel_hook_sets();
    if (bfloat16_terms(storage) > 2) {
        std::erase_if(sets, [](HookMask set) { return std::popcount(set) > 1; });
    }
    const HookMask mask = bit_of("mask");
    for (const ScoreHook &hook : score_hooks()) {
        if (hook.bit != mask) {
            sets.push_back(hook.bit | mask);
        }
    }
    return sets;
}

std::vector<HookMask> hook_sets_of(const TargetRow &target, const KernelFamily &family, const Tile &tile) {
    switch (family.kind) {
    case KernelKind::kMerge:
    case KernelKind::kWiden:
    case KernelKind::kNarrow:
    case KernelKind::kBlockScales:
    case KernelKind::kQuantize:
        return {0};
    case KernelKind::kUnfusedValues:
        return {0, hiding_hooks()};
    default:
        break;
    }
    if (family.from_memory == FromMemory::kAhead) {
        return {0, bit_of("mask")};  // drafted tokens, whose tree is a mask, are several rows
    }
    if (family.from_memory != FromMemory::kNo || type_of_all(family.storage) != HATTN_FLOAT32) {
        return {0};  // the rest is for those over any storage, or for caches
    }
    if (goes_in_bands(family.storage, tile.rows)) {
        return band_hook_sets(family.storage);
    }
    if (family.storage == KeyStorage::kBfloat16Matrices && tile.rows > kMatrixColumns) {
        return {0};  // with hooks more rows go in bands
    }
    std::vector<HookMask> sets = kernel_hook_sets();
    const bool stored = family.storage != KeyStorage::kFloat32, plain = target.vector_registers == 0;
    if (stored || plain || family.kind == KernelKind::kUnfusedScores) {
        // One hook costs little beside conversion, and beside loops that no register holds the sums of, and unfused
        // runs where it is asked for only: the sets of several serve it. Scores that go out capped need theirs alone.
        const HookMask served = family.kind == KernelKind::kScores ? neutral_hooks() : ~HookMask{0};
        std::erase_if(sets, [&](HookMask set) { return std::popcount(set) == 1 && (set & served) != 0; });
    }
    return sets;
}

}  // namespace

const KernelFamily *find_family(const std::string &name) {
    for (const KernelFamily &family : kFamilies) {
        if (name == family.name) {
            return &family;
        }
    }
    return nullptr;
}

const char *kind_name(KernelKind kind) {
    return family_name(kind, KeyStorage::kFloat32, FromMemory::kNo);
}

std::string KernelSpec::name(const std::string &target) const {
    std::string text = std::string(family_name(kind, storage, from_memory)) + "_" + target;
    std::replace(text.begin(), text.end(), '-', '_');
    if (tile.rows > 0) {
        text += "_r" + std::to_string(tile.rows) + "k" + std::to_string(tile.keys) + "v" +
                std::to_string(tile.row_vectors) + "u" + std::to_string(tile.key_unroll) + "d" +
                std::to_string(tile.value_unroll);
    }
    return text + hook_suffix(hooks);
}

std::vector<KernelSpec> kernels_of(const TargetRow &target, const KernelFamily &family) {
    std::vector<KernelSpec> specs;
    for (const Tile &tile : tiles_of(target, family)) {
        for (HookMask hooks : hook_sets_of(target, family, tile)) {
            specs.push_back({family.kind, family.storage, hooks, tile, family.from_memory});
        }
    }
    return specs;
}

void for_each_family(const std::function<void(const KernelFamily &)> &visit) {
    for (const KernelFamily &family : kFamilies) {
        visit(family);
    }
}

void for_each_kernel(const schedules::Architecture &architecture,
                     const std::function<void(const KernelSpec &, const TargetRow &)> &visit) {
    for (const TargetRow &row : architecture.targets) {
        const TargetRow target = schedules::resolve_target(architecture, row.name);
        for (const KernelFamily &family : kFamilies) {
            for (const KernelSpec &spec : kernels_of(target, family)) {
                visit(spec, target);
            }
        }
    }
}

namespace {

struct Instructions {
    const char *halide_target, *further_cpu_features;
};

Instructions instructions_of(const KernelSpec &spec, const TargetRow &target) {
    switch (spec.storage) {
    case KeyStorage::kBfloat16:
    case KeyStorage::kBfloat16Rows:
        return {target.bfloat16.halide_target, target.bfloat16.cpu_features};
    case KeyStorage::kBfloat16Matrices:
    case KeyStorage::kFloat32Matrices:
    case KeyStorage::kAnyMatrices:
    case KeyStorage::kHalvesMatrices:
        return {target.matrices.halide_target, target.matrices.cpu_features};
    case KeyStorage::kInt8Matrices:
    case KeyStorage::kInt4Matrices:
        return {target.byte_matrices.halide_target, target.byte_matrices.cpu_features};
    case KeyStorage::kAllInt8:
    case KeyStorage::kAllInt4:
    case KeyStorage::kInt8Lines:
    case KeyStorage::kInt4Lines:
        if (target.integers.products != IntegerProducts::kNone) {
            return {target.integers.halide_target, target.integers.cpu_features};
        }
        [[fallthrough]];
    default:
        return {target.halide_target, ""};
    }
}

}  // namespace

const char *halide_target(const KernelSpec &spec, const TargetRow &target) {
    return instructions_of(spec, target).halide_target;
}

const char *further_cpu_features(const KernelSpec &spec, const TargetRow &target) {
    return instructions_of(spec, target).further_cpu_features;
}

const char *made_for(const KernelSpec &spec, const TargetRow &target) {
    if (spec.from_memory != FromMemory::kNo) {
        return memory_cpus(target, spec.tile, spec.from_memory);
    }
    if (spec.storage == KeyStorage::kBfloat16 || spec.storage == KeyStorage::kBfloat16Rows) {
        return target.bfloat16.cpu;
    }
    const bool has_cpu_tiles =
        spec.kind == KernelKind::kFlash && (spec.storage == KeyStorage::kFloat32 || spec.storage == KeyStorage::kAny);
    if (!has_cpu_tiles) {
        return "";
    }
    for (const schedules::CpuTiles &of_cpu : cpu_flash_tiles(target, spec.storage)) {
        if (has(of_cpu.tiles, spec.tile)) {
            return of_cpu.cpu;
        }
    }
    return "";
}

}  // namespace hattn::generators

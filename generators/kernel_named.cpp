// From a kernel's name back to the kernel.
#include <algorithm>
#include <optional>
#include <regex>

#include "candidates.h"
#include "kernel_spec.h"
#include "schedules/simd/rows_in_lanes.h"

namespace hattn::generators {

using schedules::TargetRow;
using schedules::Tile;

namespace {

// The numbers of "..._r24k64v3u4d4..."; a tile without rows if there are none, as in the names of merge kernels.
Tile tile_in(const std::string &name) {
    static const std::regex pattern("_r([0-9]{1,6})k([0-9]{1,6})v([0-9]{1,6})u([0-9]{1,6})d([0-9]{1,6})(_|$)");
    std::smatch numbers;
    if (!std::regex_search(name, numbers, pattern)) {
        return {};
    }
    const auto number = [&](int i) { return std::stoi(numbers[i]); };
    return {number(1), number(2), number(3), number(4), number(5)};
}

std::vector<TargetRow> targets_and_stand_ins(const schedules::Architecture &architecture) {
    std::vector<TargetRow> rows;
    for (const TargetRow &row : architecture.targets) {
        rows.push_back(schedules::resolve_target(architecture, row.name));
    }
    for (const TargetRow &row : architecture.targets) {
        for (const TargetRow &other : architecture.targets) {
            rows.push_back(schedules::resolve_stand_in(architecture, row.name, other.name));
        }
    }
    return rows;
}

// Rows are computed in pairs of registers, or in one alone.
bool has_whole_matrices(const KernelSpec &spec) {
    const bool one_register = spec.tile.rows == kMatrixColumns && spec.storage == KeyStorage::kBfloat16Matrices;
    return spec.tile.keys % kMatrixDepth == 0 && (one_register || spec.tile.rows % (kJoinedRows * kMatrixColumns) == 0);
}

// That products with integers take at once.
int vectors_of_products(const KernelSpec &spec, const TargetRow &target) {
    switch (integer_products(spec, target)) {
    case IntegerProducts::kPairs:
    case IntegerProducts::kWordPairs:
        return 2;
    case IntegerProducts::kBytes:
        return kSides;
    default:
        return 1;
    }
}

// Of values over one type, at once: as many as all heads have, or a step of words of int4.
int most_elements(const KernelSpec &spec, const TargetRow &target) {
    const bool words = integer_products(spec, target) == IntegerProducts::kWordPairs;
    return words ? static_cast<int>(shortest_head(type_of_all(spec.storage))) : kWholeHead;
}

std::string why_illegal_in_pairs(const KernelSpec &spec, const TargetRow &target) {
    const bool in_rows = spec.storage == KeyStorage::kBfloat16Rows;
    if (!in_rows && spec.storage != KeyStorage::kBfloat16) {
        return "";
    }
    const Tile &tile = spec.tile;
    if (tiles_of(target, KernelFamily{spec.kind, "", spec.storage}).empty()) {
        return "its target has none of such kernels for products of bfloat16 pairs";
    }
    if (!in_rows && spec.kind == KernelKind::kSplitKv && target.split_kv.has_head_in_lanes(tile)) {
        return "with up to 8 rows pairs are those of bfloat16_rows_split_kv";
    }
    const bool in_fours = tile.key_unroll % kKeysAtOnce == 0 && kLineFloats % tile.key_unroll == 0;
    if (in_rows && (!in_fours || tile.rows != tile.row_vectors || tile.value_unroll % 2 != 0)) {
        return "pairs along rows are of all rows of a tile, of 4, 8 or 16 keys and of values by the cache line";
    }
    return "";
}

}  // namespace

// Tries them all, so that names are put together in one place alone.
NamedKernel kernel_named(const schedules::Architecture &architecture, const std::string &name) {
    const Tile tile = tile_in(name);
    std::optional<NamedKernel> found;
    for (const TargetRow &target : targets_and_stand_ins(architecture)) {
        for_each_family([&](const KernelFamily &family) {
            for (HookMask hooks = 0; hooks < HookMask{1} << score_hooks().size(); ++hooks) {
                const KernelSpec spec{family.kind, family.storage, hooks, tile, family.from_memory};
                if (spec.name(target.name) == name) {
                    found = {spec, target};
                }
            }
        });
    }
    if (!found) {
        throw std::invalid_argument("unknown kernel '" + name + "'");
    }
    if (type_of_all(found->spec.storage) != HATTN_FLOAT32 &&
        (!found->target.split_kv.has_head_in_lanes(tile) ||
         (tile.value_unroll * found->target.lanes > most_elements(found->spec, found->target) &&
          !fetches_by_row(found->spec, found->target) && found->spec.storage != KeyStorage::kBfloat16Rows))) {
        throw std::invalid_argument(
            "kernel '" + name +
            "': over one type tiles have up to 8 rows, and values of at most 32 elements, if not by row");
    }
    if (found->spec.from_memory != FromMemory::kNo &&
        !may_be_from_memory(found->target, found->spec.storage, tile, found->spec.from_memory)) {
        throw std::invalid_argument("kernel '" + name +
                                    "': its target has none of such tiles for keys and values in memory");
    }
    if (storage_bits(type_of_all(found->spec.storage)) < 16 &&
        tile.value_unroll % vectors_of_products(found->spec, found->target) != 0) {
        throw std::invalid_argument("kernel '" + name + "': integers are multiplied by " +
                                    std::to_string(vectors_of_products(found->spec, found->target)) +
                                    " vectors of values at a time");
    }
    if (multiplies_byte_matrices(found->spec.storage) && (tile.rows != kDigitRows || tile.keys % kByteDepth != 0)) {
        throw std::invalid_argument("kernel '" + name + "': matrices of bytes have " + std::to_string(kDigitRows) +
                                    " rows, and keys in multiples of " + std::to_string(kByteDepth));
    }
    if (const std::string why = why_illegal_in_pairs(found->spec, found->target); !why.empty()) {
        throw std::invalid_argument("kernel '" + name + "': " + why);
    }
    if (multiplies_matrices(found->spec.storage) &&
        (found->target.matrices.flash_tiles.empty() || !has_whole_matrices(found->spec))) {
        throw std::invalid_argument("kernel '" + name +
                                    "': its target has no products of matrices, or rows or keys are not whole matrices "
                                    "of 32, and rows not 16 over bfloat16 either");
    }
    if (const std::string why = why_illegal(found->target, found->spec.kind, found->spec.tile); !why.empty()) {
        throw std::invalid_argument("kernel '" + name + "': " + why);
    }
    if (found->spec.storage == KeyStorage::kAny && !found->target.split_kv.has_head_in_lanes(tile) &&
        schedules::simd::kPassElements % tile.value_unroll != 0) {
        throw std::invalid_argument("kernel '" + name + "': values of any storage are taken " +
                                    std::to_string(schedules::simd::kPassElements) +
                                    " elements at a time, in whole blocks of value_unroll");
    }
    return *found;
}

}  // namespace hattn::generators

#include "targets.h"

#include <stdexcept>

#include "schedules/arm/rows_in_lanes.h"
#include "schedules/generic/convert.h"
#include "schedules/generic/generic.h"
#include "schedules/simd/head_in_lanes.h"
#include "schedules/simd/rows_in_lanes.h"
#include "schedules/x86/byte_matrices.h"
#include "schedules/x86/matrices.h"

namespace hattn::schedules {

using generators::IntegerProducts;

namespace {

constexpr const char *kNoAsserts = "-no_asserts-no_bounds_query-no_runtime-user_context";

std::string with_kernel_features(const char *target) {
    return std::string(target) + kNoAsserts;
}

// Of every architecture: what its baseline can run, which has vectors of four floats.
TargetRow generic_target(const char *halide_target, const char *cpu_features) {
    return {
        .name = "generic",
        .halide_target = halide_target,
        .cpu_features = cpu_features,
        .lanes = 4,
        .naive = generic::schedule_attention,
        .flash = generic::schedule_attention,
        .split_kv = {generic::schedule_attention},
        .unfused_scores = {generic::schedule_unfused_scores},
        .unfused_values = {generic::schedule_unfused_values},
        .scores = generic::schedule_scores,
        .merge = generic::schedule_merge,
        .convert = {generic::schedule_widen, generic::schedule_narrow, generic::schedule_block_scales,
                    generic::schedule_quantize},
        .naive_tiles = {{8, 0}},
        .flash_tiles = {{16, 64}},
        .split_kv_tiles = {{4, 64}},
        .unfused_scores_tiles = {{8, 64}},
        .unfused_values_tiles = {{8, 64}},
    };
}

// Tiles are {rows, keys, row_vectors, key_unroll, value_unroll}. Of flash the first is the usual one: what a small tile
// computes above the diagonal is less, and what it reads again is asked for ahead: of AVX2 see decision 0091, of
// AVX-512 0055. One that multiplies fewer rows at a time over as many keys is for the last rows of a head: decision
// 0111.
std::vector<TargetRow> x86_64_targets() {
    static const std::string generic = with_kernel_features("x86-64-linux-sse41");
    static const std::string avx2 = with_kernel_features("x86-64-linux-sse41-avx-f16c-fma-avx2");
    static const std::string avx512 =
        with_kernel_features("x86-64-linux-sse41-avx-f16c-fma-avx2-avx512-avx512_skylake");
    static const std::string bfloat16 = with_kernel_features(
        "x86-64-linux-sse41-avx-f16c-fma-avx2-avx512-avx512_skylake-avx512_cannonlake-avx512_zen4");
    static const std::string matrices =
        with_kernel_features("x86-64-linux-sse41-avx-f16c-fma-avx2-avx512-avx512_skylake-avx512_cannonlake-avx512_zen4-"
                             "avx512_sapphirerapids");
    return {
        generic_target(generic.c_str(), "sse4.1"),
        {
            // 16 vector registers: 12 accumulators, 3 vectors of rows, 1 broadcast.
            .name = "x86-avx2",
            .parent = "generic",
            .halide_target = avx2.c_str(),
            .cpu_features = "avx2 fma",
            .lanes = 8,
            .vector_registers = 16,
            .naive = simd::schedule_rows_in_lanes,
            .flash = simd::schedule_rows_in_lanes,
            .split_kv = {simd::schedule_rows_in_lanes, simd::schedule_head_in_lanes},
            .fetch_by_line = true,
            .values_in_place = true,
            .unfused_scores = {simd::schedule_scores_rows_in_lanes, simd::schedule_scores_head_in_lanes},
            .unfused_values = {simd::schedule_values_head_in_lanes, true},
            .naive_tiles = {{8, 0, 1, 8, 8}},
            .flash_tiles = {{24, 128, 3, 4, 4}, {48, 128, 3, 4, 4}, {16, 128, 2, 4, 4}},
            .split_kv_tiles =
                {{1, 64, 1, 2, 4}, {2, 64, 2, 2, 4}, {4, 32, 4, 2, 2}, {8, 32, 4, 2, 2}, {16, 32, 2, 4, 4}},
            .stored_split_kv_tiles = {{2, 64, 2, 4, 4}, {4, 64, 4, 2, 2}, {8, 64, 4, 2, 2}, {16, 32, 2, 4, 4}},
            .one_type_split_kv_tiles = {{1, 128, 1, 4, 4}, {2, 128, 2, 4, 4}, {4, 128, 2, 4, 4}, {8, 128, 2, 4, 4}},
            .int4_split_kv_tiles = {{1, 128, 1, 4, 8}, {2, 128, 2, 4, 4}, {4, 128, 2, 4, 4}, {8, 128, 2, 4, 4}},
            .halves_split_kv_tiles = {{1, 32, 1, 4, 4}, {2, 32, 2, 4, 4}, {4, 64, 4, 2, 2}, {8, 64, 4, 2, 2}},
            .unfused_scores_tiles =
                {{1, 32, 1, 4}, {2, 64, 2, 2}, {4, 64, 4, 2}, {8, 64, 1, 8}, {16, 64, 2, 4}, {32, 64, 4, 2}},
            .unfused_values_tiles = {{1, 32, 1, 1, 8},
                                     {2, 64, 2, 1, 4},
                                     {4, 64, 4, 1, 2},
                                     {8, 64, 4, 1, 2},
                                     {16, 64, 4, 1, 2},
                                     {32, 64, 4, 1, 2}},
            // Decisions 0093, whose tiles one_type_split_kv_tiles are too, and 0107 (Zen 3).
            .integers = {avx2.c_str(), "", IntegerProducts::kWordPairs},
        },
        {
            // 32 vector registers: 24 sums of scores or 16 of values, 4 vectors of rows, 1 broadcast. See decision
            // 0077.
            .name = "x86-avx512",
            .parent = "x86-avx2",
            .halide_target = avx512.c_str(),
            .cpu_features = "avx512f avx512vl avx512bw avx512dq avx512cd",
            .lanes = 16,
            .vector_registers = 32,
            .fetch_by_row = true,
            .softmax_beside_products = true,
            .naive_tiles = {{16, 0, 1, 8, 8}},
            .flash_tiles = {{64, 96, 4, 6, 4}, {48, 96, 3, 6, 4}, {32, 96, 2, 6, 8}},
            .split_kv_tiles = {{1, 512, 1, 4, 8},
                               {2, 512, 2, 4, 8},
                               {4, 256, 4, 4, 2},
                               {8, 256, 8, 8, 2},
                               {16, 64, 1, 8, 8},
                               {32, 64, 2, 8, 8}},
            // Eight rows with one vector of values: beside 16 sums what brings int4 into float32 does not fit.
            .stored_split_kv_tiles =
                {{2, 64, 2, 4, 2}, {4, 64, 4, 4, 2}, {8, 64, 8, 2, 1}, {16, 64, 1, 8, 8}, {32, 64, 2, 8, 8}},
            // With eight keys of int4 at a time LLVM gathers where they lie.
            .one_type_split_kv_tiles = {{1, 512, 1, 4, 8}, {2, 512, 2, 4, 8}, {4, 256, 4, 4, 2}, {8, 256, 8, 2, 2}},
            // Four keys at a time, see schedules/simd/integer_digits.cpp.
            .int8_line_split_kv_tiles = {{1, 512, 1, 4, 8}, {2, 512, 2, 4, 8}, {4, 512, 4, 4, 4}, {8, 256, 8, 4, 2}},
            .int4_line_split_kv_tiles = {{1, 512, 1, 4, 8}, {2, 512, 2, 4, 4}, {4, 512, 4, 4, 4}, {8, 256, 8, 4, 2}},
            .halves_split_kv_tiles = {{1, 512, 1, 4, 8}, {2, 512, 2, 4, 8}, {4, 256, 4, 4, 2}, {8, 256, 8, 8, 2}},
            .unfused_scores_tiles =
                {{1, 64, 1, 4}, {2, 64, 2, 4}, {4, 64, 4, 4}, {8, 64, 8, 2}, {16, 64, 1, 8}, {32, 64, 2, 8}},
            .unfused_values_tiles = {{1, 64, 1, 1, 4},
                                     {2, 64, 2, 1, 4},
                                     {4, 64, 4, 1, 2},
                                     {8, 64, 8, 1, 2},
                                     {16, 64, 8, 1, 2},
                                     {32, 64, 8, 1, 2}},
            // 16 accumulators for two products a cycle that take six: 8 vectors loaded, where 24 of them need 10 or 11.
            // Intel's cores begin one every other cycle, half as many products as of float32.
            .bfloat16 = {bfloat16.c_str(),
                         "avx512bf16 avx512vnni avx512vbmi avx512vbmi2 avx512ifma avx512bitalg",
                         "amd",
                         {{64, 64, 4, 4, 4}},
                         {{16, 64, 1, 8, 8}, {32, 64, 2, 8, 8}},
                         {{4, 256, 4, 8, 4}, {8, 256, 8, 8, 2}}},
            // See decisions 0066 and 0104.
            .cpu_tiles = {{"amd", {{32, 128, 2, 8, 8}}}},
            .stored_cpu_tiles = {{"amd", {{32, 128, 2, 8, 8}}},
                                 {"amdfam19h", {{64, 128, 2, 8, 8}}},
                                 {"amdfam1ah|others", {{64, 96, 4, 6, 4}, {48, 96, 3, 6, 4}, {32, 96, 2, 6, 8}}}},
            // Without bfloat16, which these kernels have none of; with gfni, by which LLVM shifts bytes of int4.
            .integers = {bfloat16.c_str(), "avx512vnni avx512vbmi avx512vbmi2 avx512ifma avx512bitalg gfni",
                         IntegerProducts::kPairs},
            // Four registers of 16 x 16 sums at a time, see schedules/x86/matrix_tiles.h.
            .matrices = {matrices.c_str(),
                         "avx512bf16 avx512vnni avx512vbmi avx512vbmi2 avx512ifma avx512bitalg amx_bf16",
                         x86::schedule_matrices,
                         {{128, 128, 1, 16, 16}, {32, 128, 1, 16, 16}, {16, 128, 1, 16, 16}},
                         {{256, 128, 1, 16, 16}},
                         {{256, 128, 1, 16, 16}}},
            // A kv head's eight rows, of two digits each, are the sixteen columns of sums: decision 0095. Of its
            // numbers rows and keys alone shape the kernel.
            .byte_matrices = {matrices.c_str(),
                              "avx512bf16 avx512vnni avx512vbmi avx512vbmi2 avx512ifma avx512bitalg gfni amx_int8",
                              x86::schedule_byte_matrices,
                              {{8, 512, 8, 16, 2}}},
            // Zen 4, and Intel's, see decisions 0086, 0099 and 0121; and Zen 5, see decision 0102.
            .memory_cpus = {"amdfam19h|intel", "amdfam19h|intel", "amdfam1ah"},
        },
    };
}

// Not yet run on hardware: tiles are chosen by what their loops issue, as LLVM compiles them. Flash: 24 FMLA with 10
// vectors or scalars loaded, 35 instructions in all for scores and 32 for values; 4 x 4 registers would load 8 for 16,
// 8 x 3 cuts chunks of keys unevenly. Decode: 16 FMLA (one row: 8) with 8 to 10 loads.
std::vector<TargetRow> aarch64_targets() {
    static const std::string neon = with_kernel_features("arm-64-linux-arm_fp16");
    static const std::string dot_products = with_kernel_features("arm-64-linux-arm_fp16-arm_dot_prod");
    return {
        generic_target(neon.c_str(), "asimd"),
        {
            // 32 vector registers: 24 accumulators, 6 vectors of rows, 2 for scalars, of which each lane is an operand.
            .name = "arm-neon",
            .parent = "generic",
            .halide_target = neon.c_str(),
            .cpu_features = "asimd",
            .lanes = 4,
            .vector_registers = 32,
            .naive = arm::schedule_rows_in_lanes,
            .flash = arm::schedule_rows_in_lanes,
            .split_kv = {arm::schedule_rows_in_lanes, simd::schedule_head_in_lanes},
            .fetch_by_line = true,
            .unfused_scores = {simd::schedule_scores_rows_in_lanes, simd::schedule_scores_head_in_lanes},
            .unfused_values = {simd::schedule_values_head_in_lanes, true},
            .naive_tiles = {{8, 0, 2, 8, 4}},
            .flash_tiles = {{24, 64, 6, 4, 4}, {48, 64, 6, 4, 4}},
            .split_kv_tiles =
                {{1, 32, 1, 8, 8}, {2, 64, 2, 4, 8}, {4, 64, 4, 4, 4}, {8, 64, 4, 4, 4}, {16, 32, 4, 4, 4}},
            // Of integers, which have a sum for each digit. With each four values of a pass a line is asked for: of
            // int8 all of a key, as passes take 16 elements.
            .one_type_split_kv_tiles = {{1, 64, 1, 4, 4}, {2, 64, 2, 4, 4}, {4, 64, 2, 4, 4}, {8, 64, 2, 4, 4}},
            .halves_split_kv_tiles = {{1, 64, 1, 8, 8}, {2, 64, 2, 4, 8}, {4, 64, 4, 4, 4}, {8, 64, 4, 4, 4}},
            .unfused_scores_tiles =
                {{1, 32, 1, 4}, {2, 64, 2, 4}, {4, 64, 1, 8}, {8, 64, 2, 8}, {16, 64, 4, 4}, {32, 64, 4, 4}},
            .unfused_values_tiles = {{1, 32, 1, 1, 8},
                                     {2, 64, 2, 1, 8},
                                     {4, 64, 4, 1, 4},
                                     {8, 64, 4, 1, 4},
                                     {16, 64, 4, 1, 4},
                                     {32, 64, 4, 1, 4}},
            // With four keys at a time sums, rows and keys take more than 32 registers.
            .bfloat16 = {dot_products.c_str(), "bf16", "", {{24, 48, 6, 3, 4}}, {}, {}, true},
            .integers = {dot_products.c_str(), "asimddp", IntegerProducts::kBytes},
        },
    };
}

const TargetRow &find_target(const Architecture &architecture, const std::string &name) {
    for (const TargetRow &row : architecture.targets) {
        if (name == row.name) {
            return row;
        }
    }
    throw std::invalid_argument("unknown target '" + name + "' of " + architecture.name);
}

template<typename T>
void inherit(T &own, const T &parent) {
    if (own == T()) {
        own = parent;
    }
}

void inherit(std::vector<Tile> &own, const std::vector<Tile> &parent) {
    if (own.empty()) {
        own = parent;
    }
}

}  // namespace

const std::vector<Architecture> &architectures() {
    static const std::vector<Architecture> all = {
        {"x86-64", "x86-64-linux", x86_64_targets()},
        {"aarch64", "arm-64-linux", aarch64_targets()},
    };
    return all;
}

const Architecture &find_architecture(const std::string &name) {
    for (const Architecture &architecture : architectures()) {
        if (name == architecture.name) {
            return architecture;
        }
    }
    throw std::invalid_argument("unknown architecture '" + name + "', must be x86-64 or aarch64");
}

const Architecture &host_architecture() {
    return find_architecture(Halide::get_host_target().arch == Halide::Target::ARM ? "aarch64" : "x86-64");
}

TargetRow resolve_target(const Architecture &architecture, const std::string &name) {
    TargetRow row = find_target(architecture, name);
    if (row.parent) {
        const TargetRow parent = resolve_target(architecture, row.parent);
        inherit(row.vector_registers, parent.vector_registers);
        inherit(row.naive, parent.naive);
        inherit(row.flash, parent.flash);
        inherit(row.split_kv, parent.split_kv);
        inherit(row.fetch_by_line, parent.fetch_by_line);
        inherit(row.values_in_place, parent.values_in_place);
        inherit(row.unfused_scores, parent.unfused_scores);
        inherit(row.unfused_values, parent.unfused_values);
        inherit(row.scores, parent.scores);
        inherit(row.merge, parent.merge);
        inherit(row.convert, parent.convert);
        inherit(row.naive_tiles, parent.naive_tiles);
        inherit(row.flash_tiles, parent.flash_tiles);
        inherit(row.split_kv_tiles, parent.split_kv_tiles);
        inherit(row.unfused_scores_tiles, parent.unfused_scores_tiles);
        inherit(row.unfused_values_tiles, parent.unfused_values_tiles);
    }
    inherit(row.stored_split_kv_tiles, row.split_kv_tiles);
    return row;
}

TargetRow resolve_stand_in(const Architecture &architecture, const std::string &name, const std::string &stand_in) {
    TargetRow row = resolve_target(architecture, name);
    const TargetRow other = resolve_target(architecture, stand_in);
    row.name = name + "-on-" + stand_in;
    row.halide_target = other.halide_target;
    row.cpu_features = other.cpu_features;
    row.bfloat16.halide_target = other.halide_target;
    row.bfloat16.cpu_features = row.bfloat16.cpu = "";
    row.bfloat16.by_proxy = false;
    row.integers.halide_target = other.halide_target;
    row.integers.cpu_features = "";
    row.matrices.halide_target = other.halide_target;
    row.matrices.cpu_features = "";
    row.byte_matrices.halide_target = other.halide_target;
    row.byte_matrices.cpu_features = "";
    row.stand_in = other.name;
    return row;
}

}  // namespace hattn::schedules

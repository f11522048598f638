// The targets kernels are compiled for, and what each is scheduled with. A new target is a folder of schedules and a
// row here.
#pragma once

#include <string>
#include <vector>

#include "generators/attention_stages.h"
#include "generators/convert.h"
#include "generators/merge.h"
#include "generators/scores.h"
#include "generators/unfused.h"
#include "schedules/tile.h"

namespace hattn::schedules {

using AttentionSchedule = void (*)(generators::AttentionStages &, const Tile &, int lanes);
// One schedule for tiles of many rows, one for those of few, if that differs. Where the head runs along vectors, the
// algorithm pads it to whole ones.
struct SplitKvSchedule {
    AttentionSchedule rows_in_lanes = nullptr;
    AttentionSchedule head_in_lanes = nullptr;

    // Measured on AVX2: 16 rows in lanes take half to five sixths of the time of twice 8 with the head there. With 8
    // rows there is no difference beyond 10% either way.
    bool has_head_in_lanes(const Tile &tile) const {
        return head_in_lanes && tile.rows <= 8;
    }
    bool operator==(const SplitKvSchedule &) const = default;
};
// The first unfused kernel: one schedule for tiles that hold whole vectors of rows, one for smaller ones, if that
// differs.
struct UnfusedScoresSchedule {
    void (*rows_in_lanes)(generators::UnfusedScores &, const Tile &, int lanes) = nullptr;
    void (*head_in_lanes)(generators::UnfusedScores &, const Tile &, int lanes) = nullptr;

    bool operator==(const UnfusedScoresSchedule &) const = default;
};
struct UnfusedValuesSchedule {
    void (*apply)(generators::UnfusedValues &, const Tile &, int lanes) = nullptr;
    bool fetch_chunk = false;

    bool operator==(const UnfusedValuesSchedule &) const = default;
};
using ScoresSchedule = void (*)(generators::ScoreOutput &, const Tile &, int lanes);
using MergeSchedule = void (*)(generators::MergeStages &, const Tile &, int lanes);
struct ConvertSchedules {
    void (*widen)(generators::Widen &, int lanes) = nullptr;
    void (*narrow)(generators::Narrow &, int lanes) = nullptr;
    void (*block_scales)(generators::BlockScales &, int lanes) = nullptr;
    void (*quantize)(generators::Quantize &, int lanes) = nullptr;

    bool operator==(const ConvertSchedules &) const = default;
};

// Kernels that multiply bfloat16 numbers in pairs, where a CPU has an instruction for that beside what the target
// needs.
struct Bfloat16Kernels {
    const char *halide_target = nullptr;
    const char *cpu_features = "";
    const char *cpu = "";                       // see made_for in runtime/kernel_table.h
    std::vector<Tile> flash_tiles = {};         // empty: the target has no such kernels
    std::vector<Tile> split_kv_tiles = {};      // likewise, with rows in the lanes
    std::vector<Tile> row_split_kv_tiles = {};  // and with the head there
    bool by_proxy = false;                      // other instructions stand for them, see schedules/arm/bfloat16_dots.h
};

// Tiles of flash for some CPUs of the target, in place of the target's, of which one may be among them.
struct CpuTiles {
    const char *cpu = "";  // see made_for in runtime/kernel_table.h
    std::vector<Tile> tiles = {};
};

// Kernels that multiply integers, in scores alone or in both products, where a CPU has an instruction for that which
// sums up as well.
struct IntegerKernels {
    const char *halide_target = nullptr;
    const char *cpu_features = "";
    generators::IntegerProducts products = {};  // kNone: kernels are as those of other types, and the target's
};

// Kernels that multiply small matrices of bfloat16 numbers, likewise.
struct MatrixKernels {
    const char *halide_target = nullptr;
    const char *cpu_features = "";
    AttentionSchedule flash = nullptr;
    std::vector<Tile> flash_tiles = {};       // empty: the target has no such kernels
    std::vector<Tile> band_flash_tiles = {};  // of bfloat16 numbers, beside these
    std::vector<Tile> term_flash_tiles = {};  // of numbers that are sums of such; empty: none
};

// Kernels that multiply small matrices of bytes, likewise.
struct ByteMatrixKernels {
    const char *halide_target = nullptr;
    const char *cpu_features = "";
    AttentionSchedule split_kv = nullptr;
    std::vector<Tile> split_kv_tiles = {};  // empty: the target has no such kernels
};

// In the words of features. Some ask for lines into the second-level cache, others, of more than two rows over float32,
// into all caches, but further ahead.
struct MemoryCpus {
    const char *of_few_rows = "";  // of one or two rows
    const char *of_more = "";
    const char *ahead_of_more = "";

    const char *of(const Tile &tile) const {
        return has_few_rows(tile) ? of_few_rows : of_more;
    }

    const char *ahead(const Tile &tile) const {
        return has_few_rows(tile) ? "" : ahead_of_more;
    }

private:
    static bool has_few_rows(const Tile &tile) {
        constexpr int kFewRows = 2;
        return tile.rows <= kFewRows;
    }
};

// A null schedule or an empty candidate list means: the parent's.
struct TargetRow {
    std::string name;
    const char *parent = nullptr;
    const char *halide_target = nullptr;
    const char *cpu_features =
        nullptr;               // what a CPU must have, space separated, in the words of runtime/cpu_features.cpp
    int lanes = 0;             // float32 elements of a vector
    int vector_registers = 0;  // that schedules may fill; 0: the parent's, or they hold no blocks in registers
    AttentionSchedule naive = nullptr, flash = nullptr;
    SplitKvSchedule split_kv = {};
    // Of kernels with rows in the lanes, what StageOptions say: fetch_block of flash and split_kv, and fetch_operands;
    // values_in_place.
    bool fetch_by_line = false;
    // Likewise, of kernels with the head in the lanes: present_keys, and fetch_by_row of those with few rows. Not
    // inherited.
    bool fetch_by_row = false;
    // Of flash, see simd/maxima_beside_scores.h and simd/weights_beside_values.h. Likewise.
    bool softmax_beside_products = false;
    bool values_in_place = false;
    UnfusedScoresSchedule unfused_scores = {};
    UnfusedValuesSchedule unfused_values = {};
    ScoresSchedule scores = nullptr;
    MergeSchedule merge = nullptr;
    ConvertSchedules convert = {};
    std::vector<Tile> naive_tiles = {}, flash_tiles = {}, split_kv_tiles = {};
    std::vector<Tile> stored_split_kv_tiles = {};     // over any storage
    std::vector<Tile> one_type_split_kv_tiles = {};   // over one type, with the head in the lanes; not inherited
    std::vector<Tile> int4_split_kv_tiles = {};       // over int4 in their place; empty: those
    std::vector<Tile> int8_line_split_kv_tiles = {};  // over whole lines of int8; likewise
    std::vector<Tile> int4_line_split_kv_tiles = {};  // or of int4; likewise
    std::vector<Tile> halves_split_kv_tiles = {};     // over float16 or bfloat16 in their place
    std::vector<Tile> unfused_scores_tiles = {}, unfused_values_tiles = {};  // with the same rows, in order
    Bfloat16Kernels bfloat16 = {};                                           // not inherited
    std::vector<CpuTiles> cpu_tiles = {}, stored_cpu_tiles = {};             // of float32, of any storage; likewise
    IntegerKernels integers = {};                                            // likewise
    MatrixKernels matrices = {};                                             // likewise
    ByteMatrixKernels byte_matrices = {};                                    // likewise
    // Which CPUs take kernels for keys and values in memory, see from_memory in runtime/kernel_table.h; empty: there
    // are none. Likewise.
    MemoryCpus memory_cpus = {};
    std::string stand_in = {};  // the target whose instructions kernels are compiled to; empty: this one

    const std::string &instructions_of() const {
        return stand_in.empty() ? name : stand_in;
    }
};

// The targets of one architecture: those a library built for it has.
struct Architecture {
    const char *name;                // as in cmake/HattnArchitecture.cmake
    const char *halide_system;       // what Halide's run-time library is compiled for
    std::vector<TargetRow> targets;  // from the least to the most capable
};
const std::vector<Architecture> &architectures();
const Architecture &find_architecture(const std::string &name);
const Architecture &host_architecture();  // of the machine this runs on

// The row with everything it inherits filled in.
TargetRow resolve_target(const Architecture &architecture, const std::string &name);

// A row's schedules, tiles and lanes, compiled to the instructions of another target, which LLVM cuts the vectors up
// for: verifies schedules on a CPU that lacks their own instructions. Named "x86-avx512-on-x86-avx2".
TargetRow resolve_stand_in(const Architecture &architecture, const std::string &name, const std::string &stand_in);

}  // namespace hattn::schedules

// What the runtime knows about kernels: rows of a table that hattn-kernelgen writes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hattn/hattn.h"

namespace hattn {

enum class KernelKind {
    kNaive,
    kFlash,
    kSplitKv,
    kUnfusedScores,
    kUnfusedValues,
    kScores,
    kProbabilities,
    kMerge,
    kWiden,
    kNarrow,
    kBlockScales,
    kQuantize,
    kAppend  // of devices alone
};

// What a kernel takes as keys and values.
enum class KeyStorage {
    kFloat32,
    kAny,       // any storage type, said at run time, each side its own; converted into float32
    kBfloat16,  // bfloat16 on both sides, and queries that are; multiplied in pairs by the CPU's own instruction
    kBfloat16Matrices,  // the same types, multiplied by an instruction for small matrices
    kFloat32Matrices,   // float32 as sums of bfloat16 numbers, that are multiplied likewise
    kAnyMatrices,       // any storage type, converted into float32 and then the same
    kHalvesMatrices,    // likewise, of fewer terms: queries, keys and outputs of 16 bits, values of 16 or fewer
    // This type on both sides, brought into float32 in registers.
    kAllFloat16,
    kAllBfloat16,
    kAllInt8,
    kAllInt4,
    kInt8Lines,  // likewise, in rows that are whole lines
    kInt4Lines,
    kBfloat16Rows,  // of kBfloat16 what kAllBfloat16 takes: products are of pairs along a row
    kInt8Matrices,  // of kAllInt8 rows that are whole lines, multiplied by an instruction for small matrices
    kInt4Matrices   // likewise
};
inline constexpr const char *kStorageNames[] = {
    "float32",         "any",           "bfloat16",      "bfloat16_matrices", "float32_matrices", "any_matrices",
    "halves_matrices", "all_float16",   "all_bfloat16",  "all_int8",          "all_int4",         "int8_lines",
    "int4_lines",      "bfloat16_rows", "int8_matrices", "int4_matrices"};  // by KeyStorage

inline constexpr KeyStorage kAllOfOneType[] = {KeyStorage::kAllFloat16, KeyStorage::kAllBfloat16, KeyStorage::kAllInt8,
                                               KeyStorage::kAllInt4};

// The type on both sides of kernels for it alone, in heads of multiples of kWholeHead; of others HATTN_FLOAT32.
constexpr hattn_dtype type_of_all(KeyStorage storage) {
    switch (storage) {
    case KeyStorage::kAllFloat16:
        return HATTN_FLOAT16;
    case KeyStorage::kAllBfloat16:
    case KeyStorage::kBfloat16Rows:
        return HATTN_BFLOAT16;
    case KeyStorage::kAllInt8:
    case KeyStorage::kInt8Lines:
    case KeyStorage::kInt8Matrices:
        return HATTN_INT8;
    case KeyStorage::kAllInt4:
    case KeyStorage::kInt4Lines:
    case KeyStorage::kInt4Matrices:
        return HATTN_INT4;
    default:
        return HATTN_FLOAT32;
    }
}

// Bfloat16 numbers of which kernels for matrices make one of queries, keys, weights and values.
constexpr int bfloat16_terms(KeyStorage storage) {
    switch (storage) {
    case KeyStorage::kFloat32Matrices:
    case KeyStorage::kAnyMatrices:
        return 3;
    case KeyStorage::kHalvesMatrices:
        return 2;
    default:
        return 1;
    }
}

// Kernels that bring any storage type into float32.
constexpr bool takes_any_type(KeyStorage storage) {
    return storage == KeyStorage::kAny || storage == KeyStorage::kAnyMatrices || storage == KeyStorage::kHalvesMatrices;
}

// Kernels that multiply float32 numbers as sums of bfloat16 ones: what is not finite becomes a NaN in their results.
constexpr bool multiplies_terms(KeyStorage storage) {
    return bfloat16_terms(storage) > 1;
}

// Kernels that multiply small matrices of bytes.
constexpr bool multiplies_byte_matrices(KeyStorage storage) {
    return storage == KeyStorage::kInt8Matrices || storage == KeyStorage::kInt4Matrices;
}

// Likewise of bfloat16 numbers.
constexpr bool multiplies_matrices(KeyStorage storage) {
    return storage == KeyStorage::kBfloat16Matrices || multiplies_terms(storage);
}

// Kernels of so many rows whose rows go from scores to the state in bands, see schedules/x86/matrix_bands.h. Fewer rows
// of bfloat16 numbers do not: what comes before the first band and after the last is too much beside their products.
constexpr bool goes_in_bands(KeyStorage storage, int rows) {
    constexpr int kMostWhole = 128;
    return multiplies_terms(storage) || (storage == KeyStorage::kBfloat16Matrices && rows > kMostWhole);
}

// Rows of a band. Bands of a tile that have no rows are not computed.
constexpr int kBandRows = 32;

// Kernels whose products are of the bfloat16 numbers that keys and values are.
constexpr bool multiplies_stored(KeyStorage storage) {
    return storage == KeyStorage::kBfloat16 || storage == KeyStorage::kBfloat16Rows ||
           storage == KeyStorage::kBfloat16Matrices;
}

// Kernels that read keys and values as float32, where they lie.
constexpr bool reads_float32(KeyStorage storage) {
    return storage == KeyStorage::kFloat32 || storage == KeyStorage::kFloat32Matrices;
}

// As in schedules/tile.h.
struct KernelTile {
    int rows, keys, row_vectors, key_unroll, value_unroll;

    bool operator==(const KernelTile &) const = default;
};

// Keys that kernels take to be evenly spaced, as in generators/kernel_inputs.h. Ranges of keys start at multiples of
// it, so that results do not depend on how keys are stored.
inline constexpr int64_t kGranuleKeys = 16;

// Elements along D that share a scale, where every key has scales of its own, as in generators/stored_side.h.
inline constexpr int64_t kScaleBlock = 32;

// What heads are multiples of where kernels are for one type alone: what shares a scale, and no less than the elements
// of a head that a tile updates at a time.
inline constexpr int kWholeHead = 32;

// And the shortest that they take: what a step of a dot product has, as in generators/integer_steps.h.
constexpr int shortest_head(hattn_dtype type) {
    return type == HATTN_INT4 ? 2 * kWholeHead : kWholeHead;
}

// And of those that take them by cache lines, or by matrices of these: whole ones, of whose scales there are whole
// vectors.
constexpr bool takes_lines(KeyStorage storage) {
    return storage == KeyStorage::kInt8Lines || storage == KeyStorage::kInt4Lines;
}
inline constexpr int kWholeLines = 128;
constexpr bool fills_lines(hattn_dtype type, int64_t dim) {
    return type == HATTN_INT8 ? dim == kWholeLines : dim % kWholeLines == 0;
}
// And the longest: of integers of one scale, sums have 32 bits, one for each of eight lanes at least, see
// docs/decisions/0057 and 0093.
constexpr int longest_head(hattn_dtype type) {
    return type == HATTN_INT8 || type == HATTN_INT4 ? 4096 : 8192;
}

struct KernelInfo {
    const char *name;
    const char *target;
    KernelKind kind;
    KeyStorage storage;
    const char *cpu_features;  // what a CPU must have beside what the target needs, as in TargetInfo
    uint32_t hooks;            // bits of ScoreHookInfo; kUnfusedValues: all that can hide keys, or none
    KernelTile tile;
    // The pipeline's arguments in the order of generators/kernel_inputs.cpp (or convert.cpp), outputs last; buffers as
    // halide_buffer_t *, scalars as pointers to them; the first is a pointer to the user context, a ScratchArena *.
    int (*function)(void **arguments);
    // Which CPUs take it in place of the target's others of its kind and storage, in the words of cpu_features; empty,
    // and where it ends with "|others": those that no other is made for. It runs on all that have what it needs.
    const char *made_for = "";
    // CPUs it is made for take it where keys and values lie in memory, else the one with the same tile, whose results
    // have the same bits: it asks for lines into the second-level cache, or further ahead. See
    // runtime/memory_kernels.h.
    bool from_memory = false;
};

struct TargetInfo {
    const char *name;
    const char *cpu_features;
    int lanes;
};

struct ScoreHookInfo {
    const char *name;
    uint32_t bit;
    bool can_hide_keys;  // may mask a key that the positional limits leave visible
    bool has_neutral;    // some operand leaves every score as it is
};

// A kernel that hattn-kernelgen can put into a pack, whether or not it is in the library. Others have the same tile and
// further hooks, and a name with "_HOOK" at the end for each of them, in the order of ScoreHookInfo.
struct CandidateInfo {
    const char *name;  // of the kernel without hooks
    const char *target;
    KernelKind kind;
    KernelTile tile;
};

struct KernelTable {
    const TargetInfo *targets;  // from the least to the most capable
    size_t target_count;
    const ScoreHookInfo *hooks;
    size_t hook_count;
    const KernelInfo *kernels;
    size_t kernel_count;
    const CandidateInfo *candidates;
    size_t candidate_count;
    uint64_t contract;  // a hash of how kernels are called, see generators/kernel_contract.h
};

const KernelTable &kernel_table();

}  // namespace hattn

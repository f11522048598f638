// Which kernel computes a sequence. The choice depends on that sequence's lengths alone, never on the batch around it
// nor on threads, so that neither changes a bit of the result; of two kernels whose results have the same bits the
// batch has a say in which.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "force.h"
#include "kernel_pack.h"
#include "problem.h"
#include "tuning_database.h"

namespace hattn {

// What decided about a sequence.
enum class Decider { kRule, kMachine, kShipped };

struct Choice {
    hattn_algorithm algorithm;
    const KernelInfo *kernel;
    const KernelInfo *values_kernel;  // the second kernel of unfused, else null
    int64_t heads;                    // query heads of one kv head that share a tile
    int64_t split_keys;               // keys per split; 0: the key range stays whole
    Decider decider = Decider::kRule;
    const TuningEntry *entry = nullptr;  // unless the rule decided; lives as long as the database
    // Of flash: a kernel of fewer rows that takes the last ones of a head, in so many tiles; null: there is no need.
    const KernelInfo *last_kernel = nullptr;
    int64_t last_tiles = 0;
};

// What the sequences that a plan has room for may ask of an algorithm.
struct Reach {
    bool chosen = false;        // whether any may be computed by it
    int64_t most_keys = 0;      // of a sequence
    int64_t most_splits = 1;    // of a unit
    int64_t longest_split = 0;  // keys
};

// The kernels that fit a problem on a target, per algorithm by rows per tile.
struct KernelSet {
    const TargetInfo *target = nullptr;
    std::vector<const KernelInfo *> naive, flash, split_kv;
    std::vector<const KernelInfo *> unfused_scores, unfused_values;  // in pairs with the same rows
    // Where flash leaves what is not finite: what computes such tiles, and, where it multiplies terms, short prompts
    // unless the kernel is forced. Else empty.
    std::vector<const KernelInfo *> plain_flash;
    bool is_flash_forced = false;
    // Of flash over float32 or any storage: those that multiply fewer rows at a time than another with as many keys.
    // They take rows that others leave.
    std::vector<const KernelInfo *> last_flash;
    // Where kernels of split_kv multiply matrices of bytes: those, and others of fewer rows. Of sequences with many
    // keys they take the place of split_kv. Else empty.
    std::vector<const KernelInfo *> matrix_split_kv;
    const KernelInfo *scores = nullptr;  // with the hooks that the score output wants
    const KernelInfo *probabilities = nullptr;
    const KernelInfo *merge = nullptr;
    const KernelInfo *widen = nullptr, *narrow = nullptr;  // between 16 bits and float32
    std::vector<const KernelInfo *> packed;                // of kernel packs; only tuning entries choose them
    std::vector<const KernelInfo *> from_memory;           // in place of others with the same tile
    hattn_algorithm algorithm = HATTN_ALGORITHM_AUTO;      // forced or asked for
    std::string why_algorithm;                             // empty, or a phrase with a semicolon
    TuningGrids machine, shipped;                          // for the problem's family
    std::array<Reach, 5> reaches{};                        // by algorithm

    const Reach &reach(hattn_algorithm wanted) const {
        return reaches[static_cast<size_t>(wanted)];
    }
    const std::vector<const KernelInfo *> &of(hattn_algorithm algorithm) const;
    // Those, those beside them and packed ones that compute the algorithm.
    template<typename Visit>
    void for_each_of(hattn_algorithm wanted, Visit &&visit) const {
        for (const std::vector<const KernelInfo *> *list :
             {&of(wanted), &plain_flash, &last_flash, &matrix_split_kv, &packed}) {
            for (const KernelInfo *kernel : *list) {
                if (kernel->kind == of(wanted).front()->kind) {
                    visit(*kernel);
                }
            }
        }
    }
    int64_t most_rows(hattn_algorithm wanted) const;  // of a tile
    std::array<std::vector<const KernelInfo *> *, 5> all();
};

// Raw scores are taken before every hook, capped ones after the first.
uint32_t hooks_of_scores(const Problem &problem);

// Throws StatusError if the request cannot be met.
KernelSet select_kernels(const Problem &problem, const TargetInfo &target, const Force &force,
                         const TuningDatabase &tuning, const KernelPacks &packs);

// For one sequence of query_length rows per head and kv_length keys. keys_lie_apart: see lie_apart(); of no consequence
// for bits.
Choice choose(const KernelSet &kernels, const Problem &problem, int64_t query_length, int64_t kv_length,
              bool keys_lie_apart = false);

// The entry for such a sequence; null if there is none near, or the keys are beyond all classes.
const TuningEntry *nearest_entry(const TuningGrids &grids, const Problem &problem, int64_t query_length,
                                 int64_t kv_length);

// Whether there is a class for such a sequence. Of more keys than the last one has there is none.
bool has_tuning_class(const Problem &problem, int64_t query_length, int64_t kv_length);

// The class whose entry decides about such a sequence, if there is one for it.
TuningCell tuning_cell(const Problem &problem, int64_t query_length, int64_t kv_length);

// The most keys one kernel call is given.
inline constexpr int64_t kMaxKeysPerCall = 8192;

// The most query heads of a tile. Where their strides are long, it takes several calls
// of the kernel: see most_heads_per_call().
inline constexpr int64_t kMaxTileHeads = 128;

// Elements between heads, up to which as many may be indexed with 32 bits.
inline constexpr int64_t kShortHeadStride = int64_t{1} << 23;

}  // namespace hattn

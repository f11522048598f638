#include "usual_splits.h"

#include <algorithm>
#include <limits>

#include "checked.h"
#include "selection.h"

namespace hattn {

namespace {

// Of decode. Starting and ending a split costs as much as 50 to 90 keys, and what it begins with nobody has asked for,
// so that a sequence which makes many splits has longer ones (decisions 0064, 0073), as have many rows, unless these
// would make few tasks (0080), and few of short heads (0069).
constexpr int64_t kSplitKeys = 512;
constexpr int64_t kLongSplitKeys = 1024;
constexpr int64_t kLongestSplitKeys = 4096;
constexpr int64_t kManySplits = 32;                         // over all kv heads
constexpr int64_t kManyRows = 9, kFewRowsOfShortHeads = 2;  // of a kv head
constexpr int64_t kSplitTileRows = 32;

constexpr int64_t kUnfusedSplitKeys = 1024;
constexpr int64_t kMostSplits = 1024;

// Tiles that a sequence should make by itself, as far as these have so many keys each; see decision 0058.
constexpr int64_t kFlashTiles = 16;
constexpr int64_t kFlashTileRows = 64;
constexpr int64_t kFlashSplitKeys = 2048;
// With fewer tasks than so many, one for each kv head and split of those, splits have half the keys; see decision 0063.
constexpr int64_t kFewTasks = 4;
constexpr int64_t kSplitKeysOfFewTasks = kFlashSplitKeys / 2;

constexpr int64_t kStep = 512;

int64_t cut(int64_t kv_length, int64_t fewest_keys, int64_t most) {
    return std::clamp(round_up(ceil_div(kv_length, most), kStep), fewest_keys, kMaxKeysPerCall);
}

}  // namespace

UsualSplits::UsualSplits(hattn_algorithm algorithm) {
    switch (algorithm) {
    case HATTN_ALGORITHM_FLASH:
        fewest_keys_ = keys_of_many_ = kFlashSplitKeys;
        most_ = kFlashTiles;
        tile_rows_ = kFlashTileRows;
        break;
    case HATTN_ALGORITHM_SPLIT_KV:
        fewest_keys_ = kSplitKeys;
        keys_of_many_ = kLongestSplitKeys;
        most_ = kMostSplits;
        break;
    case HATTN_ALGORITHM_UNFUSED:
        fewest_keys_ = keys_of_many_ = kUnfusedSplitKeys;
        most_ = kMostSplits;
        break;
    default:
        break;
    }
}

int64_t UsualSplits::keys(const Problem &problem, int64_t query_length, int64_t kv_length) const {
    if (fewest_keys_ == 0) {
        return 0;
    }
    if (tile_rows_ == 0) {
        const int64_t rows = query_length * problem.group_size();
        const int64_t tiles = problem.kv_heads * ceil_div(rows, kSplitTileRows);
        const bool few_tasks = std::min<int64_t>(tiles, kFewTasks) * ceil_div(kv_length, kLongSplitKeys) < kFewTasks;
        const bool is_long =
            rows >= kManyRows ? !few_tasks : problem.key_dim < kShortHead && rows <= kFewRowsOfShortHeads;
        const int64_t fewest = is_long ? std::max(fewest_keys_, kLongSplitKeys) : fewest_keys_;
        const int64_t of_many = problem.kv_heads * kv_length / kManySplits / kStep * kStep;
        return cut(kv_length, std::clamp(of_many, fewest, std::max(fewest, keys_of_many_)), most_);
    }
    const int64_t splits = most_ / ceil_div(problem.query_heads * query_length, tile_rows_);
    const bool few_tasks = problem.kv_heads * ceil_div(kv_length, fewest_keys_) < kFewTasks;
    const int64_t split = splits > 1 ? cut(kv_length, few_tasks ? kSplitKeysOfFewTasks : fewest_keys_, splits) : 0;
    return split < kv_length ? split : 0;
}

int64_t UsualSplits::most(int64_t kv_length) const {
    if (fewest_keys_ == 0) {
        return 1;
    }
    const int64_t of_few_tasks =
        tile_rows_ > 0 ? ceil_div(std::min(kv_length, (kFewTasks - 1) * fewest_keys_), kSplitKeysOfFewTasks) : 0;
    const int64_t splits = std::max(ceil_div(kv_length, fewest_keys_), of_few_tasks);
    return std::max(std::min(splits, most_), ceil_div(kv_length, kMaxKeysPerCall));
}

int64_t UsualSplits::most_rows(const Problem &problem) const {
    return tile_rows_ == 0 ? std::numeric_limits<int64_t>::max() : most_ / 2 * tile_rows_ / problem.kv_heads + 1;
}

int64_t UsualSplits::longest(int64_t kv_length) const {
    if (fewest_keys_ == 0) {
        return 0;
    }
    return tile_rows_ == 0 ? cut(kv_length, keys_of_many_, most_) : kMaxKeysPerCall;
}

}  // namespace hattn

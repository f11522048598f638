#include "tuning_json.h"

#include <nlohmann/json.hpp>

#include "force.h"
#include "kernel_registry.h"
#include "selection.h"
#include "tensor.h"

namespace hattn {

namespace {

using nlohmann::json;
using nlohmann::ordered_json;

[[noreturn]] void refuse(const std::string &why) {
    throw TuningError(why);
}

hattn_dtype dtype_of(const std::string &name) {
    for (const hattn_dtype dtype : {HATTN_FLOAT32, HATTN_FLOAT16, HATTN_BFLOAT16, HATTN_INT8, HATTN_INT4}) {
        if (name == dtype_name(dtype)) {
            return dtype;
        }
    }
    refuse("unknown dtype \"" + name + "\"");
}

hattn_algorithm algorithm_of(const std::string &name) {
    for (const hattn_algorithm algorithm : {HATTN_ALGORITHM_AUTO, HATTN_ALGORITHM_NAIVE, HATTN_ALGORITHM_FLASH,
                                            HATTN_ALGORITHM_SPLIT_KV, HATTN_ALGORITHM_UNFUSED}) {
        if (name == algorithm_name(algorithm)) {
            return algorithm;
        }
    }
    refuse("unknown algorithm \"" + name + "\"");
}

// A member that is a number from `least` to `most`.
int64_t number(const json &object, const char *name, int64_t least, int64_t most) {
    const json &value = object.at(name);
    if (!value.is_number_integer() || value.get<int64_t>() < least || value.get<int64_t>() > most) {
        refuse(std::string(name) + " is " + value.dump() + ", but must be from " + std::to_string(least) + " to " +
               std::to_string(most));
    }
    return value.get<int64_t>();
}

// A member that is a power of two, as an exponent below `count`.
int exponent(const json &object, const char *name, int count) {
    const int64_t value = number(object, name, 1, int64_t{1} << (count - 1));
    if ((value & (value - 1)) != 0) {
        refuse(std::string(name) + " is " + std::to_string(value) + ", but must be a power of two");
    }
    return size_exponent(value);
}

uint32_t hooks_of(const json &names) {
    uint32_t hooks = 0;
    for (const json &name : names) {
        const uint32_t bit = hook_bit(name.get_ref<const std::string &>());
        if (bit == 0) {
            refuse("unknown hook " + name.dump());
        }
        hooks |= bit;
    }
    return hooks;
}

constexpr int kHeadClasses = 17, kGroupClasses = 17;

void read_class(const json &object, TuningEntry &entry) {
    entry.family.algorithm = algorithm_of(object.at("algorithm"));
    entry.family.dtype = dtype_of(object.at("dtype"));
    entry.family.head_exponent = exponent(object, "head", kHeadClasses);
    entry.family.group_exponent = exponent(object, "group", kGroupClasses);
    entry.family.hooks = hooks_of(object.at("hooks"));
    const std::string &target = object.at("target").get_ref<const std::string &>();
    entry.family.target = find_target(target);
    if (!entry.family.target) {
        refuse("unknown target \"" + target + "\"");
    }
    entry.cell = {exponent(object, "rows", kRowClasses), exponent(object, "keys", kKeyClasses)};
    number(object, "threads", 0, 0);
}

void read_choice(const json &object, TuningEntry &entry) {
    entry.algorithm = algorithm_of(object.at("algorithm"));
    if (entry.algorithm == HATTN_ALGORITHM_AUTO ||
        (entry.family.algorithm != HATTN_ALGORITHM_AUTO && entry.family.algorithm != entry.algorithm)) {
        refuse(std::string("algorithm ") + algorithm_name(entry.algorithm) + " cannot be chosen where " +
               algorithm_name(entry.family.algorithm) + " is asked for");
    }
    constexpr int64_t kMost = 1 << 16;
    const json &tile = object.at("tile");
    const auto extent = [&](const char *name) { return static_cast<int>(number(tile, name, 0, kMost)); };
    entry.tile = {extent("rows"), extent("keys"), extent("row_vectors"), extent("key_unroll"), extent("value_unroll")};
    const bool splits = entry.algorithm == HATTN_ALGORITHM_SPLIT_KV || entry.algorithm == HATTN_ALGORITHM_UNFUSED;
    entry.split_keys = number(object, "split_keys", splits ? kGranuleKeys : 0, splits ? kMaxKeysPerCall : 0);
    if (entry.split_keys % kGranuleKeys != 0) {
        refuse("split_keys is " + std::to_string(entry.split_keys) + ", but must be a multiple of " +
               std::to_string(kGranuleKeys));
    }
    entry.heads = number(object, "heads", 0, kMaxTileHeads);
}

TuningEntry read_entry(const json &object) {
    TuningEntry entry;
    read_class(object.at("class"), entry);
    if (const json &choice = object.at("choice"); !choice.is_null()) {
        read_choice(choice, entry);
    }
    entry.gain = object.at("gain").get<double>();
    entry.invariant = object.at("invariant").get<bool>();
    return entry;
}

void check_stamp(const json &document, const MachineStamp &wanted) {
    const json stamp = document.at("stamp");
    const json expected = stamp_json(wanted);
    for (const auto &[name, value] : expected.items()) {
        if (stamp.at(name) != value) {
            refuse("it was made for " + name + " " + stamp.at(name).dump() + ", but here it is " + value.dump());
        }
    }
}

}  // namespace

TuningText parse_tuning(const std::string &text, const MachineStamp *stamp) {
    try {
        const json document = json::parse(text);
        if (document.at("format") != "hattn-tuning") {
            refuse("it is no tuning database");
        }
        if (document.at("version") != kTuningVersion) {
            refuse("its version is " + document.at("version").dump() + ", but this library reads " +
                   std::to_string(kTuningVersion));
        }
        if (stamp) {
            check_stamp(document, *stamp);
        }
        TuningText tuning;
        for (const json &entry : document.at("entries")) {
            tuning.entries.push_back(read_entry(entry));
        }
        if (document.contains("packs")) {
            tuning.packs = document.at("packs").get<std::vector<std::string>>();
        }
        return tuning;
    } catch (const json::exception &error) {
        refuse(std::string("it is damaged (") + error.what() + ")");
    }
}

ordered_json stamp_json(const MachineStamp &stamp) {
    return {{"library", stamp.library},
            {"kernels", stamp.kernels},
            {"cpu", stamp.cpu},
            {"caches", {{"l1d", stamp.l1d_bytes}, {"l2", stamp.l2_bytes}, {"l3", stamp.l3_bytes}}},
            {"cores", stamp.cores}};
}

ordered_json class_json(const TuningFamily &family, const TuningCell &cell) {
    return {{"algorithm", algorithm_name(family.algorithm)},
            {"dtype", dtype_name(family.dtype)},
            {"head", int64_t{1} << family.head_exponent},
            {"group", int64_t{1} << family.group_exponent},
            {"hooks", hook_name_list(family.hooks)},
            {"target", family.target->name},
            {"rows", int64_t{1} << cell.rows},
            {"keys", int64_t{1} << cell.keys},
            {"threads", 0}};
}

ordered_json tile_json(const KernelTile &tile) {
    return {{"rows", tile.rows},
            {"keys", tile.keys},
            {"row_vectors", tile.row_vectors},
            {"key_unroll", tile.key_unroll},
            {"value_unroll", tile.value_unroll}};
}

}  // namespace hattn

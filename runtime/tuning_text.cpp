#include "tuning_text.h"

#include <rapidjson/error/en.h>

#include <nlohmann/json.hpp>

#include "device/device_stamp.h"
#include "force.h"
#include "json_members.h"
#include "kernel_registry.h"
#include "selection.h"
#include "tensor.h"
#include "tuning_json.h"

namespace hattn {

namespace {

using rapidjson::Value;

std::string quoted(std::string_view text) {
    return '"' + std::string(text) + '"';
}

hattn_dtype dtype_of(std::string_view name) {
    for (const hattn_dtype dtype : {HATTN_FLOAT32, HATTN_FLOAT16, HATTN_BFLOAT16, HATTN_INT8, HATTN_INT4}) {
        if (name == dtype_name(dtype)) {
            return dtype;
        }
    }
    refuse("unknown dtype " + quoted(name));
}

hattn_algorithm algorithm_of(std::string_view name) {
    const std::optional<hattn_algorithm> algorithm = algorithm_named(name);
    if (!algorithm) {
        refuse("unknown algorithm " + quoted(name));
    }
    return *algorithm;
}

// A member that is a power of two, as an exponent below `count`.
int exponent(const Value &object, const char *name, int count) {
    const int64_t value = number_member(object, name, 1, int64_t{1} << (count - 1));
    if ((value & (value - 1)) != 0) {
        refuse(std::string(name) + " is " + std::to_string(value) + ", but must be a power of two");
    }
    return size_exponent(value);
}

uint32_t hooks_of(const Value::ConstArray &names) {
    uint32_t hooks = 0;
    for (const Value &name : names) {
        const uint32_t bit = name.IsString() ? hook_bit(name.GetString()) : 0;
        if (bit == 0) {
            refuse("unknown hook " + text_of(name));
        }
        hooks |= bit;
    }
    return hooks;
}

constexpr int kHeadClasses = 17, kGroupClasses = 17;
constexpr int64_t kMostExtent = 1 << 16;  // of tiles
constexpr int64_t kMostBytes = int64_t{1} << 62;

std::string device_key(std::string_view target, const Value &device) {
    const auto text = [&](const char *name) { return std::string(text_member(device, name)); };
    const DeviceIdentity identity{text("name"), text("capability"), text("driver"),
                                  number_member(device, "compute_units", 0, kMostExtent),
                                  number_member(device, "memory_bytes", 0, kMostBytes)};
    return DeviceStamp{std::string(target), identity, text("kernels")}.key();
}

void read_class(const Value &object, TuningEntry &entry) {
    entry.family.algorithm = algorithm_of(text_member(object, "algorithm"));
    entry.family.dtype = dtype_of(text_member(object, "dtype"));
    entry.family.head_exponent = exponent(object, "head", kHeadClasses);
    entry.family.group_exponent = exponent(object, "group", kGroupClasses);
    entry.family.hooks = hooks_of(list_member(object, "hooks"));
    const std::string_view target = text_member(object, "target");
    if (const auto device = object.FindMember("device"); device != object.MemberEnd()) {
        entry.family.device = device_key(target, device->value);
    } else if (entry.family.target = find_target(target); !entry.family.target) {
        refuse("unknown target " + quoted(target));
    }
    entry.cell = {exponent(object, "rows", kRowClasses), exponent(object, "keys", kKeyClasses)};
    number_member(object, "threads", 0, 0);
}

void read_tile(const Value &tile, TuningEntry &entry) {
    const auto extent = [&](const char *name) { return static_cast<int>(number_member(tile, name, 0, kMostExtent)); };
    if (entry.family.device.empty()) {
        entry.tile = {extent("rows"), extent("keys"), extent("row_vectors"), extent("key_unroll"),
                      extent("value_unroll")};
    } else {
        entry.device_tile = {extent("rows"),        extent("keys"),
                             extent("head"),        extent("slices"),
                             extent("thread_rows"), tile.HasMember("warpgroups") && truth_member(tile, "warpgroups")};
    }
}

void read_choice(const Value &object, TuningEntry &entry) {
    entry.algorithm = algorithm_of(text_member(object, "algorithm"));
    if (entry.algorithm == HATTN_ALGORITHM_AUTO ||
        (entry.family.algorithm != HATTN_ALGORITHM_AUTO && entry.family.algorithm != entry.algorithm)) {
        refuse(std::string("algorithm ") + algorithm_name(entry.algorithm) + " cannot be chosen where " +
               algorithm_name(entry.family.algorithm) + " is asked for");
    }
    read_tile(member(object, "tile"), entry);
    const bool splits = entry.algorithm == HATTN_ALGORITHM_SPLIT_KV || entry.algorithm == HATTN_ALGORITHM_UNFUSED;
    entry.split_keys = number_member(object, "split_keys", splits ? kGranuleKeys : 0, splits ? kMaxKeysPerCall : 0);
    if (entry.split_keys % kGranuleKeys != 0) {
        refuse("split_keys is " + std::to_string(entry.split_keys) + ", but must be a multiple of " +
               std::to_string(kGranuleKeys));
    }
    entry.heads = number_member(object, "heads", 0, kMaxTileHeads);
}

TuningEntry read_entry(const Value &object) {
    TuningEntry entry;
    read_class(member(object, "class"), entry);
    if (const Value &choice = member(object, "choice"); !choice.IsNull()) {
        read_choice(choice, entry);
    }
    entry.gain = real_member(object, "gain");
    entry.invariant = truth_member(object, "invariant");
    return entry;
}

void check_stamp(const Value &stamp, const MachineStamp &wanted) {
    rapidjson::Document expected;
    expected.Parse(stamp_json(wanted).dump().c_str());
    for (const auto &[name, value] : expected.GetObject()) {
        const Value &given = member(stamp, name.GetString());
        if (!value.operator==(given)) {
            refuse(std::string("it was made for ") + name.GetString() + " " + text_of(given) + ", but here it is " +
                   text_of(value));
        }
    }
}

}  // namespace

TuningText parse_tuning(std::string text, const MachineStamp *stamp) {
    constexpr unsigned kFlags = rapidjson::kParseIterativeFlag | rapidjson::kParseValidateEncodingFlag;
    if (const size_t end = text.find('\0'); end != std::string::npos) {  // the parser would stop there
        refuse_as_damaged("at byte " + std::to_string(end) + ": it has a zero");
    }
    rapidjson::Document document;
    document.ParseInsitu<kFlags>(text.data());
    if (document.HasParseError()) {
        refuse_as_damaged("at byte " + std::to_string(document.GetErrorOffset()) + ": " +
                          rapidjson::GetParseError_En(document.GetParseError()));
    }
    if (text_member(document, "format") != "hattn-tuning") {
        refuse("it is no tuning database");
    }
    const Value &version = member(document, "version");
    if (!version.IsInt() || version.GetInt() != kTuningVersion) {
        refuse("its version is " + text_of(version) + ", but this library reads " + std::to_string(kTuningVersion));
    }
    if (stamp) {
        check_stamp(member(document, "stamp"), *stamp);
    }
    TuningText tuning;
    const Value::ConstArray entries = list_member(document, "entries");
    tuning.entries.reserve(entries.Size());
    for (const Value &entry : entries) {
        tuning.entries.push_back(read_entry(entry));
    }
    if (document.HasMember("packs")) {
        for (const Value &name : list_member(document, "packs")) {
            if (!name.IsString()) {
                refuse_as_damaged("packs has " + text_of(name) + ", but must have names");
            }
            tuning.packs.push_back(name.GetString());
        }
    }
    return tuning;
}

}  // namespace hattn

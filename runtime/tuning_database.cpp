#include "tuning_database.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "machine_stamp.h"
#include "tuning_defaults.h"
#include "tuning_text.h"

namespace hattn {

namespace {

std::string variable(const char *name) {
    const char *value = std::getenv(name);
    return value ? value : "";
}

// Empty where the system knows no such directory.
std::string default_path() {
    const std::string cache = variable("XDG_CACHE_HOME"), home = variable("HOME");
    const std::string folder = !cache.empty() ? cache : home.empty() ? "" : home + "/.cache";
    return folder.empty() ? "" : folder + "/hattn/tuning.json";
}

TuningTable parse_shipped() {
    std::vector<TuningEntry> entries;
    for (const char *text : tuning_defaults()) {
        try {
            const std::vector<TuningEntry> more = parse_tuning(text, nullptr).entries;
            entries.insert(entries.end(), more.begin(), more.end());
        } catch (const TuningError &) {
            // Of a build without that target. A test makes sure that a full build takes all of them.
        }
    }
    return TuningTable(entries);
}

void read(TuningDatabase &database) {
    constexpr std::streamoff kMostBytes = 16 << 20;
    std::ifstream file(database.path, std::ios::binary | std::ios::ate);
    if (!file) {
        database.state = TuningState::kMissing;
        return;
    }
    try {
        if (file.tellg() < 0 || file.tellg() > kMostBytes) {
            throw TuningError("it is not a file of at most 16 MiB");
        }
        std::string text(static_cast<size_t>(file.tellg()), '\0');
        file.seekg(0);
        file.read(text.data(), static_cast<std::streamsize>(text.size()));
        const TuningText tuning = parse_tuning(std::move(text), &machine_stamp());
        database.machine = TuningTable(tuning.entries);
        const std::filesystem::path folder = std::filesystem::path(database.path).parent_path();
        for (const std::string &name : tuning.packs) {
            database.packs.push_back((folder / name).string());
        }
        database.state = TuningState::kInUse;
    } catch (const TuningError &error) {
        database.state = TuningState::kIgnored;
        database.why_ignored = error.what();
    }
}

}  // namespace

const char *tuning_state_name(TuningState state) {
    switch (state) {
    case TuningState::kOff:
        return "off";
    case TuningState::kMissing:
        return "missing";
    case TuningState::kInUse:
        return "in use";
    case TuningState::kIgnored:
        return "ignored";
    }
    return "unknown";
}

const TuningTable &TuningDatabase::shipped() const {
    static const TuningTable all = parse_shipped();
    static const TuningTable none;
    return use_shipped ? all : none;
}

std::string TuningDatabase::warning() const {
    return state == TuningState::kIgnored
               ? "tuning database " + path + " is ignored: " + why_ignored + "; hattn tune makes a new one"
               : "";
}

std::shared_ptr<const TuningDatabase> open_tuning_database(const char *given) {
    auto database = std::make_shared<TuningDatabase>();
    std::string wanted = given ? given : "";
    wanted = wanted.empty() ? variable("HATTN_TUNING") : wanted;
    if (wanted == "none" || wanted == "rule") {
        database->use_shipped = wanted == "none";
        return database;
    }
    database->path = wanted.empty() ? default_path() : wanted;
    if (!database->path.empty()) {
        read(*database);
    }
    return database;
}

}  // namespace hattn

#include "tuning_database.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
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
    return folder.empty() ? "" : folder + "/hattn/tuning-" + machine_word(machine_stamp()) + ".json";
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

// Whether it is read; else the database says why not.
bool read_text(TuningDatabase &database, std::string &text) {
    namespace fs = std::filesystem;
    constexpr std::streamoff kMostBytes = 16 << 20;
    const auto fails = [&](TuningState state, const std::string &why) {
        database.state = state;
        database.why_ignored = why;
        return false;
    };
    std::error_code error;
    const fs::file_status status = fs::status(database.path, error);
    if (status.type() == fs::file_type::not_found) {
        return fails(TuningState::kMissing, "");
    }
    if (error || !fs::is_regular_file(status)) {
        return fails(TuningState::kUnreadable, error ? error.message() : "it is not a file");
    }
    std::ifstream file(database.path, std::ios::binary | std::ios::ate);
    if (!file) {
        return fails(TuningState::kUnreadable, std::strerror(errno));
    }
    const std::streamoff bytes = file.tellg();
    if (bytes > kMostBytes) {
        return fails(TuningState::kIgnored, "it has more than 16 MiB");
    }
    text.resize(static_cast<size_t>(std::max<std::streamoff>(bytes, 0)));
    file.seekg(0);
    return (bytes >= 0 && file.read(text.data(), bytes)) ||
           fails(TuningState::kUnreadable, "it ends before its " + std::to_string(bytes) + " bytes");
}

void read(TuningDatabase &database) {
    std::string text;
    if (!read_text(database, text)) {
        return;
    }
    // As the tuner tells its own files, which it replaces, from others that somebody named.
    database.is_foreign = database.is_named && !text.empty() && text.find("\"hattn-tuning\"") == std::string::npos;
    try {
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
    case TuningState::kUnreadable:
        return "unreadable";
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
    if (state == TuningState::kUnreadable) {
        return "tuning database " + path + " cannot be read: " + why_ignored;
    }
    const char *remedy = is_foreign ? "; hattn tune leaves it alone" : "; hattn tune makes a new one";
    return state == TuningState::kIgnored ? "tuning database " + path + " is ignored: " + why_ignored + remedy : "";
}

std::shared_ptr<const TuningDatabase> open_tuning_database(const char *given) {
    auto database = std::make_shared<TuningDatabase>();
    std::string wanted = given ? given : "";
    wanted = wanted.empty() ? variable("HATTN_TUNING") : wanted;
    if (wanted == "none" || wanted == "rule") {
        database->use_shipped = wanted == "none";
        return database;
    }
    database->is_named = !wanted.empty();
    database->path = database->is_named ? wanted : default_path();
    if (!database->path.empty()) {
        read(*database);
    }
    return database;
}

}  // namespace hattn

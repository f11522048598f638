// Where tunings come from: this machine's file, and those the library is built with.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tuning.h"

namespace hattn {

enum class TuningState {
    kOff,      // no file is wanted
    kMissing,  // there is no file yet
    kInUse,
    kUnreadable,  // there is something that cannot be opened or read
    kIgnored,     // damaged, of another version, or of another machine
};
const char *tuning_state_name(TuningState state);

struct TuningDatabase {
    std::string path;  // empty if kOff
    TuningState state = TuningState::kOff;
    std::string why_ignored;  // or cannot be read
    bool is_named = false;    // by a caller or the environment
    bool is_foreign = false;  // it is named, and never was a database
    TuningTable machine;
    std::vector<std::string> packs;  // paths of the kernel packs that come with the file
    bool use_shipped = true;

    // Those of the architecture, made by the same tool.
    const TuningTable &shipped() const;
    // A sentence if a file is ignored or cannot be read, else empty.
    std::string warning() const;
};

// given: a path, "none" for no file, "rule" for no tunings at all, or null or empty: $HATTN_TUNING, which may be the
// same, then tuning-MACHINE.json in the user's cache directory, which machines may share. Whatever is wrong with a
// file, it is ignored.
std::shared_ptr<const TuningDatabase> open_tuning_database(const char *given);

}  // namespace hattn

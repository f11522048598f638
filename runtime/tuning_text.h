// Reads tuning databases; the schema is in docs/tuning.md.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "machine_stamp.h"
#include "tuning.h"

namespace hattn {

inline constexpr int kTuningVersion = 1;  // of the schema

// Why a text is not used: one phrase that goes after "ignored: ".
class TuningError : public std::exception {
public:
    explicit TuningError(std::string why) : why_(std::move(why)) {}
    const char *what() const noexcept override {
        return why_.c_str();
    }

private:
    std::string why_;
};

struct TuningText {
    std::vector<TuningEntry> entries;
    std::vector<std::string> packs;  // names of kernel packs, of which entries may name tiles, beside the file
};

// All of the text, or TuningError: saved tunings are taken whole or not at all. With `stamp`, the text's has to be the
// same. What entries for devices are for is not looked at: the machine may have had another one.
TuningText parse_tuning(std::string text, const MachineStamp *stamp);

}  // namespace hattn

// Tuning databases for tests: files with entries, and contexts that use them.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "handles.h"

namespace hattn::test {

// A file in the temporary directory, gone with the object.
class TuningFile {
public:
    explicit TuningFile(const std::string &text);
    explicit TuningFile(const nlohmann::json &document);
    ~TuningFile();
    TuningFile(const TuningFile &) = delete;
    TuningFile &operator=(const TuningFile &) = delete;
    const std::string &path() const {
        return path_;
    }

private:
    std::string path_;
};

// With the stamp of this machine.
nlohmann::json tuning_document(const std::vector<nlohmann::json> &entries);

// What the plan's class is in a database, with that choice.
nlohmann::json tuning_entry(const nlohmann::json &plan_class, const nlohmann::json &choice, bool invariant = false);

ContextPtr context_with_tuning(const std::string &database, int32_t threads = 2);

}  // namespace hattn::test

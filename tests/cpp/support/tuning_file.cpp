#include "tuning_file.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "json_text.h"

namespace hattn::test {

TuningFile::TuningFile(const std::string &text)
    : path_((std::filesystem::temp_directory_path() / "hattn-test-XXXXXX").string()) {
    close(mkstemp(path_.data()));
    std::ofstream(path_) << text;
}

TuningFile::TuningFile(const nlohmann::json &document) : TuningFile(document.dump()) {
}

TuningFile::~TuningFile() {
    std::filesystem::remove(path_);
}

nlohmann::json tuning_document(const std::vector<nlohmann::json> &entries) {
    ContextPtr context = make_context();
    return {{"format", "hattn-tuning"},
            {"version", 1},
            {"stamp", info_of(context.get()).at("tuning_database").at("stamp")},
            {"entries", entries}};
}

nlohmann::json tuning_entry(const nlohmann::json &plan_class, const nlohmann::json &choice, bool invariant) {
    return {{"class", plan_class}, {"choice", choice}, {"gain", 1.5}, {"invariant", invariant}};
}

ContextPtr context_with_tuning(const std::string &database, int32_t threads) {
    hattn_context_desc desc = HATTN_CONTEXT_DESC_INIT;
    desc.threads = threads;
    desc.tuning_database = database.c_str();
    return new_context("", &desc).context;
}

}  // namespace hattn::test

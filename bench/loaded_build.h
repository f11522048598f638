// A build of the library as a shared object, beside others in one process.
#pragma once

#include <memory>
#include <string>

#include "hattn/hattn.h"

namespace hattn::bench {

class LoadedBuild {
public:
    // path: of the shared object, of which a copy is loaded, so that the same may be loaded twice. packs, force: what
    // HATTN_PACKS and HATTN_FORCE are for its context. threads: 0 for one per core. Throws std::runtime_error where it
    // is none, or refuses.
    LoadedBuild(const std::string &path, const std::string &packs, const std::string &force, int threads);
    ~LoadedBuild();
    LoadedBuild(const LoadedBuild &) = delete;
    LoadedBuild &operator=(const LoadedBuild &) = delete;

    // In place of the plan before. Throws std::runtime_error with the library's own words.
    void plan(const hattn_attention_desc &desc);
    size_t workspace_size() const;
    void execute(const hattn_attention_args &args) const;
    std::string kernel() const;  // of the plan: its name

    const std::string &name() const {  // of the file, its packs, and what is forced
        return name_;
    }

private:
    struct Functions;

    void require(hattn_status status) const;

    std::string name_;
    std::unique_ptr<Functions> functions_;
    hattn_context *context_ = nullptr;
    hattn_plan *plan_ = nullptr;
};

}  // namespace hattn::bench

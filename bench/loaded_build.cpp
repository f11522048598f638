#include "loaded_build.h"

#include <dlfcn.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/worker_pool.h"
#include "scoped_variable.h"

namespace hattn::bench {

namespace {

namespace fs = std::filesystem;

// Loads a copy: of a file that is loaded already the loader gives what is there.
void *load(const std::string &path) {
    std::string copy = (fs::temp_directory_path() / "hattn-build-XXXXXX").string();
    const int file = mkstemp(copy.data());
    if (file < 0) {
        throw std::runtime_error(copy + ": cannot be made");
    }
    close(file);
    std::error_code error;
    fs::copy_file(path, copy, fs::copy_options::overwrite_existing, error);
    void *handle = error ? nullptr : dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
    const std::string why = error ? error.message() : handle ? "" : dlerror();
    fs::remove(copy);
    if (!handle) {
        throw std::runtime_error(path + ": " + why);
    }
    return handle;
}

// All builds compute on the same threads: those of one would look for work while another computes.
void run_on_threads(void *, int32_t count, void (*task)(void *closure, int32_t index), void *closure) {
    run_on_workers(count, task, closure);
}

}  // namespace

// Those of hattn.h that are called here, as one build has them.
struct LoadedBuild::Functions {
    explicit Functions(const std::string &file) : path(file), handle(load(file)) {
        find(context_create, "hattn_context_create");
        find(context_destroy, "hattn_context_destroy");
        find(last_error, "hattn_last_error");
        find(plan_create, "hattn_plan_create");
        find(plan_destroy, "hattn_plan_destroy");
        find(plan_workspace_size, "hattn_plan_workspace_size");
        find(plan_execute, "hattn_plan_execute");
        find(plan_explain, "hattn_plan_explain");
    }

    template<typename Function>
    void find(Function *&function, const char *name) {
        function = reinterpret_cast<Function *>(dlsym(handle, name));
        if (!function) {
            throw std::runtime_error(path + ": has no " + name + "()");
        }
    }

    std::string path;
    void *handle;  // never closed: threads of the build may be in it
    decltype(hattn_context_create) *context_create = nullptr;
    decltype(hattn_context_destroy) *context_destroy = nullptr;
    decltype(hattn_last_error) *last_error = nullptr;
    decltype(hattn_plan_create) *plan_create = nullptr;
    decltype(hattn_plan_destroy) *plan_destroy = nullptr;
    decltype(hattn_plan_workspace_size) *plan_workspace_size = nullptr;
    decltype(hattn_plan_execute) *plan_execute = nullptr;
    decltype(hattn_plan_explain) *plan_explain = nullptr;
};

LoadedBuild::LoadedBuild(const std::string &path, const std::string &packs, const std::string &force, int threads)
    : name_(fs::path(path).filename().string() + (packs.empty() ? "" : "+" + packs) +
            (force.empty() ? "" : "@" + force)),
      functions_(std::make_unique<Functions>(path)) {
    hattn_context_desc desc = HATTN_CONTEXT_DESC_INIT;
    desc.threads = threads;
    desc.parallel_for = run_on_threads;
    const cases::ScopedVariable with_force("HATTN_FORCE", force), with_packs("HATTN_PACKS", packs);
    require(functions_->context_create(&desc, &context_));
}

LoadedBuild::~LoadedBuild() {
    functions_->plan_destroy(plan_);
    functions_->context_destroy(context_);
}

void LoadedBuild::plan(const hattn_attention_desc &desc) {
    functions_->plan_destroy(plan_);
    plan_ = nullptr;
    require(functions_->plan_create(context_, &desc, &plan_));
}

size_t LoadedBuild::workspace_size() const {
    size_t bytes = 0;
    require(functions_->plan_workspace_size(plan_, &bytes));
    return bytes;
}

void LoadedBuild::execute(const hattn_attention_args &args) const {
    require(functions_->plan_execute(plan_, &args));
}

std::string LoadedBuild::kernel() const {
    size_t size = 0;
    functions_->plan_explain(plan_, nullptr, 0, &size);
    std::vector<char> text(size + 1);
    require(functions_->plan_explain(plan_, text.data(), text.size(), &size));
    return nlohmann::json::parse(text.data()).at("kernel").get<std::string>();
}

void LoadedBuild::require(hattn_status status) const {
    if (status != HATTN_OK) {
        throw std::runtime_error(name_ + ": " + functions_->last_error(context_));
    }
}

}  // namespace hattn::bench

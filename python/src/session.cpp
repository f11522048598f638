#include "session.h"

#include <cstring>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include <nanobind/nanobind.h>

#include "array.h"
#include "openmp_threads.h"
#include "released_gil.h"

namespace hattn_python {
namespace {

namespace nb = nanobind;

constexpr size_t kPlans = 16;               // per thread; a decoder needs one for prefill and one for decode
constexpr size_t kWorkspaceAlignment = 64;  // bytes, asked for by hattn.h
constexpr size_t kKeptWorkspace = size_t{64} * 1024 * 1024;  // bytes; a larger one (score matrices) is given back

PyObject *exception_type(hattn_status status) {
    switch (status) {
    case HATTN_NOT_SUPPORTED:
        return PyExc_NotImplementedError;
    case HATTN_OUT_OF_MEMORY:
        return PyExc_MemoryError;
    case HATTN_INVALID_ARGUMENT:
    case HATTN_CAPACITY_EXCEEDED:
    case HATTN_OVERFLOW:
        return PyExc_ValueError;
    default:
        return PyExc_RuntimeError;
    }
}

// What contexts depend on when they are made.
std::string environment() {
    std::string text(openmp_parallel_for().run ? "OpenMP\n" : "");
    for (const char *name : {"HATTN_FORCE", "HATTN_PACKS", "HATTN_TUNING"}) {
        const char *value = std::getenv(name);
        text += value ? std::string("=") + value : std::string("-");
        text += '\n';
    }
    return text;
}

// Bytes, not values: scale may be NaN. Differing padding would only cost a plan.
bool same(const hattn_attention_desc &a, const hattn_attention_desc &b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
}

// Names of the library's that are others in Python, some with what follows them.
constexpr std::pair<std::string_view, std::string_view> kPythonNames[] = {
    {"causal_offsets", "causal_offset"},
    {"count: is", "outs: the number of states is"},
    {"device_id", "device"},
    {"from", "source"},
    {"key_dim", "head_dim"},
    {"key_dim and value_dim: the larger is", "head_dim and value_dim: the larger is"},
    {"query_heads: is", "q: extent[1] (query heads) is"},
    {"rope.positions", "positions"},
    {"rope.rotary_dim", "rope.dim"},
    {"scores", "return_scores"},
    {"to", "target"},
    {"window_left", "window[0]"},
    {"window_right", "window[1]"},
};

// Of extents that attention() takes from its arrays.
constexpr std::pair<std::string_view, std::string_view> kExtents[] = {
    {"key_dim: is", "q: extent[3] (head dimension) is"},
    {"key_dim and value_dim: the larger is", "q and v: the larger head dimension is"},
    {"kv_heads: is", "k: extent[1] (kv heads) is"},
    {"kv_length: is", "k: extent[2] (kv length) is"},
    {"query_length: is", "q: extent[2] (query length) is"},
    {"value_dim: is", "v: extent[3] (head dimension) is"},
};

// What sizes of a plan are in Python, where arrays of the call decide about it, and a cache about its keys.
constexpr std::pair<std::string_view, std::string_view> kPlanned[] = {
    {"the plan's query_heads", "the number of heads of q"}, {"the plan's query_length", "the query length of q"},
    {"the plan's kv_heads", "the number of heads of k"},    {"the plan's kv_length", "the kv length of k"},
    {"the plan's key_dim", "the head dimension of q"},      {"the plan's value_dim", "the head dimension of v"},
};
constexpr std::pair<std::string_view, std::string_view> kPlannedByCache[] = {
    {"the plan's key_dim", "the cache's head_dim"},
    {"the plan's value_dim", "the cache's value_dim"},
    {"the plan's kv_length", "the cache's capacity"},
};

// What Python says otherwise than C: None for nothing given, names for numbers.
constexpr std::pair<std::string_view, std::string_view> kWords[] = {
    {": data is given, but", ": is given, but"},
    {": data is null, but", ": is None, but"},
    {": is null, but", ": is None, but"},
    {"device: is 1 (opencl)", "device: is opencl"},
    {"device: is 2 (cuda)", "device: is cuda"},
    {"must be from 0 (the context's) to", "must be None, or from 1 to"},
    {"keys, or 0 for none", "keys, or None"},
    {"it must be 0 (none)", "it must be None"},
    {"only 0 (none) is supported", "only None is supported"},
    {"must be 0 without pages, page_size being 0", "must be None without pages, page_size being None"},
    {"or 0 for all of it", "or None for all of it"},
    {"is 0, for all of the head,", "is None, for all of the head,"},
};

using Names = std::span<const std::pair<std::string_view, std::string_view>>;

// A message, with the argument that it starts with under its name in Python.
std::string in_python(std::string_view message, Names names) {
    for (const auto &[name, python_name] : names) {
        const std::string_view rest = message.starts_with(name) ? message.substr(name.size()) : std::string_view();
        if (!rest.empty() && (rest.front() == ':' || rest.front() == '[' || name.find(':') != name.npos))
            return std::string(python_name).append(rest);
    }
    return std::string(message);
}

// A message, with what it compares an argument to under its name in Python.
std::string replaced(std::string message, Names names) {
    for (const auto &[name, python_name] : names) {
        if (const size_t at = message.find(name); at != message.npos)
            return message.replace(at, name.size(), python_name);
    }
    return message;
}

[[noreturn]] void raise_status(hattn_status status, const std::string &message) {
    raise(exception_type(status),
          message.empty() ? hattn_status_name(status) : in_python(replaced(message, kWords), kPythonNames));
}

}  // namespace

void check(hattn_status status, const hattn_context *context) {
    if (status != HATTN_OK)
        raise_status(status, hattn_last_error(context));
}

void check_call(hattn_status status, const hattn_context *context, bool of_cache, const char *batch) {
    if (status == HATTN_OK)
        return;
    const std::pair<std::string_view, std::string_view> planned_batch[] = {{"the plan's batch", batch}};
    std::string message = replaced(hattn_last_error(context), planned_batch);
    message = of_cache ? replaced(message, kPlannedByCache) : in_python(message, kExtents);
    raise_status(status, replaced(message, kPlanned));
}

ContextPointer make_context() {
    hattn_context_desc desc = HATTN_CONTEXT_DESC_INIT;
    const ParallelFor threads = openmp_parallel_for();
    desc.parallel_for = threads.run;
    desc.parallel_for_user = threads.user;
    hattn_context *context = nullptr;
    check(hattn_context_create(&desc, &context), nullptr);
    return ContextPointer(context);
}

std::string query_text(const hattn_context *context,
                       const std::function<hattn_status(char *, size_t, size_t *)> &query) {
    size_t size = 0;
    if (const hattn_status status = query(nullptr, 0, &size); status != HATTN_CAPACITY_EXCEEDED)
        check(status, context);
    std::string text(size, '\0');
    check(query(text.data(), text.size(), &size), context);
    text.resize(std::strlen(text.c_str()));
    return text;
}

namespace {

// Once per sentence and process, whatever the filters for warnings are. To warn runs code of Python's, which lets other
// threads go on, and which may come back here: without the lock.
void warn_once(const std::string &sentence) {
    static std::mutex mutex;
    static std::set<std::string> given;
    bool is_new = false;
    if (!sentence.empty()) {
        const std::lock_guard<std::mutex> lock(mutex);
        is_new = given.insert(sentence).second;
    }
    if (is_new && PyErr_WarnEx(PyExc_RuntimeWarning, sentence.c_str(), 1) != 0)
        throw nb::python_error();
}

}  // namespace

Session::Session() : environment_(environment()), context_(make_context()) {
    warn_once(hattn_context_warning(context_.get()));
}

std::shared_ptr<Session> Session::current() {
    thread_local std::shared_ptr<Session> session;
    if (!session || session->environment_ != environment()) {
        session.reset();
        session.reset(new Session);
    }
    return session;
}

PlanPointer Session::plan(const hattn_attention_desc &desc, bool of_cache) {
    for (auto entry = plans_.begin(); entry != plans_.end(); ++entry) {
        if (!same(entry->desc, desc))
            continue;
        plans_.splice(plans_.begin(), plans_, entry);
        return plans_.front().plan;
    }
    hattn_plan *made = nullptr;
    check_call(hattn_plan_create(context(), &desc, &made), context(), of_cache);
    PlanPointer plan(made, PlanDeleter());
    plans_.push_front({desc, plan});
    if (plans_.size() > kPlans)
        plans_.pop_back();
    return plan;
}

void *Session::workspace(size_t bytes) {
    if (bytes <= workspace_size_)
        return workspace_.get();
    workspace_.reset();
    workspace_size_ = 0;
    if (bytes > SIZE_MAX - kWorkspaceAlignment)
        throw std::bad_alloc();
    const size_t rounded = (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
    workspace_.reset(std::aligned_alloc(kWorkspaceAlignment, rounded));
    if (!workspace_)
        throw std::bad_alloc();
    workspace_size_ = rounded;
    return workspace_.get();
}

hattn_status Session::execute(const hattn_plan *plan, hattn_attention_args args) {
    size_t bytes = 0;
    if (const hattn_status status = hattn_plan_workspace_size(plan, &bytes); status != HATTN_OK)
        return status;
    args.workspace = workspace(bytes);
    args.workspace_size = workspace_size_;
    hattn_status status = HATTN_OK;
    {
        const ReleasedGil released;
        status = hattn_plan_execute(plan, &args);
    }
    if (workspace_size_ > kKeptWorkspace) {
        workspace_.reset();
        workspace_size_ = 0;
    }
    return status;
}

}  // namespace hattn_python

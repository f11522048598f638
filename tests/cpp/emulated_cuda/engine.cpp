// The emulator behind the driver of ../stub_cuda. $HATTN_EMULATED_CUDA_WITHOUT_BARRIER=n leaves the n-th barrier of
// every kernel out, counted from 1 through its text, and $HATTN_EMULATED_CUDA_WITHOUT_WAIT=n the n-th wait for copies,
// for tests that are to notice.
#include "stub_cuda/engine.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "decode.h"
#include "fault.h"
#include "launch.h"

namespace hattn::stub_cuda {

namespace {

using namespace emulated_cuda;

using Module = std::map<std::string, Program>;

// What lives as long as the process is never destroyed: the library gives memory back when the program ends.
Allocations &allocations() {
    static Allocations &all = *new Allocations;
    return all;
}

// Several threads may use a device; here they take turns.
std::mutex &mutex() {
    static std::mutex &one = *new std::mutex;
    return one;
}

int number_in(const char *variable) {
    const char *value = std::getenv(variable);
    return value ? std::atoi(value) : 0;
}

LeftOut left_out() {
    return {number_in("HATTN_EMULATED_CUDA_WITHOUT_BARRIER"), number_in("HATTN_EMULATED_CUDA_WITHOUT_WAIT")};
}

}  // namespace

int load_module(void **module, const char *image) try {
    static auto &modules = *new std::vector<std::unique_ptr<Module>>;
    auto programs = std::make_unique<Module>();
    for (const PtxEntry &entry : parse_ptx(image)) {
        (*programs)[entry.name] = decode(entry);
    }
    if (programs->empty()) {
        return kNoBinary;  // what is compiled already has no PTX
    }
    const std::lock_guard lock(mutex());
    modules.push_back(std::move(programs));
    *module = modules.back().get();
    return 0;
} catch (const Fault &fault) {
    std::fprintf(stderr, "emulated CUDA: %s\n", fault.what());
    return fault.result;
}

int find_kernel(void **kernel, void *module, const char *name) {
    auto &programs = *static_cast<Module *>(module);
    const auto found = programs.find(name);
    if (found == programs.end()) {
        return kNotFound;
    }
    *kernel = &found->second;
    return 0;
}

uint64_t allocate(size_t bytes) {
    const std::lock_guard lock(mutex());
    return allocations().allocate(bytes);
}

void release(uint64_t address) {
    const std::lock_guard lock(mutex());
    allocations().free(address);
}

int launch(void *kernel, const LaunchSizes &sizes, void **arguments, std::string &message) try {
    const std::lock_guard lock(mutex());
    const auto &[blocks, threads, shared_bytes] = sizes;
    emulated_cuda::launch(*static_cast<const Program *>(kernel),
                          {{blocks[0], blocks[1], blocks[2]}, {threads[0], threads[1], threads[2]}, shared_bytes},
                          arguments, allocations(), left_out());
    return 0;
} catch (const Fault &fault) {
    message = fault.what();
    return fault.result;
}

}  // namespace hattn::stub_cuda

#include "kernel_pack.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#if __has_include(<dlfcn.h>)
#include <dlfcn.h>
#define HATTN_HAS_DLOPEN 1
#endif

#include "context.h"
#include "kernel_registry.h"
#include "pack_file.h"
#include "pack_kernels.h"
#include "status.h"

namespace hattn {

namespace {

using nlohmann::json;

template<typename... Parts>
[[noreturn]] void refuse(hattn_status status, const std::string &path, const Parts &...parts) {
    fail(status, "kernel pack ", path, ": ", parts...);
}

#ifdef HATTN_HAS_DLOPEN
// for_good: it is never unloaded. Drivers are given code of kernels for devices, and what has been loaded is found
// again by its address.
std::shared_ptr<void> open_library(const std::string &path, bool for_good) {
    // A name without a slash would be searched for in the system's folders.
    const int flags = RTLD_NOW | RTLD_LOCAL | (for_good ? RTLD_NODELETE : 0);
    void *library = dlopen(std::filesystem::absolute(path).c_str(), flags);
    if (!library) {
        const char *error = dlerror();
        refuse(HATTN_INVALID_ARGUMENT, path, error ? error : "cannot be loaded");
    }
    return {library, dlclose};
}

void *symbol_of(const std::string &path, void *library, const std::string &symbol) {
    void *address = dlsym(library, symbol.c_str());
    if (!address) {
        refuse(HATTN_INVALID_ARGUMENT, path, "symbol ", symbol, " is missing");
    }
    return address;
}
#else
std::shared_ptr<void> open_library(const std::string &path, bool) {
    refuse(HATTN_NOT_SUPPORTED, path, "this system has no dlopen, so that packs cannot be loaded");
}

void *symbol_of(const std::string &, void *, const std::string &) {
    return nullptr;
}
#endif

void check_stamp(const std::string &path, const json &text) {
    const std::string library = text.at("library"), contract = text.at("contract");
    if (library != hattn_version()) {
        refuse(HATTN_NOT_SUPPORTED, path, "is for hattn ", library, ", but this is ", hattn_version());
    }
    const std::string own = hash_text(kernel_table().contract);
    if (contract != own) {
        refuse(HATTN_NOT_SUPPORTED, path, "its kernels have the calling contract ", contract,
               ", but this library's is ", own);
    }
}

template<typename Kernel>
void find_functions(const std::string &path, void *library, const json &rows, std::vector<Kernel> &kernels) {
    for (size_t i = 0; i < kernels.size(); ++i) {
        kernels[i].function = reinterpret_cast<int (*)(void **)>(symbol_of(path, library, rows[i].at("symbol")));
    }
}

}  // namespace

std::shared_ptr<const KernelPack> KernelPack::load(const std::string &path) {
    const std::shared_ptr<KernelPack> pack(new KernelPack);
    pack->path_ = path;
    const std::string content = read_pack_text(path);
    try {
        const json text = json::parse(content);
        check_stamp(path, text);
        const json &rows = text.at("kernels"), &device_rows = text.at("device_kernels");
        for (const json &row : rows) {
            pack->kernels_.push_back(read_kernel(path, row, pack->strings_));
        }
        for (const json &row : device_rows) {
            pack->device_kernels_.push_back(read_device_kernel(path, row, pack->strings_));
        }
        pack->library_ = open_library(path, !device_rows.empty());
        // The loader gives the library it has if one of that path is in use, whatever the file is by now.
        const auto *id = static_cast<const uint64_t *>(symbol_of(path, pack->library_.get(), kPackIdSymbol));
        if (text.at("id") != hash_text(*id)) {
            refuse(HATTN_NOT_SUPPORTED, path, "an earlier file of this name (", hash_text(*id), ") is in use, this is ",
                   std::string(text.at("id")));
        }
        find_functions(path, pack->library_.get(), rows, pack->kernels_);
        find_functions(path, pack->library_.get(), device_rows, pack->device_kernels_);
    } catch (const json::exception &error) {
        refuse(HATTN_INVALID_ARGUMENT, path, error.what());
    }
    return pack;
}

void KernelPacks::load(const std::string &path) {
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) {
        load_folder(path);
    } else {
        packs_.push_back(KernelPack::load(path));
    }
}

void KernelPacks::load_folder(const std::string &path) {
    std::vector<std::string> files;
    std::error_code error, ignored;
    for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
        if (entry->path().extension() == ".so" && !entry->is_directory(ignored)) {
            files.push_back(entry->path().string());
        }
    }
    if (error) {
        refuse(HATTN_INVALID_ARGUMENT, path, error.message());
    }
    std::sort(files.begin(), files.end());
    for (const std::string &file : files) {
        try {
            packs_.push_back(KernelPack::load(file));
        } catch (const StatusError &unfit) {
            warnings_.push_back(std::string("ignored ") + unfit.what());
        }
    }
}

void KernelPacks::load_list(const char *paths) {
    std::istringstream list(paths ? paths : "");
    for (std::string path; std::getline(list, path, ':');) {
        if (path.empty()) {
            continue;
        }
        try {
            load(path);
        } catch (const StatusError &error) {
            fail(error.status(), "HATTN_PACKS: ", error.what());
        }
    }
}

namespace {

template<typename Kernel>
const Kernel *find_named(std::span<const Kernel> kernels, std::string_view name) {
    const auto found = std::ranges::find_if(kernels, [&](const Kernel &kernel) { return kernel.name == name; });
    return found == kernels.end() ? nullptr : &*found;
}

template<typename Kernel>
bool holds(std::span<const Kernel> kernels, const Kernel *kernel) {
    return std::ranges::any_of(kernels, [&](const Kernel &own) { return &own == kernel; });
}

}  // namespace

const KernelInfo *KernelPacks::find_kernel(std::string_view name) const {
    for (const auto &pack : packs_) {
        if (const KernelInfo *kernel = find_named(pack->kernels(), name)) {
            return kernel;
        }
    }
    return nullptr;
}

const DeviceKernelInfo *KernelPacks::find_device_kernel(std::string_view name) const {
    for (const auto &pack : packs_) {
        if (const DeviceKernelInfo *kernel = find_named(pack->device_kernels(), name)) {
            return kernel;
        }
    }
    return nullptr;
}

const KernelPack *KernelPacks::pack_of(const KernelInfo *kernel) const {
    const auto found = std::ranges::find_if(packs_, [&](const auto &pack) { return holds(pack->kernels(), kernel); });
    return found == packs_.end() ? nullptr : found->get();
}

const KernelPack *KernelPacks::pack_of(const DeviceKernelInfo *kernel) const {
    const auto found =
        std::ranges::find_if(packs_, [&](const auto &pack) { return holds(pack->device_kernels(), kernel); });
    return found == packs_.end() ? nullptr : found->get();
}

const KernelInfo *find_kernel(std::string_view name, const KernelPacks &packs) {
    const KernelInfo *kernel = find_kernel(name);
    return kernel ? kernel : packs.find_kernel(name);
}

const DeviceKernelInfo *find_device_kernel(std::string_view name, const KernelPacks &packs) {
    const DeviceKernelInfo *kernel = find_named(device_table().kernels, name);
    return kernel ? kernel : packs.find_device_kernel(name);
}

}  // namespace hattn

hattn_status hattn_context_load_kernels(hattn_context *context, const char *path) {
    using namespace hattn;
    return guarded([&] {
        require(context, HATTN_INVALID_ARGUMENT, "context: is null");
        require(path, HATTN_INVALID_ARGUMENT, "path: is null");
        require(*path, HATTN_INVALID_ARGUMENT, "path: is empty");
        context->packs.load(path);
    });
}

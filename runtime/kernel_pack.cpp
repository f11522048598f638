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
#include "cpu_features.h"
#include "device/device_table.h"
#include "kernel_registry.h"
#include "pack_file.h"
#include "status.h"

namespace hattn {

namespace {

using nlohmann::json;

template<typename... Parts>
[[noreturn]] void refuse(hattn_status status, const std::string &path, const Parts &...parts) {
    fail(status, "kernel pack ", path, ": ", parts...);
}

#ifdef HATTN_HAS_DLOPEN
std::shared_ptr<void> open_library(const std::string &path) {
    // A name without a slash would be searched for in the system's folders.
    void *library = dlopen(std::filesystem::absolute(path).c_str(), RTLD_NOW | RTLD_LOCAL);
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
std::shared_ptr<void> open_library(const std::string &path) {
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

// All but the function.
KernelInfo read_kernel(const std::string &path, const json &row, const std::string &name, const std::string &needs) {
    const std::string target_name = row.at("target"), kind_name = row.at("kind");
    const TargetInfo *target = find_target(target_name);
    if (!target) {
        refuse(HATTN_NOT_SUPPORTED, path, "kernel ", name, " is for target '", target_name,
               "', which this library does not know");
    }
    if (!is_runnable(*target)) {
        refuse(HATTN_NOT_SUPPORTED, path, "kernel ", name, " needs ", target->cpu_features, ", which this CPU (",
               cpu_model(), ") lacks");
    }
    if (!cpu_has_features(needs.c_str())) {
        refuse(HATTN_NOT_SUPPORTED, path, "kernel ", name, " needs ", needs, ", which this CPU (", cpu_model(),
               ") lacks");
    }
    KernelInfo kernel{};
    kernel.name = name.c_str();
    kernel.target = target->name;
    if (!parse_kernel_kind(kind_name, &kernel.kind)) {
        refuse(HATTN_NOT_SUPPORTED, path, "kernel ", name, " is of unknown kind '", kind_name, "'");
    }
    if (!parse_storage(std::string(row.at("storage")), &kernel.storage)) {
        refuse(HATTN_NOT_SUPPORTED, path, "kernel ", name, " is for unknown storage '", std::string(row.at("storage")),
               "'");
    }
    kernel.cpu_features = needs.c_str();
    kernel.untested = row.at("untested");
    for (const std::string hook : row.at("hooks")) {
        const uint32_t bit = hook_bit(hook);
        if (!bit) {
            refuse(HATTN_NOT_SUPPORTED, path, "kernel ", name, " has unknown hook '", hook, "'");
        }
        kernel.hooks |= bit;
    }
    const json &tile = row.at("tile");
    kernel.tile = {tile.at(0), tile.at(1), tile.at(2), tile.at(3), tile.at(4)};
    return kernel;
}

}  // namespace

std::shared_ptr<const KernelPack> KernelPack::load(const std::string &path) {
    const std::shared_ptr<KernelPack> pack(new KernelPack);
    pack->path_ = path;
    const std::string content = read_pack_text(path);
    try {
        const json text = json::parse(content);
        check_stamp(path, text);
        const json &rows = text.at("kernels");
        for (const json &row : rows) {
            pack->names_.push_back(row.at("name"));
            pack->needs_.push_back(row.at("needs"));
        }
        for (size_t i = 0; i < rows.size(); ++i) {
            pack->kernels_.push_back(read_kernel(path, rows[i], pack->names_[i], pack->needs_[i]));
        }
        pack->library_ = open_library(path);
        // The loader gives the library it has if one of that path is in use, whatever the file is by now.
        const auto *id = static_cast<const uint64_t *>(symbol_of(path, pack->library_.get(), kPackIdSymbol));
        if (text.at("id") != hash_text(*id)) {
            refuse(HATTN_NOT_SUPPORTED, path, "an earlier file of this name (", hash_text(*id), ") is in use, this is ",
                   std::string(text.at("id")));
        }
        for (size_t i = 0; i < rows.size(); ++i) {
            pack->kernels_[i].function =
                reinterpret_cast<int (*)(void **)>(symbol_of(path, pack->library_.get(), rows[i].at("symbol")));
        }
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
    std::error_code error;
    for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
        if (entry->path().extension() == ".so") {
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
        if (!path.empty()) {
            load(path);
        }
    }
}

const KernelInfo *KernelPacks::find_kernel(std::string_view name) const {
    for (const auto &pack : packs_) {
        for (const KernelInfo &kernel : pack->kernels()) {
            if (kernel.name == name) {
                return &kernel;
            }
        }
    }
    return nullptr;
}

const KernelPack *KernelPacks::pack_of(const KernelInfo *kernel) const {
    for (const auto &pack : packs_) {
        for (const KernelInfo &own : pack->kernels()) {
            if (&own == kernel) {
                return pack.get();
            }
        }
    }
    return nullptr;
}

const KernelInfo *find_kernel(std::string_view name, const KernelPacks &packs) {
    const KernelInfo *kernel = find_kernel(name);
    return kernel ? kernel : packs.find_kernel(name);
}

const DeviceKernelInfo *find_device_kernel(std::string_view name, const KernelPacks &) {
    for (const DeviceKernelInfo &kernel : device_table().kernels) {
        if (kernel.name == name) {
            return &kernel;
        }
    }
    return nullptr;
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

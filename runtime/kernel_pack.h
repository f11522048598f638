// Kernel packs: kernels compiled after the library, in a shared object that is loaded at run time. They are of the same
// make as those of the library and are told apart by their names alone.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/device_table.h"
#include "kernel_table.h"

namespace hattn {

// A loaded pack. Its kernels may be called for as long as it lives.
class KernelPack {
public:
    // Throws StatusError, with the path and what is wrong, unless the file is whole, was written for this library, and
    // this CPU can run all of its kernels.
    static std::shared_ptr<const KernelPack> load(const std::string &path);

    const std::string &path() const {
        return path_;
    }
    std::span<const KernelInfo> kernels() const {
        return kernels_;
    }
    std::span<const DeviceKernelInfo> device_kernels() const {
        return device_kernels_;
    }

private:
    KernelPack() = default;

    std::string path_;
    std::deque<std::string> strings_;  // what kernels point to
    std::vector<KernelInfo> kernels_;
    std::vector<DeviceKernelInfo> device_kernels_;
    std::shared_ptr<void> library_;
};

// The packs of a context, which the plans made from it share.
class KernelPacks {
public:
    // A pack, which must be sound, or a folder: of its files NAME.so those that are not are left out, with a sentence
    // in warnings() each.
    void load(const std::string &path);
    // The same for every path of a list with ':' between them, as in an environment variable; null: none.
    void load_list(const char *paths);

    const KernelInfo *find_kernel(std::string_view name) const;  // null if unknown
    const DeviceKernelInfo *find_device_kernel(std::string_view name) const;
    // Null: a kernel of the library.
    const KernelPack *pack_of(const KernelInfo *kernel) const;
    const KernelPack *pack_of(const DeviceKernelInfo *kernel) const;

    const std::vector<std::shared_ptr<const KernelPack>> &all() const {
        return packs_;
    }
    const std::vector<std::string> &warnings() const {
        return warnings_;
    }

private:
    void load_folder(const std::string &path);

    std::vector<std::shared_ptr<const KernelPack>> packs_;
    std::vector<std::string> warnings_;
};

// The library's kernel of a name, else that of a pack; null if unknown. The planner's own rules see the library's
// alone.
const KernelInfo *find_kernel(std::string_view name, const KernelPacks &packs);
const DeviceKernelInfo *find_device_kernel(std::string_view name, const KernelPacks &packs);

// The library's kernels of devices, then those of packs.
template<typename Visit>
void for_each_device_kernel(const KernelPacks &packs, Visit &&visit) {
    for (const DeviceKernelInfo &kernel : device_table().kernels) {
        visit(kernel);
    }
    for (const auto &pack : packs.all()) {
        for (const DeviceKernelInfo &kernel : pack->device_kernels()) {
            visit(kernel);
        }
    }
}

}  // namespace hattn

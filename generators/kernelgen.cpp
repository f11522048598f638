// hattn-kernelgen: compiles the kernels ahead of time. The build calls it; see usage.cpp for what it does.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <set>
#include <stdexcept>

#include "candidates.h"
#include "device_candidates.h"
#include "device_kernels.h"
#include "device_objects.h"
#include "device_table_writer.h"
#include "kernel_object.h"
#include "kernel_spec.h"
#include "kernel_table_writer.h"
#include "pack_writer.h"
#include "runtime/cpu_features.h"
#include "strict_reporter.h"
#include "usage.h"

namespace hattn::generators {

namespace {

using namespace Halide;
using schedules::Architecture;
using schedules::resolve_stand_in;
using schedules::resolve_target;
using schedules::TargetRow;

std::string widest_runnable_target(const Architecture &architecture) {
    std::string widest;
    for (const TargetRow &row : architecture.targets) {
        if (cpu_has_features(row.cpu_features)) {
            widest = row.name;
        }
    }
    if (widest.empty()) {
        throw std::runtime_error("this CPU runs none of the targets");
    }
    return widest;
}

const KernelFamily &family_of(const std::string &name) {
    const KernelFamily *family = find_family(name);
    if (!family) {
        throw std::invalid_argument("unknown kernel family '" + name + "'");
    }
    return *family;
}

const KernelFamily &family_with_candidates(const std::string &name) {
    const KernelFamily &family = family_of(name);
    if (family.storage != KeyStorage::kFloat32 || family.from_memory != FromMemory::kNo) {
        throw std::invalid_argument("kernel family '" + name + "' has no candidates, those over float32 have");
    }
    return family;
}

// All kernels of one family for one target, as one object file.
void write_object(const Architecture &architecture, const std::string &target_name, const std::string &family,
                  const std::string &path) {
    const TargetRow target = resolve_target(architecture, target_name);
    KernelObject object;
    for (const KernelSpec &spec : kernels_of(target, family_of(family))) {
        object.add(spec, target);
    }
    object.write(family + "_" + target_name, path);
}

// Assembly and lowered statement of one kernel, for reading and for the code generation tests.
void emit_kernel(const Architecture &architecture, const std::string &name, const std::string &directory) {
    if (const std::optional<NamedDeviceKernel> of_device = device_kernel_named(name)) {
        compile_kernel(of_device->spec, of_device->target)
            .compile({{OutputFileType::device_code, directory + "/" + name},
                      {OutputFileType::stmt, directory + "/" + name + ".stmt"}});
        return;
    }
    const NamedKernel kernel = kernel_named(architecture, name);
    emit_kernel(kernel.spec, kernel.target, directory);
}

// Words that start with @ name files that hold more of them.
std::vector<std::string> read_names(const std::vector<std::string> &words) {
    std::vector<std::string> names;
    for (const std::string &word : words) {
        if (!word.starts_with('@')) {
            names.push_back(word);
            continue;
        }
        std::ifstream file(word.substr(1));
        if (!file) {
            throw std::runtime_error("cannot read " + word.substr(1));
        }
        names.insert(names.end(), std::istream_iterator<std::string>(file), {});
    }
    return names;
}

// A line for each kernel that does not compile.
void print_left_out(const std::string &name, const std::string &why) {
    std::cout << "left out " << name << ": " << why.substr(0, why.find('\n')) << "\n";
}

PackedKernels kernels_named(const Architecture &architecture, const std::vector<std::string> &words,
                            bool must_be_legal) {
    PackedKernels kernels;
    std::set<std::string> names;
    for (const std::string &name : read_names(words)) {
        if (!names.insert(name).second) {
            throw std::invalid_argument("kernel '" + name + "' is named twice");
        }
        try {
            if (const std::optional<NamedDeviceKernel> of_device = device_kernel_named(name)) {
                kernels.of_devices.push_back(*of_device);
            } else {
                const NamedKernel kernel = kernel_named(architecture, name);
                if (kernel.spec.from_memory != FromMemory::kNo) {
                    throw std::invalid_argument("kernel '" + name +
                                                "': is for keys and values in memory, in place of "
                                                "one of the library's");
                }
                kernels.of_cpu.push_back(kernel);
            }
        } catch (const std::invalid_argument &error) {
            if (must_be_legal) {
                throw;
            }
            print_left_out(name, error.what());
        }
    }
    if (names.empty()) {
        throw std::invalid_argument("a pack of no kernels");
    }
    return kernels;
}

[[noreturn]] void refuse_pack(const std::string &name, const std::string &why) {
    throw std::runtime_error("kernel '" + name + "': " + why);
}

// Halide's runtime, for the CPU and for some devices.
void write_runtime(const Architecture &architecture, const std::string &path, const std::vector<std::string> &devices) {
    std::string target = architecture.halide_system;
    for (const std::string &device : devices) {
        target += "-" + device;
    }
    compile_standalone_runtime(path, Target(target));
}

template<typename Write>
void write_source(const std::string &path, Write write) {
    std::ofstream out(path);
    write(out);
    if (!out.flush()) {
        throw std::runtime_error("cannot write " + path);
    }
}

// Those of devices are launched by code for one architecture.
void list_kernels(const Architecture &architecture) {
    const auto print = [](const auto &spec, const auto &target) { std::cout << spec.name(target.name) << "\n"; };
    for_each_kernel(architecture, print);
    for_each_device_kernel([&](const DeviceKernelSpec &spec, const DeviceTarget &target) {
        if (Target(target.halide_target).arch == Target(architecture.halide_system).arch) {
            print(spec, target);
        }
    });
}

const DeviceTarget *device_named(const std::string &name) {
    const auto &devices = schedules::gpu::device_targets();
    const auto found = std::ranges::find_if(devices, [&](const DeviceTarget &device) { return device.name == name; });
    return found == devices.end() ? nullptr : &*found;
}

// Names, of kernels without hooks.
void list_candidates(const Architecture &architecture, const std::string &target_name, const std::string &family_name) {
    if (const DeviceTarget *device = device_named(target_name)) {
        for (const DeviceKernelSpec &spec : candidates(*device, family_of(family_name).kind)) {
            std::cout << spec.name(device->name) << "\n";
        }
        return;
    }
    const TargetRow target = resolve_target(architecture, target_name);
    const KernelFamily &family = family_with_candidates(family_name);
    for (const schedules::Tile &tile : candidates(target, family.kind)) {
        std::cout << KernelSpec{family.kind, family.storage, 0, tile}.name(target.name) << "\n";
    }
}

// What the tests verify beside the library's own kernels: all candidates without hooks, and one with all of them. If
// this CPU cannot run the target, kernels that stand in for them on the widest target it can.
void pack_candidates(const Architecture &architecture, const std::string &path, const std::string &target_name,
                     const std::string &family_name) {
    if (const DeviceTarget *device = device_named(target_name)) {
        write_pack({{}, sample_candidates(*device, family_of(family_name).kind)}, path, refuse_pack);
        return;
    }
    TargetRow target = resolve_target(architecture, target_name);
    const KernelFamily &family = family_with_candidates(family_name);
    HookMask all_hooks = 0;
    for (const KernelSpec &spec : kernels_of(target, family)) {
        all_hooks |= spec.hooks;
    }
    std::vector<schedules::Tile> tiles = candidates(target, family.kind);
    if (!cpu_has_features(target.cpu_features)) {
        target = resolve_stand_in(architecture, target_name, widest_runnable_target(architecture));
    } else {
        std::erase_if(tiles, [own = tiles_of(target, family)](const schedules::Tile &tile) {
            return std::ranges::find(own, tile) != own.end();
        });
    }
    std::vector<NamedKernel> kernels;
    for (size_t i = 0; i < tiles.size(); ++i) {
        kernels.push_back({{family.kind, family.storage, 0, tiles[i]}, target});
        if (i == tiles.size() / 2) {
            kernels.push_back({{family.kind, family.storage, all_hooks, tiles[i]}, target});
        }
    }
    write_pack({kernels, {}}, path, refuse_pack);
}

void run_command(const Architecture &architecture, const std::vector<std::string> &words) {
    const std::string &command = words[0];
    if (command == "object") {
        write_object(architecture, words[1], words[2], words[3]);
    } else if (command == "device-objects") {
        write_device_objects(words[1], family_of(words[2]).kind, words[3]);
    } else if (command == "table") {
        write_source(words[1], [&](std::ostream &out) { write_kernel_table(architecture, out); });
    } else if (command == "device-table") {
        write_source(words[1], [&](std::ostream &out) {
            write_device_table(out, words[2], {words.begin() + 3, words.end()});
        });
    } else if (command == "runtime") {
        write_runtime(architecture, words[1], {words.begin() + 2, words.end()});
    } else if (command == "emit") {
        emit_kernel(architecture, words[1], words[2]);
    } else if (command == "pack") {
        write_pack(kernels_named(architecture, {words.begin() + 2, words.end()}, true), words[1], refuse_pack);
    } else if (command == "try-pack") {
        write_pack(kernels_named(architecture, {words.begin() + 2, words.end()}, false), words[1], print_left_out);
    } else if (command == "candidates") {
        list_candidates(architecture, words[1], words[2]);
    } else if (command == "pack-candidates") {
        pack_candidates(architecture, words[1], words[2], words[3]);
    } else {
        list_kernels(architecture);
    }
}

int run(std::vector<std::string> words) {
    report_strictly();
    const bool named = words.size() > 1 && words[0] == "--architecture";
    const Architecture &architecture = named ? schedules::find_architecture(words[1]) : schedules::host_architecture();
    words.erase(words.begin(), words.begin() + (named ? 2 : 0));
    if (words.empty()) {
        print_usage(std::cerr);
        return 2;
    }
    if (words[0] == "--help" || words[0] == "-h") {
        print_usage(std::cout);
        return 0;
    }
    if (const std::string wrong = wrong_with(words); !wrong.empty()) {
        std::cerr << "hattn-kernelgen: " << wrong << "; without arguments it prints how it is used\n";
        return 2;
    }
    run_command(architecture, words);
    if (const std::string warning = take_warning(); !warning.empty()) {
        throw std::runtime_error(warning);
    }
    return 0;
}

}  // namespace

}  // namespace hattn::generators

int main(int argc, char **argv) {
    try {
        return hattn::generators::run({argv + 1, argv + argc});
    } catch (const std::exception &error) {
        std::cerr << "hattn-kernelgen: " << error.what() << "\n";
        return 1;
    }
}

#include "device_table_writer.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <map>
#include <stdexcept>

#include "device_kernels.h"
#include "device_objects.h"
#include "kernel_table_writer.h"

namespace hattn::generators {

namespace {

template<typename Visit>
void for_each_kernel_of(const std::vector<DeviceChoice> &devices, Visit visit) {
    for (const DeviceChoice &device : devices) {
        for (KernelKind kind : device_kinds()) {
            for (const DeviceKernelSpec &spec : kernels_of(device, kind)) {
                visit(spec, device.target);
            }
        }
    }
}

// By kernel, bytes of shared memory.
std::map<std::string, int64_t> read_launches(const std::string &folder, const std::vector<DeviceChoice> &devices) {
    std::map<std::string, int64_t> shared_bytes;
    for (const DeviceChoice &device : devices) {
        for (KernelKind kind : device_kinds()) {
            std::ifstream file(folder + "/" + device.target.name + "_" + kind_name(kind) + "/launches.txt");
            std::string name;
            for (int64_t threads, bytes; file >> name >> threads >> bytes;) {
                shared_bytes[name] = bytes;
            }
        }
    }
    return shared_bytes;
}

void write_kernels(std::ostream &out, const std::vector<DeviceChoice> &devices,
                   const std::map<std::string, int64_t> &shared_bytes) {
    for_each_kernel_of(devices, [&](const DeviceKernelSpec &spec, const DeviceTarget &target) {
        const auto &tile = spec.tile;
        const auto bytes = shared_bytes.find(spec.name(target.name));
        if (bytes == shared_bytes.end()) {
            throw std::runtime_error("kernel '" + spec.name(target.name) +
                                     "' has not been compiled: no launches.txt has it");
        }
        out << "    {\"" << spec.name(target.name) << "\", \"" << target.name << "\", " << kind_enumerator(spec.kind)
            << ", " << spec.hooks << ", {" << tile.rows << ", " << tile.keys << ", " << tile.head << ", " << tile.slices
            << ", " << tile.thread_rows << ", " << tile.warpgroups << "}, static_cast<hattn_dtype>(" << spec.matrix_type
            << "), " << spec.any_float() << ", " << bytes->second << ", " << spec.symbol(target.name) << "_argv, "
            << (has_fat_binaries(target) ? "hattn_fat_" + spec.name(target.name) : "nullptr") << "},\n";
    });
}

}  // namespace

void write_device_table(std::ostream &out, const std::string &folder, const std::vector<std::string> &device_words) {
    const std::vector<DeviceChoice> devices(device_words.begin(), device_words.end());
    out << "// Written by hattn-kernelgen.\n#include \"runtime/device/device_code.h\"\n#include "
           "\"runtime/device/device_table.h\"\n\nextern \"C\" {\n";
    for (const DeviceChoice &choice : devices) {
        out << "const struct halide_device_interface_t *halide_" << choice.target.name << "_device_interface(void);\n";
    }
    for_each_kernel_of(devices, [&](const DeviceKernelSpec &spec, const DeviceTarget &target) {
        out << "int " << spec.symbol(target.name) << "_argv(void **arguments);\n";
        if (has_fat_binaries(target)) {
            out << "extern const unsigned char hattn_fat_" << spec.name(target.name) << "[] __attribute__((weak));\n";
        }
    });
    out << "}\n\nnamespace hattn {\n\n"
           "const DeviceTable &device_table() {\n"
           "    // Ends of lists.\n"
           "    static const DeviceTargetInfo targets[] = {\n";
    for (const DeviceChoice &choice : devices) {
        const std::string name = choice.target.name;
        std::string device = "HATTN_" + name;
        std::transform(device.begin(), device.end(), device.begin(), [](unsigned char c) { return std::toupper(c); });
        out << "        {\"" << name << "\", " << device << ", halide_" << name << "_device_interface},\n";
    }
    out << "        {nullptr, HATTN_CPU, nullptr}};\n    static const DeviceKernelInfo kernels[] = {\n";
    write_kernels(out, devices, read_launches(folder, devices));
    out << "        {nullptr, nullptr, KernelKind::kMerge, 0, {}, HATTN_FLOAT32, false, 0, nullptr, nullptr}};\n"
           "    static const DeviceTable table = {{targets, std::size(targets) - 1}, {kernels, std::size(kernels) - "
           "1}, "
        << (devices.empty() ? "nullptr" : "unpack_device_code")
        << "};\n"
           "    return table;\n"
           "}\n\n}  // namespace hattn\n";
}

}  // namespace hattn::generators

#include "usage.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <ostream>

namespace hattn::generators {

namespace {

// How many arguments a command takes.
struct CommandRow {
    const char *name;
    size_t least, most;
};
constexpr size_t kAnyNumber = SIZE_MAX;
constexpr CommandRow kCommands[] = {
    {"object", 3, 3},
    {"device-objects", 3, 3},
    {"table", 1, 1},
    {"device-table", 2, kAnyNumber},
    {"runtime", 1, kAnyNumber},
    {"emit", 2, 2},
    {"list", 0, 0},
    {"candidates", 2, 2},
    {"pack", 2, kAnyNumber},
    {"try-pack", 2, kAnyNumber},
    {"pack-candidates", 3, 3},
};

}  // namespace

void print_usage(std::ostream &out) {
    out << R"(usage: hattn-kernelgen [--architecture NAME] COMMAND
The architecture is x86-64 or aarch64, by default that of this machine. Commands:
  object TARGET FAMILY FILE.o   compile the kernels of a family for a target
  device-objects DEVICE KIND FOLDER
                                compile the kernels of a kind for a device, an object each
  table FILE.cpp                write the table of all kernels
  device-table FILE.cpp FOLDER DEVICE...
                                write the table of the devices' kernels, whose objects are in FOLDER/DEVICE_KIND
  runtime FILE.o DEVICE...      write Halide's runtime: thread pool, devices
  emit KERNEL DIRECTORY         write code and lowered statement of one kernel
  list                          print every kernel's name
  candidates TARGET FAMILY      print the names of the kernels a tuner may choose from; TARGET may be a device
  pack FILE.so KERNEL...        compile kernels, by name, for loading at run time; @FILE: those named in a file. Needs
                                as and ld of binutils, or $HATTN_AS and $HATTN_LD
  try-pack FILE.so KERNEL...    likewise, without those that do not compile, of which it prints a line each
  pack-candidates FILE.so TARGET FAMILY
                                the pack that verifies a tuner's kernels on this CPU, if need be with the instructions
                                of another target; of a device, samples
)";
}

std::string wrong_with(const std::vector<std::string> &words) {
    const auto row = std::ranges::find_if(kCommands, [&](const CommandRow &known) { return words[0] == known.name; });
    if (row == std::end(kCommands)) {
        return "unknown command '" + words[0] + "'";
    }
    const size_t given = words.size() - 1;
    if (given >= row->least && given <= row->most) {
        return "";
    }
    std::string text = words[0] + ": takes " + (row->most == kAnyNumber ? "at least " : "") +
                       std::to_string(row->least) + " arguments, but got " + std::to_string(given);
    for (size_t i = 1; i < words.size(); ++i) {
        text += (i == 1 ? ": '" : " '") + words[i] + "'";
    }
    return text;
}

}  // namespace hattn::generators

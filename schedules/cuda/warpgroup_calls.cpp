#include "warpgroup_calls.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "ptx_lines.h"
#include "warpgroup_layout.h"

namespace hattn::schedules::cuda {

namespace {

constexpr int kStepDepth = 16, kTileColumns = 8, kTileElements = 4;

bool is_constant(const std::string &operand) {
    return !operand.empty() && std::isdigit(static_cast<unsigned char>(operand.front())) != 0;
}

int number(const std::string &operand) {
    if (!is_constant(operand)) {
        fail_at(operand + " is no constant");
    }
    return std::stoi(operand);
}

bool is_zero(const std::string &operand) {
    return operand == "0" || operand == "0f00000000";
}

// Of a group: letters, since numbers follow.
std::string accumulators(const std::string &group) {
    return "%sum" + std::string(1, static_cast<char>('a' + number(group)));
}

std::string accumulator(const std::string &group, int tile, int element) {
    return accumulators(group) + std::to_string(kTileElements * tile + element);
}

// Bytes from where an operand begins to where a step of the instruction does.
int bytes_along_rows(int step, int rows) {
    const int bytes = step * kStepDepth * 2;
    return bytes / kSwizzledRow * rows * kSwizzledRow + bytes % kSwizzledRow;
}

int bytes_along_columns(int step) {
    return step * kStepDepth * kSwizzledRow;
}

std::string list(const std::vector<std::string> &words) {
    std::string text;
    for (const std::string &word : words) {
        text += (text.empty() ? "" : ", ") + word;
    }
    return "{" + text + "}";
}

}  // namespace

void WarpgroupCode::take_sums(const Operands &operands) {
    const int tile = number(operands[1]);
    if (!sums_[operands[0]].emplace(tile, std::array{operands[2], operands[3], operands[4], operands[5]}).second) {
        fail_at("sums of a warpgroup are there twice: " + operands[0] + " " + operands[1]);
    }
}

bool WarpgroupCode::is_from_zero(const std::string &group) const {
    return std::ranges::all_of(sums_.at(group),
                               [](const auto &tile) { return std::ranges::all_of(tile.second, is_zero); });
}

bool WarpgroupCode::begins_in(const Operands &operands, size_t element, const std::string &name) const {
    const auto group = sums_.find(operands[0]);
    const int tile = number(operands[1]);
    return group != sums_.end() && group->second.count(tile) != 0 &&
           (is_from_zero(operands[0]) || group->second.at(tile)[element] == name);
}

std::string WarpgroupCode::place(const Operands &operands, size_t element, const std::string &name) {
    const int tile = number(operands[1]);
    std::string &place = places_[operands[0]][tile][element];
    const auto group = sums_.find(operands[0]);
    if (!place.empty() || group == sums_.end() || group->second.count(tile) == 0) {
        fail_at("a result of a warpgroup is there twice, or without sums: " + operands[0] + " " + operands[1]);
    }
    place = name.empty() ? accumulator(operands[0], tile, static_cast<int>(element)) : name;
    return place;
}

// None where a group begins with zeros, and of what is in its place.
std::string WarpgroupCode::sums(const Operands &operands) const {
    std::string text;
    if (!is_from_zero(operands[0])) {
        const Tile &places = places_.at(operands[0]).at(number(operands[1]));
        for (size_t i = 0; i < places.size(); ++i) {
            const std::string &value = operands[2 + i];
            text += places[i] == value ? "" : "mov.b32 " + places[i] + ", " + value + ";\n";
        }
    }
    return text;
}

std::string WarpgroupCode::in_units(const std::string &address, std::string &code) {
    if (is_constant(address)) {
        return address;
    }
    const std::string units = "%word" + std::to_string(words_++);
    code += "shr.u32 " + units + ", " + address + ", 4;\n";
    return units;
}

std::string WarpgroupCode::matrix(const std::string &first, int bytes, int rows, std::string &code) {
    const std::string name = "%matrix" + std::to_string(descriptors_++);
    if (is_constant(first)) {
        const auto address = static_cast<uint32_t>(number(first) + bytes);
        code += "mov.b64 " + name + ", " + std::to_string(matrix_descriptor(address, rows)) + ";\n";
        return name;
    }
    const uint64_t constant = matrix_descriptor(static_cast<uint32_t>(bytes), rows);
    const std::string low = "%word" + std::to_string(words_++);
    code += "add.s32 " + low + ", " + first + ", " + std::to_string(constant & 0xffffffffu) + ";\n";
    code += "mov.b64 " + name + ", {" + low + ", " + std::to_string(constant >> 32) + "};\n";
    return name;
}

std::string WarpgroupCode::products(const Operands &operands, bool a_in_memory) {
    const std::string &group = operands[0];
    const int tiles = number(operands[1]), steps = number(operands[2]);
    const bool is_bfloat16 = number(operands[3]) != 0, over_rows = number(operands[4]) != 0;
    const int rows = number(operands[5]);
    const std::string &first = operands[6];
    const auto begin = sums_.find(group);
    if (begin == sums_.end() || static_cast<int>(begin->second.size()) != tiles || !multiplied_.insert(group).second ||
        (is_constant(first) && number(first) % kSwizzledAlignment != 0)) {
        fail_at("products of a warpgroup without sums, or of a matrix that is not aligned: " + group);
    }
    const bool from_zero = is_from_zero(group);
    std::vector<std::string> sums;
    for (int tile = 0; tile < tiles; ++tile) {
        for (size_t i = 0; i < kTileElements; ++i) {
            sums.push_back(places_.at(group).at(tile)[i]);
        }
    }
    const std::string type = is_bfloat16 ? "bf16" : "f16";
    const std::string name =
        "wgmma.mma_async.sync.aligned.m64n" + std::to_string(tiles * kTileColumns) + "k16.f32." + type + "." + type;
    std::string text;
    const std::string first_b = in_units(first, text);
    const std::string first_a = a_in_memory ? in_units(operands[8], text) : "";
    for (int step = 0; step < steps; ++step) {
        const std::string of_b = matrix(first_b, over_rows ? bytes_along_columns(step) : bytes_along_rows(step, rows),
                                        over_rows ? rows : 0, text);
        std::string of_a;
        if (a_in_memory) {
            of_a = matrix(first_a, bytes_along_rows(step, number(operands[7])), 0, text);
        } else {
            const auto a = operands.begin() + 7 + kTileElements * step;
            of_a = list({a, a + kTileElements});
        }
        text += name + " " + list(sums) + ", " + of_a + ", " + of_b + ", " + (from_zero && step == 0 ? "0" : "1") +
                ", 1, 1, " + (a_in_memory ? "0, " : "") + (over_rows ? "1" : "0") + ";\n";
    }
    return text;
}

std::string WarpgroupCode::declarations() const {
    std::string text;
    for (const auto &[group, tiles] : sums_) {
        text += ".reg .b32 " + accumulators(group) + "<" + std::to_string(tiles.size() * kTileElements) + ">;\n";
    }
    return text + ".reg .b32 %word<" + std::to_string(words_ + 1) + ">;\n.reg .b64 %matrix<" +
           std::to_string(descriptors_ + 1) + ">;\n";
}

std::string for_warpgroups(const std::string &ptx) {
    std::istringstream lines(ptx);
    std::string text;
    bool versioned = false, targeted = false;
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with(".version ")) {
            line = ".version 8.0";
            versioned = true;
        } else if (line.starts_with(".target ")) {
            line = ".target sm_90a";
            targeted = true;
        }
        text += line + "\n";
    }
    if (!versioned || !targeted) {
        fail_at("PTX has no version, or no target");
    }
    return text;
}

}  // namespace hattn::schedules::cuda

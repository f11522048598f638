// Instructions that are one function on numbers, in every lane.
#pragma once

#include <bit>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "warp.h"

namespace hattn::emulated_cuda {

// An instruction by its name with all modifiers.
struct Form {
    Execute execute = nullptr;
    std::vector<int> operand_bytes;  // of a lane in the register file: 4 or 8
};
using Forms = std::unordered_map<std::string, Form>;

// How a number lies in a lane: narrow ones in the low bits of 32, with whatever above them.
template<typename T>
using Raw = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template<typename T>
T from_raw(Raw<T> raw) {
    if constexpr (std::is_same_v<T, bool>) {
        return (raw & 1u) != 0;
    } else if constexpr (std::is_integral_v<T>) {
        return static_cast<T>(raw);
    } else if constexpr (sizeof(T) == 2) {
        return std::bit_cast<T>(static_cast<uint16_t>(raw));
    } else {
        return std::bit_cast<T>(raw);
    }
}

template<typename T>
Raw<T> to_raw(T value) {
    if constexpr (std::is_integral_v<T>) {
        return static_cast<Raw<T>>(value);
    } else if constexpr (sizeof(T) == 2) {
        return std::bit_cast<uint16_t>(value);
    } else {
        return std::bit_cast<Raw<T>>(value);
    }
}

template<auto operation, typename Signature = decltype(+operation)>
struct LaneMap;

template<auto operation, typename To, typename... From>
struct LaneMap<operation, To (*)(From...)> {
    static void execute(const Instruction &instruction, Warp &warp) {
        run(instruction, warp, std::index_sequence_for<From...>());
    }
    static Form form() {
        return {execute, {sizeof(Raw<To>), sizeof(Raw<From>)...}};
    }

private:
    template<size_t... i>
    static void run(const Instruction &instruction, Warp &warp, std::index_sequence<i...>) {
        Raw<To> *to = warp.lanes<Raw<To>>(instruction.operands[0]);
        const auto lane_of = [&](int lane) {
            return to_raw<To>(operation(from_raw<From>(warp.lanes<Raw<From>>(instruction.operands[i + 1])[lane])...));
        };
        if (warp.all_active()) {
#pragma GCC ivdep
            for (int lane = 0; lane < kLanes; ++lane) {
                to[lane] = lane_of(lane);
            }
            return;
        }
        for (int lane = 0; lane < kLanes; ++lane) {
            if (warp.is_active(lane)) {
                to[lane] = lane_of(lane);
            }
        }
    }
};

template<auto operation>
Form lane_map() {
    return LaneMap<operation>::form();
}

void add_integer_forms(Forms &forms);
void add_float_forms(Forms &forms);
void add_conversion_forms(Forms &forms);

}  // namespace hattn::emulated_cuda

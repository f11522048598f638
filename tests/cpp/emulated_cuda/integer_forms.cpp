// Integers, bits and predicates. Sums and products wrap around, shifts by more than the width give what is left of the
// number, and division by zero, which the PTX ISA leaves open, gives 0.
#include <algorithm>
#include <bit>
#include <limits>

#include "lane_map.h"
#include "type_names.h"

namespace hattn::emulated_cuda {

namespace {

template<typename T>
using Unsigned = std::make_unsigned_t<T>;

template<typename T>
constexpr auto kAdd = [](T a, T b) -> T { return static_cast<T>(Unsigned<T>(a) + Unsigned<T>(b)); };
template<typename T>
constexpr auto kSub = [](T a, T b) -> T { return static_cast<T>(Unsigned<T>(a) - Unsigned<T>(b)); };
// Halves of 64 bits hold the products of 16 and 32.
template<typename T>
constexpr auto kMul = [](T a, T b) -> T { return static_cast<T>(uint64_t(a) * uint64_t(b)); };
template<typename T>
constexpr auto kMad = [](T a, T b, T c) -> T { return static_cast<T>(uint64_t(a) * uint64_t(b) + uint64_t(c)); };
template<typename T>
constexpr auto kMin = [](T a, T b) -> T { return std::min(a, b); };
template<typename T>
constexpr auto kMax = [](T a, T b) -> T { return std::max(a, b); };
template<typename T>
constexpr bool overflows(T a, T b) {
    return std::is_signed_v<T> && a == std::numeric_limits<T>::min() && b == static_cast<T>(-1);
}
template<typename T>
constexpr auto kDiv = [](T a, T b) -> T {
    return b == 0 ? T(0) : overflows(a, b) ? a : static_cast<T>(a / b);
};
template<typename T>
constexpr auto kRem = [](T a, T b) -> T { return b == 0 || overflows(a, b) ? T(0) : static_cast<T>(a % b); };
template<typename T>
constexpr auto kShr = [](T a, uint32_t n) -> T {
    constexpr uint32_t kLast = sizeof(T) * 8 - 1;
    return std::is_signed_v<T> || n <= kLast ? static_cast<T>(a >> std::min(n, kLast)) : T(0);
};

template<typename T>
void add_arithmetic(Forms &forms) {
    const std::string type = "." + type_name<T>();
    forms["add" + type] = lane_map<kAdd<T>>();
    forms["sub" + type] = lane_map<kSub<T>>();
    forms["mul.lo" + type] = lane_map<kMul<T>>();
    forms["mad.lo" + type] = lane_map<kMad<T>>();
    forms["min" + type] = lane_map<kMin<T>>();
    forms["max" + type] = lane_map<kMax<T>>();
    forms["div" + type] = lane_map<kDiv<T>>();
    forms["rem" + type] = lane_map<kRem<T>>();
    forms["shr" + type] = lane_map<kShr<T>>();
    if constexpr (std::is_signed_v<T>) {
        forms["neg" + type] = lane_map<[](T a) -> T { return static_cast<T>(-Unsigned<T>(a)); }>();
        forms["abs" + type] = lane_map<[](T a) -> T { return a < 0 ? static_cast<T>(-Unsigned<T>(a)) : a; }>();
    }
}

template<typename T>
void add_comparisons(Forms &forms, const std::string &type) {
    forms["setp.eq." + type] = lane_map<[](T a, T b) -> bool { return a == b; }>();
    forms["setp.ne." + type] = lane_map<[](T a, T b) -> bool { return a != b; }>();
    forms["setp.lt." + type] = lane_map<[](T a, T b) -> bool { return a < b; }>();
    forms["setp.le." + type] = lane_map<[](T a, T b) -> bool { return a <= b; }>();
    forms["setp.gt." + type] = lane_map<[](T a, T b) -> bool { return b < a; }>();
    forms["setp.ge." + type] = lane_map<[](T a, T b) -> bool { return a >= b; }>();
}

template<typename Narrow, typename Wide>
void add_widening_products(Forms &forms) {
    const std::string type = "." + type_name<Narrow>();
    forms["mul.wide" + type] = lane_map<[](Narrow a, Narrow b) -> Wide { return Wide(a) * Wide(b); }>();
    forms["mad.wide" + type] =
        lane_map<[](Narrow a, Narrow b, Wide c) -> Wide { return kAdd<Wide>(Wide(a) * Wide(b), c); }>();
    forms["mul.hi" + type] = lane_map<[](Narrow a, Narrow b) -> Narrow {
        return static_cast<Narrow>((Wide(a) * Wide(b)) >> (sizeof(Narrow) * 8));
    }>();
}

template<typename T>
void add_bits(Forms &forms, const std::string &type) {
    forms["and" + type] = lane_map<[](T a, T b) -> T { return a & b; }>();
    forms["or" + type] = lane_map<[](T a, T b) -> T { return a | b; }>();
    forms["xor" + type] = lane_map<[](T a, T b) -> T { return a ^ b; }>();
    forms["not" + type] = lane_map<[](T a) -> T { return static_cast<T>(~a); }>();
    forms["mov" + type] = lane_map<[](T a) -> T { return a; }>();
    forms["shl" + type] =
        lane_map<[](T a, uint32_t n) -> T { return n < sizeof(T) * 8 ? static_cast<T>(a << n) : T(0); }>();
    forms["shr" + type] = lane_map<kShr<T>>();
    forms["selp" + type] = lane_map<[](T a, T b, bool which) -> T { return which ? a : b; }>();
    add_comparisons<T>(forms, type.substr(1));
}

// Bits [first, first + count) of a number.
uint32_t extract_bits(uint32_t a, uint32_t first, uint32_t count) {
    const uint64_t from_first = first > 31 ? 0 : a >> first;
    return static_cast<uint32_t>(count > 31 ? from_first : from_first & ((uint64_t{1} << count) - 1));
}

// The same of a number whose sign is its last bit, or the last one that there is.
int32_t extract_signed_bits(uint32_t a, uint32_t first, uint32_t count) {
    const uint32_t there = std::min(count, first > 31 ? 0 : 32 - first);
    const bool negative = count > 0 && (a >> std::min(first + count - 1, 31u) & 1u) != 0;
    const uint32_t above = there > 31 ? 0 : ~uint32_t{0} << there;
    return static_cast<int32_t>(extract_bits(a, first, count) | (negative ? above : 0));
}

// Four of the eight bytes of two numbers, as the nibbles of a selector say.
uint32_t permute_bytes(uint32_t low, uint32_t high, uint32_t selector) {
    const uint64_t bytes = uint64_t{high} << 32 | low;
    uint32_t result = 0;
    for (int i = 0; i < 4; ++i) {
        const uint32_t nibble = selector >> (4 * i) & 15u;
        uint32_t byte = static_cast<uint32_t>(bytes >> (8 * (nibble & 7u))) & 255u;
        if (nibble & 8u) {
            byte = (byte & 128u) ? 255u : 0u;
        }
        result |= byte << (8 * i);
    }
    return result;
}

void add_counts_of_bits(Forms &forms) {
    forms["popc.b32"] = lane_map<[](uint32_t a) -> uint32_t { return static_cast<uint32_t>(std::popcount(a)); }>();
}

void add_predicates(Forms &forms) {
    forms["and.pred"] = lane_map<[](bool a, bool b) -> bool { return a && b; }>();
    forms["or.pred"] = lane_map<[](bool a, bool b) -> bool { return a || b; }>();
    forms["xor.pred"] = lane_map<[](bool a, bool b) -> bool { return a != b; }>();
    forms["not.pred"] = lane_map<[](bool a) -> bool { return !a; }>();
    forms["mov.pred"] = lane_map<[](bool a) -> bool { return a; }>();
}

template<typename... T>
void add_types(Forms &forms) {
    (add_arithmetic<T>(forms), ...);
    (add_bits<T>(forms, "." + type_name<T>()), ...);
    (add_bits<Unsigned<T>>(forms, ".b" + std::to_string(sizeof(T) * 8)), ...);
}

}  // namespace

void add_integer_forms(Forms &forms) {
    add_types<int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t>(forms);
    add_widening_products<int16_t, int32_t>(forms);
    add_widening_products<uint16_t, uint32_t>(forms);
    add_widening_products<int32_t, int64_t>(forms);
    add_widening_products<uint32_t, uint64_t>(forms);
    add_counts_of_bits(forms);
    add_predicates(forms);
    forms["bfe.u32"] = lane_map<extract_bits>();
    forms["bfe.s32"] = lane_map<extract_signed_bits>();
    forms["prmt.b32"] = lane_map<permute_bytes>();
    forms["cvta.to.global.u64"] = forms.at("mov.u64");
}

}  // namespace hattn::emulated_cuda

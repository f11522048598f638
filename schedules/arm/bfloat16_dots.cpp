#include "bfloat16_dots.h"

#include <elf.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <regex>
#include <stdexcept>
#include <vector>

namespace hattn::schedules::arm {

using namespace Halide;
using namespace Halide::Internal;

namespace {

constexpr int kPair = 2, kBytesOfPair = 4;

// The bfloat16 numbers that a value has in float32, perhaps widened before they are repeated for all lanes; or
// undefined.
Expr numbers_of(const Expr &value) {
    if (const Cast *cast = value.as<Cast>()) {
        return value.type().bits() == 32 && cast->value.type().is_bfloat() ? cast->value : Expr();
    }
    const Shuffle *shuffle = value.as<Shuffle>();
    const Expr numbers = shuffle && shuffle->vectors.size() == 1 ? numbers_of(shuffle->vectors[0]) : Expr();
    return numbers.defined() ? Shuffle::make({numbers}, shuffle->indices) : Expr();
}

// The bytes of the two factors of a sum's products, or nothing. Of a factor that is the same for all lanes the
// instruction can do without copies if it is the second.
std::vector<Expr> factors_in_bytes(const VectorReduce *sum) {
    const Mul *product = sum && sum->op == VectorReduce::Add ? sum->value.as<Mul>() : nullptr;
    if (!product || sum->value.type().lanes() != kPair * sum->type.lanes()) {
        return {};
    }
    const Expr a = numbers_of(product->a), b = numbers_of(product->b);
    if (!a.defined() || !b.defined()) {
        return {};
    }
    const auto bytes = [](const Expr &numbers) { return reinterpret(Int(8, 2 * numbers.type().lanes()), numbers); };
    return a.as<Shuffle>() ? std::vector<Expr>{bytes(b), bytes(a)} : std::vector<Expr>{bytes(a), bytes(b)};
}

}  // namespace

Expr Bfloat16Dots::visit(const Add *add) {
    const bool first = add->a.as<VectorReduce>() != nullptr;
    const std::vector<Expr> factors = factors_in_bytes((first ? add->a : add->b).as<VectorReduce>());
    if (factors.empty()) {
        return IRMutator::visit(add);
    }
    const int lanes = add->type.lanes();
    Expr products = Call::make(Int(16, kBytesOfPair * lanes), Call::widening_mul,
                               {mutate(factors[0]), mutate(factors[1])}, Call::PureIntrinsic);
    Expr dots = VectorReduce::make(VectorReduce::Add, cast(Int(32, kBytesOfPair * lanes), products), lanes);
    Expr before = reinterpret(Int(32, lanes), mutate(first ? add->b : add->a));
    return reinterpret(add->type, Add::make(before, dots));
}

std::string with_bfdot(std::string assembly) {
    static const std::regex vectors(R"(\bsdot(\s+v\d+\.4s, v\d+)\.16b, (v\d+)\.16b)"),
        element(R"(\bsdot(\s+v\d+\.4s, v\d+)\.16b, (v\d+)\.4b\[)");
    assembly = std::regex_replace(assembly, vectors, "bfdot$1.8h, $2.8h");
    return std::regex_replace(assembly, element, "bfdot$1.8h, $2.2h[");
}

// Arm Architecture Reference Manual, A64 encodings of SDOT and BFDOT, of 128 bits, by vector and by element: the bits
// that are no operand.
int replace_dots(std::span<uint32_t> instructions) {
    struct Encoding {
        uint32_t operands, sdot, bfdot;
    };
    static constexpr Encoding kEncodings[] = {{0x001f03ff, 0x4e809400, 0x6e40fc00},
                                              {0x003f0bff, 0x4f80e000, 0x4f40f000}};
    int replaced = 0;
    for (uint32_t &instruction : instructions) {
        for (const Encoding &encoding : kEncodings) {
            if ((instruction & ~encoding.operands) == encoding.sdot) {
                instruction ^= encoding.sdot ^ encoding.bfdot;
                ++replaced;
            }
        }
    }
    return replaced;
}

namespace {

// What lies at an offset of a file, in a copy.
template<typename T>
std::vector<T> read_at(const std::vector<char> &file, uint64_t offset, uint64_t bytes, const std::string &path) {
    if (offset > file.size() || bytes > file.size() - offset) {
        throw std::runtime_error(path + ": ends within what its headers name");
    }
    std::vector<T> items(bytes / sizeof(T));
    std::memcpy(items.data(), file.data() + offset, items.size() * sizeof(T));
    return items;
}

}  // namespace

void replace_dots_in_object(const std::string &path, const std::string &prefix) {
    std::ifstream in(path, std::ios::binary);
    std::vector<char> file{std::istreambuf_iterator<char>(in), {}};
    const auto headers = read_at<Elf64_Ehdr>(file, 0, sizeof(Elf64_Ehdr), path);
    const Elf64_Ehdr &header = headers.front();
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_machine != EM_AARCH64 || header.e_type != ET_REL) {
        throw std::runtime_error(path + ": is no object for 64-bit ARM");
    }
    const auto sections = read_at<Elf64_Shdr>(file, header.e_shoff, uint64_t{header.e_shnum} * sizeof(Elf64_Shdr), path);
    for (const Elf64_Shdr &table : sections) {
        if (table.sh_type != SHT_SYMTAB) {
            continue;
        }
        const Elf64_Shdr &strings = sections.at(table.sh_link);
        const auto names = read_at<char>(file, strings.sh_offset, strings.sh_size, path);
        for (const Elf64_Sym &symbol : read_at<Elf64_Sym>(file, table.sh_offset, table.sh_size, path)) {
            const std::string name = symbol.st_name < names.size() ? &names[symbol.st_name] : "";
            const bool is_wrapper = name.ends_with("_argv");
            if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || !name.starts_with(prefix) || is_wrapper) {
                continue;
            }
            const uint64_t offset = sections.at(symbol.st_shndx).sh_offset + symbol.st_value;
            auto instructions = read_at<uint32_t>(file, offset, symbol.st_size, path);
            if (replace_dots(instructions) == 0) {
                throw std::runtime_error(path + ": " + name + " has no dot products");
            }
            std::memcpy(file.data() + offset, instructions.data(), instructions.size() * sizeof(uint32_t));
        }
    }
    std::ofstream out(path, std::ios::binary);
    out.write(file.data(), static_cast<std::streamsize>(file.size()));
    if (!out.flush()) {
        throw std::runtime_error("cannot write " + path);
    }
}

}  // namespace hattn::schedules::arm

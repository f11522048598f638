#include "bfloat16_dots.h"

#include <elf.h>

#include <cstring>
#include <regex>
#include <set>
#include <stdexcept>
#include <vector>

#include "generators/files.h"

namespace hattn::schedules::arm {

using namespace Halide;
using namespace Halide::Internal;

namespace {

constexpr int kPair = 2, kBytesOfPair = 4;
constexpr int kLanes = 4;  // of the 128 bits that instructions are changed of

// The bfloat16 numbers that a value has in float32, perhaps widened before they are repeated for all lanes; or
// undefined.
Expr numbers_of(const Expr &value) {
    if (const Cast *cast = value.as<Cast>()) {
        const bool is_widened = value.type().is_float() && value.type().bits() == 32 && cast->value.type().is_bfloat();
        return is_widened ? cast->value : Expr();
    }
    const Shuffle *shuffle = value.as<Shuffle>();
    const Expr numbers = shuffle && shuffle->vectors.size() == 1 ? numbers_of(shuffle->vectors[0]) : Expr();
    return numbers.defined() ? Shuffle::make({numbers}, shuffle->indices) : Expr();
}

// The bytes of the two factors of a sum's products, or nothing. Of a factor that is the same for all lanes the
// instruction can do without copies if it is the second.
std::vector<Expr> factors_in_bytes(const VectorReduce *sum) {
    const Mul *product = sum && sum->op == VectorReduce::Add ? sum->value.as<Mul>() : nullptr;
    if (!product || sum->value.type().lanes() != kPair * sum->type.lanes() || sum->type.lanes() % kLanes != 0) {
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

[[noreturn]] void refuse(const std::string &path, const std::string &why) {
    throw std::runtime_error(path + ": " + why);
}

// An object that is read as a whole, and its sections.
class Object {
public:
    explicit Object(const std::string &path) : path_(path), bytes_(generators::read_file(path)) {
        const Elf64_Ehdr header = read<Elf64_Ehdr>(0, sizeof(Elf64_Ehdr)).front();
        if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
            header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_machine != EM_AARCH64 || header.e_type != ET_REL ||
            header.e_shentsize != sizeof(Elf64_Shdr)) {
            refuse(path, "is no object for 64-bit ARM");
        }
        sections_ = read<Elf64_Shdr>(header.e_shoff, uint64_t{header.e_shnum} * sizeof(Elf64_Shdr));
    }

    const std::vector<Elf64_Shdr> &sections() const {
        return sections_;
    }
    const Elf64_Shdr &section(uint32_t index) const {
        if (index == SHN_UNDEF || index >= sections_.size()) {
            refuse(path_, "names a section that it has not");
        }
        return sections_[index];
    }

    // A copy of what lies at an offset.
    template<typename T>
    std::vector<T> read(uint64_t offset, uint64_t size) const {
        if (offset > bytes_.size() || size > bytes_.size() - offset) {
            refuse(path_, "ends within what its headers name");
        }
        std::vector<T> items(size / sizeof(T));
        std::memcpy(items.data(), bytes_.data() + offset, items.size() * sizeof(T));
        return items;
    }
    template<typename T>
    std::vector<T> read(const Elf64_Shdr &section) const {
        return read<T>(section.sh_offset, section.sh_size);
    }

    void replace_dots_of(const Elf64_Sym &function, const std::string &name) {
        const Elf64_Shdr &code = section(function.st_shndx);
        if (function.st_value > code.sh_size || function.st_size > code.sh_size - function.st_value) {
            refuse(path_, name + " is not within its section");
        }
        const uint64_t offset = code.sh_offset + function.st_value;
        auto instructions = read<uint32_t>(offset, function.st_size);
        if (replace_dots(instructions) == 0) {
            refuse(path_, name + " has no dot products");
        }
        std::memcpy(bytes_.data() + offset, instructions.data(), instructions.size() * sizeof(uint32_t));
    }

    void write() const {
        generators::write_file(path_, bytes_);
    }

private:
    std::string path_, bytes_;
    std::vector<Elf64_Shdr> sections_;
};

}  // namespace

void replace_dots_in_object(const std::string &path, const std::vector<std::string> &functions) {
    Object object(path);
    std::set<std::string> missing(functions.begin(), functions.end());
    for (const Elf64_Shdr &table : object.sections()) {
        if (table.sh_type != SHT_SYMTAB) {
            continue;
        }
        std::vector<char> names = object.read<char>(object.section(table.sh_link));
        names.push_back('\0');
        for (const Elf64_Sym &symbol : object.read<Elf64_Sym>(table)) {
            const std::string name = symbol.st_name < names.size() ? &names[symbol.st_name] : "";
            if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && missing.erase(name) > 0) {
                object.replace_dots_of(symbol, name);
            }
        }
    }
    if (!missing.empty()) {
        refuse(path, "has no function " + *missing.begin());
    }
    object.write();
}

}  // namespace hattn::schedules::arm

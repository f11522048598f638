#include "decode.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstdlib>

#include "access_forms.h"
#include "async_copies.h"
#include "fault.h"
#include "warp_forms.h"
#include "warpgroup_forms.h"

namespace hattn::emulated_cuda {

namespace {

const Forms &forms() {
    static const Forms all = [] {
        Forms table;
        add_integer_forms(table);
        add_float_forms(table);
        add_async_forms(table);
        add_conversion_forms(table);
        add_warp_forms(table);
        add_warpgroup_forms(table);
        return table;
    }();
    return all;
}

constexpr const char *kSpecialNames[kSpecialRegisters] = {"%tid.x",   "%tid.y",  "%tid.z",  "%ctaid.x", "%ctaid.y",
                                                          "%ctaid.z", "%ntid.x", "%ntid.y", "%ntid.z"};

// 12, -1, 0x7FU, 0f3F800000 (a float by its bits), 0d3FF0000000000000
uint64_t constant_bits(const std::string &text) {
    const bool is_float = text.size() > 2 && text[0] == '0' && (text[1] == 'f' || text[1] == 'd');
    const char *digits = text.c_str() + (is_float ? 2 : 0);
    char *end = nullptr;
    const uint64_t bits = is_float              ? std::strtoull(digits, &end, 16)
                          : text.front() == '-' ? static_cast<uint64_t>(std::strtoll(digits, &end, 0))
                                                : std::strtoull(digits, &end, 0);
    if (end == digits || (*end != '\0' && std::string_view(end) != "U")) {
        throw Fault(kInvalidPtx, "unknown operand " + text);
    }
    return bits;
}

class Decoder {
public:
    explicit Decoder(const PtxEntry &entry) : entry_(entry) {
        program_.name = entry.name;
        program_.most_threads = entry.most_threads;
        uint32_t offset = 0;
        for (const PtxParameter &parameter : entry.parameters) {
            const auto bytes = static_cast<uint32_t>(parameter.bytes);
            offset = (offset + bytes - 1) / bytes * bytes;
            program_.parameter_bytes.push_back(parameter.bytes);
            program_.parameter_offsets.push_back(offset);
            offset += bytes;
        }
        for (int i = 0; i < kSpecialRegisters; ++i) {
            program_.special[static_cast<size_t>(i)] = new_slot(4);
        }
    }

    Program decode() {
        for (const PtxStatement &statement : entry_.statements) {
            try {
                program_.code.push_back(instruction(statement));
            } catch (const Fault &fault) {
                throw Fault(fault.result, std::string(fault.what()) + ", at PTX line " +
                                              std::to_string(statement.line) + ": " + statement.text);
            }
        }
        return std::move(program_);
    }

private:
    Instruction instruction(const PtxStatement &statement) {
        Instruction result;
        result.line = statement.line;
        program_.texts.push_back(std::make_unique<std::string>(statement.text));
        result.text = program_.texts.back().get();
        if (!statement.guard.empty()) {
            result.guard = slot(statement.guard, 4);
            result.guard_negated = statement.guard_negated;
        }
        const std::string &opcode = statement.opcode;
        if (opcode == "bra" || opcode == "bra.uni") {
            result.flow = Flow::kBranch;
            result.target = label(statement.operands.at(0).words.at(0));
        } else if (opcode == "ret" || opcode == "exit") {
            result.flow = Flow::kExit;
        } else if (opcode == "bar.sync" || opcode == "barrier.sync") {
            result.flow = Flow::kBarrier;
            ++program_.barriers;
            if (statement.operands.size() != 1 || statement.operands[0].words[0] != "0") {
                throw Fault(kInvalidPtx, "barriers other than the first are not supported");
            }
        } else {
            decode_operands(statement, result);
        }
        return result;
    }

    uint32_t label(const std::string &name) const {
        const auto found = entry_.labels.find(name);
        if (found == entry_.labels.end()) {
            throw Fault(kInvalidPtx, "unknown label " + name);
        }
        return static_cast<uint32_t>(found->second);
    }

    void decode_operands(const PtxStatement &statement, Instruction &result) {
        const Form form = form_of(statement);
        size_t next = 0;
        const auto take = [&](const std::string &word) {
            if (next == form.operand_bytes.size()) {
                throw Fault(kInvalidPtx, "too many operands");
            }
            result.operands.push_back(slot(word, form.operand_bytes[next++]));
        };
        for (const PtxOperand &operand : statement.operands) {
            if (operand.kind != PtxOperand::Kind::kAddress) {
                std::for_each(operand.words.begin(), operand.words.end(), take);
                continue;
            }
            if (result.offset != 0 && !statement.opcode.starts_with("cp.async")) {
                throw Fault(kInvalidPtx, "an offset of an address that is not the last");
            }
            result.first_offset = result.offset;
            result.offset = operand.words.size() > 1 ? static_cast<int64_t>(constant_bits(operand.words[1])) : 0;
            if (const int parameter = parameter_named(operand.words[0]); parameter >= 0) {
                result.offset += program_.parameter_offsets[static_cast<size_t>(parameter)];
            } else {
                take(operand.words[0]);
            }
        }
        if (next != form.operand_bytes.size()) {
            throw Fault(kInvalidPtx, "too few operands");
        }
        result.execute = form.execute;
    }

    Form form_of(const PtxStatement &statement) const {
        const std::string &opcode = statement.opcode;
        const auto &operands = statement.operands;
        std::string name = opcode;
        if (opcode.rfind("mov.", 0) == 0 && operands.size() == 2) {
            if (operands[0].kind == PtxOperand::Kind::kVector) {
                name = unpacking(opcode, operands[0].words.size());
            } else if (operands[1].kind == PtxOperand::Kind::kVector) {
                name = packing(opcode, operands[1].words.size());
            }
        }
        if (opcode.starts_with("wgmma.mma_async")) {
            name = warpgroup_form_name(statement);
        }
        if (const auto found = forms().find(name); found != forms().end()) {
            return found->second;
        }
        for (const PtxOperand &operand : operands) {
            // Constants are stored like the widest register there is.
            if (operand.kind != PtxOperand::Kind::kAddress) {
                const int bits = register_bits(operand.words.at(0));
                if (const auto form = access_form(opcode, bits > 32 ? 8 : 4)) {
                    return *form;
                }
            }
        }
        throw Fault(kIllegalInstruction, "the emulator does not know the instruction " + name);
    }

    int parameter_named(const std::string &name) const {
        for (size_t i = 0; i < entry_.parameters.size(); ++i) {
            if (entry_.parameters[i].name == name) {
                return static_cast<int>(i);
            }
        }
        return -1;
    }

    // 0: not a register.
    int register_bits(const std::string &word) const {
        if (const auto named = entry_.register_bits.find(word); named != entry_.register_bits.end()) {
            return named->second;
        }
        const auto digits = std::find_if(word.begin(), word.end(), [](unsigned char c) { return std::isdigit(c); });
        const auto found = entry_.register_bits.find(std::string(word.begin(), digits));
        return found == entry_.register_bits.end() ? 0 : found->second;
    }

    Slot new_slot(int bytes) {
        const Slot slot = program_.register_file_bytes;
        program_.register_file_bytes += static_cast<uint32_t>(bytes) * kLanes;
        return slot;
    }

    // Of a register or a constant, which has to be as wide in the register file as the instruction takes it.
    Slot slot(const std::string &word, int bytes) {
        for (int i = 0; i < kSpecialRegisters; ++i) {
            if (word == kSpecialNames[i] && bytes == 4) {
                return program_.special[static_cast<size_t>(i)];
            }
        }
        const int bits = register_bits(word);
        const bool is_register = bits != 0 || word.front() == '%';
        if (is_register && (bits == 0 || (bits > 32 ? 8 : 4) != bytes)) {
            throw Fault(kInvalidPtx, word + " is not a register of " + std::to_string(bytes * 8) + " bits");
        }
        const auto [found, is_new] = slots_.try_emplace(word + (is_register ? "" : bytes == 8 ? " 8" : " 4"), 0);
        if (is_new) {
            found->second = new_slot(bytes);
            if (!is_register) {
                program_.constants.push_back({found->second, bytes, constant_bits(word)});
            }
        }
        return found->second;
    }

    const PtxEntry &entry_;
    Program program_;
    std::map<std::string, Slot> slots_;
};

}  // namespace

Program decode(const PtxEntry &entry) {
    return Decoder(entry).decode();
}

}  // namespace hattn::emulated_cuda

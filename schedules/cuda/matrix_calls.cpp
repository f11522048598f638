#include "matrix_calls.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "call_sequence.h"
#include "generators/number_formats.h"
#include "ptx_lines.h"
#include "warpgroup_calls.h"

namespace hattn::schedules::cuda {

namespace {

// Device code in pieces: lines, and calls in their place.
class DeviceCode {
public:
    explicit DeviceCode(const std::string &ptx) {
        std::istringstream lines(ptx);
        bool in_declaration = false, in_call = false;
        for (std::string line; std::getline(lines, line);) {
            in_declaration =
                in_declaration || (line.find(".extern .func") != std::string::npos && instruction_in(line));
            if (line.find("{ // callseq") != std::string::npos) {
                pieces_.push_back({"", CallSequence()});
                in_call = true;
            }
            if (in_call) {
                pieces_.back().call->take(line);
            } else if (!in_declaration) {
                words_.take(line);
                for (const std::string &name : written_in(line)) {
                    ++written_[name];
                    places_[name] = pieces_.size();
                }
                if (const std::string label = label_in(line); !label.empty()) {
                    labels_[label] = pieces_.size();
                }
                loads_.take(line, pieces_.size());
                pieces_.push_back({line, {}});
            }
            in_declaration = in_declaration && line.find(';') == std::string::npos;
            in_call = in_call && line.find("} // callseq") == std::string::npos;
        }
    }

    std::string with_instructions() {
        std::set<std::string> packed, copied;
        for (size_t i = 0; i < pieces_.size(); ++i) {
            if (const auto &call = pieces_[i].call; call && call->instruction) {
                call->check();
                packed.insert(call->results.begin(), call->results.end());
                if (call->instruction->kind == InstructionKind::kSums) {
                    warpgroups_.take_sums(call->operands);
                }
            }
        }
        place_results();
        for (size_t i = 0; i < pieces_.size(); ++i) {
            if (const auto &call = pieces_[i].call; call && call->instruction) {
                pieces_[i].text = instruction_at(i, copied);
            }
        }
        std::string result;
        for (const auto &[text, call] : pieces_) {
            const std::string &line = call && !call->instruction ? call->text : text;
            if (mentions(line, copied) || (!call && mentions(line, packed) && !UnpackedWords().take(line))) {
                fail_at(line);
            }
            if (call) {
                result += call->instruction ? line + "\n" : line;
            } else if (mentions(line, packed)) {
                result += late_words_of(line);
            } else if (!line.empty()) {
                result += line + "\n";
            }
        }
        if (!warpgroups_.empty()) {
            result = for_warpgroups(result);
        }
        return late_words_ + conditions_ == 0 && warpgroups_.empty() ? result : declare_registers(result);
    }

private:
    struct Piece {
        std::string text;  // a line, or what takes a call's place
        std::optional<CallSequence> call;
    };

    // `copied`: registers that are gone.
    std::string instruction_at(size_t place, std::set<std::string> &copied) {
        const CallSequence &call = *pieces_[place].call;
        std::vector<std::string> operands = call.operands;
        operands.resize(std::max<size_t>(operands.size(), 10));
        const std::string &c0 = operands[0], &c1 = operands[1], &c2 = operands[2], &c3 = operands[3], &a0 = operands[4],
                          &a1 = operands[5], &a2 = operands[6], &a3 = operands[7], &b0 = operands[8], &b1 = operands[9];
        const std::string name = call.instruction->name;
        switch (call.instruction->kind) {
        case InstructionKind::kOrder:
            return name + (c0.empty() ? ";" : " " + c0 + ";") + after(*call.instruction);
        case InstructionKind::kCopy:
            return copy(place, {c3, a0, a1, a2}, copied);
        case InstructionKind::kConditionalCopy: {
            const std::string when = new_condition();
            return "setp.ne.s32 " + when + ", " + a3 + ", 0;\n@" + when + " " + copy(place, {c3, a0, a1, a2}, copied);
        }
        case InstructionKind::kVote: {
            const std::string when = new_condition();
            return "setp.ne.s32 " + when + ", " + c0 + ", 0;\n" + name + " " + when + ", " + when + ", -1;\nselp.b32 " +
                   call.word + ", 1, 0, " + when + ";";
        }
        case InstructionKind::kConversion:
            return name + " " + call.word + ", " + c1 + ", " + c0 + ";";
        case InstructionKind::kExchange:
            return name + " " + call.word + ", " + c0 + ", " + c1 + ", 31, -1;";
        case InstructionKind::kLoad:
            return name + " " + list_of(words_of(place)) + ", [" + c0 + "];";
        case InstructionKind::kSums:
            return warpgroups_.sums(call.operands);
        case InstructionKind::kMemoryProducts:
        case InstructionKind::kRegisterProducts:
            return warpgroups_.products(call.operands, call.instruction->kind == InstructionKind::kMemoryProducts);
        case InstructionKind::kResult:
            return "";  // is where sums are
        default:
            return name + " " + list_of(words_of(place)) + ", {" + a0 + ", " + a1 + ", " + a2 + ", " + a3 + "}, {" +
                   b0 + ", " + b1 + "}, {" + c0 + ", " + c1 + ", " + c2 + ", " + c3 + "};";
        }
    }

    // Of four words.
    std::string copy(size_t place, const std::array<std::string, 4> &words, std::set<std::string> &copied) {
        const CallSequence &call = *pieces_[place].call;
        const std::string &to = call.operands[0], &offset = call.operands[1], &bytes = call.operands[2];
        return std::string(call.instruction->name) + " [" + to + (offset == "0" ? "" : "+" + offset) + "], [" +
               copied_from(place, words, copied) + "], 16, " + bytes + ";";
    }

    std::string new_condition() {
        return "%when" + std::to_string(conditions_++);
    }

    // The registers that the code puts the words of the result in. That is now done by the instruction, which is
    // before: wrong if they have another value there, so such words go to registers of their own first.
    std::array<std::string, 4> words_of(size_t place) {
        const CallSequence &call = *pieces_[place].call;
        std::array<std::string, 4> words;
        size_t found = 0;
        for (const std::string &result : call.results) {
            for (const std::string &name : words_.of(result)) {
                words[found++] =
                    written_.at(name) == 1
                        ? name
                        : late_.emplace(std::pair(result, name), "%late" + std::to_string(late_words_++)).first->second;
            }
        }
        return words;
    }

    // A warpgroup's sums are in the registers that their results are wanted in, if these have no other value while
    // instructions run: what begins there is left there.
    void place_results() {
        for (size_t i = 0; i < pieces_.size(); ++i) {
            const auto &call = pieces_[i].call;
            if (!call || !call->instruction || call->instruction->kind != InstructionKind::kResult) {
                continue;
            }
            const std::set<std::string> used = used_before(i, call->operands[0], call->results);
            size_t element = 0;
            for (const std::string &result : call->results) {
                for (const std::string &name : words_.of(result)) {
                    const bool is_free =
                        written_.at(name) == 1 ||
                        (used.count(name) == 0 && warpgroups_.begins_in(call->operands, element, name));
                    late_[{result, name}] = warpgroups_.place(call->operands, element++, is_free ? name : "");
                }
            }
        }
    }

    // What lines and calls mention from the last sums of a group to where a result of it, of a call at a place, is
    // taken apart, on every path.
    std::set<std::string> used_before(size_t place, const std::string &group,
                                      const std::array<std::string, 2> &results) const {
        static const std::regex name(R"(%\w+)");
        std::set<std::string> used;
        const auto take_text = [&](const std::string &text) {
            for (std::sregex_iterator i(text.begin(), text.end(), name), end; i != end; ++i) {
                used.insert(i->str());
            }
        };
        const auto take = [&](const Piece &piece) {
            if (piece.call) {
                std::ranges::for_each(piece.call->operands, take_text);
            } else if (!UnpackedWords().take(piece.text)) {
                take_text(piece.text);
            }
        };
        const auto is_sums = [&](const Piece &piece) {
            return piece.call && piece.call->instruction && piece.call->instruction->kind == InstructionKind::kSums &&
                   piece.call->operands[0] == group;
        };
        for (size_t i = place; i-- > 0 && !is_sums(pieces_[i]);) {
            take(pieces_[i]);
        }
        const std::set<std::string> packed(results.begin(), results.end());
        size_t last = place;  // where they are taken apart, which is in one block
        for (size_t i = 0; i < pieces_.size(); ++i) {
            last = !pieces_[i].call && mentions(pieces_[i].text, packed) ? i : last;
        }
        std::set<size_t> seen;
        std::vector<size_t> next = {place + 1};
        while (!next.empty()) {
            const size_t i = next.back();
            next.pop_back();
            if (i >= pieces_.size() || !seen.insert(i).second || is_sums(pieces_[i])) {
                continue;
            }
            const Piece &piece = pieces_[i];
            take(piece);
            const Jump jump = jump_of(piece.text);
            if (!jump.label.empty()) {
                next.push_back(labels_.at(jump.label));
            }
            if (!jump.always && i != last) {
                next.push_back(i + 1);
            }
        }
        return used;
    }

    static std::string list_of(const std::array<std::string, 4> &words) {
        return "{" + words[0] + ", " + words[1] + ", " + words[2] + ", " + words[3] + "}";
    }

    // What a thread has copied is for a warpgroup's instructions to read, which are of another proxy.
    std::string after(const Instruction &instruction) const {
        return instruction.call == kWaitCall && !warpgroups_.empty() ? "\nfence.proxy.async.shared::cta;" : "";
    }

    // Where `line` takes a result apart, what is left of it.
    std::string late_words_of(const std::string &line) const {
        std::string moves;
        for (const auto &[word, name] : late_) {
            if (name != word.second && mentions(line, {word.first}) && mentions(line, {word.second})) {
                moves += "mov.b32 " + word.second + ", " + name + ";\n";
            }
        }
        return moves;
    }

    std::string declare_registers(const std::string &code) const {
        const size_t first = code.find("\t.reg ");
        if (first == std::string::npos) {
            fail_at("no declaration of registers");
        }
        const auto declared = [](const std::string &name, size_t count) {
            return count == 0 ? "" : ".reg " + name + "<" + std::to_string(count) + ">;\n";
        };
        return code.substr(0, first) + declared(".b32 %late", late_words_) + declared(".pred %when", conditions_) +
               (warpgroups_.empty() ? "" : warpgroups_.declarations()) + code.substr(first);
    }

    // The load goes, and its address is used where the call is.
    std::string copied_from(size_t place, const std::array<std::string, 4> &words, std::set<std::string> &copied) {
        const WideLoads::WideLoad &load = loads_.of(words);
        for (const std::string &word : words) {
            if (!copied.insert(word).second || written_.at(word) != 1) {
                fail_at(word + " is not copied once");
            }
        }
        const std::string address = load.address.substr(0, load.address.find('+'));
        for (size_t i = load.place + 1; i < place; ++i) {
            const std::vector<std::string> written = written_in(pieces_[i].text);
            const bool is_changed = std::count(written.begin(), written.end(), address) != 0;
            if (!pieces_[i].call && (is_changed || is_end_of_block(pieces_[i].text))) {
                fail_at(pieces_[i].text);
            }
        }
        if (load.place > place) {
            fail_at(pieces_[load.place].text);
        }
        pieces_[load.place].text.clear();
        shorten_address(address);
        return load.address;
    }

    // What is copied is at a multiple of 16 bytes: an index of 16-bit elements need not be rounded down to one of 16
    // bytes first.
    void shorten_address(const std::string &address) {
        static const std::regex sum(R"(\s*add\.s64\s+%\w+, %\w+, (%\w+);)");
        static const std::regex product(R"(\s*mul\.wide\.s32\s+(%\w+), (%\w+), 16;)");
        static const std::regex shift(R"(\s*shr\.s32\s+%\w+, (%\w+), 3;)");
        std::smatch of_address, of_bytes, of_index;
        std::string *bytes = nullptr;
        const std::string *index = nullptr;
        if (const std::string *line = defined_by(address); line && std::regex_match(*line, of_address, sum)) {
            bytes = defined_by(of_address[1]);
        }
        if (bytes && std::regex_match(*bytes, of_bytes, product)) {
            index = defined_by(of_bytes[2]);
        }
        if (index && std::regex_match(*index, of_index, shift)) {
            *bytes = "\tmul.wide.s32 \t" + of_bytes.str(1) + ", " + of_index.str(1) + ", 2;";
        }
    }

    // The line that writes a register, if it is the only one; else null.
    std::string *defined_by(const std::string &name) {
        const auto place = places_.find(name);
        return place != places_.end() && written_.at(name) == 1 ? &pieces_[place->second].text : nullptr;
    }

    std::vector<Piece> pieces_;
    UnpackedWords words_;
    WideLoads loads_;
    std::map<std::string, int> written_;                               // how often
    std::map<std::string, size_t> labels_;                             // in which piece
    std::map<std::string, size_t> places_;                             // and in which piece, the last time
    std::map<std::pair<std::string, std::string>, std::string> late_;  // (result, word): the word's own register
    size_t late_words_ = 0;
    size_t conditions_ = 0;  // of copies, and votes
    WarpgroupCode warpgroups_;
};

}  // namespace

std::string replace_matrix_calls(const std::string &ptx) {
    const std::string result = DeviceCode(ptx).with_instructions();
    std::vector<const char *> calls = {generators::kBfloat16BitsCall};  // by themselves
    for (const Instruction &instruction : instructions()) {
        calls.push_back(instruction.call);
    }
    for (const char *call : calls) {
        if (const size_t at = result.find(call); at != std::string::npos) {
            fail_at(result.substr(at, 80));
        }
    }
    return result;
}

void replace_matrix_calls(const Halide::Module &module) {
    Halide::Buffer<> code = module.get_device_code_buffer();
    auto *data = static_cast<char *>(code.data());
    const size_t size = code.number_of_elements();
    const size_t length = std::find(data, data + size, '\0') - data;
    const std::string text = replace_matrix_calls(std::string(data, length));
    if (text.size() > length + 1) {
        throw std::runtime_error("device code grew with its matrix products");
    }
    std::fill(std::copy_n(text.data(), std::min(text.size(), length), data), data + length, '\n');
}

}  // namespace hattn::schedules::cuda

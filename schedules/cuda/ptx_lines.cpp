#include "ptx_lines.h"

#include <algorithm>
#include <regex>
#include <stdexcept>

namespace hattn::schedules::cuda {

void fail_at(const std::string &line) {
    throw std::runtime_error("PTX has an instruction of ours in an unknown way: " + line);
}

bool mentions(const std::string &text, const std::set<std::string> &registers) {
    for (size_t at = text.find('%'); at != std::string::npos; at = text.find('%', at + 1)) {
        const size_t end = std::find_if_not(text.begin() + static_cast<std::ptrdiff_t>(at) + 1, text.end(),
                                            [](unsigned char c) { return std::isalnum(c) != 0; }) -
                           text.begin();
        if (registers.count(text.substr(at, end - at)) != 0) {
            return true;
        }
    }
    return false;
}

std::vector<std::string> written_in(const std::string &line) {
    static const std::regex destination(R"((?:.*\.reg[^;]*;)?\s*(?:@!?%p\d+\s+)?[a-z][\w.]*\s+(\{[^}]*\}|%\w+).*)");
    static const std::regex name(R"(%\w+)");
    std::smatch match;
    if (!std::regex_match(line, match, destination)) {
        return {};
    }
    const std::string found = match[1];
    std::vector<std::string> names;
    for (std::sregex_iterator i(found.begin(), found.end(), name), end; i != end; ++i) {
        names.push_back(i->str());
    }
    return names;
}

bool is_end_of_block(const std::string &line) {
    static const std::regex branch(R"(\s*(@!?%p\d+\s+)?(bra|ret|exit|brx)\b.*|\$?\w+:.*)");
    return std::regex_match(line, branch);
}

Jump jump_of(const std::string &line) {
    static const std::regex branch(R"(\s*(@!?%\w+\s+)?bra(?:\.uni)?\s+(\$?\w+);.*)");
    static const std::regex end(R"(\s*(@!?%\w+\s+)?(?:ret|exit);.*)");
    std::smatch match;
    if (std::regex_match(line, match, branch)) {
        return {match[2], !match[1].matched};
    }
    if (line.find("brx") != std::string::npos) {
        fail_at(line);
    }
    return {"", std::regex_match(line, match, end) && !match[1].matched};
}

std::string label_in(const std::string &line) {
    static const std::regex label(R"(\s*(\$?\w+):.*)");
    std::smatch match;
    return std::regex_match(line, match, label) ? match.str(1) : "";
}

bool UnpackedWords::take(const std::string &line) {
    static const std::regex both(R"(\s*mov\.b64\s+\{(%r\d+), (%r\d+)\}, (%rd\d+);)");
    static const std::regex lower(R"(\s*cvt\.u32\.u64\s+(%r\d+), (%rd\d+);)");
    static const std::regex upper(R"(\s*\{ \.reg \.b32 tmp; mov\.b64 \{tmp, (%r\d+)\}, (%rd\d+); \})");
    std::smatch match;
    if (std::regex_match(line, match, both)) {
        add(match[3], 0, match[1]);
        add(match[3], 1, match[2]);
    } else if (std::regex_match(line, match, lower)) {
        add(match[2], 0, match[1]);
    } else if (std::regex_match(line, match, upper)) {
        add(match[2], 1, match[1]);
    } else {
        return false;
    }
    return true;
}

const UnpackedWords::Words &UnpackedWords::of(const std::string &name) const {
    const auto found = words_.find(name);
    if (found == words_.end() || found->second[0].empty() || found->second[1].empty() || repeated_.count(name)) {
        fail_at(name + " is not taken apart once");
    }
    return found->second;
}

void UnpackedWords::add(const std::string &name, size_t which, const std::string &word) {
    Words &words = words_[name];
    if (!words[which].empty()) {
        repeated_.insert(name);
    }
    words[which] = word;
}

void WideLoads::take(const std::string &line, size_t place) {
    static const std::regex load(
        R"(\s*ld\.global\.nc\.v4\.b32\s+\{(%r\d+), (%r\d+), (%r\d+), (%r\d+)\}, \[(%rd\d+(?:\+-?\d+)?)\];)");
    std::smatch match;
    if (std::regex_match(line, match, load)) {
        by_first_word_[match[1]] = {{match[1], match[2], match[3], match[4]}, match[5], place};
    }
}

const WideLoads::WideLoad &WideLoads::of(const std::array<std::string, 4> &words) const {
    const auto found = by_first_word_.find(words[0]);
    if (found == by_first_word_.end() || found->second.words != words) {
        fail_at(words[0] + " is not loaded as the first of four words");
    }
    return found->second;
}

}  // namespace hattn::schedules::cuda

#include "ptx_text.h"

#include <cctype>
#include <sstream>

#include "fault.h"

namespace hattn::emulated_cuda {

namespace {

std::string trimmed(std::string_view text) {
    const auto blank = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
    while (!text.empty() && blank(text.front())) {
        text.remove_prefix(1);
    }
    while (!text.empty() && blank(text.back())) {
        text.remove_suffix(1);
    }
    return std::string(text);
}

// Parts between separators that are outside brackets.
std::vector<std::string> split(std::string_view text, char separator) {
    std::vector<std::string> parts;
    int depth = 0;
    size_t begin = 0;
    for (size_t i = 0; i < text.size(); ++i) {
        depth += (text[i] == '{' || text[i] == '[') - (text[i] == '}' || text[i] == ']');
        if (text[i] == separator && depth == 0) {
            parts.push_back(trimmed(text.substr(begin, i - begin)));
            begin = i + 1;
        }
    }
    if (const std::string last = trimmed(text.substr(begin)); !last.empty()) {
        parts.push_back(last);
    }
    return parts;
}

PtxOperand parse_operand(const std::string &text) {
    if (text.front() != '{' && text.front() != '[') {
        return {PtxOperand::Kind::kPlain, {text}};
    }
    const std::string inside = text.substr(1, text.size() - 2);
    if (text.front() == '{') {
        return {PtxOperand::Kind::kVector, split(inside, ',')};
    }
    return {PtxOperand::Kind::kAddress, split(inside, '+')};
}

class Parser {
public:
    std::vector<PtxEntry> parse(std::string_view text) {
        std::istringstream lines{std::string(text)};
        for (std::string line; std::getline(lines, line);) {
            ++line_;
            if (const std::string code = trimmed(line.substr(0, line.find("//"))); !code.empty()) {
                parse_line(code);
            }
        }
        return std::move(entries_);
    }

private:
    enum class Place { kModule, kParameters, kBody };

    [[noreturn]] void fail(const std::string &what) const {
        throw Fault(kInvalidPtx, "PTX line " + std::to_string(line_) + ": " + what);
    }

    void parse_line(const std::string &code) {
        if (place_ == Place::kModule) {
            parse_module_line(code);
        } else if (place_ == Place::kParameters) {
            parse_parameter(code);
        } else {
            parse_body_line(code);
        }
    }

    void parse_module_line(const std::string &code) {
        if (code.find(".entry ") != std::string::npos) {
            const size_t begin = code.find(".entry ") + 7;
            entries_.push_back({});
            entries_.back().name = trimmed(std::string_view(code).substr(begin, code.find('(') - begin));
            place_ = code.find(')') == std::string::npos ? Place::kParameters : Place::kBody;
        } else if (code.find(".func") != std::string::npos) {
            fail("functions are not supported: " + code);
        } else if (code.find(".shared") != std::string::npos || code.find(".global") != std::string::npos ||
                   code.find(".const") != std::string::npos) {
            fail("variables are not supported: " + code);
        }
    }

    // .param .u64 .ptr .align 1 name,
    void parse_parameter(const std::string &code) {
        if (code.front() == ')') {
            place_ = Place::kBody;
            return;
        }
        std::istringstream words(code);
        std::string param, type, name;
        words >> param >> type;
        while (words >> name) {
        }
        if (param != ".param" || type.size() < 3 || name.empty()) {
            fail("unknown parameter: " + code);
        }
        if (name.back() == ',') {
            name.pop_back();
        }
        entries_.back().parameters.push_back({name, std::stoi(type.substr(2)) / 8});
    }

    void parse_body_line(const std::string &code) {
        PtxEntry &entry = entries_.back();
        if (code == "{") {
            ++depth_;
        } else if (code == "}") {
            place_ = --depth_ == 0 ? Place::kModule : Place::kBody;
        } else if (code.front() == '{') {
            parse_block(code);
        } else if (code.rfind(".reg ", 0) == 0) {
            parse_registers(code, entry);
        } else if (code.rfind(".maxntid ", 0) == 0) {
            entry.most_threads = std::stoi(code.substr(9));  // of kernels with more dimensions there are none
        } else if (code.rfind(".pragma", 0) == 0 || code.rfind(".loc", 0) == 0 || code.rfind(".minnctapersm", 0) == 0) {
            // For ptxas.
        } else if (code.front() == '.') {
            fail("unknown directive: " + code);
        } else if (code.back() == ':') {
            entry.labels[code.substr(0, code.size() - 1)] = entry.statements.size();
        } else {
            entry.statements.push_back(parse_statement(code));
        }
    }

    // { .reg .b32 tmp; mov.b64 {tmp, %r1}, %rd1; }
    void parse_block(const std::string &code) {
        for (const std::string &part : split(std::string_view(code).substr(1, code.size() - 2), ';')) {
            parse_body_line(part + ";");
        }
    }

    // .reg .b32 %r<949>;  or one by its name
    void parse_registers(const std::string &code, PtxEntry &entry) const {
        std::istringstream words(code);
        std::string reg, type, name;
        words >> reg >> type >> name;
        const size_t end = name.find_first_of("<;");
        if (end == std::string::npos) {
            fail("unknown registers: " + code);
        }
        entry.register_bits[name.substr(0, end)] = type == ".pred" ? 1 : std::stoi(type.substr(2));
    }

    PtxStatement parse_statement(std::string code) const {
        PtxStatement statement;
        statement.line = line_;
        statement.text = code;
        if (code.back() != ';') {
            fail("a statement without an end: " + code);
        }
        code.pop_back();
        if (code.front() == '@') {
            const size_t end = code.find_first_of(" \t");
            statement.guard_negated = code[1] == '!';
            statement.guard = code.substr(statement.guard_negated ? 2 : 1, end - (statement.guard_negated ? 2 : 1));
            code = trimmed(code.substr(end));
        }
        const size_t end = code.find_first_of(" \t");
        statement.opcode = code.substr(0, end);
        if (end != std::string::npos) {
            for (const std::string &operand : split(std::string_view(code).substr(end), ',')) {
                statement.operands.push_back(parse_operand(operand));
            }
        }
        return statement;
    }

    std::vector<PtxEntry> entries_;
    Place place_ = Place::kModule;
    int line_ = 0;
    int depth_ = 0;  // of braces in an entry
};

}  // namespace

std::vector<PtxEntry> parse_ptx(std::string_view text) {
    return Parser().parse(text);
}

}  // namespace hattn::emulated_cuda

#include "cache_lines.h"

#include <array>
#include <cctype>
#include <cstdio>
#include <memory>
#include <stdexcept>

namespace hattn::bench {

namespace {

std::string quoted(const std::string &word) {
    std::string text = "'";
    for (const char c : word) {
        text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    }
    return text + "'";
}

struct Pipe {
    void operator()(std::FILE *file) const {
        pclose(file);
    }
};

// "==12== D1  misses:   1,234  (  1,000 rd   +  234 wr)" as 1234; -1: it is not there.
double misses_in(const std::string &line) {
    const size_t name = line.find("D1  misses:");
    if (name == std::string::npos) {
        return -1.0;
    }
    std::string digits;
    for (size_t i = line.find(':', name) + 1; i < line.size() && line[i] != '('; ++i) {
        if (std::isdigit(static_cast<unsigned char>(line[i]))) {
            digits += line[i];
        }
    }
    return digits.empty() ? -1.0 : std::stod(digits);
}

}  // namespace

double missed_lines(const std::vector<std::string> &command) {
    std::string text = "valgrind --tool=cachegrind --cache-sim=yes --cachegrind-out-file=/dev/null";
    for (const std::string &word : command) {
        text += ' ';
        text += quoted(word);
    }
    const std::unique_ptr<std::FILE, Pipe> output(popen((text + " 2>&1 </dev/null").c_str(), "r"));
    if (!output) {
        throw std::runtime_error("no shell to run valgrind in");
    }
    double lines = -1.0;
    std::string said;
    for (std::array<char, 4096> buffer; std::fgets(buffer.data(), buffer.size(), output.get());) {
        const std::string line = buffer.data();
        said += line;
        if (const double found = misses_in(line); found >= 0.0) {
            lines = found;
        }
    }
    if (lines < 0.0) {
        throw std::runtime_error("valgrind, of Debian's package of that name, counts nothing: " + said);
    }
    return lines;
}

}  // namespace hattn::bench

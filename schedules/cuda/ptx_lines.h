// Lines of PTX as LLVM 21 writes them, and registers that instructions in other lines take the place of.
#pragma once

#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace hattn::schedules::cuda {

// Throws std::runtime_error.
[[noreturn]] void fail_at(const std::string &line);

// Whether one of the registers is in the text.
bool mentions(const std::string &text, const std::set<std::string> &registers);

// Registers that a line writes to.
std::vector<std::string> written_in(const std::string &line);

// A place where control flow may come together or part.
bool is_end_of_block(const std::string &line);

// Where a line goes on: at a label, if it has one, and, unless it always leaves, at the next line.
struct Jump {
    std::string label;
    bool always = false;
};
Jump jump_of(const std::string &line);
// The label that a line is; empty: none.
std::string label_in(const std::string &line);

// How the code takes 64-bit registers apart, each in one of two ways:
//
//     mov.b64 {%r1, %r2}, %rd1;
//     cvt.u32.u64 %r1, %rd1;    { .reg .b32 tmp; mov.b64 {tmp, %r2}, %rd1; }
class UnpackedWords {
public:
    using Words = std::array<std::string, 2>;

    // Whether a line is one of these.
    bool take(const std::string &line);
    const Words &of(const std::string &name) const;

private:
    void add(const std::string &name, size_t which, const std::string &word);

    std::set<std::string> repeated_;
    std::map<std::string, Words> words_;
};

// ld.global.nc.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1+16];
class WideLoads {
public:
    struct WideLoad {
        std::array<std::string, 4> words;
        std::string address;  // %rd1+16
        size_t place = 0;
    };

    void take(const std::string &line, size_t place);
    // Of the words, in this order.
    const WideLoad &of(const std::array<std::string, 4> &words) const;

private:
    std::map<std::string, WideLoad> by_first_word_;
};

}  // namespace hattn::schedules::cuda

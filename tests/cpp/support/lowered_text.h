// Statements of Halide as text, for tests of lowering passes.
#pragma once

#include <Halide.h>

#include <sstream>
#include <string>
#include <vector>

namespace hattn::test {

// An expression or a statement, as Halide prints it.
template<typename T>
std::string text_of(const T &what) {
    std::ostringstream text;
    text << what;
    return text.str();
}

// What a pipeline is lowered to, its passes included.
inline std::string lowered_text(Halide::Func &out, const std::vector<Halide::Argument> &inputs,
                                const Halide::Target &target = Halide::get_target_from_environment()) {
    return text_of(out.compile_to_module(inputs, out.name(), target).functions().front().body);
}

inline int count_of(const std::string &text, const std::string &word) {
    int found = 0;
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
        ++found;
    }
    return found;
}

}  // namespace hattn::test

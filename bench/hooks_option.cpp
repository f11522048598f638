#include "hooks_option.h"

#include <sstream>

#include "number_option.h"

namespace hattn::bench {

void set_hooks(cases::Case &problem, const std::string &text) {
    std::istringstream words(text);
    for (std::string word; std::getline(words, word, ',');) {
        if (word == "softcap") {
            problem.softcap = 30.0f;
        } else if (word == "bias") {
            problem.bias = cases::varying("qk");
        } else if (word == "alibi") {
            problem.alibi = true;
        } else if (word == "mask") {
            problem.mask = cases::varying("qk");
        } else if (word == "sink") {
            problem.sinks = cases::Sinks::kNormal;
        } else {
            refuse_option("--hooks", word, "one of softcap, bias, alibi, mask, sink");
        }
    }
}

}  // namespace hattn::bench

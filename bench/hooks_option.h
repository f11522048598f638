// What tools beside hattn are told of score hooks and sinks.
#pragma once

#include <string>

#include "problem.h"

namespace hattn::bench {

// Gives the problem what the words of --hooks name, parted by commas: softcap, bias, alibi, mask, sink. Biases and masks
// are [1, 1, Sq, Skv]. Throws std::invalid_argument with the word that is none of these.
void set_hooks(cases::Case &problem, const std::string &text);

}  // namespace hattn::bench

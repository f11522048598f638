#include "refusal.h"

#include <cctype>

namespace hattn::test {

namespace {

bool is_part_of_word(char letter) {
    return std::isalnum(static_cast<unsigned char>(letter)) || letter == '_';
}

}  // namespace

bool has_word(const std::string &sentence, const std::string &word) {
    for (size_t at = sentence.find(word); at != std::string::npos; at = sentence.find(word, at + 1)) {
        bool starts = at == 0 || !(is_part_of_word(sentence[at - 1]) && is_part_of_word(word.front()));
        size_t end = at + word.size();
        bool ends = end == sentence.size() || !(is_part_of_word(sentence[end]) && is_part_of_word(word.back()));
        if (starts && ends) {
            return true;
        }
    }
    return false;
}

std::string mismatch(const Outcome &outcome, const Refusal &refusal) {
    std::string text;
    if (outcome.status != refusal.status) {
        text += std::string("status is not ") + hattn_status_name(refusal.status) + "; ";
    }
    for (const std::string &word : refusal.words) {
        if (!has_word(outcome.message, word)) {
            text += "the sentence does not mention \"" + word + "\"; ";
        }
    }
    return text.empty() ? "" : text + "got " + outcome.text();
}

}  // namespace hattn::test

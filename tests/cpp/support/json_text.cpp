#include "json_text.h"

namespace hattn::test {

nlohmann::json parse_json(const std::string &text) {
    return nlohmann::json::parse(text);
}

}  // namespace hattn::test

#include "early_start.h"

#include <string_view>

namespace hattn {

namespace {

constexpr std::string_view kVersion = ".version ", kTarget = ".target ";
constexpr std::string_view kFirstVersion = "7.8", kFirstTarget = "sm_90";

// What follows a directive is at least that; false if the text has no such directive. (PTX of our kernels has versions
// 7 and 8, and targets sm_80 and sm_90.)
bool raise(std::string &ptx, std::string_view directive, std::string_view least) {
    const size_t at = ptx.find(directive);
    if (at == std::string::npos) {
        return false;
    }
    const size_t value = at + directive.size(), end = ptx.find('\n', value);
    if (std::string_view(ptx).substr(value, end - value) < least) {
        ptx.replace(value, end - value, least);
    }
    return true;
}

}  // namespace

std::string with_early_start(std::string ptx) {
    const size_t entry = ptx.find(".entry");
    const size_t body = entry == std::string::npos ? entry : ptx.find("\n{", entry);
    if (body == std::string::npos) {
        return "";
    }
    ptx.insert(body + 2, "\ngriddepcontrol.wait;\ngriddepcontrol.launch_dependents;");
    return raise(ptx, kVersion, kFirstVersion) && raise(ptx, kTarget, kFirstTarget) ? ptx : "";
}

}  // namespace hattn

// Reading a JSON text that anyone may have written: what is missing or of another type is a TuningError.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <rapidjson/document.h>

namespace hattn {

[[noreturn]] void refuse(const std::string &why);
[[noreturn]] void refuse_as_damaged(const std::string &what);

// For messages.
std::string text_of(const rapidjson::Value &value);

// These find a member of an object.
const rapidjson::Value &member(const rapidjson::Value &object, const char *name);
std::string_view text_member(const rapidjson::Value &object, const char *name);
rapidjson::Value::ConstArray list_member(const rapidjson::Value &object, const char *name);
double real_member(const rapidjson::Value &object, const char *name);
bool truth_member(const rapidjson::Value &object, const char *name);
int64_t number_member(const rapidjson::Value &object, const char *name, int64_t least, int64_t most);

}  // namespace hattn

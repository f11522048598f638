#include "json_members.h"

#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>

#include <algorithm>

#include "tuning_text.h"

namespace hattn {

namespace {

using rapidjson::Value;

const Value &typed_member(const Value &object, const char *name, bool (Value::*has_type)() const, const char *type) {
    const Value &value = member(object, name);
    if (!(value.*has_type)()) {
        refuse_as_damaged(std::string(name) + " is " + text_of(value) + ", but must be " + type);
    }
    return value;
}

bool holds_values(const Value &value) {
    return value.IsObject() || value.IsArray();
}

}  // namespace

void refuse(const std::string &why) {
    throw TuningError(why);
}

void refuse_as_damaged(const std::string &what) {
    refuse("it is damaged (" + what + ")");
}

std::string text_of(const Value &value) {
    // What is nested could be so deeply that writing it would take more stack than there is.
    if (value.IsObject() &&
        std::any_of(value.MemberBegin(), value.MemberEnd(), [](const auto &one) { return holds_values(one.value); })) {
        return "{...}";
    }
    if (value.IsArray() && std::any_of(value.Begin(), value.End(), holds_values)) {
        return "[...]";
    }
    rapidjson::StringBuffer buffer;
    rapidjson::Writer<rapidjson::StringBuffer> writer(buffer);
    value.Accept(writer);
    return buffer.GetString();
}

const Value &member(const Value &object, const char *name) {
    if (!object.IsObject()) {
        refuse_as_damaged(text_of(object) + " is no object, but must have a member " + std::string(name));
    }
    const auto found = object.FindMember(name);
    if (found == object.MemberEnd()) {
        refuse_as_damaged(std::string(name) + " is missing");
    }
    return found->value;
}

std::string_view text_member(const Value &object, const char *name) {
    const Value &value = typed_member(object, name, &Value::IsString, "a text");
    return {value.GetString(), value.GetStringLength()};
}

Value::ConstArray list_member(const Value &object, const char *name) {
    return typed_member(object, name, &Value::IsArray, "a list").GetArray();
}

double real_member(const Value &object, const char *name) {
    return typed_member(object, name, &Value::IsNumber, "a number").GetDouble();
}

bool truth_member(const Value &object, const char *name) {
    return typed_member(object, name, &Value::IsBool, "true or false").GetBool();
}

int64_t number_member(const Value &object, const char *name, int64_t least, int64_t most) {
    const Value &value = member(object, name);
    if (!value.IsInt64() || value.GetInt64() < least || value.GetInt64() > most) {
        const std::string range =
            least == most ? std::to_string(least) : "from " + std::to_string(least) + " to " + std::to_string(most);
        refuse(std::string(name) + " is " + text_of(value) + ", but must be " + range);
    }
    return value.GetInt64();
}

}  // namespace hattn

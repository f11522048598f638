// A variable of the environment for as long as something reads it: a context reads HATTN_FORCE and HATTN_PACKS when it
// is made.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace hattn::cases {

class ScopedVariable {
public:
    // Empty: it is not set.
    ScopedVariable(const char *name, const std::string &value) : name_(name) {
        if (const char *before = std::getenv(name)) {
            before_ = before;
        }
        set(value.empty() ? std::nullopt : std::optional(value));
    }
    ~ScopedVariable() {
        set(before_);
    }
    ScopedVariable(const ScopedVariable &) = delete;
    ScopedVariable &operator=(const ScopedVariable &) = delete;

private:
    void set(const std::optional<std::string> &value) const {
        if (value) {
            setenv(name_, value->c_str(), 1);
        } else {
            unsetenv(name_);
        }
    }

    const char *name_;
    std::optional<std::string> before_;
};

}  // namespace hattn::cases

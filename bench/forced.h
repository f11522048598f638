// HATTN_FORCE, or HATTN_PACKS, for as long as a context is made, which reads them then.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace hattn::bench {

class Forced {
public:
    // Empty: it is not set.
    explicit Forced(const std::string &value, const char *name = "HATTN_FORCE") : name_(name) {
        if (const char *before = std::getenv(name)) {
            before_ = before;
        }
        set(value.empty() ? std::nullopt : std::optional(value));
    }
    ~Forced() {
        set(before_);
    }
    Forced(const Forced &) = delete;
    Forced &operator=(const Forced &) = delete;

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

}  // namespace hattn::bench

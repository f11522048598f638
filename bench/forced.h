// HATTN_FORCE for as long as a context is made, which reads it then.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace hattn::bench {

class Forced {
public:
    // Empty: it is not set.
    explicit Forced(const std::string &value) {
        if (const char *before = std::getenv(kName)) {
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
    static constexpr const char *kName = "HATTN_FORCE";

    static void set(const std::optional<std::string> &value) {
        if (value) {
            setenv(kName, value->c_str(), 1);
        } else {
            unsetenv(kName);
        }
    }

    std::optional<std::string> before_;
};

}  // namespace hattn::bench

// One funnel from exceptions to statuses. Code behind the C boundary throws StatusError; `guarded` turns whatever is
// thrown into a status and the sentence for hattn_last_error(), and computes by the usual arithmetic.
#pragma once

#include <exception>
#include <locale>
#include <new>
#include <sstream>
#include <string>

#include "float_environment.h"
#include "hattn/hattn.h"

namespace hattn {

class StatusError : public std::exception {
public:
    StatusError(hattn_status status, std::string message) : status_(status), message_(std::move(message)) {}
    hattn_status status() const {
        return status_;
    }
    const char *what() const noexcept override {
        return message_.c_str();
    }

private:
    hattn_status status_;
    std::string message_;
};

template<typename... Parts>
[[noreturn]] void fail(hattn_status status, const Parts &...parts) {
    std::ostringstream text;
    text.imbue(std::locale::classic());  // the application's may group digits
    (text << ... << parts);
    throw StatusError(status, text.str());
}

template<typename... Parts>
void require(bool condition, hattn_status status, const Parts &...parts) {
    if (!condition) {
        fail(status, parts...);
    }
}

// The calling thread's last failure; empty after a success. Truncated to a fixed length, so that recording cannot fail.
void set_last_error(const char *message) noexcept;
const char *last_error() noexcept;

template<typename Function>
hattn_status guarded(Function &&function) noexcept {
    const CallArithmetic arithmetic;
    try {
        set_last_error("");
        function();
        return HATTN_OK;
    } catch (const StatusError &error) {
        set_last_error(error.what());
        return error.status();
    } catch (const std::bad_alloc &) {
        set_last_error("out of memory");
        return HATTN_OUT_OF_MEMORY;
    } catch (const std::exception &error) {
        set_last_error(error.what());
        return HATTN_INTERNAL_ERROR;
    } catch (...) {
        set_last_error("unknown exception");
        return HATTN_INTERNAL_ERROR;
    }
}

}  // namespace hattn

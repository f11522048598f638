#include "status.h"

#include <algorithm>
#include <string_view>

namespace hattn {

namespace {
thread_local char message_of_thread[512] = "";
}

void set_last_error(const char *message) noexcept {
    const std::string_view text = message;
    size_t size = std::min(text.size(), sizeof(message_of_thread) - 1);
    // Not within a character of UTF-8, whose later bytes are 0b10xxxxxx.
    while (size < text.size() && size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) {
        --size;
    }
    text.copy(message_of_thread, size);
    message_of_thread[size] = '\0';
}

const char *last_error() noexcept {
    return message_of_thread;
}

}  // namespace hattn

const char *hattn_last_error(const hattn_context *) {
    return hattn::last_error();
}

const char *hattn_status_name(hattn_status status) {
    switch (status) {
    case HATTN_OK:
        return "HATTN_OK";
    case HATTN_INVALID_ARGUMENT:
        return "HATTN_INVALID_ARGUMENT";
    case HATTN_NOT_SUPPORTED:
        return "HATTN_NOT_SUPPORTED";
    case HATTN_OUT_OF_MEMORY:
        return "HATTN_OUT_OF_MEMORY";
    case HATTN_WORKSPACE_TOO_SMALL:
        return "HATTN_WORKSPACE_TOO_SMALL";
    case HATTN_CAPACITY_EXCEEDED:
        return "HATTN_CAPACITY_EXCEEDED";
    case HATTN_OVERFLOW:
        return "HATTN_OVERFLOW";
    case HATTN_INTERNAL_ERROR:
        return "HATTN_INTERNAL_ERROR";
    }
    return "unknown";
}

// Copies of tables to parts of a device workspace, put together: a queue spends microseconds on each, however small.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hattn {

struct DeviceQueue;

// Parts that lie one after the other go as one copy, of staging memory of the host, in which their contents are
// gathered. Between them may be less than kMostGap bytes that become zeros: of parts that are not copied, since nobody
// reads them, and nobody has written them before in the same execute. Without staging memory, or where it is used up,
// each goes by itself.
class DeviceUploads {
public:
    void use(void *staging, size_t bytes) {
        next_ = static_cast<char *>(staging);
        end_ = next_ + bytes;
    }
    // From now on `host` may change, but for a part that goes by itself.
    void add(const DeviceQueue &queue, uint64_t part, const void *host, size_t bytes);
    // Puts what is gathered into the queue. What reads parts has to come after it.
    void flush(const DeviceQueue &queue);

private:
    bool extend(const DeviceQueue &queue, uint64_t part, size_t bytes);

    char *next_ = nullptr, *end_ = nullptr;  // of staging memory that is free
    char *first_ = nullptr;                  // of what is gathered, up to `next_`; null: nothing
    uint64_t part_ = 0;                      // where that goes
};

}  // namespace hattn

#include "device_code.h"

#include <zlib.h>

#include <cstring>

namespace hattn {

std::string unpack_device_code(const void *packed, size_t bytes) {
    PackedCodeHeader header;
    if (bytes <= sizeof(header)) {
        return "";
    }
    std::memcpy(&header, packed, sizeof(header));
    std::string text(header.text_bytes, '\0');
    uLongf length = text.size();
    const int result = uncompress(reinterpret_cast<Bytef *>(text.data()), &length,
                                  static_cast<const Bytef *>(packed) + sizeof(header), bytes - sizeof(header));
    if (result != Z_OK || length != header.text_bytes || length == 0) {
        return "";
    }
    text.pop_back();
    return text;
}

}  // namespace hattn

#include "pack_file.h"

#include <bit>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "status.h"

namespace hattn {

static_assert(std::endian::native == std::endian::little, "trailers are written as they lie in memory");

namespace {

std::string read_file(const std::string &path) {
    std::error_code error;
    const std::filesystem::file_status status = std::filesystem::status(path, error);
    require(!exists(status) || is_regular_file(status), HATTN_INVALID_ARGUMENT, "kernel pack ", path,
            ": cannot be read: it is not a file");
    std::ifstream file(path, std::ios::binary);
    require(file.is_open(), HATTN_INVALID_ARGUMENT, "kernel pack ", path, ": ", std::strerror(errno));
    std::string content;
    char part[1 << 16];
    while (file.read(part, sizeof(part)) || file.gcount() > 0) {
        content.append(part, static_cast<size_t>(file.gcount()));
    }
    require(file.eof(), HATTN_INVALID_ARGUMENT, "kernel pack ", path, ": cannot be read");
    return content;
}

}  // namespace

std::string hash_text(uint64_t hash) {
    char text[17];
    std::snprintf(text, sizeof(text), "%016" PRIx64, hash);  // a stream would group digits where the locale does
    return text;
}

std::string read_pack_text(const std::string &path) {
    const std::string file = read_file(path);
    PackTrailer trailer;
    const bool has_trailer = file.size() >= sizeof(trailer);
    const std::string_view content(file.data(), has_trailer ? file.size() - sizeof(trailer) : 0);
    if (has_trailer) {
        std::memcpy(&trailer, file.data() + content.size(), sizeof(trailer));
    }
    require(has_trailer && trailer.magic == PackTrailer::kMagic, HATTN_INVALID_ARGUMENT, "kernel pack ", path,
            ": is not one, or not whole (", file.size(), " bytes)");
    require(trailer.format == PackTrailer::kFormat, HATTN_NOT_SUPPORTED, "kernel pack ", path, ": has format ",
            trailer.format, ", but this library reads format ", PackTrailer::kFormat);
    const uint64_t hash = hash_bytes(content);
    require(trailer.text_bytes <= content.size() && trailer.hash == hash, HATTN_INVALID_ARGUMENT, "kernel pack ", path,
            ": is damaged: its hash is ", hash_text(hash), ", but was ", hash_text(trailer.hash), " when written");
    return std::string(content.substr(content.size() - trailer.text_bytes));
}

std::string pack_file(std::string_view object, std::string_view text) {
    PackTrailer trailer;
    trailer.text_bytes = text.size();
    trailer.hash = hash_bytes(text, hash_bytes(object));
    std::string file;
    file.reserve(object.size() + text.size() + sizeof(trailer));
    file.append(object).append(text).append(reinterpret_cast<const char *>(&trailer), sizeof(trailer));
    return file;
}

}  // namespace hattn

#include "pack.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "runtime/pack_file.h"

namespace hattn::test {

const char *sample_pack() {
    return std::getenv("HATTN_SAMPLE_PACK");
}

const char *sample_device_pack() {
    return std::getenv("HATTN_SAMPLE_DEVICE_PACK");
}

std::string read_bytes(const std::filesystem::path &path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        throw std::runtime_error("cannot read " + path.string());
    }
    return {std::istreambuf_iterator<char>(file), {}};
}

// By way of a new file: one that is in use as a library must not change.
void write_bytes(const std::filesystem::path &path, const std::string &bytes) {
    const std::string part = path.string() + ".part";
    std::ofstream(part, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    std::filesystem::rename(part, path);
}

std::string changed_pack(const std::function<void(std::string &object, std::string &text)> &change, const char *pack) {
    const std::string file = read_bytes(pack);
    PackTrailer trailer;
    std::memcpy(&trailer, file.data() + file.size() - sizeof(trailer), sizeof(trailer));
    const size_t object_bytes = file.size() - sizeof(trailer) - trailer.text_bytes;
    std::string object = file.substr(0, object_bytes), text = file.substr(object_bytes, trailer.text_bytes);
    change(object, text);
    return pack_file(object, text);
}

void replace_once(std::string &bytes, const std::string &from, const std::string &to) {
    const size_t at = bytes.find(from);
    if (at == std::string::npos) {
        throw std::runtime_error("no '" + from + "' to replace");
    }
    bytes.replace(at, from.size(), to);
}

TestFolder::TestFolder() {
    std::string name = std::filesystem::temp_directory_path() / "hattn-test-XXXXXX";
    if (!mkdtemp(name.data())) {
        throw std::runtime_error("cannot make " + name);
    }
    path_ = name;
}

TestFolder::~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

}  // namespace hattn::test

#include "files.h"

#include <fstream>
#include <sstream>
#include <stdexcept>

namespace hattn::generators {

std::string read_file(const std::filesystem::path &path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream content;
    content << file.rdbuf();
    if (!file || !content) {
        throw std::runtime_error("cannot read " + path.string());
    }
    return content.str();
}

void write_file(const std::filesystem::path &path, const std::string &content) {
    std::ofstream file(path, std::ios::binary);
    file.write(content.data(), static_cast<std::streamsize>(content.size()));
    if (!file.flush()) {
        throw std::runtime_error("cannot write " + path.string());
    }
}

}  // namespace hattn::generators

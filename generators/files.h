// Files as a whole. Both throw std::runtime_error.
#pragma once

#include <filesystem>
#include <string>

namespace hattn::generators {

std::string read_file(const std::filesystem::path &path);
void write_file(const std::filesystem::path &path, const std::string &content);

}  // namespace hattn::generators

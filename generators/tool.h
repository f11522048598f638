// Running another program, and a folder for what it reads and writes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace hattn::generators {

// Runs the program that the environment variable names, or else `program`, from the path, and waits for it. Throws
// std::runtime_error if it cannot be run or fails.
void run_tool(const char *variable, const char *program, const std::vector<std::string> &arguments);

// Goes with everything in it.
class TemporaryFolder {
public:
    TemporaryFolder();
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder &) = delete;
    TemporaryFolder &operator=(const TemporaryFolder &) = delete;
    const std::filesystem::path &path() const {
        return path_;
    }

private:
    std::filesystem::path path_;
};

}  // namespace hattn::generators

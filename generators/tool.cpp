#include "tool.h"

#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cstring>
#include <stdexcept>

extern char **environ;

namespace hattn::generators {

void run_tool(const char *variable, const char *program, const std::vector<std::string> &arguments) {
    const char *named = getenv(variable);
    const std::string name = named && *named ? named : program;
    std::vector<char *> words = {const_cast<char *>(name.c_str())};
    for (const std::string &argument : arguments) {
        words.push_back(const_cast<char *>(argument.c_str()));
    }
    words.push_back(nullptr);
    pid_t child = 0;
    if (const int error = posix_spawnp(&child, name.c_str(), nullptr, nullptr, words.data(), environ)) {
        throw std::runtime_error("cannot run " + name + ": " + std::strerror(error) + " (needed are `as` and `ld` of " +
                                 "binutils; " + variable + " names another)");
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0) {
        throw std::runtime_error(name + " failed");
    }
}

TemporaryFolder::TemporaryFolder() {
    std::string name = std::filesystem::temp_directory_path() / "hattn-XXXXXX";
    if (!mkdtemp(name.data())) {
        throw std::runtime_error("cannot make a folder " + name + ": " + std::strerror(errno));
    }
    path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

}  // namespace hattn::generators

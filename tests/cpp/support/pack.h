// Kernel packs for tests: those the build made, and files derived from them.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace hattn::test {

// Of two kernels for `generic` with tiles that the library lacks; null: this build has no hattn-kernelgen.
const char *sample_pack();
inline constexpr const char *kSampleFlash = "flash_generic_r32k32v1u1d1";
inline constexpr const char *kSampleSplit = "split_kv_generic_r8k48v1u1d1_mask";

// Likewise, of kernels for the devices of this build.
const char *sample_device_pack();

std::string read_bytes(const std::filesystem::path &path);
void write_bytes(const std::filesystem::path &path, const std::string &bytes);

// A pack with its parts changed and its hash made right again.
std::string changed_pack(const std::function<void(std::string &object, std::string &text)> &change,
                         const char *pack = sample_pack());

void replace_once(std::string &bytes, const std::string &from, const std::string &to);  // throws if `from` is missing

// A folder of its own for every test, gone with everything in it.
class TestFolder {
public:
    TestFolder();
    ~TestFolder();
    TestFolder(const TestFolder &) = delete;
    TestFolder &operator=(const TestFolder &) = delete;
    std::string file(const std::string &name) const {
        return path_ / name;
    }
    std::string path() const {
        return path_;
    }

private:
    std::filesystem::path path_;
};

}  // namespace hattn::test

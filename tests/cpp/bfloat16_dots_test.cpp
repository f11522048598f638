// Instructions that stand for others in what LLVM compiles: bits as GNU's assembler has them, text, and objects. What
// the kernels compute with them is tested where there are CPUs that do, or emulators of these.
#include "schedules/arm/bfloat16_dots.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "Halide.h"

namespace {

using namespace Halide;
using hattn::schedules::arm::Bfloat16Dots;
using hattn::schedules::arm::replace_dots;
using hattn::schedules::arm::replace_dots_in_object;
using hattn::schedules::arm::with_bfdot;
namespace fs = std::filesystem;

TEST(Bfloat16Dots, ChangeDotProductsAlone) {
    // sdot v1.4s, v2.16b, v3.16b; sdot v1.4s, v2.16b, v19.4b[3]; sdot v31.4s, v30.16b, v5.4b[1]
    std::vector<uint32_t> code = {0x4e839441, 0x4fb3e841, 0x4fa5e3df};
    // udot v1.4s, v2.16b, v3.16b; fmla v1.4s, v2.4s, v3.s[1]; sdot v1.2s, v2.8b, v3.8b; usdot v1.4s, v2.16b, v3.4b[1];
    // ldr q1, [x2]
    const std::vector<uint32_t> others = {0x6e839441, 0x4fa31041, 0x0e839441, 0x4fa3f041, 0x3dc00041};
    code.insert(code.end(), others.begin(), others.end());
    EXPECT_EQ(replace_dots(code), 3);
    // bfdot v1.4s, v2.8h, v3.8h; bfdot v1.4s, v2.8h, v19.2h[3]; bfdot v31.4s, v30.8h, v5.2h[1]
    std::vector<uint32_t> expected = {0x6e43fc41, 0x4f73f841, 0x4f65f3df};
    expected.insert(expected.end(), others.begin(), others.end());
    EXPECT_EQ(code, expected);
    EXPECT_EQ(replace_dots(code), 0);
}

TEST(Bfloat16Dots, ChangeAssembly) {
    EXPECT_EQ(with_bfdot("\tsdot\tv1.4s, v2.16b, v3.16b\n\tsdot\tv1.4s, v2.16b, v19.4b[3]\n"),
              "\tbfdot\tv1.4s, v2.8h, v3.8h\n\tbfdot\tv1.4s, v2.8h, v19.2h[3]\n");
    EXPECT_EQ(with_bfdot("\tudot\tv1.4s, v2.16b, v3.16b\n"), "\tudot\tv1.4s, v2.16b, v3.16b\n");
}

// Sums of products of pairs, under a name, as an object for 64-bit ARM.
class Objects : public testing::Test {
protected:
    Objects() : path_(fs::temp_directory_path() / ("hattn_dots_" + std::to_string(::getpid()) + ".o")) {}
    ~Objects() override {
        fs::remove(path_);
    }

    void compile(const std::string &name, bool pairs, int lanes = 4) {
        ImageParam a(BFloat(16), 2, "a"), b(BFloat(16), 1, "b");
        Func sum("sum");
        Var lane("lane");
        RDom r(0, 2, "r");
        sum(lane) = 1.0f;
        sum(lane) += cast<float>(a(r, lane)) * cast<float>(b(r));
        a.dim(1).set_stride(2);
        sum.bound(lane, 0, lanes).vectorize(lane);
        sum.update().atomic().vectorize(r).vectorize(lane);
        Pipeline pipeline(sum);
        if (pairs) {
            pipeline.add_custom_lowering_pass(new Bfloat16Dots());
        }
        const Target target("arm-64-linux-arm_dot_prod-no_asserts-no_bounds_query-no_runtime");
        pipeline.compile_to_module({a, b}, name, target, LinkageType::ExternalPlusArgv)
            .compile({{OutputFileType::object, path_}});
    }

    int dots() const {
        std::ifstream in(path_, std::ios::binary);
        const std::vector<char> file{std::istreambuf_iterator<char>(in), {}};
        std::vector<uint32_t> words(file.size() / sizeof(uint32_t));
        std::memcpy(words.data(), file.data(), words.size() * sizeof(uint32_t));
        return replace_dots(words);
    }

    const fs::path path_;
};

TEST_F(Objects, HaveOneForEachSumOfAVector) {
    compile("dots_of_pairs", true);
    EXPECT_EQ(dots(), 1);
    replace_dots_in_object(path_, {"dots_of_pairs"});
    EXPECT_EQ(dots(), 0);
}

TEST_F(Objects, WithoutTheFunctionsAreRefused) {
    compile("dots_of_pairs", true);
    EXPECT_THROW(replace_dots_in_object(path_, {"dots_of_pairs", "dots_of_others"}), std::runtime_error);
    EXPECT_EQ(dots(), 1) << "nothing is written then";
    compile("dots_of_pairs", false);
    EXPECT_EQ(dots(), 0);
    EXPECT_THROW(replace_dots_in_object(path_, {"dots_of_pairs"}), std::runtime_error) << "without dot products";
}

TEST_F(Objects, OfAnotherKindAreRefused) {
    const std::vector<std::string> functions = {"dots_of_pairs"};
    EXPECT_THROW(replace_dots_in_object(path_, functions), std::runtime_error) << "there is none";
    std::ofstream(path_) << std::string(4096, 'x');
    EXPECT_THROW(replace_dots_in_object(path_, functions), std::runtime_error);
    compile("dots_of_pairs", true);
    fs::resize_file(path_, fs::file_size(path_) / 2);
    EXPECT_THROW(replace_dots_in_object(path_, functions), std::runtime_error);
}

// Sums of two lanes have an instruction of 64 bits, of which none is changed.
TEST_F(Objects, HaveNoneForHalvesOfVectors) {
    compile("dots_of_two", true, 2);
    EXPECT_THROW(replace_dots_in_object(path_, {"dots_of_two"}), std::runtime_error);
}

}  // namespace

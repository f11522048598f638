// What the pass over bands of rows makes of sums: statements written out, in which it finds what it says it takes and
// refuses what it does not.
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "schedules/x86/sums_at_once.h"
#include "schedules/x86/sums_in_place.h"
#include "schedules/x86/tile_sums.h"
#include "support/lowered_text.h"

namespace {

using namespace Halide;
using namespace Halide::Internal;
using namespace hattn::schedules::x86;
using hattn::test::text_of;

constexpr int kLanes = 16;

Expr variable(const char *name) {
    return Variable::make(Int(32), name);
}

Expr vector_at(const Expr &first) {
    return Ramp::make(first, 1, kLanes);
}

Expr load(const char *array, const Expr &first) {
    return Load::make(Float(32, kLanes), array, vector_at(first), {}, {}, const_true(kLanes), {});
}

Stmt store(const char *array, const Expr &first, const Expr &value) {
    return Store::make(array, value, vector_at(first), Parameter(), const_true(kLanes), {});
}

Stmt loop(const char *variable, const Expr &extent, const Stmt &body) {
    return For::make(variable, 0, extent, ForType::Serial, Partition::Never, DeviceAPI::None, body);
}

// parts[pair] = weights[pair]
Stmt parts_of_weights() {
    const Expr pair = variable("pair");
    return loop("pair", 8, store("parts", pair * kLanes, load("weights", pair * kLanes)));
}

// sum += parts[granule, pair of it], one of them further
Stmt sum_of_parts(int further = 0) {
    const Expr part = (variable("granule") * 2 + variable("of_granule") + further) * kLanes;
    return loop("granule", variable("granules"),
                loop("of_granule", 2, store("sum", 0, load("sum", 0) + load("parts", part))));
}

TEST(SumsAtOnce, PassesAddToTheFirstPart) {
    const Stmt parts = parts_of_weights(), sum = sum_of_parts();
    const SumsAtOnce sums = sums_at_once("parts", parts.as<For>(), sum.as<For>());
    EXPECT_EQ(text_of(sums.zeroed), text_of(store("parts", 0, make_zero(Float(32, kLanes)))));
    const Expr pair = variable("pair");
    EXPECT_EQ(text_of(sums.stored),
              text_of(loop("pair", 8, store("parts", 0, load("parts", 0) + load("weights", pair * kLanes)))));
    EXPECT_EQ(text_of(sums.summed), text_of(store("sum", 0, load("sum", 0) + load("parts", 0))));
}

TEST(SumsAtOnce, OtherPartsAreRefused) {
    const Stmt parts = parts_of_weights(), sum = sum_of_parts(1);
    EXPECT_THROW(sums_at_once("parts", parts.as<For>(), sum.as<For>()), std::runtime_error);
}

constexpr int kSumsRow = 32, kStateRow = 40;  // numbers from one element to the next

// A register of sums of elements 16 * `tile` on, and rows from 16 on.
Stmt products() {
    const Type type = Float(32, kSide * kSide);
    const Expr sums =
        Load::make(type, "register", Ramp::make(0, 1, kSide * kSide), {}, {}, const_true(kSide * kSide), {});
    const auto set = [&](const Expr &value) {
        return Store::make("register", value, Ramp::make(0, 1, kSide * kSide), Parameter(), const_true(kSide * kSide),
                           {});
    };
    const Expr zero = Call::make(type, "tile_zero", {kSide, kSide * 4}, Call::Intrinsic);
    const Expr start = (variable("tile") * (kSide * kSumsRow) + kLanes) * 4;
    const Expr stored =
        Call::make(Int(32), "tile_store",
                   {kSide, kSide * 4, Variable::make(Handle(), "sums"), start, kSumsRow * 4, sums}, Call::Intrinsic);
    return Block::make(set(zero), Evaluate::make(stored));
}

// state = sums + state * factor, of 32 rows
Stmt state_of(const Expr &factor) {
    const Expr d = variable("d");
    const auto rows = [&](int first) {
        const Expr place = d * kStateRow + first;
        return store("state", place, load("sums", d * kSumsRow + first) + load("state", place) * factor);
    };
    return loop("d", variable("elements"), Block::make(rows(0), rows(kLanes)));
}

TEST(SumsInPlace, RegistersStartAsTheStateIsAndAreStoredThere) {
    const Stmt state = state_of(load("factors", 0));
    const SumsInPlace in_place = sums_in_place(products(), state.as<For>());
    EXPECT_EQ(in_place.sums, "sums");
    const std::string text = text_of(in_place.products);
    const std::string place = "(tile*" + std::to_string(kSide * kStateRow * 4) + ") + " + std::to_string(kLanes * 4);
    const std::string stride = std::to_string(kStateRow * 4);
    EXPECT_NE(text.find("tile_load(16, 64, (void *)state, " + place + ", " + stride + ")"), std::string::npos) << text;
    EXPECT_NE(text.find("tile_store(16, 64, (void *)state, " + place + ", " + stride + ","), std::string::npos) << text;
    EXPECT_EQ(text.find("tile_zero"), std::string::npos) << text;
    const IfThenElse *moved = in_place.rescaled.as<IfThenElse>();
    ASSERT_NE(moved, nullptr) << in_place.rescaled;
    EXPECT_NE(text_of(moved->condition).find("factors"), std::string::npos) << moved->condition;
    const std::string rescaled = text_of(moved->then_case);
    EXPECT_EQ(rescaled.find("sums"), std::string::npos) << rescaled;
    EXPECT_NE(rescaled.find("factors"), std::string::npos) << rescaled;
}

TEST(SumsInPlace, OtherSumsAreRefused) {
    const Stmt with_own_factors = state_of(load("factors", variable("d") * kLanes));
    EXPECT_THROW(sums_in_place(products(), with_own_factors.as<For>()), std::runtime_error);
    const Expr d = variable("d");
    const Stmt without_factor =
        loop("d", 8, store("state", d * kStateRow, load("sums", d * kSumsRow) + load("state", d * kStateRow)));
    EXPECT_THROW(sums_in_place(products(), without_factor.as<For>()), std::runtime_error);
    const Expr twice = load("sums", d * 2 * kSumsRow) + load("state", d * kStateRow) * load("factors", 0);
    const Stmt of_every_other = loop("d", 8, store("state", d * kStateRow, twice));
    EXPECT_THROW(sums_in_place(products(), of_every_other.as<For>()), std::runtime_error);
}

}  // namespace

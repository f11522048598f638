// Statements that lowering passes move: copies go between products, rare steps behind one branch.
#include "schedules/cuda/spread_copies.h"

#include <gtest/gtest.h>

#include <sstream>

#include "schedules/cuda/matrix_calls.h"
#include "schedules/cuda/rare_steps.h"
#include "schedules/cuda/warp_matrix.h"

namespace {

using namespace Halide;
using namespace Halide::Internal;
namespace cuda = hattn::schedules::cuda;

Stmt store(const Expr &at) {
    return Store::make("shared", 1.0f, at, Parameter(), const_true(), ModulusRemainder());
}

Stmt loop(const std::string &name, int extent, const Stmt &body) {
    return For::make(name, 0, extent, ForType::Serial, Partition::Auto, DeviceAPI::None, body);
}

// 'p' a product, 'c' a copy, in the order of the statements.
std::string order_of(const Stmt &statement) {
    std::ostringstream text;
    text << statement;
    std::string order, line;
    for (std::istringstream lines(text.str()); std::getline(lines, line);) {
        order += line.find("for (") != std::string::npos ? "p" : line.find("shared[") != std::string::npos ? "c" : "";
    }
    return order;
}

Stmt products(int count) {
    std::vector<Stmt> all;
    for (int i = 0; i < count; ++i) {
        all.push_back(loop("dot." + std::string(cuda::kMatrixSum), 16, Evaluate::make(i)));
    }
    return ProducerConsumer::make_consume("keys", Block::make(all));
}

TEST(SpreadCopies, TakeAStageApart) {
    const Expr i = Variable::make(Int(32), "i"), side_by_side = Variable::make(Bool(), "side_by_side");
    const Stmt copies =
        loop("i", 2, Block::make(store(i * 8), LetStmt::make("j", i * 8 + 3, store(Variable::make(Int(32), "j")))));
    const Stmt stage = IfThenElse::make(side_by_side, copies, store(100));
    const cuda::TileCopies taken = cuda::copies_of_tile("values", stage, const_true());
    ASSERT_EQ(taken.single.size(), 4u);
    for (int copy = 0; copy < 4; ++copy) {
        const ProducerConsumer *produced = taken.single[static_cast<size_t>(copy)].as<ProducerConsumer>();
        ASSERT_TRUE(produced && produced->is_producer && produced->name == "values");
        const IfThenElse *branch = produced->body.as<IfThenElse>();
        ASSERT_TRUE(branch && expr_uses_var(branch->condition, "side_by_side"));
        const Store *single = branch->then_case.as<Store>();
        ASSERT_NE(single, nullptr);
        EXPECT_TRUE(is_const(single->index, copy / 2 * 8 + copy % 2 * 3)) << single->index;
    }
    EXPECT_EQ(order_of(taken.others), "c");
    EXPECT_THROW(cuda::copies_of_tile("values", copies, const_true()), std::runtime_error);
    EXPECT_THROW(
        cuda::copies_of_tile("values", IfThenElse::make(side_by_side, Evaluate::make(0), store(0)), const_true()),
        std::runtime_error);
}

TEST(SpreadCopies, GoAmongTheFirstHalfOfProducts) {
    const std::vector<Stmt> copies(8, store(0));
    EXPECT_EQ(order_of(cuda::among_products(products(16), "keys", copies)), "ppppccccppppccccpppppppp");
    EXPECT_EQ(order_of(cuda::among_products(products(8), "keys", {store(0)})), "ppppcpppp");
    EXPECT_THROW(cuda::among_products(products(16), "values", copies), std::runtime_error);
    EXPECT_THROW(cuda::among_products(store(0), "keys", copies), std::runtime_error);
}

TEST(RareSteps, AreBehindOneBranch) {
    const auto step = [](int i) {
        return IfThenElse::make(Variable::make(Bool(), "c" + std::to_string(i % 2)), store(i));
    };
    const Stmt steps = Block::make({step(0), step(1), step(2), step(3), store(9)});
    const auto passed = [&](const char *stage) {
        std::ostringstream text;
        text << cuda::RareSteps(stage).mutate(ProducerConsumer::make_produce("kept", steps));
        return text.str();
    };
    const std::string text = passed("kept");
    const size_t vote = text.find(cuda::kAnyLaneCall);
    ASSERT_NE(vote, std::string::npos);
    EXPECT_LT(vote, text.find("shared[")) << text;
    EXPECT_EQ(text.find(cuda::kAnyLaneCall, vote + 1), std::string::npos) << "one for all";
    EXPECT_EQ(passed("another").find(cuda::kAnyLaneCall), std::string::npos);
}

}  // namespace

// Copies of parts of a vector, as Halide lowers them.
#include "schedules/simd/joined_copies.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

namespace {

using namespace Halide;
using namespace Halide::Internal;
using hattn::schedules::simd::JoinedCopies;

constexpr int kPart = 4, kParts = 4, kVector = kPart * kParts;

const Expr kAt = Variable::make(Int(32), "at");

Expr vector_at(const std::string &array, const Expr &first) {
    return Load::make(Float(32, kPart), array, Ramp::make(first, 1, kPart), {}, {}, const_true(kPart), {});
}

Stmt copy(const std::string &to, const Expr &at, const Expr &value) {
    return Store::make(to, value, Ramp::make(at, 1, kPart), {}, const_true(kPart), {});
}

Stmt copies(const std::vector<Expr> &to, const std::vector<Expr> &from, const std::string &source = "source") {
    std::vector<Stmt> all;
    for (size_t i = 0; i < to.size(); ++i) {
        all.push_back(copy("parts", to[i], vector_at(source, from[i])));
    }
    return Block::make(all);
}

// The lanes that are stored at once, one after the other.
class Stores : public IRVisitor {
public:
    std::vector<int> lanes;

private:
    using IRVisitor::visit;

    void visit(const Store *store) override {
        lanes.push_back(store->index.type().lanes());
        IRVisitor::visit(store);
    }
};

std::vector<int> stored(const Stmt &block) {
    Stores stores;
    JoinedCopies().mutate(block).accept(&stores);
    return stores.lanes;
}

const std::vector<int> kApart(kParts, kPart), kJoined = {kVector};

std::vector<Expr> places(const std::vector<int> &offsets) {
    std::vector<Expr> all;
    for (int offset : offsets) {
        all.push_back(kAt + offset);
    }
    return all;
}

TEST(JoinedCopies, AreOne) {
    const std::vector<Expr> dense = places({0, 4, 8, 12});
    EXPECT_EQ(stored(copies(dense, dense)), kJoined);
    EXPECT_EQ(stored(copies({0, 4, 8, 12}, dense)), kJoined);
}

// Rows of four numbers, of four keys of sixteen in a row.
TEST(JoinedCopies, SeeThatRemaindersFollowEachOther) {
    std::vector<Expr> rows;
    for (int key = 0; key < kParts; ++key) {
        rows.push_back((kAt * 4 + key) % 16 * kPart);
    }
    EXPECT_EQ(stored(copies({0, 4, 8, 12}, rows)), kJoined);
    std::vector<Expr> unknown;
    for (int key = 0; key < kParts; ++key) {
        unknown.push_back((kAt + key) % 16 * kPart);
    }
    EXPECT_EQ(stored(copies({0, 4, 8, 12}, unknown)), kApart) << "the first of them may be the last of sixteen";
}

TEST(JoinedCopies, LeaveOthers) {
    const std::vector<Expr> dense = places({0, 4, 8, 12});
    EXPECT_EQ(stored(copies(dense, places({0, 4, 8, 16}))), kApart) << "a gap";
    EXPECT_EQ(stored(copies(dense, places({4, 0, 8, 12}))), kApart) << "another order";
    EXPECT_EQ(stored(copies(places({0, 8, 16, 24}), dense)), kApart) << "a gap where they go";
    EXPECT_EQ(stored(copies(dense, dense, "parts")), kApart) << "one array";
    const std::vector<Expr> three = places({0, 4, 8});
    EXPECT_EQ(stored(copies(three, three)), std::vector<int>(three.size(), kPart)) << "no whole vector";
    std::vector<Expr> indirect;
    for (int part = 0; part < kParts; ++part) {
        const Expr first = Load::make(Int(32), "parts", 0, {}, {}, const_true(1), {});
        indirect.push_back(first + part * kPart);
    }
    EXPECT_EQ(stored(copies(dense, indirect)), kApart) << "where they come from may have been stored by one of them";
}

}  // namespace

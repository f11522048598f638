// Tests of an algorithm on a target.
#pragma once

#include <gtest/gtest.h>

#include <tuple>

#include "targets.h"

namespace hattn::test {

// The first two parameters are a target's name and an algorithm. Skipped where this machine cannot run the target.
template<typename Param>
class TargetTest : public testing::TestWithParam<Param> {
protected:
    void SetUp() override {
        const TargetContext &implementation = context_for(std::get<0>(this->GetParam()));
        if (!implementation.context) {
            GTEST_SKIP() << implementation.why_not;
        }
        context_ = implementation.context.get();
    }

    hattn_context *context_ = nullptr;
    hattn_algorithm algorithm_ = std::get<1>(this->GetParam());
};

}  // namespace hattn::test

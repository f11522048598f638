find_package(GTest REQUIRED)

# hattn_add_gtest(<target> [SHARDS <n>]): registers a GoogleTest program with ctest, cut into n entries that may run at
# the same time. Each leaves its report in <build>/gtest/<entry>.xml, where tests/summary.py counts the cases.
function(hattn_add_gtest target)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "SHARDS" "")
    if (NOT arg_SHARDS)
        set(arg_SHARDS 1)
    endif ()
    target_link_libraries(${target} PRIVATE GTest::gtest)
    math(EXPR last "${arg_SHARDS} - 1")
    foreach (shard RANGE ${last})
        set(entry ${target}.${shard})
        add_test(NAME ${entry} COMMAND ${target})
        # A driver that compiles kernels for the CPU brings a compiler along, which is not what sanitizers are to look at.
        set_tests_properties(${entry} PROPERTIES
            TIMEOUT 1800
            ENVIRONMENT "GTEST_OUTPUT=xml:${PROJECT_BINARY_DIR}/gtest/${entry}.xml;GTEST_TOTAL_SHARDS=${arg_SHARDS};\
GTEST_SHARD_INDEX=${shard};UBSAN_OPTIONS=print_stacktrace=1$<$<BOOL:${HATTN_SANITIZE}>:;OCL_ICD_VENDORS=none>")
    endforeach ()
endfunction()

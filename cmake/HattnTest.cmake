if (HATTN_GTEST_SOURCE_DIR)
    set(INSTALL_GTEST OFF)
    add_subdirectory(${HATTN_GTEST_SOURCE_DIR} ${PROJECT_BINARY_DIR}/googletest EXCLUDE_FROM_ALL SYSTEM)
else ()
    find_package(GTest REQUIRED)
endif ()

# hattn_gtest_report(<entry> <variable>): the environment variable that lets a GoogleTest program leave its report where
# tests/summary.py counts the cases, in <build>/gtest/<entry>.xml.
function(hattn_gtest_report entry result)
    set(${result} "GTEST_OUTPUT=xml:${PROJECT_BINARY_DIR}/gtest/${entry}.xml" PARENT_SCOPE)
endfunction()

# Compiled once and run once: optimising what calls the library takes longer than it saves, above all with sanitizers.
set(HATTN_TEST_OPTIMISATION $<$<CONFIG:Release>:-O1> $<$<BOOL:${HATTN_SANITIZE}>:-O0>)

# hattn_precompile_gtest(<target>): GoogleTest's header, a third of what compiling a small test takes, is there already. Of a
# target that was configured as a TEST.
function(hattn_precompile_gtest target)
    if (NOT TARGET hattn_gtest_header)
        set(source ${PROJECT_BINARY_DIR}/gtest_header.cpp)
        file(CONFIGURE OUTPUT ${source} CONTENT "")
        add_library(hattn_gtest_header OBJECT ${source})
        hattn_configure_target(hattn_gtest_header TEST)
        target_link_libraries(hattn_gtest_header PRIVATE GTest::gtest)
        target_compile_options(hattn_gtest_header PRIVATE ${HATTN_TEST_OPTIMISATION})
        target_precompile_headers(hattn_gtest_header PRIVATE <gtest/gtest.h>)
    endif ()
    target_precompile_headers(${target} REUSE_FROM hattn_gtest_header)
endfunction()

# hattn_add_gtest(<target> [SHARDS <n> | ENTRY <name>]): registers a GoogleTest program with ctest, cut into n entries that
# may run at the same time, or as one of that name. They see no tuning database of the user.
function(hattn_add_gtest target)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "SHARDS;ENTRY" "")
    if (NOT arg_SHARDS)
        set(arg_SHARDS 1)
    endif ()
    target_link_libraries(${target} PRIVATE GTest::gtest)
    target_compile_options(${target} PRIVATE ${HATTN_TEST_OPTIMISATION})
    math(EXPR last "${arg_SHARDS} - 1")
    foreach (shard RANGE ${last})
        set(entry ${target}.${shard})
        if (arg_ENTRY)
            set(entry ${arg_ENTRY})
        endif ()
        add_test(NAME ${entry} COMMAND ${target})
        hattn_gtest_report(${entry} report)
        # A driver that compiles kernels for the CPU brings a compiler along, which is not what sanitizers are to look at.
        # Where a thread's variables of a loaded library lie is guessed by AddressSanitizer, and its leak checker crashes
        # where it has guessed wrong.
        set_tests_properties(${entry} PROPERTIES
            TIMEOUT 1800
            ENVIRONMENT "${report};GTEST_TOTAL_SHARDS=${arg_SHARDS};GTEST_SHARD_INDEX=${shard};HATTN_TUNING=none;\
UBSAN_OPTIONS=print_stacktrace=1$<$<BOOL:${HATTN_SANITIZE}>:;OCL_ICD_VENDORS=none;ASAN_OPTIONS=intercept_tls_get_addr=0>")
    endforeach ()
endfunction()

# hattn_add_candidates(<fixture> <program> TARGETS <target>... KINDS <kind>... [ENVIRONMENT <variable>=<value>...]): a pack of a
# tuner's candidates for each target and kind, and an entry that runs the program with it. Packs take minutes of CPU time to
# compile, so the fixture, an entry as well, makes them when one of these is first run, and the build does not.
function(hattn_add_candidates fixture program)
    cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "TARGETS;KINDS;ENVIRONMENT")
    set(packs)
    foreach (target IN LISTS arg_TARGETS)
        foreach (kind IN LISTS arg_KINDS)
            set(pack ${CMAKE_CURRENT_BINARY_DIR}/${kind}_${target}.so)
            set(entry candidates.${kind}.${target})
            add_custom_command(
                OUTPUT ${pack}
                COMMAND ${HATTN_KERNELGEN_COMMAND} pack-candidates ${pack} ${target} ${kind}
                DEPENDS ${HATTN_KERNELGEN_COMMAND}
                COMMENT "Compiling candidates: ${kind} for ${target}"
                VERBATIM)
            list(APPEND packs ${pack})
            hattn_add_gtest(${program} ENTRY ${entry})
            set_property(TEST ${entry} APPEND PROPERTY ENVIRONMENT HATTN_PACKS=${pack} ${arg_ENVIRONMENT})
            set_tests_properties(${entry} PROPERTIES FIXTURES_REQUIRED ${fixture})
        endforeach ()
    endforeach ()
    add_custom_target(hattn_${fixture} DEPENDS ${packs})
    add_test(NAME ${fixture}
        COMMAND ${CMAKE_COMMAND} --build ${PROJECT_BINARY_DIR} --config $<CONFIG> --target hattn_${fixture})
    # It takes all cores.
    set_tests_properties(${fixture} PROPERTIES FIXTURES_SETUP ${fixture} RUN_SERIAL ON TIMEOUT 3600)
endfunction()

# hattn_configure_target(<target> [TEST]): language level, warnings and sanitizers of everything this project compiles.
# Warnings stay private to the target. Code that must not be instrumented (the kernels) does not go through here.
# TEST: it is not what is tested. AddressSanitizer and UndefinedBehaviorSanitizer leave it alone, which halves the time of
# their tests; ThreadSanitizer has to see every access.
function(hattn_configure_target target)
    cmake_parse_arguments(PARSE_ARGV 1 arg "TEST" "" "")
    target_compile_features(${target} PRIVATE cxx_std_20 c_std_11)
    set_target_properties(${target} PROPERTIES
        CXX_EXTENSIONS OFF
        C_EXTENSIONS OFF
        C_VISIBILITY_PRESET hidden
        CXX_VISIBILITY_PRESET hidden
        VISIBILITY_INLINES_HIDDEN ON)
    target_compile_options(${target} PRIVATE
        -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
        $<$<BOOL:${HATTN_WERROR}>:-Werror>)
    if (HATTN_SANITIZE AND NOT (arg_TEST AND NOT "thread" IN_LIST HATTN_SANITIZE))
        list(JOIN HATTN_SANITIZE "," sanitizers)
        # A report must fail the run, so the first one ends it.
        target_compile_options(${target} PRIVATE
            -fsanitize=${sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer)
        target_link_options(${target} PUBLIC $<BUILD_INTERFACE:-fsanitize=${sanitizers}>)
    endif ()
endfunction()

# hattn_configure_public_library(<target>): what makes the target the library that applications see: its public headers,
# its one dependency, its version and its exported symbols.
function(hattn_configure_public_library target)
    set(map ${PROJECT_SOURCE_DIR}/cmake/hattn.map)
    target_sources(${target} PUBLIC FILE_SET HEADERS
        BASE_DIRS ${PROJECT_SOURCE_DIR}/include
        FILES ${PROJECT_SOURCE_DIR}/include/hattn/hattn.h ${PROJECT_SOURCE_DIR}/include/hattn/hattn.hpp)
    target_link_libraries(${target} PUBLIC Threads::Threads PRIVATE ${CMAKE_DL_LIBS})
    set_target_properties(${target} PROPERTIES
        POSITION_INDEPENDENT_CODE ON
        VERSION ${PROJECT_VERSION}
        SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
        LINK_DEPENDS ${map})
    get_target_property(type ${target} TYPE)
    if (type STREQUAL "SHARED_LIBRARY")
        target_link_options(${target} PRIVATE -Wl,--version-script=${map} -Wl,--no-undefined)
    endif ()
endfunction()

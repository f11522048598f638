# Finds Halide 21: an installed one first, then the one unpacked by `./dev` into .deps/halide. With HATTN_FETCH_HALIDE
# the pinned wheel is downloaded into the build tree where both are missing.
set(HATTN_HALIDE_HINTS ${PROJECT_SOURCE_DIR}/.deps/halide/lib64/cmake ${PROJECT_BINARY_DIR}/halide/lib64/cmake)

# Halide's package file raises an error of its own for a Python it finds but does not need.
find_package(Halide 21 CONFIG COMPONENTS Halide shared HINTS ${HATTN_HALIDE_HINTS})

if (NOT Halide_FOUND AND HATTN_FETCH_HALIDE)
    find_package(Python 3.9 REQUIRED COMPONENTS Interpreter)
    execute_process(
        COMMAND ${Python_EXECUTABLE} ${PROJECT_SOURCE_DIR}/cmake/get_halide.py ${PROJECT_BINARY_DIR}/halide
        COMMAND_ERROR_IS_FATAL ANY)
    find_package(Halide 21 CONFIG COMPONENTS Halide shared HINTS ${HATTN_HALIDE_HINTS})
endif ()

if (NOT Halide_FOUND)
    message(FATAL_ERROR "Halide 21 was not found. Run ./dev build, or set Halide_DIR to the folder of HalideConfig.cmake, "
                        "or configure with -DHATTN_FETCH_HALIDE=ON, or set HATTN_KERNEL_DIR to "
                        "kernels compiled elsewhere")
endif ()

# Tensor cores need the very Halide that requirements/halide.txt pins: replace_matrix_calls() finds its instructions in the
# text that this one's LLVM writes (schedules/cuda/matrix_calls.h).
if (HATTN_DEVICES MATCHES "cuda")
    file(STRINGS ${PROJECT_SOURCE_DIR}/cmake/requirements/halide.txt HATTN_PINNED_HALIDE REGEX "^halide==")
    string(REGEX MATCH "[0-9]+(\\.[0-9]+)*" HATTN_PINNED_HALIDE "${HATTN_PINNED_HALIDE}")
    if (NOT Halide_VERSION VERSION_EQUAL HATTN_PINNED_HALIDE)
        message(FATAL_ERROR "HATTN_DEVICES: is \"${HATTN_DEVICES}\", but kernels for cuda are compiled by Halide "
                            "${HATTN_PINNED_HALIDE} alone, and ${Halide_DIR} has ${Halide_VERSION}: set Halide_DIR to the "
                            "folder of HalideConfig.cmake of ${HATTN_PINNED_HALIDE} (./dev build unpacks it into "
                            ".deps/halide), or leave cuda out of HATTN_DEVICES")
    endif ()
    # Its package does not say which backends it has, the library does.
    if (NOT CMAKE_CROSSCOMPILING)
        if (NOT HATTN_ASKED_HALIDE STREQUAL Halide_DIR)
            unset(HATTN_HALIDE_LACKS_NVPTX CACHE)
            unset(HATTN_HALIDE_COMPILES CACHE)
        endif ()
        set(HATTN_ASKED_HALIDE ${Halide_DIR} CACHE INTERNAL "The Halide whose backends are known")
        try_run(HATTN_HALIDE_LACKS_NVPTX HATTN_HALIDE_COMPILES
            SOURCES ${PROJECT_SOURCE_DIR}/cmake/check_nvptx.cpp
            CXX_STANDARD 17
            LINK_LIBRARIES Halide::Halide)
        if (NOT HATTN_HALIDE_COMPILES OR HATTN_HALIDE_LACKS_NVPTX)
            unset(HATTN_ASKED_HALIDE CACHE)  # it is asked again
            message(FATAL_ERROR "HATTN_DEVICES: is \"${HATTN_DEVICES}\", but the Halide in ${Halide_DIR} has no NVPTX backend "
                                "(or no program runs with it): set Halide_DIR to the folder of HalideConfig.cmake of one "
                                "whose LLVM has it, as the one that ./dev build unpacks, or leave cuda out of HATTN_DEVICES")
        endif ()
    endif ()
endif ()

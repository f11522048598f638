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

# Every option a user can set, and the default build type.
option(BUILD_SHARED_LIBS "Build libhattn as a shared library" OFF)
option(HATTN_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(HATTN_BUILD_PYTHON "Build the Python extension module" ${PROJECT_IS_TOP_LEVEL})
option(HATTN_BUILD_BENCH "Build the benchmarks" ${PROJECT_IS_TOP_LEVEL})
option(HATTN_BUILD_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(HATTN_INSTALL "Write install rules" ${PROJECT_IS_TOP_LEVEL})
option(HATTN_FETCH_HALIDE "Let CMake download Halide with pip where it is not found (needs Python and an index)" OFF)
option(HATTN_WERROR "Treat compiler warnings as errors" OFF)
set(HATTN_SANITIZE "" CACHE STRING "Sanitizers for the C++ code: empty, \"address;undefined\" or \"thread\"")
set(HATTN_KERNEL_DIR "" CACHE PATH
    "The kernels/ directory of another build tree: its objects are used as they are and Halide is not needed")
set(HATTN_KERNELGEN "" CACHE FILEPATH
    "A hattn-kernelgen that runs on this machine, from another build tree: needed for cross-compiling, and for the tests \
of kernel packs where kernels are borrowed")
set(HATTN_PYTHON_MODULE "" CACHE FILEPATH
    "The extension module of another build tree, for a wheel of it in which nothing is compiled")
set(HATTN_GTEST_SOURCE_DIR "" CACHE PATH
    "Sources of GoogleTest, to be built with the tests; needed for cross-compiling, where there is no installed one")

set(HATTN_DEVICES "" CACHE STRING
    "Devices to compile kernels for, beside the CPU: empty, \"opencl\", \"cuda\" or both; \"cuda:few\": half of its kernels")

set(HATTN_CUBINS "auto" CACHE STRING
    "GPUs that CUDA kernels are assembled for, with the CUDA Toolkit, beside their PTX: such as \"80;90;100;120\"; \"auto\": \
these, where there is a toolkit that knows them; empty: none")

if (PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, Debug, RelWithDebInfo or MinSizeRel" FORCE)
endif ()

set(HATTN_KNOWN_SANITIZERS address undefined thread)
foreach (HATTN_SANITIZER IN LISTS HATTN_SANITIZE)
    if (NOT HATTN_SANITIZER IN_LIST HATTN_KNOWN_SANITIZERS)
        message(FATAL_ERROR "HATTN_SANITIZE: \"${HATTN_SANITIZER}\" is none of: ${HATTN_KNOWN_SANITIZERS}")
    endif ()
endforeach ()

set(HATTN_KNOWN_DEVICES opencl cuda opencl:few cuda:few)
foreach (HATTN_DEVICE IN LISTS HATTN_DEVICES)
    if (NOT HATTN_DEVICE IN_LIST HATTN_KNOWN_DEVICES)
        message(FATAL_ERROR "HATTN_DEVICES: \"${HATTN_DEVICE}\" is none of: ${HATTN_KNOWN_DEVICES}")
    endif ()
    if ("${HATTN_DEVICE}:few" IN_LIST HATTN_DEVICES)
        message(FATAL_ERROR "HATTN_DEVICES: has both \"${HATTN_DEVICE}\" and \"${HATTN_DEVICE}:few\"")
    endif ()
endforeach ()

if (NOT HATTN_CUBINS STREQUAL "auto")
    foreach (HATTN_CUBIN IN LISTS HATTN_CUBINS)
        if (NOT HATTN_CUBIN MATCHES "^[0-9]+$" OR HATTN_CUBIN LESS 80)
            message(FATAL_ERROR "HATTN_CUBINS: \"${HATTN_CUBIN}\" is no number of 80 or more, as in \"80;90\" for compute "
                                "capabilities 8.0 and 9.0 (kernels of 9.0 alone, sm_90a, go with 90)")
        endif ()
    endforeach ()
    if (HATTN_CUBINS AND NOT HATTN_DEVICES MATCHES "cuda")
        message(FATAL_ERROR "HATTN_CUBINS: is \"${HATTN_CUBINS}\", but HATTN_DEVICES is \"${HATTN_DEVICES}\", which has no cuda")
    endif ()
endif ()

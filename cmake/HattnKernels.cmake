# The compiled kernels as a target, `hattn_kernels`: object files, Halide's runtime and the generated kernel table.
# They come from generators/, which builds hattn-kernelgen with Halide and runs it, or, with HATTN_KERNEL_DIR, from the
# kernels/ directory of another build tree; Halide is not needed then. Halide compiles for any architecture, so when
# cross-compiling generators/ runs the hattn-kernelgen of a tree built for this machine, HATTN_KERNELGEN.

# The names of rows of schedules/targets.cpp.
set(HATTN_TARGETS_OF_x86-64 generic x86-avx2 x86-avx512)
set(HATTN_TARGETS_OF_aarch64 generic arm-neon)
set(HATTN_TARGETS ${HATTN_TARGETS_OF_${HATTN_ARCHITECTURE}})
set(HATTN_DEVICE_KERNEL_KINDS
    flash split_kv merge naive unfused_scores unfused_values scores probabilities append block_scales quantize)
# Those with kernels for keys and values of one type other than float32.
set(HATTN_ONE_TYPE_TARGETS_OF_x86-64 x86-avx2 x86-avx512)
set(HATTN_ONE_TYPE_TARGETS_OF_aarch64 arm-neon)
set(HATTN_ONE_TYPE_TARGETS ${HATTN_ONE_TYPE_TARGETS_OF_${HATTN_ARCHITECTURE}})
# Those with kernels for whole lines of int8 and int4.
set(HATTN_LINE_TARGETS_OF_x86-64 x86-avx512)
set(HATTN_LINE_TARGETS ${HATTN_LINE_TARGETS_OF_${HATTN_ARCHITECTURE}})
# Those with kernels for keys and values in memory.
set(HATTN_MEMORY_TARGETS_OF_x86-64 x86-avx512)
set(HATTN_MEMORY_TARGETS ${HATTN_MEMORY_TARGETS_OF_${HATTN_ARCHITECTURE}})
# Those with kernels that multiply bfloat16 pairs, and matrices.
set(HATTN_BFLOAT16_TARGETS_OF_x86-64 x86-avx512)
set(HATTN_BFLOAT16_TARGETS_OF_aarch64 arm-neon)
set(HATTN_BFLOAT16_TARGETS ${HATTN_BFLOAT16_TARGETS_OF_${HATTN_ARCHITECTURE}})
# And those that decode by them.
set(HATTN_BFLOAT16_DECODE_TARGETS_OF_x86-64 x86-avx512)
set(HATTN_BFLOAT16_DECODE_TARGETS ${HATTN_BFLOAT16_DECODE_TARGETS_OF_${HATTN_ARCHITECTURE}})
set(HATTN_MATRIX_TARGETS_OF_x86-64 x86-avx512)
set(HATTN_MATRIX_TARGETS ${HATTN_MATRIX_TARGETS_OF_${HATTN_ARCHITECTURE}})

if (HATTN_KERNEL_DIR)
    cmake_path(ABSOLUTE_PATH HATTN_KERNEL_DIR NORMALIZE OUTPUT_VARIABLE HATTN_KERNEL_OUTPUT_DIR)
else ()
    set(HATTN_KERNEL_OUTPUT_DIR ${PROJECT_BINARY_DIR}/kernels)
endif ()

# hattn_define_kernels(<file>...): declares what the custom commands of the calling directory leave in
# HATTN_KERNEL_OUTPUT_DIR, as names relative to it: objects (.o) and C++ sources. Also writes the list to kernels.txt
# beside them, and the architecture to architecture.txt, for HATTN_KERNEL_DIR.
function(hattn_define_kernels)
    list(JOIN ARGN "\n" list_text)
    file(CONFIGURE OUTPUT ${HATTN_KERNEL_OUTPUT_DIR}/kernels.txt CONTENT "${list_text}\n" @ONLY)
    file(CONFIGURE OUTPUT ${HATTN_KERNEL_OUTPUT_DIR}/architecture.txt CONTENT "${HATTN_ARCHITECTURE}\n" @ONLY)
    list(TRANSFORM ARGN PREPEND ${HATTN_KERNEL_OUTPUT_DIR}/ OUTPUT_VARIABLE files)
    add_custom_target(hattn_kernels ALL DEPENDS ${files})
    set_property(TARGET hattn_kernels PROPERTY HATTN_KERNEL_FILES ${files})
endfunction()

# hattn_add_kernels_to(<target>): compiles the kernels into a library or executable.
function(hattn_add_kernels_to target)
    get_property(files TARGET hattn_kernels PROPERTY HATTN_KERNEL_FILES)
    set(objects ${files})
    list(FILTER objects INCLUDE REGEX "\\.o$")
    set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT ON)
    # A program may bring a table of its own, which is then taken in its place.
    set_source_files_properties(${files} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    target_sources(${target} PRIVATE ${files})
    add_dependencies(${target} hattn_kernels)
endfunction()

if (HATTN_KERNEL_DIR)
    if (NOT EXISTS ${HATTN_KERNEL_OUTPUT_DIR}/kernels.txt)
        message(FATAL_ERROR "HATTN_KERNEL_DIR: ${HATTN_KERNEL_DIR} holds no kernels.txt; build hattn_kernels in the "
                            "tree it belongs to first (./dev build release)")
    endif ()
    set(HATTN_BORROWED_ARCHITECTURE x86-64)  # of trees that do not say
    if (EXISTS ${HATTN_KERNEL_OUTPUT_DIR}/architecture.txt)
        file(STRINGS ${HATTN_KERNEL_OUTPUT_DIR}/architecture.txt HATTN_BORROWED_ARCHITECTURE)
    endif ()
    if (NOT HATTN_BORROWED_ARCHITECTURE STREQUAL HATTN_ARCHITECTURE)
        message(FATAL_ERROR "HATTN_KERNEL_DIR: ${HATTN_KERNEL_DIR} holds kernels for ${HATTN_BORROWED_ARCHITECTURE}, but "
                            "this build is for ${HATTN_ARCHITECTURE}")
    endif ()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${HATTN_KERNEL_OUTPUT_DIR}/kernels.txt)
    file(STRINGS ${HATTN_KERNEL_OUTPUT_DIR}/kernels.txt HATTN_BORROWED_KERNELS)
    list(TRANSFORM HATTN_BORROWED_KERNELS PREPEND ${HATTN_KERNEL_OUTPUT_DIR}/)
    add_custom_target(hattn_kernels)
    set_property(TARGET hattn_kernels PROPERTY HATTN_KERNEL_FILES ${HATTN_BORROWED_KERNELS})
else ()
    if (HATTN_KERNELGEN)
        if (NOT EXISTS ${HATTN_KERNELGEN})
            message(FATAL_ERROR "HATTN_KERNELGEN: ${HATTN_KERNELGEN} does not exist; build hattn-kernelgen in the tree "
                                "it belongs to first (./dev build)")
        endif ()
        add_executable(hattn-kernelgen IMPORTED)
        set_target_properties(hattn-kernelgen PROPERTIES IMPORTED_LOCATION ${HATTN_KERNELGEN})
    elseif (CMAKE_CROSSCOMPILING)
        message(FATAL_ERROR "HATTN_KERNELGEN: is not set, but when cross-compiling the kernels come from a "
                            "hattn-kernelgen that runs on this machine: build that without a toolchain file first; "
                            "or set HATTN_KERNEL_DIR to kernels compiled for ${HATTN_ARCHITECTURE}")
    endif ()
    include(HattnHalide)
    add_subdirectory(generators)
endif ()

# Kernels of devices are packed with zlib, so a library that has any needs it.
get_property(HATTN_KERNEL_FILES TARGET hattn_kernels PROPERTY HATTN_KERNEL_FILES)
set(HATTN_HAS_DEVICE_KERNELS OFF)
if (HATTN_KERNEL_FILES MATCHES "/device_[a-z_]+\\.o")
    set(HATTN_HAS_DEVICE_KERNELS ON)
    find_package(ZLIB REQUIRED)
endif ()

# Makes fat binaries of CUDA kernels, run as a script with
#   DIRECTORY      where objects.rsp names objects, and beside each lie <kernel>.ptx and, for GPUs from 9.0 on,
#                  <kernel>.early.ptx (runtime/device/early_start.h); fat.o is written there
#   ARCHITECTURES  such as 80,90, for which ptxas makes machine code; the PTX is there for every other GPU
#   PTXAS, FATBINARY, COMPILER
# fat.o holds hattn_fat_<kernel> for each.
cmake_policy(VERSION 3.28)
string(REPLACE "," ";" ARCHITECTURES ${ARCHITECTURES})
file(STRINGS ${DIRECTORY}/objects.rsp objects)
list(TRANSFORM objects REPLACE "\"" "")
set(assembly ".section .rodata\n")
foreach (object IN LISTS objects)
    cmake_path(GET object STEM LAST_ONLY kernel)
    set(base ${DIRECTORY}/${kernel})
    file(READ ${base}.ptx ptx)
    string(REGEX MATCH "\\.target sm_([0-9]+a?)" target "${ptx}")
    set(own ${CMAKE_MATCH_1})
    set(images --image3=kind=ptx,sm=90,file=${base}.early.ptx)
    set(architectures ${ARCHITECTURES})
    if (own MATCHES "^([0-9]+)a$")  # for one architecture, and no other
        set(images --image3=kind=ptx,sm=${own},file=${base}.early.ptx)
        set(architectures)
        if (CMAKE_MATCH_1 IN_LIST ARCHITECTURES)
            set(architectures ${own})
        endif ()
    else ()
        list(APPEND images --image3=kind=ptx,sm=${own},file=${base}.ptx)
    endif ()
    foreach (architecture IN LISTS architectures)
        set(cubin ${base}.sm_${architecture}.cubin)
        set(text ${base}.ptx)
        if (NOT architecture MATCHES "^8")
            set(text ${base}.early.ptx)
        endif ()
        execute_process(COMMAND ${PTXAS} -arch=sm_${architecture} -o ${cubin} ${text} COMMAND_ERROR_IS_FATAL ANY)
        list(APPEND images --image3=kind=elf,sm=${architecture},file=${cubin})
    endforeach ()
    execute_process(COMMAND ${FATBINARY} --64 --create=${base}.fatbin ${images} COMMAND_ERROR_IS_FATAL ANY)
    string(APPEND assembly ".balign 16\n.globl hattn_fat_${kernel}\n.hidden hattn_fat_${kernel}\n"
           "hattn_fat_${kernel}:\n.incbin \"${base}.fatbin\"\n")
endforeach ()
string(APPEND assembly ".section .note.GNU-stack,\"\",%progbits\n")
file(WRITE ${DIRECTORY}/fat.s "${assembly}")
execute_process(COMMAND ${COMPILER} -c ${DIRECTORY}/fat.s -o ${DIRECTORY}/fat.o COMMAND_ERROR_IS_FATAL ANY)

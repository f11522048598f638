# HATTN_ARCHITECTURE: what the library is built for, in the words of schedules/targets.cpp. Its kernels are those of this
# architecture's targets.
if (CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    set(HATTN_ARCHITECTURE x86-64)
elseif (CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
    set(HATTN_ARCHITECTURE aarch64)
else ()
    message(FATAL_ERROR "CMAKE_SYSTEM_PROCESSOR: is \"${CMAKE_SYSTEM_PROCESSOR}\", but there are kernels for x86_64 and "
                        "aarch64 only (see docs/add-a-target.md)")
endif ()

# What launches kernels on devices is code for the CPU too, see schedules/gpu/targets.cpp.
if (HATTN_DEVICES AND NOT HATTN_ARCHITECTURE STREQUAL "x86-64")
    message(FATAL_ERROR "HATTN_DEVICES: is \"${HATTN_DEVICES}\", but this build is for ${HATTN_ARCHITECTURE}, and kernels for "
                        "devices are launched by code for x86-64: leave HATTN_DEVICES empty")
endif ()

# Configures a tree and expects an error that says so:
#   cmake -DSOURCE_DIR=... -DBUILD_DIR=... -DSAYS=<text> -P refused.cmake -- <option>...
# CMake breaks lines, so white space in the text stands for any.
set(options "")
set(is_option OFF)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach (i RANGE ${last})
    if (is_option)
        list(APPEND options "${CMAKE_ARGV${i}}")
    elseif (CMAKE_ARGV${i} STREQUAL "--")
        set(is_option ON)
    endif ()
endforeach ()
file(REMOVE_RECURSE ${BUILD_DIR})
execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE_DIR} -B ${BUILD_DIR} ${options}
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
string(REGEX REPLACE "[ \n]+" " " words "${output}")
string(FIND "${words}" "${SAYS}" found)
if (result EQUAL 0 OR found EQUAL -1)
    message(FATAL_ERROR "configuring ended with ${result}, and did not say \"${SAYS}\":\n${output}")
endif ()

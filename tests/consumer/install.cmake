# Installs a build tree and moves the result: cmake -DBUILD_DIR=... -DPREFIX=... -P install.cmake
# The consumers use the moved one, so a path of the first place left in a package file makes them fail.
file(REMOVE_RECURSE ${PREFIX} ${PREFIX}-first)
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${PREFIX}-first COMMAND_ERROR_IS_FATAL ANY)
file(RENAME ${PREFIX}-first ${PREFIX})

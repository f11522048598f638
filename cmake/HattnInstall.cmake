# Install rules: the library and its headers, the CMake package and the pkg-config file. All are relocatable.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(HATTN_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/hattn)

install(TARGETS hattn
    EXPORT hattn-targets
    RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT hattn-targets NAMESPACE hattn:: DESTINATION ${HATTN_CMAKE_DIR})

configure_package_config_file(cmake/hattn-config.cmake.in ${PROJECT_BINARY_DIR}/hattn-config.cmake
    INSTALL_DESTINATION ${HATTN_CMAKE_DIR}
    NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/hattn-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/hattn-config.cmake ${PROJECT_BINARY_DIR}/hattn-config-version.cmake
    DESTINATION ${HATTN_CMAKE_DIR})

# pkg-config finds the prefix from where the file lies, so a moved installation keeps working.
set(HATTN_PC_DIR ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH HATTN_PC_PREFIX /prefix/${HATTN_PC_DIR} /prefix)
set(HATTN_PC_LIBS_STATIC "-lstdc++ -lm -pthread -ldl")
if (HATTN_HAS_DEVICE_KERNELS)
    string(APPEND HATTN_PC_LIBS_STATIC " -lz")
endif ()
if (BUILD_SHARED_LIBS)
    set(HATTN_PC_LIBS "-lhattn")
else ()
    set(HATTN_PC_LIBS "-lhattn ${HATTN_PC_LIBS_STATIC}")
    set(HATTN_PC_LIBS_STATIC "")
endif ()
configure_file(cmake/hattn.pc.in ${PROJECT_BINARY_DIR}/hattn.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/hattn.pc DESTINATION ${HATTN_PC_DIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

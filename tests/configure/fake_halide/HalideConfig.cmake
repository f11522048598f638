# A package that says it is Halide, of the version in HATTN_FAKE_HALIDE_VERSION, without any backend.
add_library(Halide::Halide INTERFACE IMPORTED)
target_include_directories(Halide::Halide INTERFACE ${CMAKE_CURRENT_LIST_DIR})
set(Halide_Halide_FOUND ON)
set(Halide_shared_FOUND ON)

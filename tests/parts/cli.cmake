# The program and the libraries as users get them.
find_program(PYTHON3 python3 REQUIRED)
find_program(CXX_COMPILER NAMES c++ g++ clang++)
if(TARGET samite)
  add_test(NAME cli COMMAND ${PYTHON3} -B ${CMAKE_CURRENT_SOURCE_DIR}/cli.py $<TARGET_FILE:samite>)
  add_test(NAME layers COMMAND ${CMAKE_SOURCE_DIR}/tools/check_layers.sh)
  add_test(NAME library COMMAND ${PYTHON3} -B ${CMAKE_CURRENT_SOURCE_DIR}/library.py ${CMAKE_BINARY_DIR}
           ${CMAKE_SOURCE_DIR} ${CMAKE_C_COMPILER} "${CXX_COMPILER}" "$<$<BOOL:${SAMITE_SANITIZE}>:sanitize>")
endif()
if(TARGET samite_shared)
  add_executable(test_output output.c)
  target_link_libraries(test_output PRIVATE samite_shared PkgConfig::JANSSON ${CMOCKA})
  add_test(NAME output COMMAND test_output)
endif()

# The model that comes with samite, on the scenes that come with it.
if(TARGET samite)
  find_program(PYTHON3 python3 REQUIRED)
  add_test(NAME demo COMMAND ${PYTHON3} -B ${CMAKE_CURRENT_SOURCE_DIR}/demo.py $<TARGET_FILE:samite>
           ${CMAKE_SOURCE_DIR}/models/scenes)
  set_tests_properties(demo PROPERTIES SKIP_RETURN_CODE 77)
endif()

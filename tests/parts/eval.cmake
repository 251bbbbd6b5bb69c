samite_test(eval base io eval)
samite_fuzz(eval base io eval)
samite_fuzz(tracks base io eval)
get_property(every_part GLOBAL PROPERTY SAMITE_PARTS)
string(REPLACE "part_" "" every_part "${every_part}")
samite_test(predict ${every_part})
if(TARGET samite)
  find_program(PYTHON3 python3 REQUIRED)
  add_test(NAME eval_cli COMMAND ${PYTHON3} -B ${CMAKE_CURRENT_SOURCE_DIR}/eval_cli.py $<TARGET_FILE:samite>)
  # Against pycocotools itself, where there is one.
  add_test(NAME eval_pycocotools COMMAND ${PYTHON3} -B ${CMAKE_SOURCE_DIR}/tools/reference/make_eval_fixtures.py compare
           "$<TARGET_FILE:samite> eval" --count 22)
  set_tests_properties(eval_pycocotools PROPERTIES SKIP_RETURN_CODE 77)
endif()

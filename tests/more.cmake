# Tests that are no test_*.c: the sources' rules, what is exported and installed, the examples.
find_program(LUGE_PYTHON NAMES python3)

function(luge_add_check name)
  add_test(NAME ${name} COMMAND ${ARGN})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT ${test_timeout})
endfunction()

if(LUGE_PYTHON)
  luge_add_check(layers ${LUGE_PYTHON} ${PROJECT_SOURCE_DIR}/tools/check_layers.py ${PROJECT_SOURCE_DIR})
  luge_add_check(lines ${LUGE_PYTHON} ${PROJECT_SOURCE_DIR}/tools/make_lines.py --check ${PROJECT_SOURCE_DIR})
  luge_add_check(style ${LUGE_PYTHON} ${PROJECT_SOURCE_DIR}/tools/check_style.py ${PROJECT_SOURCE_DIR})
endif()
luge_add_check(headers sh ${PROJECT_SOURCE_DIR}/tools/check_headers.sh ${PROJECT_SOURCE_DIR}/include)
luge_add_check(documentation sh ${PROJECT_SOURCE_DIR}/tools/check_docs.sh ${PROJECT_SOURCE_DIR})

# A sanitizer exports and needs symbols of its own.
if(NOT LUGE_SANITIZE)
  luge_add_check(exported_symbols sh ${PROJECT_SOURCE_DIR}/tools/check_symbols.sh $<TARGET_FILE:luge_shared>)
  luge_add_check(install sh ${PROJECT_SOURCE_DIR}/tools/check_install.sh ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR})
endif()

if(LUGE_BUILD_EXAMPLES)
  foreach(name IN ITEMS xor custom_module custom_op)
    luge_add_check(example_${name} $<TARGET_FILE:${name}>)
  endforeach()
  set_tests_properties(example_custom_op PROPERTIES PASS_REGULAR_EXPRESSION "gradients agree")
  luge_add_check(example_embed $<TARGET_FILE:embed> --rounds 3)
  if(TARGET mnist)
    luge_add_check(example_amp_lab sh ${CMAKE_CURRENT_SOURCE_DIR}/example_amp_lab.sh $<TARGET_FILE:amp_lab>)
    luge_add_check(example_mnist sh ${CMAKE_CURRENT_SOURCE_DIR}/example_mnist.sh $<TARGET_FILE:mnist>)
  endif()
endif()

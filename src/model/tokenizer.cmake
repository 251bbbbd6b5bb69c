# The tokenizer, with tables written at build time: the CLIP vocabulary, HTML references, mojibake.
# The vocabulary is SAMITE_BPE, or what tools/make_vocab.py finds or downloads once per clone into .cache.
set(SAMITE_BPE "" CACHE FILEPATH "bpe_simple_vocab_16e6.txt.gz of open_clip_torch; empty: found or downloaded")
find_package(Python3 REQUIRED COMPONENTS Interpreter)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)

set(vocabulary ${SAMITE_BPE})
if(NOT vocabulary)
  execute_process(
    COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_SOURCE_DIR}/tools/make_vocab.py find ${CMAKE_SOURCE_DIR}/.cache
    OUTPUT_VARIABLE vocabulary ERROR_VARIABLE reason RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(failed)
    message(FATAL_ERROR "No CLIP vocabulary: ${reason}\n"
            "Connect to the network for this first build, or get the file bpe_simple_vocab_16e6.txt.gz out of the PyPI "
            "package open_clip_torch and configure with -DSAMITE_BPE=FILE (or put it into ${CMAKE_SOURCE_DIR}/.cache).")
  endif()
elseif(NOT EXISTS ${vocabulary})
  message(FATAL_ERROR "SAMITE_BPE: no such file: ${vocabulary}. "
          "Expected bpe_simple_vocab_16e6.txt.gz of the PyPI package open_clip_torch.")
endif()

set(tables ${CMAKE_CURRENT_BINARY_DIR}/tables)
file(MAKE_DIRECTORY ${tables})
function(samite_table header script)
  add_custom_command(OUTPUT ${tables}/${header}
                     COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_SOURCE_DIR}/tools/${script} ${ARGN} ${tables}/${header}
                     DEPENDS ${CMAKE_SOURCE_DIR}/tools/${script} VERBATIM)
endfunction()
samite_table(tokenizer_vocab.h make_vocab.py table ${vocabulary})
samite_table(html_entities_table.h make_text_tables.py entities)
samite_table(text_repair_mojibake.h make_text_tables.py mojibake)
samite_table(text_repair_plain.h make_text_tables.py plain)

file(GLOB tokenizer_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/tokenizer*.c
     ${CMAKE_CURRENT_SOURCE_DIR}/text_repair*.c ${CMAKE_CURRENT_SOURCE_DIR}/html_entities*.c)
add_library(part_tokenizer OBJECT ${tokenizer_sources} ${tables}/tokenizer_vocab.h ${tables}/html_entities_table.h
            ${tables}/text_repair_mojibake.h ${tables}/text_repair_plain.h)
target_include_directories(part_tokenizer PRIVATE ${tables})
target_link_libraries(part_tokenizer PUBLIC part_base PkgConfig::UTF8PROC)

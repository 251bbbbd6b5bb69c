/* tokenizer.h - a prompt becomes token ids. */
#ifndef MODEL_TOKENIZER_H
#define MODEL_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/tokenizer_bpe.h"     /* BPE_START, BPE_END, BPE_VOCABULARY */

/* Writes ids[context]: BPE_START, the ids of the text, BPE_END, then zeros. When the text has more ids than fit, the
 * rest is left out, BPE_END still comes last and *cut (may be NULL) is true. Returns the number of ids before the
 * zeros, min(2, context) or more, or SAMITE_RESOURCE when out of memory; nothing else fails, whatever the bytes.
 *
 * The text is prepared as the official code does it: damage repaired (text_repair.h), HTML references replaced, lower
 * case. Bytes that are no UTF-8 become U+FFFD each, by way of the lone surrogates that Python makes of such arguments.
 * Characters newer than the Unicode version of utf8proc count as symbols. Time and memory are linear in `size`.
 * Thread-safe. */
int tokenize(int32_t *ids, int context, const char *utf8, size_t size, bool *cut);

#endif

/* tokenizer_reduced.h - token ids as a network with a reduced token table counts them. */
#ifndef MODEL_TOKENIZER_REDUCED_H
#define MODEL_TOKENIZER_REDUCED_H

#include "model/config.h"
#include "model/tokenizer.h"

/* As tokenize, with c->context. Tokens that the table of `c` does not have are left out; *unknown (may be NULL) tells
 * how many. Without a reduced table there are none. */
int tokenize_reduced(int32_t *ids, const config *c, const char *utf8, size_t size, bool *cut, int *unknown);

/* Says which words of the text a reduced table lacks, and which like them it has: "'dragon' (near: 'wagon')". Returns
 * how many words are lacking; `out` is cut to `room`. */
int tokens_unknown(char *out, size_t room, const config *c, const char *utf8, size_t size);

/* Fills c->kept and c->kept_ids with the tokens of these texts, of "visual", start, end and padding. false: more than
 * MAX_KEPT_TOKENS, or out of memory. */
bool tokens_keep(config *c, char *const *texts, int count);

#endif

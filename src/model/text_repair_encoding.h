/* text_repair_encoding.h - text that was decoded with the wrong encoding (mojibake). */
#ifndef MODEL_TEXT_REPAIR_ENCODING_H
#define MODEL_TEXT_REPAIR_ENCODING_H

#include "model/tokenizer_runes.h"

/* Takes `count` visited code points off what a repair may still spend; false when nothing is left. */
bool repair_spend(int64_t *budget, size_t count);

/* Reinterprets `text` until it no longer looks wrong, nothing helps or the budget is spent. */
void repair_encoding(runes *text, int64_t *budget);

#endif

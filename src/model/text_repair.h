/* text_repair.h - undoes common damage to text: wrong encodings, HTML references, odd widths, quotes and line ends. */
#ifndef MODEL_TEXT_REPAIR_H
#define MODEL_TEXT_REPAIR_H

#include "model/tokenizer_runes.h"

/* Repairs `text` to what ftfy.fix_text (6.3, default settings) makes of it. Text that needs an unusual number of
 * repairs of repairs (an endless `&amp;amp;amp;...`) is left as it is once the work exceeds some 32 times its length
 * plus 20 million steps, so that no text takes longer than linear time. On lack of memory text->failed is set. */
void text_repair(runes *text);

#endif

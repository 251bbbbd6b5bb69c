/* html_entities.h - HTML character references replaced by their characters. */
#ifndef MODEL_HTML_ENTITIES_H
#define MODEL_HTML_ENTITIES_H

#include "model/tokenizer_runes.h"

/* The rules of HTML5: numbers, names with or without `;`, the longest known beginning of a name. In place. */
void html_unescape(runes *text);
/* The cautious kind, for text that may be no HTML: references closed by `;`, at most 24 letters or digits, also in
 * capitals throughout where that is clear. In place. */
void html_unescape_closed(runes *text);

#endif

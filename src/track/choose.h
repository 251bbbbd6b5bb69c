/* choose.h - which of the decoder's four guesses is meant. Decisions on finished values, outside the network. */
#ifndef TRACK_CHOOSE_H
#define TRACK_CHOOSE_H

#include <stdbool.h>
#include <stdint.h>

/* masks [4, n] logits and overlap [4] of one prompt. `several`: the prompt is not clear (one click, tracking), so
 * the best
 * of guesses 1..3 by expected overlap is taken. Otherwise guess 0, unless its edge is too vague; then the best of the
 * others. */
int choose_guess(const float *masks, const float *overlap, int64_t n, bool several);
/* Best of guesses 1..3. */
int choose_best(const float *overlap);
/* Share of the mask that stays when the threshold rises from -delta to delta: 1 = the edge is sharp. */
float mask_stability(const float *mask, int64_t n, float delta);

#endif

/* choose.c - picks a guess by expected overlap or by the sharpness of its edge. */
#include "track/choose.h"

#include "model/mask_decoder.h"

#define STABILITY_DELTA 0.05f
#define STABLE_ENOUGH   0.98f

int choose_best(const float *overlap)
{
    int best = 1;
    for (int i = 2; i < MASK_GUESSES; i++)
        if (overlap[i] > overlap[best])
            best = i;
    return best;
}

float mask_stability(const float *mask, int64_t n, float delta)
{
    int64_t inner = 0, outer = 0;
    #pragma omp parallel for schedule(static) reduction(+ : inner, outer)
    for (int64_t i = 0; i < n; i++) {
        inner += mask[i] > delta;
        outer += mask[i] > -delta;
    }
    return outer ? (float)inner / (float)outer : 1.0f;
}

int choose_guess(const float *masks, const float *overlap, int64_t n, bool several)
{
    if (several || mask_stability(masks, n, STABILITY_DELTA) < STABLE_ENOUGH)
        return choose_best(overlap);
    return 0;
}

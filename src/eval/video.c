/* video.c - J&F and HOTA of tracks. */
#include "eval/evaluation.h"

int evaluate_videos(findings *f, const samite_eval_options *o, samite_error *err)
{
    (void)f;
    return fail(err, SAMITE_FAILED, "%s: not there yet", o->dt);
}

/* api_eval.c - evaluation in the public API: check arguments, evaluate, hand numbers out. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "eval/evaluation.h"

typedef struct outcome {
    samite_evaluation open;      /* first: what the caller sees */
    findings          f;
    char             *json;
} outcome;

static int check_options(samite_eval_options *out, const samite_eval_options *in, samite_error *err)
{
    *out = (samite_eval_options)SAMITE_EVAL_OPTIONS_INIT;
    memcpy(out, in, in->size < sizeof *out ? in->size : sizeof *out);
    out->size = sizeof *out;
    if (out->kind < SAMITE_EVAL_COCO || out->kind > SAMITE_EVAL_VIDEO)
        return fail(err, SAMITE_USAGE, "samite_evaluate: unknown kind %d", out->kind);
    if (!out->gt || out->gt_count < 1 || !out->dt)
        return fail(err, SAMITE_USAGE, "samite_evaluate: ground truth and results are both needed");
    if (out->gt_count > 1 && out->kind != SAMITE_EVAL_CGF1)
        return fail(err, SAMITE_USAGE, "samite_evaluate: %d ground truth files; only the SA-Co metric takes several",
                    out->gt_count);
    for (int i = 0; i < out->gt_count; i++)
        if (!out->gt[i])
            return fail(err, SAMITE_USAGE, "samite_evaluate: ground truth %d has no name", i + 1);
    if (out->iou & ~(unsigned)(SAMITE_IOU_BBOX | SAMITE_IOU_SEGM))
        return fail(err, SAMITE_USAGE, "samite_evaluate: unknown IoU type %u", out->iou);
    return SAMITE_OK;
}

int samite_evaluate(samite_evaluation **out, const samite_eval_options *o, samite_error *err)
{
    samite_eval_options own;
    if (!out || !o)
        return fail(err, SAMITE_USAGE, "samite_evaluate: nowhere to put results, or no options");
    *out = NULL;
    int code = check_options(&own, o, err);
    if (code)
        return code;
    outcome *x = calloc(1, sizeof *x);
    if (!x)
        return fail(err, SAMITE_RESOURCE, "not enough memory to evaluate %s", own.dt);
    code = evaluate_files(&x->f, &own, err);
    if (!code && !(x->json = json_dumps(x->f.json, JSON_REAL_PRECISION(17))))
        code = fail(err, SAMITE_RESOURCE, "not enough memory to put the numbers of %s together", own.dt);
    if (code) {
        samite_evaluation_free(&x->open);
        return code;
    }
    x->open =
        (samite_evaluation){(int)x->f.metrics, x->f.metric, (int)x->f.notes, (const char *const *)x->f.note, x->json};
    *out = &x->open;
    return SAMITE_OK;
}

void samite_evaluation_free(samite_evaluation *e)
{
    outcome *x = (outcome *)e;
    if (!x)
        return;
    findings_free(&x->f);
    free(x->json);
    free(x);
}

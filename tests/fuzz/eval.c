/* eval.c - any bytes as ground truth and results, or as tracks: read or refused in words, and evaluated. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/cgf1.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int code, const samite_error *err)
{
    if (code != SAMITE_OK && (err->code != code || !err->text[0])) {
        fprintf(stderr, "%d %d %s\n", code, err->code, err->text);
        abort();
    }
}

static void evaluate(const eval_set *g, const eval_set *d, bool masks)
{
    coco_result r;
    samite_error err = {0};
    coco_options o = {.masks = masks, .compat = true, .keep_matches = true, .pool = true};
    int code = coco_evaluate(&r, g, d, &o, &err);
    check(code, &err);
    if (code == SAMITE_OK)
        for (int i = 0; i < COCO_STATS; i++)
            if (!(r.stats[i] >= -1 && r.stats[i] <= 1))
                abort();
    coco_result_free(&r);
    cgf1_result c;
    check(cgf1_evaluate(&c, g, d, 1, masks, 0.5, &err), &err);
}

/* A zero byte parts ground truth and results; without one the input is the results of a small set. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char usual[] =
        "{\"images\":[{\"id\":1,\"width\":9,\"height\":7}],\"categories\":[{\"id\":1}],\"annotations\":[{\"id\":1,"
        "\"image_id\":1,\"category_id\":1,\"bbox\":[1,1,5,5],\"segmentation\":[[1,1,6,1,6,6,1,6]]}]}";
    const char *s = (const char *)data, *zero = size ? memchr(data, 0, size) : NULL;
    const char *gt = zero ? s : usual, *dt = zero ? zero + 1 : s;
    size_t gt_size = zero ? (size_t)(zero - s) : sizeof usual - 1, dt_size = size - (zero ? gt_size + 1 : 0);
    for (int masks = 0; masks < 2; masks++) {
        eval_set g, d;
        samite_error err = {0};
        int code = eval_set_parse(&g, gt, gt_size, "gt", masks, &err);
        check(code, &err);
        if (code)
            continue;
        code = eval_results_parse(&d, &g, dt ? dt : "", dt_size, "dt", masks, true, &err);
        check(code, &err);
        if (!code)
            evaluate(&g, &d, masks);
        if (!code) {
            eval_drop_unasked(&d, &g);
            eval_drop_unasked(&g, &g);
            evaluate(&g, &d, masks);
        }
        eval_set_free(&d);
        eval_set_free(&g);
    }
    return 0;
}

/* api_bench.c - times each stage of a picture and a prompt. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "api.h"
#include "base/progress.h"
#include "model/tokenizer_reduced.h"

/* The best and the slowest of the repeats so far. */
static void count_in(double *best, double *slowest, double seconds)
{
    *best = *best > 0 && *best < seconds ? *best : seconds;
    *slowest = *slowest > seconds ? *slowest : seconds;
}

static double text_once(samite_image *im, const int32_t *ids, int n)
{
    const sam3 *net = im->model->n->net;
    run_point before = run_save(im->r);
    double start = seconds_now();
    text_forward(im->r, &net->text, run_indices(im->r, ids, 2, (int64_t[]){1, n}));
    double spent = seconds_now() - start;
    if (run_ok(im->r))
        run_restore(im->r, before);
    return spent;
}

/* Everything after the encoders, all masks included, as the peers count it. */
static double ground_once(samite_image *im, tensor *said, const int32_t *query)
{
    const sam3 *net = im->model->n->net;
    run_point before = run_save(im->r);
    grounded g;
    double start = seconds_now();
    sam3_ground(im->r, net, &im->encoded, said, NULL, NULL, &g);
    sam3_masks(im->r, net, &im->encoded, &g, query, net->c.queries);
    double spent = seconds_now() - start;
    if (run_ok(im->r))
        run_restore(im->r, before);
    return spent;
}

static int time_prompt(samite_image *im, const char *said, int repeats, samite_timing *out, samite_error *err)
{
    const sam3 *net = im->model->n->net;
    int32_t ids[256], *query = malloc(sizeof *query * (size_t)net->c.queries);
    bool cut;
    int n = tokenize_reduced(ids, &net->c, said, strlen(said), &cut, NULL);
    out->text_gflops *= (double)n / net->c.context;      /* padding is not computed */
    int code = image_prepare(im, PARTS_TEXT | PARTS_GROUND | PARTS_MASKS, err);
    if (!code && !query)
        code = fail(err, SAMITE_RESOURCE, "not enough memory");
    for (int i = 0; !code && i < repeats; i++)
        count_in(&out->text, &out->text_slowest, text_once(im, ids, n));
    tensor *words = code ? NULL : text_forward(im->r, &net->text, run_indices(im->r, ids, 2, (int64_t[]){1, n}));
    for (int i = 0; words && i < net->c.queries; i++)
        query[i] = i;
    for (int i = 0; words && run_ok(im->r) && i < repeats; i++)
        count_in(&out->ground, &out->ground_slowest, ground_once(im, words, query));
    free(query);
    return code ? code : run_status(im->r, err);
}

static void work_of(const samite_model_info *info, samite_timing *out)
{
    for (int p = 0; p < info->parts; p++) {
        double g = info->part[p].flops * 1e-9;
        if (p == PART_TRUNK || p == PART_NECK)
            out->image_gflops += g;
        else if (p == PART_TEXT)
            out->text_gflops += g;
        else
            out->ground_gflops += g;
    }
}

static int time_all(samite_image *im, const samite_pixels *pixels, const char *said, int repeats, samite_timing *out,
                    samite_error *err)
{
    double start = seconds_now();
    int code = image_prepare(im, PARTS_IMAGE, err);
    out->load = im->model->opened_in + seconds_now() - start;
    for (int i = 0; !code && i < repeats; i++) {
        start = seconds_now();
        code = samite_image_replace(im, pixels, err);
        count_in(&out->image_encode, &out->image_slowest, seconds_now() - start);
    }
    return code ? code : time_prompt(im, said, repeats, out, err);
}

int samite_bench(samite_model *m, const samite_pixels *pixels, const char *text, int repeats, samite_timing *out,
                 samite_error *err)
{
    if (!m || !pixels || !text || !out || repeats < 1)
        return fail(err, SAMITE_USAGE, "samite_bench: a model, a picture, a text and at least one repeat are needed");
    *out = (samite_timing){.precision = native_precision(m->n)};
    samite_model_info info = {.size = sizeof info};
    samite_image *im;
    int code = samite_model_describe(m, &info, err);
    if (code || (code = image_new(&im, m, err)))
        return code;
    work_of(&info, out);
    code = time_all(im, pixels, text, repeats, out, err);
    samite_image_free(im);
    out->gemm_rate = code ? 0 : gemm_rate(m->n->type);
    struct rusage u;
    if (getrusage(RUSAGE_SELF, &u) == 0)
        out->peak_bytes = (uint64_t)u.ru_maxrss * 1024;
    return code;
}

/* ---- prompts as a caller sees them ---- */

/* Seconds of one prompt; `score` above 1 keeps nothing. Negative: it failed. */
static double prompt_once(samite_image *im, const char *said, float score, samite_error *err)
{
    samite_prompt p = SAMITE_PROMPT_INIT;
    samite_result *res;
    p.text = said;
    p.score = score;
    p.max_results = 5;
    double start = seconds_now();
    if (samite_image_segment(im, &p, &res, err))
        return -1;
    double spent = seconds_now() - start;
    samite_result_free(res);
    return spent;
}

static void take_best(double *best, double seconds)
{
    *best = *best > 0 && *best < seconds ? *best : seconds;
}

/* Words are numbered, so that none was heard before by this model. */
static int prompts_once(samite_image *im, const samite_pixels *pixels, int round, samite_prompt_timing *out,
                        samite_error *err)
{
    char one[48], other[48];
    snprintf(one, sizeof one, "a yellow school bus %d", round);
    snprintf(other, sizeof other, "the small red car %d", round);
    double start = seconds_now();
    int code = samite_image_replace(im, pixels, err);
    if (code)
        return code;
    double first = prompt_once(im, one, 0, err), end = seconds_now();
    double second = prompt_once(im, other, 0, err), again = prompt_once(im, other, 0, err);
    answers_forget(im);
    double found = prompt_once(im, one, 0, err), nothing = prompt_once(im, one, 1, err);
    if (first < 0 || second < 0 || again < 0 || found < 0 || nothing < 0)
        return err && err->code ? err->code : SAMITE_FAILED;
    take_best(&out->first, end - start);
    take_best(&out->second, second);
    take_best(&out->identical, again);
    take_best(&out->found, found);
    take_best(&out->nothing, nothing);
    return 0;
}

int samite_bench_prompts(samite_model *m, const samite_pixels *pixels, int repeats, samite_prompt_timing *out,
                         samite_error *err)
{
    if (!m || !pixels || !out || repeats < 1)
        return fail(err, SAMITE_USAGE, "samite_bench_prompts: a model, a picture and at least one repeat are needed");
    samite_error why = {0};
    samite_image *im;
    *out = (samite_prompt_timing){0};
    int code = image_new(&im, m, &why);
    if (!code && !(code = image_prepare(im, PARTS_IMAGE | PARTS_TEXT | PARTS_GROUND | PARTS_MASKS, &why)))
        for (int i = 0; i < repeats && !code; i++)
            code = prompts_once(im, pixels, i, out, &why);
    samite_image_free(im);
    if (code && err)
        *err = why;
    return code;
}

/* ---- op by op ---- */

typedef struct profile {
    const char *stage;
    double      began;
    bool        muted;                 /* warming up */
    void      (*each)(void *user, const samite_op_time *op);
    void       *user;
} profile;

static void tell_op(void *user, const char *part, const char *op, double start, double seconds, double flops)
{
    const profile *p = user;
    samite_op_time t = {p->stage, part, op, start - p->began, seconds, flops * 1e-9};
    if (!p->muted)
        p->each(p->user, &t);
}

static int profile_pass(samite_image *im, const char *said, const int32_t *query, profile *p, samite_error *err)
{
    const sam3 *net = im->model->n->net;
    int32_t ids[256];
    bool cut;
    int n = tokenize_reduced(ids, &net->c, said, strlen(said), &cut, NULL);
    grounded g;
    p->began = seconds_now();
    p->stage = "image_encode";
    int code = image_encode(im, false, err);
    if (code)
        return code;
    p->stage = "text";
    tensor *words = text_forward(im->r, &net->text, run_indices(im->r, ids, 2, (int64_t[]){1, n}));
    p->stage = "ground";
    sam3_ground(im->r, net, &im->encoded, words, NULL, NULL, &g);
    p->stage = "masks";
    sam3_masks(im->r, net, &im->encoded, &g, query, net->c.queries);
    return run_status(im->r, err);
}

int samite_bench_profile(samite_model *m, const samite_pixels *pixels, const char *text,
                         void (*each)(void *user, const samite_op_time *op), void *user, samite_error *err)
{
    if (!m || !pixels || !text || !each)
        return fail(err, SAMITE_USAGE, "samite_bench_profile: a model, a picture, a text and a callback are needed");
    samite_image *im;
    profile p = {.muted = true, .each = each, .user = user};
    int code = image_new(&im, m, err), queries = m->n->net->c.queries;
    if (code)
        return code;
    int32_t *query = malloc(sizeof *query * (size_t)queries);
    if (!query)
        code = fail(err, SAMITE_RESOURCE, "not enough memory");
    for (int i = 0; query && i < queries; i++)
        query[i] = i;
    if (!code)
        code = image_prepare(im, PARTS_IMAGE | PARTS_TEXT | PARTS_GROUND | PARTS_MASKS, err);
    if (!code)
        code = samite_image_replace(im, pixels, err);
    run_set_timer(im->r, tell_op, &p);
    for (int pass = 0; !code && pass < 2; pass++) {
        p.muted = pass == 0;
        code = profile_pass(im, text, query, &p, err);
    }
    free(query);
    samite_image_free(im);
    return code;
}

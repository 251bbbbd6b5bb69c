/* api_segment.c - a prompt on an encoded picture: ground, choose, compute masks of the chosen, sort. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "io/mask.h"
#include "output.h"

/* What was found for a prompt, whoever computed it. */
typedef struct answers {
    const float *logits, *boxes;       /* [Q], [Q, 4] */
    float        presence;             /* logit */
    int64_t      queries;
    const grounded *g;                 /* native: masks are computed from it for the chosen */
    const float *masks;                /* else: [Q, side, side] */
    int          side;
} answers;

typedef struct choice {
    int32_t query;
    float   score;
} choice;

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* ---- example boxes ---- */

typedef struct example_list {
    float *boxes;
    int   *positive;
    examples x;
} example_list;

static void examples_free(example_list *l)
{
    free(l->boxes);
    free(l->positive);
}

static int check_box(const samite_image *im, const samite_box *b, int i, samite_error *err)
{
    if (!isfinite(b->x0) || !isfinite(b->y0) || !isfinite(b->x1) || !isfinite(b->y1))
        return fail(err, SAMITE_USAGE, "example box %d has a coordinate that is no number", i + 1);
    if (b->x1 <= b->x0 || b->y1 <= b->y0)
        return fail(err, SAMITE_USAGE, "example box %d (%g,%g,%g,%g) is empty: expected X0 < X1 and Y0 < Y1", i + 1,
                    (double)b->x0, (double)b->y0, (double)b->x1, (double)b->y1);
    if (b->x0 >= im->width || b->y0 >= im->height || b->x1 <= 0 || b->y1 <= 0)
        return fail(err, SAMITE_USAGE, "example box %d (%g,%g,%g,%g) lies outside the picture of %d x %d pixels", i + 1,
                    (double)b->x0, (double)b->y0, (double)b->x1, (double)b->y1, im->width, im->height);
    return 0;
}

/* Pixels to fractions cx cy w h, cut at the border of the picture. */
static int make_examples(example_list *out, const samite_image *im, const samite_prompt *p, samite_error *err)
{
    int n = p->box_count;
    *out = (example_list){.boxes = malloc(sizeof(float) * 4 * (size_t)(n + 1)), .positive = calloc((size_t)n + 1, sizeof(int))};
    if (!out->boxes || !out->positive) {
        examples_free(out);
        return fail(err, SAMITE_RESOURCE, "not enough memory for %d example boxes", n);
    }
    float w = (float)im->width, h = (float)im->height;
    for (int i = 0; i < n; i++) {
        const samite_box *b = &p->boxes[i];
        int code = check_box(im, b, i, err);
        if (code) {
            examples_free(out);
            return code;
        }
        float x0 = fmaxf(b->x0, 0) / w, y0 = fmaxf(b->y0, 0) / h, x1 = fminf(b->x1, w) / w, y1 = fminf(b->y1, h) / h;
        memcpy(out->boxes + 4 * i, (float[]){(x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0}, 4 * sizeof(float));
        out->positive[i] = !b->negative;
    }
    out->x = (examples){.boxes = out->boxes, .box_positive = out->positive, .box_count = n};
    return 0;
}

/* ---- results ---- */

static int better_first(const void *a, const void *b)
{
    const choice *x = a, *y = b;
    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    return x->query - y->query;
}

/* Drops those whose box overlaps a better one by more than `most`; returns how many stay, or -1: out of memory. */
static int drop_doubles(choice *chosen, int n, const float *boxes, float most)
{
    uint8_t *keep = malloc((size_t)n + 1);
    double (*box)[4] = malloc(((size_t)n + 1) * sizeof *box);
    int kept = keep && box ? 0 : -1;
    for (int i = 0; kept == 0 && i < n; i++) {
        const float *b = boxes + 4 * chosen[i].query;
        box[i][0] = (double)b[0] - 0.5 * (double)b[2];
        box[i][1] = (double)b[1] - 0.5 * (double)b[3];
        box[i][2] = (double)b[2];
        box[i][3] = (double)b[3];
    }
    if (kept == 0)
        box_nms(keep, box, (size_t)n, (double)most);
    for (int i = 0; kept >= 0 && i < n; i++)
        if (keep[i])
            chosen[kept++] = chosen[i];
    free(keep);
    free(box);
    return kept;
}

/* Queries above the threshold, best first. */
static int choose(choice *out, const answers *found, float presence, float threshold)
{
    int n = 0;
    for (int64_t q = 0; q < found->queries; q++) {
        float score = sigmoid(found->logits[q]) * presence;
        if (score > threshold)
            out[n++] = (choice){(int32_t)q, score};
    }
    qsort(out, (size_t)n, sizeof *out, better_first);
    return n;
}

static float inside(float v, float limit)
{
    return v < 0 ? 0 : v > limit ? limit : v;
}

/* Corners in pixels; `whole`: also where they lie outside the picture. */
static void set_box(samite_instance *s, const float *b, float w, float h, bool whole)
{
    const float corner[4] = {(b[0] - 0.5f * b[2]) * w, (b[1] - 0.5f * b[3]) * h, (b[0] + 0.5f * b[2]) * w,
                             (b[1] + 0.5f * b[3]) * h};
    for (int i = 0; i < 4; i++)
        s->box[i] = whole ? corner[i] : inside(corner[i], i % 2 ? h : w);
    s->area = (uint64_t)((s->box[2] - s->box[0]) * (s->box[3] - s->box[1]) + 0.5f);
}

static int set_mask(samite_instance *s, const samite_image *im, const float *logits, int side, samite_error *err)
{
    rle mask;
    int code = mask_from_logits(&mask, logits, side, side, im->width, im->height, 0.0f, err);
    if (code)
        return code;
    s->mask = (samite_mask){mask.width, mask.height, mask.counts, mask.runs};
    s->area = rle_area(&mask);
    return 0;
}

/* Computes masks of the chosen queries only. */
static int compute_masks(samite_image *im, const grounded *g, const choice *chosen, int count, const float **logits,
                         samite_error *err)
{
    int code = image_prepare(im, PARTS_MASKS, err);
    int32_t *query = malloc(sizeof *query * (size_t)count);
    if (!code && !query)
        code = fail(err, SAMITE_RESOURCE, "not enough memory for %d masks", count);
    for (int i = 0; i < count && !code; i++)
        query[i] = chosen[i].query;
    if (!code) {
        *logits = sam3_masks(im->r, im->model->n->net, &im->encoded, g, query, count)->data;
        code = run_status(im->r, err);
    }
    free(query);
    return code;
}

/* Masks of the chosen queries, enlarged to the picture and run-length coded. */
static int add_masks(samite_image *im, const answers *found, const choice *chosen, samite_result *res, samite_error *err)
{
    const float *logits = found->masks;
    int64_t plane = (int64_t)found->side * found->side;
    int code = found->g ? compute_masks(im, found->g, chosen, res->count, &logits, err) : 0;
    for (int i = 0; i < res->count && !code; i++)
        code = set_mask(&res->instance[i], im, logits + (found->g ? i : chosen[i].query) * plane, found->side, err);
    return code;
}

static int collect(samite_image *im, const samite_prompt *p, const answers *found, samite_result *res, samite_error *err)
{
    choice *chosen = malloc(sizeof *chosen * (size_t)(found->queries + 1));
    if (!chosen)
        return fail(err, SAMITE_RESOURCE, "not enough memory for the results");
    res->presence = sigmoid(found->presence);
    int n = choose(chosen, found, res->presence, p->score), code = 0;
    float most = p->nms < 0 ? im->model->n->net->c.nms : p->nms;
    if (most > 0)
        n = drop_doubles(chosen, n, found->boxes, most);
    n = p->max_results > 0 && n > p->max_results ? p->max_results : n;
    res->instance = calloc((size_t)(n > 0 ? n : 1), sizeof *res->instance);
    if (!res->instance || n < 0)
        code = fail(err, SAMITE_RESOURCE, "not enough memory for %d results", n);
    for (int i = 0; !code && i < n; i++) {
        res->instance[i].score = chosen[i].score;
        set_box(&res->instance[i], found->boxes + 4 * chosen[i].query, (float)im->width, (float)im->height,
                p->whole_boxes != 0);
    }
    res->count = code ? 0 : n;
    if (!code && n && !p->no_masks && (found->masks || im->model->n->available[PART_MASK_HEAD]))
        code = add_masks(im, found, chosen, res, err);
    free(chosen);
    return code;
}

static int check_prompt(const samite_image *im, const samite_prompt *p, samite_error *err)
{
    if (!p->text && !p->box_count)
        return fail(err, SAMITE_USAGE, "a prompt needs a text or example boxes");
    int code = check_words(im->model, p->text, err);
    if (code)
        return code;
    if (p->box_count < 0 || p->box_count > 1024 || (p->box_count && !p->boxes))
        return fail(err, SAMITE_USAGE, "%d example boxes: expected 0 to 1024", p->box_count);
    if (!(p->score >= 0 && p->score <= 1))
        return fail(err, SAMITE_USAGE, "score threshold %g: expected 0 to 1", (double)p->score);
    if (!(p->nms <= 1))
        return fail(err, SAMITE_USAGE, "overlap of results %g: expected 0 to 1", (double)p->nms);
    if (!im->encoded.begun && !im->features[0].data)
        return fail(err, SAMITE_USAGE, "no picture is encoded");
    return 0;
}

/* Through exported parts. */
static int segment_elsewhere(samite_image *im, const samite_prompt *p, samite_result *res, samite_error *err)
{
    engine_found f;
    bool cut = false;
    example_list list;
    int code = make_examples(&list, im, p, err);
    if (code)
        return code;
    code = engine_ground(im, p->text ? p->text : "visual", &list.x, &f, &res->tokens, &cut, err);
    examples_free(&list);
    if (code)
        return code;
    res->cut = cut;
    answers found = {f.logits, f.boxes, f.presence, f.queries, NULL, f.masks, f.side};
    code = collect(im, p, &found, res, err);
    engine_found_free(&f);
    return code;
}

static int segment(samite_image *im, const samite_prompt *p, samite_result *res, samite_error *err)
{
    const sam3 *net = im->model->n->net;
    example_list list;
    bool cut = false;
    tensor *said;
    int code = image_prepare(im, PARTS_GROUND, err);
    if (code || (code = image_words(im, p->text ? p->text : "visual", &said, &res->tokens, &cut, err)))
        return code;
    res->cut = cut;
    if ((code = make_examples(&list, im, p, err)))
        return code;
    image_stage(im, "ground", (uint64_t)net->c.enc_layers + (uint64_t)net->c.dec_layers + 6);
    grounded g;
    sam3_ground(im->r, net, &im->encoded, said, NULL, &list.x, &g);
    if (!(code = run_status(im->r, err))) {
        const decoder_output *f = &g.found;
        answers found = {f->logits->data, f->boxes->data, f->presence->data[0], f->logits->dim[1], &g, NULL,
                         (int)im->encoded.level[0]->dim[1]};
        code = collect(im, p, &found, res, err);
    }
    examples_free(&list);
    return code;
}

int samite_image_segment(samite_image *im, const samite_prompt *prompt, samite_result **out, samite_error *err)
{
    if (!im || !prompt || !out)
        return fail(err, SAMITE_USAGE, "samite_image_segment: no picture or no prompt given");
    *out = NULL;
    samite_prompt p = SAMITE_PROMPT_INIT;
    options_copy(&p, sizeof p, prompt, prompt->size);
    int code = check_prompt(im, &p, err);
    if (code)
        return code;
    if ((*out = answer_recall(im, &p)))
        return SAMITE_OK;
    samite_result *res = calloc(1, sizeof *res);
    if (!res)
        return fail(err, SAMITE_RESOURCE, "not enough memory for the result");
    run_point before = run_save(im->r);
    code = im->model->parts ? segment_elsewhere(im, &p, res, err) : segment(im, &p, res, err);
    run_restore(im->r, before);
    if (code) {
        samite_result_free(res);
        return code;
    }
    answer_remember(im, &p, res);
    *out = res;
    return 0;
}

void samite_result_free(samite_result *r)
{
    if (!r)
        return;
    for (int i = 0; r->instance && i < r->count; i++)
        free((uint32_t *)(uintptr_t)r->instance[i].mask.counts);
    free(r->instance);
    free(r);
}

void samite_mask_paint(const samite_mask *m, uint8_t *out)
{
    rle r;
    if (!m || !out || m->width <= 0 || m->height <= 0)
        return;
    if (mask_view(&r, m, "mask", NULL) == SAMITE_OK)
        rle_decode(out, &r);
    else
        memset(out, 0, (size_t)m->width * (size_t)m->height);
}

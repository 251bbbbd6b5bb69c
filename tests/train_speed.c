/* train_speed.c - what makes training faster or smaller must not change what is learnt: products in bf16, chunks. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "train/forward.h"
#include "train/optimizer.h"

#include <cmocka.h>

enum { IMAGES = 2, PROMPTS = 2, OBJECTS = 4, SIDE = 112, STEPS = 12, CLOSE = 4 };
#define PARTS ((2u << PART_MASK_HEAD) - 1)

/* A model that learns, and the tapes it learns on. */
typedef struct pupil {
    native   *n;
    optimizer o;
    tapes     t;
    double    loss[STEPS];
} pupil;

static float uniform(uint64_t key, int64_t i)
{
    return (float)(random_next(key, (uint64_t)i) >> 40) * 0x1p-24f;
}

/* Noise with bright squares, which the boxes and masks of the first prompt surround; the second finds nothing. */
static batch make_batch(const config *c)
{
    static const int words[PROMPTS][3] = {{49406, 1000, 49407}, {49406, 2000, 49407}};
    batch b = {.images = IMAGES, .side = SIDE, .texts = PROMPTS};
    int64_t area = SIDE * SIDE, all = IMAGES * PROMPTS;
    b.pixels = malloc(sizeof(float) * (size_t)(3 * area * IMAGES));
    b.image_prompts = calloc(IMAGES, sizeof(int));
    b.text_of = calloc((size_t)all, sizeof(int));
    b.ids = calloc((size_t)(PROMPTS * c->context), sizeof(int32_t));
    b.tokens = calloc(PROMPTS, sizeof(int));
    b.t = (targets){.prompts = (int)all, .count = calloc((size_t)all, sizeof(int)),
                    .first = calloc((size_t)all + 1, sizeof(int)), .boxes = malloc(sizeof(float) * 4 * OBJECTS),
                    .masks = calloc((size_t)(OBJECTS * area), 1), .mask_valid = malloc(OBJECTS), .side = SIDE};
    for (int64_t i = 0; i < 3 * area * IMAGES; i++)
        b.pixels[i] = 2 * uniform(1, i) - 1;
    for (int p = 0; p < PROMPTS; p++) {
        b.tokens[p] = 3;
        for (int k = 0; k < 3; k++)
            b.ids[p * c->context + k] = words[p][k];
    }
    for (int p = 0, at = 0; p < all; p++) {
        b.image_prompts[p / PROMPTS] = PROMPTS;
        b.text_of[p] = p % PROMPTS;
        b.t.count[p] = p % PROMPTS ? 0 : OBJECTS / IMAGES;
        b.t.first[p + 1] = at += b.t.count[p];
    }
    for (int i = 0; i < OBJECTS; i++) {
        int x0 = 10 + 17 * i, y0 = 60 - 13 * i, side = 24 + 4 * i;
        memcpy(b.t.boxes + 4 * i, (float[]){(x0 + side / 2.0f) / SIDE, (y0 + side / 2.0f) / SIDE, (float)side / SIDE,
                                            (float)side / SIDE}, 4 * sizeof(float));
        b.t.mask_valid[i] = 1;
        for (int k = 0; k < side * side; k++) {
            int64_t at = (int64_t)(y0 + k / side) * SIDE + x0 + k % side;
            b.t.masks[i * area + at] = 1;
            b.pixels[(i / (OBJECTS / IMAGES) * area + at) * 3] = 1;
        }
    }
    return b;
}

static void open_pupil(pupil *p, gemm_type type)
{
    samite_error e = {0};
    *p = (pupil){0};
    assert_int_equal(native_open(&p->n, "formula:tiny", &(native_options){0}, &e), 0);
    assert_int_equal(optimizer_open(&p->o, p->n, PARTS, true, &official_rates, &e), 0);
    assert_int_equal(tapes_open(&p->t, &(run_options){.type = type}, &e), 0);
}

static void close_pupil(pupil *p)
{
    tapes_close(&p->t);
    optimizer_close(&p->o);
    native_close(p->n);
}

static void learn(pupil *p, const batch *b, int step, int chunk)
{
    samite_error e = {0};
    step_losses l;
    forward_options o = {.weights = &official_weights, .masks = true, .chunk = chunk};
    optimizer_zero(&p->o);
    if (batch_gradients(&p->t, p->n, b, &o, &l, &e))
        fail_msg("%s", e.text);
    p->loss[step] = l.core;
}

/* Cosine of all gradients of one part. */
static double cosine(const optimizer *a, const optimizer *b, int part)
{
    double ab = 0, aa = 0, bb = 0;
    for (int i = 0; i < a->count; i++) {
        const float *x = a->item[i].e->p.t.grad, *y = b->item[i].e->p.t.grad;
        for (int64_t k = 0; (int)a->item[i].e->part == part && k < tensor_count(&a->item[i].e->p.t); k++) {
            ab += (double)x[k] * y[k];
            aa += (double)x[k] * x[k];
            bb += (double)y[k] * y[k];
        }
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : aa == bb;
}

static void compare_parts(const pupil *a, const pupil *b, double least)
{
    for (int part = 0; part <= PART_MASK_HEAD; part++)
        if (cosine(&a->o, &b->o, part) < least)
            fail_msg("%s: cosine %g", model_part_name((model_part)part), cosine(&a->o, &b->o, part));
}

/* Gradients point the same way, the loss goes down together within 1 % at first, and in the end as far. Later steps of the
 * two may match other queries, so there only the way down counts. Without bf16 both are the same. */
static void bf16_follows_f32(void **state)
{
    pupil p[2];
    for (int i = 0; i < 2; i++)
        open_pupil(&p[i], i ? GEMM_BF16 : GEMM_F32);
    batch b = make_batch(&p[0].n->net->c);
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < 2; i++)
            learn(&p[i], &b, step, 0);
        if (step == 0)
            compare_parts(&p[0], &p[1], 0.99);
        for (int i = 0; i < 2; i++)
            optimizer_step(&p[i].o, optimizer_norm(&p[i].o), 1);
        double apart = fabs(p[0].loss[step] - p[1].loss[step]) / p[0].loss[step];
        if (step < CLOSE && apart > 0.01)
            fail_msg("step %d: loss %g in f32, %g in bf16", step, p[0].loss[step], p[1].loss[step]);
        if (!gemm_has(GEMM_BF16))
            assert_true(apart == 0);
    }
    for (int i = 0; i < 2; i++)
        if (!(p[i].loss[STEPS - 1] < 0.8 * p[i].loss[0]))
            fail_msg("loss %g, then %g in %s", p[i].loss[0], p[i].loss[STEPS - 1], i ? "bf16" : "f32");
    batch_free(&b);
    for (int i = 0; i < 2; i++)
        close_pupil(&p[i]);
}

static void chunks_change_nothing(void **state)
{
    pupil p[2];
    for (int i = 0; i < 2; i++)
        open_pupil(&p[i], GEMM_F32);
    batch b = make_batch(&p[0].n->net->c);
    for (int i = 0; i < 2; i++)
        learn(&p[i], &b, 0, i);
    assert_true(fabs(p[0].loss[0] - p[1].loss[0]) < 1e-6 * p[0].loss[0]);
    compare_parts(&p[0], &p[1], 1 - 1e-9);
    batch_free(&b);
    for (int i = 0; i < 2; i++)
        close_pupil(&p[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_follows_f32),
        cmocka_unit_test(chunks_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* api_answers.c - answers to prompts, remembered as long as their picture. */
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "base/text.h"

static void *copy_of(const void *data, size_t size)
{
    void *p = malloc(size ? size : 1);
    if (p && size)
        memcpy(p, data, size);
    return p;
}

/* NULL: out of memory. */
static samite_result *copy_result(const samite_result *from)
{
    samite_result *res = copy_of(from, sizeof *from);
    if (!res)
        return NULL;
    res->instance = calloc((size_t)from->count + 1, sizeof *res->instance);
    bool ok = res->instance != NULL;
    for (int i = 0; ok && i < from->count; i++) {
        samite_instance *s = &res->instance[i];
        *s = from->instance[i];
        if (s->mask.counts)
            ok = (s->mask.counts = copy_of(s->mask.counts, s->mask.runs * sizeof *s->mask.counts)) != NULL;
    }
    if (!ok) {
        samite_result_free(res);
        return NULL;
    }
    return res;
}

static bool same_words(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_boxes(const samite_prompt *a, const samite_prompt *b)
{
    bool same = a->box_count == b->box_count;
    for (int i = 0; i < a->box_count && same; i++) {
        const samite_box *x = &a->boxes[i], *y = &b->boxes[i];
        same = x->x0 == y->x0 && x->y0 == y->y0 && x->x1 == y->x1 && x->y1 == y->y1 && !x->negative == !y->negative;
    }
    return same;
}

static bool same_prompt(const samite_prompt *a, const samite_prompt *b)
{
    return same_words(a->text, b->text) && same_boxes(a, b) && a->score == b->score &&
           a->max_results == b->max_results && !a->no_masks == !b->no_masks && !a->whole_boxes == !b->whole_boxes && a->nms == b->nms;
}

static void forget(answered *a)
{
    free((char *)(uintptr_t)a->prompt.text);
    free((samite_box *)(uintptr_t)a->prompt.boxes);
    samite_result_free(a->result);
    *a = (answered){.result = NULL};
}

samite_result *answer_recall(const samite_image *im, const samite_prompt *p)
{
    for (int i = 0; i < ANSWERS_KEPT; i++)
        if (im->answers[i].result && same_prompt(&im->answers[i].prompt, p))
            return copy_result(im->answers[i].result);
    return NULL;
}

void answer_remember(samite_image *im, const samite_prompt *p, const samite_result *res)
{
    answered a = {*p, copy_result(res)};
    a.prompt.text = p->text ? text_copy(p->text) : NULL;
    a.prompt.boxes = copy_of(p->boxes, sizeof *p->boxes * (size_t)p->box_count);
    if (!a.result || (p->text && !a.prompt.text) || !a.prompt.boxes) {
        forget(&a);
        return;
    }
    forget(&im->answers[im->next_answer]);
    im->answers[im->next_answer] = a;
    im->next_answer = (im->next_answer + 1) % ANSWERS_KEPT;
}

void answers_forget(samite_image *im)
{
    for (int i = 0; i < ANSWERS_KEPT; i++)
        forget(&im->answers[i]);
}

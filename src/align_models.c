/* align_models.c - the same picture and words through two models of ours, compared value by value. */
#include <stdlib.h>
#include <string.h>

#include "align.h"
#include "io/preprocess.h"

typedef struct recorder {
    aligner *a;
    bool     comparing;      /* second model: compare; first one: keep copies as the reference */
} recorder;

/* The reference list borrows `values`; they are freed with free_values. */
static void keep(aligner *a, const char *name, const tensor *t)
{
    weight w = {.name = name, .type = DT_F32, .axes = t->axes};
    size_t bytes = sizeof(float) * (size_t)tensor_count(t);
    float *values = malloc(bytes ? bytes : 1);
    memcpy(w.dim, t->dim, sizeof t->dim);
    weight_set_strides(&w);
    w.data = values;
    if (values)
        memcpy(values, t->data, bytes);
    if (!values || tensor_list_add(&a->reference, &w, NULL)) {
        free(values);
        a->out_of_memory = true;
    }
}

static void free_values(aligner *a)
{
    for (size_t i = 0; i < a->reference.count; i++)
        free((void *)(uintptr_t)a->reference.items[i].data);
    tensor_list_free(&a->reference);
}

static void listen(void *user, const char *name, const tensor *t)
{
    recorder *l = user;
    if (!t->data)
        return;
    if (l->comparing)
        align_tensor(l->a, name, t->data, t->axes, t->dim, AS_IS);
    else
        keep(l->a, name, t);
}

static int ground(samite_image *im, const char *said, samite_error *err)
{
    const sam3 *net = im->model->n->net;
    tensor *t;
    int tokens, code = image_prepare(im, PARTS_GROUND | PARTS_MASKS, err);
    bool cut;
    if (code || (code = image_words(im, said, &t, &tokens, &cut, err)))
        return code;
    grounded g;
    sam3_ground(im->r, net, &im->encoded, t, NULL, NULL, &g);
    if (!run_ok(im->r))
        return run_status(im->r, err);
    int32_t query[4096];
    int count = (int)g.found.logits->dim[1];
    for (int i = 0; i < count; i++)
        query[i] = i;
    sam3_masks(im->r, net, &im->encoded, &g, query, count);
    return run_status(im->r, err);
}

static int run_model(recorder *l, samite_model *m, const pixels *p, const char *said, samite_error *err)
{
    samite_image *im;
    int code = image_new(&im, m, err);
    if (code)
        return code;
    run_set_observer(im->r, listen, l);
    im->width = p->width;
    im->height = p->height;
    code = preprocess(im->input, p, m->n->net->c.image, err);
    if (!code)
        code = image_encode(im, false, err);
    if (!code && said)
        code = ground(im, said, err);
    samite_image_free(im);
    return code;
}

int align_models(aligner *a, samite_model *m, samite_error *err)
{
    pixels p;
    image_options o = IMAGE_OPTIONS_INIT;
    if (!a->o->image)
        return fail(err, SAMITE_USAGE, "comparing two models needs a picture");
    int code = image_read(&p, a->o->image, &o, err);
    if (code)
        return code;
    recorder l = {.a = a};
    code = run_model(&l, a->o->against, &p, a->o->text, err);
    a->used = calloc(a->reference.count + 1, sizeof *a->used);
    if (!code && !a->used)
        code = fail(err, SAMITE_RESOURCE, "not enough memory for the comparison");
    l.comparing = true;
    if (!code)
        code = run_model(&l, m, &p, a->o->text, err);
    for (size_t i = 0; !code && i < a->reference.count; i++)
        if (!a->used[i])
            align_row(a, &(samite_compared){.name = a->reference.items[i].name, .relative = 1, .note = "only in one"});
    free(a->used);
    free_values(a);
    pixels_free(&p);
    return code;
}

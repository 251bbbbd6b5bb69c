/* api.c - models and pictures of the public API: check arguments, open a run, call below, hand the error out. */
#include "api.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/progress.h"
#include "base/text.h"
#include "base/threads.h"
#include "io/preprocess.h"
#include "model/tokenizer_reduced.h"

void options_copy(void *out, size_t known, const void *in, size_t size)
{
    memcpy(out, in, size < known ? size : known);
}

void model_log(const samite_model *m, const char *format, ...)
{
    if (!m->options.log)
        return;
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    m->options.log(m->options.user, line);
}

void model_retain(samite_model *m)
{
    atomic_fetch_add(&m->users, 1);
}

/* ---- models ---- */

static int set_up_machine(const samite_options *o, samite_error *err)
{
    if (o->cpu && !kernels_cap(o->cpu))
        return fail(err, SAMITE_USAGE, "instruction level '%s' cannot be set: use ref, avx2 or avx512, before the first "
                    "model is opened", o->cpu);
    if (o->threads < 0 || o->threads > 4096)
        return fail(err, SAMITE_USAGE, "%d threads: expected 0 (all cores) to 4096", o->threads);
    threads_set(o->threads);
    return 0;
}

static void tell_about_file(const samite_model *m)
{
    const native *n = m->n;
    if (!n->file)
        return;
    if (n->ignored && !strstr(weights_guess(n->file), "transformers"))
        model_log(m, "%s: %llu of %llu tensors are of no use here and were ignored", n->source,
                  (unsigned long long)n->ignored, (unsigned long long)weights_count(n->file));
    if (*n->misfit)
        model_log(m, "%s: tensor %s, so what needs it cannot be used", n->source, n->misfit);
    if (!n->available[PART_MASK_HEAD])
        model_log(m, "%s has no mask head: results are boxes only", n->source);
}

int samite_model_open(samite_model **out, const char *path, const samite_options *options, samite_error *err)
{
    if (!out || !path || !*path)
        return fail(err, SAMITE_USAGE, "samite_model_open: no path given");
    *out = NULL;
    samite_model *m = calloc(1, sizeof *m);
    if (!m)
        return fail(err, SAMITE_RESOURCE, "not enough memory to open %s", path);
    double start = seconds_now();
    m->options = (samite_options)SAMITE_OPTIONS_INIT;
    if (options)
        options_copy(&m->options, sizeof m->options, options, options->size);
    atomic_init(&m->users, 1);
    pthread_mutex_init(&m->lock, NULL);
    pthread_mutex_init(&m->scarce, NULL);
    native_options o = {.side = m->options.input_side, .precision = m->options.precision,
                        .cache = m->options.cache_folder};
    int code = set_up_machine(&m->options, err);
    if (!code && m->options.engine && strcmp(m->options.engine, "native") != 0)
        code = engine_model_open(m, path, err);
    else if (!code)
        code = native_open(&m->n, path, &o, err);
    m->options.cpu = m->options.precision = m->options.engine = m->options.engine_library = m->options.engine_settings = NULL;
    m->options.cache_folder = NULL;
    if (code) {
        samite_model_free(m);
        return code;
    }
    m->opened_in = seconds_now() - start;
    tell_about_file(m);
    *out = m;
    return 0;
}

void samite_model_free(samite_model *m)
{
    samite_error err = {0};
    if (!m || atomic_fetch_sub(&m->users, 1) > 1)
        return;
    engine_model_close(m);
    if (m->n && native_keep(m->n, &err))
        model_log(m, "packed weights are not kept for the next start: %s", err.text);
    native_close(m->n);
    for (int i = 0; i < m->known_count; i++) {
        free(m->known[i].text);
        free(m->known[i].values);
    }
    pthread_mutex_destroy(&m->lock);
    pthread_mutex_destroy(&m->scarce);
    free(m);
}

/* ---- pictures ---- */

static void to_public(samite_pixels *out, const pixels *p)
{
    *out = (samite_pixels){p->width, p->height, p->rgb, p->exif_orientation, p->exif_applied};
}

static image_options decode_options(unsigned flags)
{
    image_options o = IMAGE_OPTIONS_INIT;
    o.apply_exif = !(flags & SAMITE_NO_EXIF);
    return o;
}

int samite_pixels_read(samite_pixels *out, const char *path, unsigned flags, samite_error *err)
{
    if (!out || !path)
        return fail(err, SAMITE_USAGE, "samite_pixels_read: no path given");
    pixels p;
    image_options o = decode_options(flags);
    *out = (samite_pixels){0};
    int code = image_read(&p, path, &o, err);
    if (!code)
        to_public(out, &p);
    return code;
}

int samite_pixels_decode(samite_pixels *out, const void *data, size_t bytes, const char *name, unsigned flags,
                         samite_error *err)
{
    if (!out || (!data && bytes))
        return fail(err, SAMITE_USAGE, "samite_pixels_decode: no data given");
    pixels p;
    image_options o = decode_options(flags);
    *out = (samite_pixels){0};
    int code = image_decode(&p, data, bytes, name ? name : "picture", &o, err);
    if (!code)
        to_public(out, &p);
    return code;
}

void samite_pixels_free(samite_pixels *p)
{
    if (!p)
        return;
    free(p->rgb);
    *p = (samite_pixels){0};
}

/* Called by the run at every op: tells how many parts of the stage are behind it and asks whether to stop. */
static int step(void *user)
{
    samite_image *im = user;
    samite_progress_fn progress = im->model->options.progress;
    uint64_t begun = run_parts(im->r) - im->first, done = begun ? begun - 1 : 0;
    return progress ? progress(im->model->options.user, im->stage, done < im->total ? done : im->total, im->total) : 0;
}

static int load_step(void *user, uint64_t done, uint64_t total)
{
    samite_image *im = user;
    samite_progress_fn progress = im->model->options.progress;
    return progress ? progress(im->model->options.user, "load", done, total) : 0;
}

void image_stage(samite_image *im, const char *stage, uint64_t total)
{
    im->stage = stage;
    im->first = run_parts(im->r);
    im->total = total;
}

int image_prepare(samite_image *im, unsigned parts, samite_error *err)
{
    return native_prepare(im->model->n, parts, load_step, im, err);
}

int image_new(samite_image **out, samite_model *m, samite_error *err)
{
    *out = NULL;
    samite_image *im = calloc(1, sizeof *im);
    int side = m->n->net->c.image;
    if (!im || !(im->input = malloc(sizeof(float) * 3 * (size_t)side * (size_t)side))) {
        free(im);
        return fail(err, SAMITE_RESOURCE, "not enough memory for a picture of %d x %d", side, side);
    }
    im->model = m;
    im->stage = "encode";
    run_options o = {.mode = RUN, .memory_limit = (size_t)m->options.memory_limit, .type = m->n->type,
                     .cancelled = step, .cancel_user = im};
    if (!(im->r = run_open(&o, err))) {
        free(im->input);
        free(im);
        return err ? err->code : SAMITE_RESOURCE;
    }
    model_retain(m);
    *out = im;
    return 0;
}

static int encode(samite_image *im, bool keep_trunk, samite_error *err)
{
    const sam3 *net = im->model->n->net;
    int code = image_prepare(im, PARTS_IMAGE, err);
    if (code)
        return code;
    run_reset(im->r);
    im->clicks_ready = false;
    image_stage(im, "encode", (uint64_t)net->c.vit_depth + NECK_LEVELS + 1);
    int64_t side = net->c.image;
    tensor *input = run_input(im->r, im->input, 4, (int64_t[]){1, side, side, 3});
    sam3_encode_image(im->r, net, input, keep_trunk, &im->encoded);
    return run_status(im->r, err);
}

int image_encode(samite_image *im, bool keep_trunk, samite_error *err)
{
    samite_model *m = im->model;
    answers_forget(im);
    if (m->parts)
        return engine_encode(im, keep_trunk, err);
    if (!m->options.low_memory)
        return encode(im, keep_trunk, err);
    pthread_mutex_lock(&m->scarce);
    int code = encode(im, keep_trunk, err);
    native_release(m->n, 1u << PART_TRUNK);
    pthread_mutex_unlock(&m->scarce);
    return code;
}

int samite_image_replace(samite_image *im, const samite_pixels *px, samite_error *err)
{
    if (!im || !px || !px->rgb || px->width < 1 || px->height < 1)
        return fail(err, SAMITE_USAGE, "samite_image_replace: no picture given");
    pixels p = {.width = px->width, .height = px->height, .rgb = px->rgb};
    int code = preprocess(im->input, &p, im->model->n->net->c.image, err);
    if (code)
        return code;
    im->width = px->width;
    im->height = px->height;
    return image_encode(im, native_has(im->model->n, PARTS_CLICK), err);
}

int samite_image_open(samite_image **out, samite_model *m, const samite_pixels *pixels, samite_error *err)
{
    if (!out || !m)
        return fail(err, SAMITE_USAGE, "samite_image_open: no model given");
    *out = NULL;
    samite_image *im;
    int code = image_new(&im, m, err);
    if (!code && (code = samite_image_replace(im, pixels, err)))
        samite_image_free(im);
    if (!code)
        *out = im;
    return code;
}

void samite_image_free(samite_image *im)
{
    if (!im)
        return;
    run_close(im->r);
    answers_forget(im);
    engine_features_free(im);
    engine_tracked_free(im);
    engine_found_free(&im->found);
    free(im->no_pointer);
    free(im->input);
    samite_model_free(im->model);
    free(im);
}

/* ---- words ---- */

static words *find_words(samite_model *m, const char *text)
{
    for (int i = 0; i < m->known_count; i++)
        if (strcmp(m->known[i].text, text) == 0)
            return &m->known[i];
    return NULL;
}

/* Keeps a copy of the features; forgets the oldest prompt when the list is full. Failing to keep is harmless. */
static void remember_words(samite_model *m, const char *text, const tensor *t, bool cut)
{
    size_t bytes = sizeof(float) * (size_t)tensor_count(t);
    words w = {.text = text_copy(text), .tokens = (int)t->dim[1], .cut = cut, .values = malloc(bytes)};
    pthread_mutex_lock(&m->lock);
    if (w.text && w.values && !find_words(m, text)) {
        memcpy(w.values, t->data, bytes);
        words *slot = &m->known[m->known_next];
        m->known_next = (m->known_next + 1) % WORDS_KEPT;
        m->known_count += m->known_count < WORDS_KEPT;
        words old = *slot;
        *slot = w;
        w = old;
    }
    pthread_mutex_unlock(&m->lock);
    free(w.text);
    free(w.values);
}

/* The features of a prompt seen before, copied into the run; NULL if it is new. */
static tensor *recall_words(samite_image *im, const char *text, int *tokens, bool *cut)
{
    samite_model *m = im->model;
    tensor *t = NULL;
    pthread_mutex_lock(&m->lock);
    const words *w = find_words(m, text);
    if (w) {
        t = run_constant(im->r, 3, (int64_t[]){1, w->tokens, m->n->net->c.d});
        if (t->data && run_ok(im->r))
            memcpy(t->data, w->values, sizeof(float) * (size_t)tensor_count(t));
        *tokens = w->tokens;
        *cut = w->cut;
    }
    pthread_mutex_unlock(&m->lock);
    return t;
}

int check_words(const samite_model *m, const char *text, samite_error *err)
{
    enum { START_AND_END = 2 };
    char unknown[256];
    int32_t ids[256];
    bool cut;
    const config *c = &m->n->net->c;
    if (!text || tokenize_reduced(ids, c, text, strlen(text), &cut, NULL) > START_AND_END)
        return 0;
    if (tokens_unknown(unknown, sizeof unknown, c, text, strlen(text)))
        return fail(err, SAMITE_USAGE, "this model knows only %d tokens, and nothing of: %s", c->kept, unknown);
    return fail(err, SAMITE_USAGE, "the text is empty: give words to look for");
}

/* Encodes words that are new. */
static int encode_words(samite_image *im, const char *text, tensor **out, int *tokens, bool *cut, samite_error *err)
{
    const sam3 *net = im->model->n->net;
    int code = image_prepare(im, PARTS_TEXT, err);
    if (code)
        return code;
    int32_t ids[256];
    char unknown[256];
    *tokens = tokenize_reduced(ids, &net->c, text, strlen(text), cut, NULL);
    if (tokens_unknown(unknown, sizeof unknown, &net->c, text, strlen(text)))
        model_log(im->model, "this model knows only %d tokens; it leaves out: %s", net->c.kept, unknown);
    if (*cut)
        model_log(im->model, "the text '%.60s%s' is longer than %d tokens and was cut: short noun phrases work best", text,
                  strlen(text) > 60 ? "..." : "", net->c.context);
    image_stage(im, "text", (uint64_t)net->c.text_layers + 1);
    size_t mark = run_mark(im->r);
    tensor *index = run_indices(im->r, ids, 2, (int64_t[]){1, *tokens});
    *out = run_keep(im->r, mark, text_forward(im->r, &net->text, index));
    code = run_status(im->r, err);
    if (!code)
        remember_words(im->model, text, *out, *cut);
    return code;
}

int image_words(samite_image *im, const char *text, tensor **out, int *tokens, bool *cut, samite_error *err)
{
    samite_model *m = im->model;
    if (m->parts)
        return engine_words_value(im, text, out, tokens, cut, err);
    if ((*out = recall_words(im, text, tokens, cut)))
        return run_status(im->r, err);
    if (!m->options.low_memory)
        return encode_words(im, text, out, tokens, cut, err);
    pthread_mutex_lock(&m->scarce);
    int code = encode_words(im, text, out, tokens, cut, err);
    native_release(m->n, PARTS_TEXT);
    pthread_mutex_unlock(&m->scarce);
    return code;
}

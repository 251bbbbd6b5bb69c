/* api_calibrate.c - pictures and prompts through the network in f32, then the file in 8 bits. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "api.h"
#include "base/json.h"
#include "base/text.h"
#include "runtime/calibrate.h"
#include "runtime/native_write.h"

#define DEFAULT_BOUND 0.05
#define TEXTS_IN_TURN 2

/* Short and long, things and parts of things. */
static const char *const usual_texts[] = {"person", "a red car", "dog", "the small window on the left",
                                          "tree", "striped shirt", "cup", "a yellow school bus"};

typedef struct job {
    samite_model             *m;
    samite_calibrate_options  o;
    calibration              *c;
} job;

static int ask(samite_image *im, const char *said, samite_error *err)
{
    samite_prompt p = SAMITE_PROMPT_INIT;
    samite_result *res;
    p.text = said;
    p.no_masks = 1;
    int code = samite_image_segment(im, &p, &res, err);
    if (!code)
        samite_result_free(res);
    return code;
}

static int ask_all(samite_image *im, const job *j, int picture, samite_error *err)
{
    int usual = (int)(sizeof usual_texts / sizeof *usual_texts), code = 0;
    for (int i = 0; !code && i < j->o.text_count; i++)
        code = ask(im, j->o.texts[i], err);
    for (int i = 0; !code && !j->o.text_count && i < TEXTS_IN_TURN; i++)
        code = ask(im, usual_texts[(picture * TEXTS_IN_TURN + i) % usual], err);
    return code;
}

static int look_at_pictures(const job *j, samite_error *err)
{
    samite_image *im;
    int code = image_new(&im, j->m, err);
    if (code)
        return code;
    run_set_rows(im->r, calibration_rows, j->c);
    for (int i = 0; !code && i < j->o.picture_count; i++) {
        samite_pixels p;
        if ((code = samite_pixels_read(&p, j->o.pictures[i], 0, err)))
            break;
        code = samite_image_replace(im, &p, err);
        samite_pixels_free(&p);
        if (!code)
            code = ask_all(im, j, i, err);
    }
    samite_image_free(im);
    return code;
}

/* Decides about one tensor, tells the caller and notes it for the file. */
static void decide(const job *j, const calibrated *t, json_t *notes)
{
    char why[64] = "";
    t->e->eight = t->rows > 0 && t->error <= j->o.bound;
    if (t->rows == 0)
        snprintf(why, sizeof why, "never computed on these pictures");
    else if (!t->e->eight)
        snprintf(why, sizeof why, "error %.3g above %.3g", t->error, j->o.bound);
    samite_calibrated row = {t->e->p.name, t->rows ? t->error : -1, t->e->eight, why};
    json_object_set_new(notes, row.name, json_pack("{s:o, s:s, s:s}", "error", json_number(row.error), "type",
                                                   row.eight ? "int8" : "bf16", "why", why));
    if (j->o.each)
        j->o.each(j->o.user, &row);
}

static int on_step(void *user, uint64_t done, uint64_t total)
{
    const samite_model *m = user;
    return m->options.progress && m->options.progress(m->options.user, "write", done, total);
}

static int write_file(const job *j, const char *path, samite_error *err)
{
    const calibrated *list;
    size_t count;
    int code = calibration_result(j->c, &list, &count, err);
    if (code)
        return code;
    json_t *notes = json_object();
    for (size_t i = 0; i < count; i++)
        decide(j, &list[i], notes);
    json_t *note = json_pack("{s:f, s:i, s:s, s:o}", "bound", j->o.bound, "pictures", j->o.picture_count, "kernels",
                             kernels_get()->level, "tensors", notes);
    char *line = note ? json_dumps(note, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
    json_decref(note);
    write_choice how = {NULL, j->o.detector_only != 0, j->o.nms};
    code = line ? native_write_int8(j->m->n, path, &how, line, on_step, j->m, err)
                : fail(err, SAMITE_RESOURCE, "not enough memory for the notes of %s", path);
    free(line);
    for (size_t i = 0; i < count; i++)
        list[i].e->eight = false;
    return code;
}

static int check(const samite_model *m, const char *path, const samite_calibrate_options *o, samite_error *err)
{
    if (!ends_with(path, ".safetensors"))
        return fail(err, SAMITE_USAGE, "%s: a file in 8 bits must end in .safetensors", path);
    if (m->parts || m->n->type != GEMM_F32)
        return fail(err, SAMITE_USAGE, "calibration compares with f32: open the model natively with precision f32");
    if (m->n->calibrated)
        return fail(err, SAMITE_USAGE, "%s is in 8 bits already: calibrate the file that it was made of", m->n->source);
    if (o->picture_count < 1 || !o->pictures)
        return fail(err, SAMITE_USAGE, "calibration needs at least one picture");
    if (!(o->bound > 0) || !isfinite(o->bound))
        return fail(err, SAMITE_USAGE, "an error bound of %g: expected a number above 0", o->bound);
    return 0;
}

int samite_model_calibrate(samite_model *m, const char *path, const samite_calibrate_options *options,
                           samite_error *err)
{
    if (!m || !path || !options)
        return fail(err, SAMITE_USAGE, "samite_model_calibrate: no model, path or options given");
    job j = {.m = m, .o = SAMITE_CALIBRATE_OPTIONS_INIT};
    options_copy(&j.o, sizeof j.o, options, options->size);
    j.o.bound = j.o.bound == 0 ? DEFAULT_BOUND : j.o.bound;
    int code = check(m, path, &j.o, err);
    if (!code)
        code = calibration_open(&j.c, m->n, err);
    if (!code)
        code = look_at_pictures(&j, err);
    if (!code)
        code = write_file(&j, path, err);
    calibration_close(j.c);
    return code;
}

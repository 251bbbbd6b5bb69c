/* segment_click.c - `samite segment` with points, a box or a rough mask: one object instead of all. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "mask_file.h"
#include "segment.h"

/* "X,Y" or "X,Y,neg" */
int parse_point(void *to, const char *name, const char *value, samite_error *err)
{
    click_settings *c = to;
    double v[2];
    const char *s = value;
    bool negative = false;
    for (int i = 0; i < 2; i++) {
        char number[64];
        size_t n = strcspn(s, ",");
        snprintf(number, sizeof number, "%.*s", (int)(n < 63 ? n : 63), s);
        if (n > 63 || !parse_number(&v[i], number) || (i == 0 && s[n] != ','))
            return fail(err, SAMITE_USAGE, "%s wants X,Y or X,Y,neg in pixels, not \"%s\"", name, value);
        s += n;
        s += i == 0;
    }
    if (*s) {
        negative = strcmp(s, ",neg") == 0;
        if (!negative && strcmp(s, ",pos") != 0)
            return fail(err, SAMITE_USAGE, "%s %s: after X,Y only ,neg (not part of it) is understood", name, value);
    }
    samite_point *point = realloc(c->point, ((size_t)c->count + 1) * sizeof *point);
    if (!point)
        return fail(err, SAMITE_RESOURCE, "out of memory for points");
    c->point = point;
    point[c->count++] = (samite_point){(float)v[0], (float)v[1], negative};
    return SAMITE_OK;
}

int parse_click_box(void *to, const char *name, const char *value, samite_error *err)
{
    click_settings *c = to;
    double v[4];
    int code = parse_corners(v, name, value, err);
    if (code)
        return code;
    if (c->has_box)
        return fail(err, SAMITE_USAGE, "%s is given twice: a click is about one object; examples of many go with "
                    "--like", name);
    c->has_box = true;
    c->box = (samite_box){(float)v[0], (float)v[1], (float)v[2], (float)v[3], 0};
    return SAMITE_OK;
}

bool click_wanted(const click_settings *c)
{
    return c->count || c->has_box || c->mask || c->logits;
}

bool click_refines(const click_settings *c)
{
    return c->pick && !c->logits;
}

int click_check(const click_settings *c, bool words, samite_error *err)
{
    if ((c->pick || c->several || c->save) && !click_wanted(c))
        return fail(err, SAMITE_USAGE, "%s goes with --point, --box or --mask",
                    c->pick ? "--pick" : c->several ? "--multimask" : "--save-logits");
    if (c->logits && c->mask)
        return fail(err, SAMITE_USAGE, "--logits and --mask are both where to start from; take one");
    if (c->logits && c->pick && words)
        return fail(err, SAMITE_USAGE, "--pick K of --logits or of --text? Leave one of them out");
    if (c->pick && !words && !c->logits)
        return fail(err, SAMITE_USAGE, "--pick refines a result of --text or --like; give one of them");
    if (c->pick && c->several && !c->logits)
        return fail(err, SAMITE_USAGE, "--pick refines one result and cannot give alternatives; leave --multimask out");
    if (c->pick && c->mask)
        return fail(err, SAMITE_USAGE, "--pick starts from the mask of the result; leave --mask out");
    return SAMITE_OK;
}

json_t *click_json(const click_settings *c)
{
    json_t *points = json_array(), *box = json_null();
    for (int i = 0; i < c->count; i++)
        json_array_append_new(points, json_pack("[o, o, b]", json_number((double)c->point[i].x),
                                                json_number((double)c->point[i].y), !c->point[i].negative));
    if (c->has_box)
        box = json_pack("[o, o, o, o]", json_number((double)c->box.x0), json_number((double)c->box.y0),
                        json_number((double)c->box.x1), json_number((double)c->box.y1));
    return json_pack("{s:o, s:o, s:o, s:o, s:b, s:i}", "points", points, "box", box, "mask",
                     c->mask ? json_name(c->mask) : json_null(), "logits",
                     c->logits ? json_name(c->logits) : json_null(), "multimask", c->several, "pick", c->pick);
}

/* The result to refine: the pick-th best. */
static int picked(samite_object **out, const picture *p, int pick, samite_error *err)
{
    if (pick > p->objects)
        return fail(err, SAMITE_INPUT, "%s: --pick %d, but only %d results were found", p->in->path, pick, p->objects);
    *out = &p->object[pick - 1];
    if (!(*out)->instance->mask.runs)
        return fail(err, SAMITE_INPUT, "%s: result %d has no mask to refine", p->in->path, pick);
    return SAMITE_OK;
}

static int ask(picture *p, samite_image *image, const click_settings *c, const samite_mask *rough, samite_error *err)
{
    samite_click question = SAMITE_CLICK_INIT;
    question.points = c->point;
    question.point_count = c->count;
    question.box = c->has_box ? &c->box : NULL;
    question.mask = rough;
    question.several = c->several;
    samite_error what = {0};
    float *kept = NULL;
    int count = 0, code = SAMITE_OK;
    if (c->logits)
        code = samite_logits_read(&kept, &count, &question.logits_side, c->logits, err);
    if (!code && c->logits && c->pick > count)
        code = fail(err, SAMITE_INPUT, "%s: --pick %d, but it holds %d", c->logits, c->pick, count);
    if (!code && kept)
        question.logits = kept + (size_t)(c->pick ? c->pick - 1 : 0) * (size_t)question.logits_side *
                                     (size_t)question.logits_side;
    if (!code && (code = samite_image_click(image, &question, &p->answer, &what)))
        fail(err, code, "%s: %s", p->in->path, what.text);
    samite_free(kept);
    if (!code && c->save)
        code = samite_logits_write(p->answer->logits, p->answer->count, p->answer->side, c->save, err);
    return code;
}

/* The refined mask takes the place of the picked one; its score stays that of the words. */
static int refine(picture *p, samite_image *image, const click_settings *c, samite_error *err)
{
    samite_object *o = NULL;
    int code = picked(&o, p, c->pick, err);
    if (code || (code = ask(p, image, c, &o->instance->mask, err)))
        return code;
    p->answer->instance[0].score = o->instance->score;
    o->instance = &p->answer->instance[0];
    return SAMITE_OK;
}

int picture_click(picture *p, samite_image *image, const click_settings *c, int name, samite_error *err)
{
    if (click_refines(c))
        return refine(p, image, c, err);
    samite_mask rough = {0};
    int code = SAMITE_OK;
    if (c->mask)
        code = mask_file_read(&rough, c->mask, p->pixels.width, p->pixels.height, p->in->path, err);
    if (!code)
        code = ask(p, image, c, c->mask ? &rough : NULL, err);
    mask_file_free(&rough);
    if (code)
        return code;
    samite_object *more = realloc(p->object, sizeof *more * (size_t)(p->objects + p->answer->count + 1));
    if (!more)
        return fail(err, SAMITE_RESOURCE, "%s: out of memory for %d objects", p->in->path, p->answer->count);
    p->object = more;
    for (int i = 0; i < p->answer->count; i++)
        p->object[p->objects++] = (samite_object){&p->answer->instance[i], name};
    return SAMITE_OK;
}

/* dataset.c - from records to prompts, chosen images and their objects. */
#include "train/dataset.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "eval/python_random.h"
#include "train/dataset_rows.h"
#include "train/records.h"

#define TOO_MUCH_OUTSIDE 1.0      /* pixels that a box may stick out before it is worth a line */

static int no_memory(const train_set *s, samite_error *err)
{
    return fail(err, SAMITE_RESOURCE, "not enough memory for the annotations of %s", s->path ? s->path : "a data set");
}

static const char *id_text(train_set *s, const id_value *id)
{
    char text[128];
    if (!id)
        return "";
    id_print(text, sizeof text, id);
    return pool_string(&s->memory, text, strlen(text));
}

bool train_set_row(train_set *s, bool rejected, const id_value *image, const id_value *annotation, const char *format,
                   ...)
{
    char why[256];
    *(rejected ? &s->rejected : &s->noted) += 1;
    if (s->row_count == ROWS_KEPT)
        return true;
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    if (grow(&s->rows, s->row_count, &s->row_room, sizeof *s->rows))
        return false;
    train_row row = {id_text(s, image), id_text(s, annotation), pool_string(&s->memory, why, strlen(why)), rejected};
    s->rows[s->row_count++] = row;
    return row.image && row.annotation && row.why;
}

/* ---- categories become prompts ---- */

/* Roboflow puts a category in front that only names the group of the others and has no objects. */
static bool names_a_group(const train_set *s, int32_t category)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->objects[i].category == category)
            return false;
    for (size_t i = 0; i < s->category_ids.count; i++)
        if ((int32_t)i != category && s->groups[i] && s->names[category] &&
            strcmp(s->groups[i], s->names[category]) == 0)
            return true;
    return false;
}

static int32_t prompt_named(const train_set *s, const char *name)
{
    for (int i = 0; i < s->prompt_count; i++)
        if (strcmp(s->prompts[i], name) == 0)
            return i;
    return -1;
}

static int make_prompts(train_set *s, bool keep_unused, samite_error *err)
{
    size_t n = s->category_ids.count;
    int32_t *order = ids_order(&s->category_ids);
    s->prompt_of = malloc((n + 1) * sizeof *s->prompt_of);
    s->prompts = malloc((n + 1) * sizeof *s->prompts);
    if ((n && !order) || !s->prompt_of || !s->prompts) {
        free(order);
        return no_memory(s, err);
    }
    bool fine = true;
    for (size_t i = 0; i < n; i++) {
        int32_t c = order[i];
        s->prompt_of[c] = -1;
        if (!s->names[c])
            continue;
        if (i == 0 && !keep_unused && names_a_group(s, c)) {
            fine &= train_set_row(s, false, NULL, NULL,
                                  "category \"%s\" has no objects and only names the group of others; it "
                                  "is not asked for",
                                  s->names[c]);
            continue;
        }
        int32_t same = prompt_named(s, s->names[c]);
        if (same >= 0)
            fine &= train_set_row(s, false, NULL, NULL, "two categories are called \"%s\"; their objects go together",
                                  s->names[c]);
        s->prompt_of[c] = same >= 0 ? same : s->prompt_count;
        if (same < 0)
            s->prompts[s->prompt_count++] = s->names[c];
    }
    free(order);
    return fine ? SAMITE_OK : no_memory(s, err);
}

/* ---- which images ---- */

static int choose_images(train_set *s, int limit, samite_error *err)
{
    int32_t *sorted = ids_order(&s->image_ids);
    s->order = malloc((s->image_ids.count + 1) * sizeof *s->order);
    if ((s->image_ids.count && !sorted) || !s->order) {
        free(sorted);
        return no_memory(s, err);
    }
    for (size_t i = 0; i < s->image_ids.count; i++)
        if (s->images[sorted[i]].file_name)
            s->order[s->chosen++] = sorted[i];
    free(sorted);
    if (limit > 0) {
        python_shuffle(s->order, (size_t)s->chosen, (uint64_t)s->chosen);
        s->chosen = s->chosen < limit ? s->chosen : limit;
    }
    return SAMITE_OK;
}

/* ---- objects go to their images ---- */

static double outside(double first, double size, int limit)
{
    double before = first < 0 ? -first : 0, behind = first + size - limit;
    return before > behind ? before : behind;
}

/* Masks of another size than the picture are stretched, as officially. */
static bool note_stretched_mask(train_set *s, const train_object *x)
{
    const train_image *im = &s->images[x->image];
    const segment *shape = x->shape;
    if (!shape || !shape->width || !im->width || !im->height ||
        (shape->width == im->width && shape->height == im->height))
        return true;
    return train_set_row(s, false, &s->image_ids.item[x->image], x->id < 0 ? NULL : &s->annotation_ids.item[x->id],
                         "the mask has %d x %d pixels, the picture %d x %d; it is stretched", shape->width,
                         shape->height, im->width, im->height);
}

/* Is the object one of a chosen image and prompt? Rows say why not, where that is no choice of the user. */
static bool place_object(train_set *s, train_object *x, bool *fine)
{
    const id_value *image = &s->image_ids.item[x->image], *own = x->id < 0 ? NULL : &s->annotation_ids.item[x->id];
    const train_image *im = &s->images[x->image];
    char category[64];
    id_print(category, sizeof category, &s->category_ids.item[x->category]);
    x->prompt = s->prompt_of[x->category];
    if (!im->file_name)
        *fine &= train_set_row(s, true, image, own, "no image has this id");
    else if (x->prompt < 0)
        *fine &= train_set_row(s, true, image, own, "category %s %s", category,
                               s->names[x->category] ? "is not asked for" : "is not among the categories");
    else if (im->width && im->height &&
             (x->box[0] >= im->width || x->box[1] >= im->height || x->box[0] + x->box[2] <= 0 ||
              x->box[1] + x->box[3] <= 0))
        *fine &= train_set_row(s, true, image, own, "the box %g %g %g %g lies outside the picture of %d x %d",
                               x->box[0], x->box[1], x->box[2], x->box[3], im->width, im->height);
    else {
        if (im->width && im->height && (outside(x->box[0], x->box[2], im->width) > TOO_MUCH_OUTSIDE ||
                                        outside(x->box[1], x->box[3], im->height) > TOO_MUCH_OUTSIDE))
            *fine &= train_set_row(s, false, image, own,
                                   "the box %g %g %g %g sticks out of the picture of %d x %d; learnt as "
                                   "the official loader cuts it",
                                   x->box[0], x->box[1], x->box[2], x->box[3], im->width, im->height);
        *fine &= note_stretched_mask(s, x);
        return true;
    }
    return false;
}

/* Sorts the objects by image (stable: the order of the file stays within an image) and drops what is not learnt. */
static int gather_objects(train_set *s, samite_error *err)
{
    size_t n = s->image_ids.count;
    int *next = calloc(n + 1, sizeof *next);
    train_object *sorted = malloc((s->count + 1) * sizeof *sorted);
    uint8_t *chosen = calloc(n + 1, 1);
    bool fine = next && sorted && chosen;
    for (int i = 0; fine && i < s->chosen; i++)
        chosen[s->order[i]] = 1;
    size_t kept = 0;
    for (size_t i = 0; fine && i < s->count; i++) {
        train_object *x = &s->objects[i];
        bool wanted = chosen[x->image] || !s->images[x->image].file_name;
        if (wanted && place_object(s, x, &fine)) {
            s->images[x->image].count++;
            s->objects[kept++] = *x;
        }
    }
    if (fine) {
        s->count = kept;
        for (size_t i = 0, at = 0; i < n; i++) {
            s->images[i].first = next[i] = (int)at;
            at += (size_t)s->images[i].count;
        }
        for (size_t i = 0; i < kept; i++)
            sorted[next[s->objects[i].image]++] = s->objects[i];
        free(s->objects);
        s->objects = sorted;
        s->room = kept + 1;
    } else {
        free(sorted);
    }
    free(next);
    free(chosen);
    return fine ? SAMITE_OK : no_memory(s, err);
}

/* ---- the set ---- */

static int check_lists(const set_reader *r, samite_error *err)
{
    const train_set *s = r->s;
    if (!r->lists[0])
        return fail(err, SAMITE_INPUT,
                    "%s has nothing in \"images\"; expected a COCO file with images, annotations and categories",
                    s->path);
    if (!r->lists[2])
        return fail(err, SAMITE_INPUT,
                    "%s has nothing in \"categories\", so there are no words to ask for; add {\"id\": 1, \"name\": "
                    "...} for every category_id",
                    s->path);
    return SAMITE_OK;
}

int train_set_read(train_set *out, const train_options *o, samite_error *err)
{
    samite_error own = {0};
    err = err ? err : &own;
    *out = (train_set){.masks = o->masks, .path = text_copy(o->annotations), .pictures = text_copy(o->pictures)};
    set_reader r = {.s = out, .err = err};
    int code = out->path && out->pictures ? records_read(o->annotations, dataset_record, &r, err) : no_memory(out, err);
    if (!code)
        code = check_lists(&r, err);
    if (!code)
        code = make_prompts(out, o->keep_unused, err);
    if (!code)
        code = choose_images(out, o->limit, err);
    if (!code)
        code = gather_objects(out, err);
    if (!code && !out->chosen)
        code = fail(err, SAMITE_INPUT, "%s names no picture that can be used", out->path);
    if (!code && !out->prompt_count)
        code = fail(err, SAMITE_INPUT, "%s has no category that can be asked for", out->path);
    if (!code && out->count > INT32_MAX / 2)
        code = fail(err, SAMITE_INPUT, "%s has %zu objects, at most %d work", out->path, out->count, INT32_MAX / 2);
    if (code)
        train_set_free(out);
    return code;
}

void train_set_free(train_set *s)
{
    ids_free(&s->image_ids);
    ids_free(&s->category_ids);
    ids_free(&s->annotation_ids);
    free(s->path), free(s->pictures), free(s->images), free(s->names), free(s->groups), free(s->prompt_of);
    free(s->objects), free(s->order), free(s->prompts), free(s->rows);
    pool_free(&s->memory);
    *s = (train_set){0};
}

char *train_set_picture(const train_set *s, int32_t image)
{
    return path_join(s->pictures, s->images[image].file_name);
}

/* ---- counts ---- */

int train_set_objects(const train_set *s)
{
    int n = 0;
    for (size_t i = 0; i < s->count; i++)
        n += !s->objects[i].crowd;
    return n;
}

void train_set_prompt(const train_set *s, int prompt, int *objects, int *pictures)
{
    *objects = *pictures = 0;
    int32_t last = -1;
    for (size_t i = 0; i < s->count; i++) {
        const train_object *x = &s->objects[i];
        if (x->prompt != prompt || x->crowd)
            continue;
        *objects += 1;
        *pictures += x->image != last;
        last = x->image;
    }
}

void train_set_pairs(const train_set *s, long *positive, long *negative)
{
    *positive = 0;
    for (int p = 0; p < s->prompt_count; p++) {
        int objects, pictures;
        train_set_prompt(s, p, &objects, &pictures);
        *positive += pictures;
    }
    *negative = (long)s->chosen * s->prompt_count - *positive;
}

/* dataset.c - takes records into a set, resolves ids, keeps account of what was odd. */
#include "eval/dataset.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/dataset_read.h"

#define BATCH_NUMBERS ((size_t)1 << 20)
#define BATCH_SHAPES  8192

const char *eval_item_print(char *out, size_t room, const eval_set *s, const eval_set *images, const eval_item *item)
{
    char id[40], image[40];
    bool result = images != s;
    if (result)
        snprintf(id, sizeof id, "%ld", (long)(item - s->items) + 1);
    else
        id_print(id, sizeof id, item->id < 0 ? &(id_value){0} : &s->ids.item[item->id]);
    id_print(image, sizeof image, item->image < 0 ? &(id_value){0} : &images->image_ids.item[item->image]);
    snprintf(out, room, "%s %s (image %s)", result ? "result" : "annotation", id, image);
    return out;
}

static bool out_of_memory(reader *r)
{
    fail(r->err, SAMITE_RESOURCE, "not enough memory for the records of %s", r->set->path);
    return false;
}

static bool missing(reader *r, const char *what, const char *hint)
{
    char id[40] = "";
    if (r->now.seen[FIELD_ID])
        id_print(id, sizeof id, &r->now.id[0]);
    const char *kind = r->in == SECTION_IMAGES       ? "image"
                       : r->in == SECTION_CATEGORIES ? "category"
                       : r->truth                    ? "result"
                                                     : "annotation";
    fail(r->err, SAMITE_INPUT, "%s: %s number %zu%s%s has no %s%s%s", r->set->path, kind, r->records,
         *id ? ", id " : "", id, what, *hint ? "; " : "", hint);
    return false;
}

/* ---- images and categories ---- */

static const char *name_copy(reader *r, field f, int at)
{
    const text *t = &r->now.names[at];
    return r->now.seen[f] && t->data ? pool_string(&r->set->texts, t->data, t->size) : NULL;
}

static int side(const record *n, field f)
{
    double v = n->seen[f] ? n->value[f] : 0;
    return v >= 1 && v <= INT32_MAX && v == floor(v) ? (int)v : 0;
}

static void note_first(char *first, size_t room, size_t count, const id_value *id)
{
    if (count == 0)
        id_print(first, room, id);
}

static bool image_end(reader *r)
{
    eval_set *s = r->set;
    record *n = &r->now;
    bool known;
    if (!n->seen[FIELD_ID])
        return missing(r, "id", "");
    int32_t at = ids_put(&s->image_ids, &n->id[0], &known);
    if (at < 0 || grow(&s->images, (size_t)at, &s->image_room, sizeof *s->images))
        return out_of_memory(r);
    if (known)
        note_first(s->first_image, sizeof s->first_image, s->repeated_images++, &n->id[0]);
    s->images[at] = (eval_image){
        .file_name = name_copy(r, FIELD_FILE_NAME, 0), .text_input = name_copy(r, FIELD_TEXT_INPUT, 2),
        .width = side(n, FIELD_WIDTH), .height = side(n, FIELD_HEIGHT),
        .exhaustive = !n->seen[FIELD_EXHAUSTIVE] || n->value[FIELD_EXHAUSTIVE] != 0,
        .has_prompts = n->seen[FIELD_PROMPTS] && r->how->prompts, .prompt = n->first_prompt,
        .prompts = s->prompt_count - n->first_prompt,
    };
    s->has_prompts |= s->images[at].has_prompts;
    return true;
}

static bool put_category(reader *r, const id_value *id, const char *name)
{
    eval_set *s = r->set;
    bool known;
    int32_t at = ids_put(&s->category_ids, id, &known);
    if (at < 0 || grow(&s->categories, (size_t)at, &s->category_room, sizeof *s->categories))
        return out_of_memory(r);
    s->categories[at] = name;
    return true;
}

static bool category_end(reader *r)
{
    if (!r->now.seen[FIELD_ID])
        return missing(r, "id", "");
    return put_category(r, &r->now.id[0], name_copy(r, FIELD_NAME, 1));
}

/* ---- annotations and results ---- */

/* Drops what the record has put into the batch. */
static void forget_shape(reader *r)
{
    const shape *s = &r->now.shape;
    r->batch.end_count = s->ends;
    if (s->kind == SHAPE_TEXT)
        r->batch.byte_count -= s->count;
    else
        r->batch.count -= s->count;
}

/* As in the original: the first result decides. With a box, areas are those of boxes and every result needs one;
 * without, areas (and boxes that are not given) are those of masks. */
static bool decide_mode(reader *r)
{
    record *n = &r->now;
    r->by_mask = !n->seen[FIELD_BOX];
    if (r->by_mask && !n->seen[FIELD_SEGMENTATION])
        return missing(r, "bbox and no segmentation", "one of them is needed");
    if (!r->by_mask && !r->masks) {
        forget_shape(r);
        r->take_shapes = false;
    }
    return true;
}

static bool push_item(reader *r, const eval_item *item)
{
    eval_set *s = r->set;
    if (grow(&s->items, s->count, &s->room, sizeof *s->items))
        return out_of_memory(r);
    s->items[s->count++] = *item;
    return true;
}

static bool push_shape(reader *r)
{
    shape_batch *b = &r->batch;
    shape s = r->now.shape;
    if (grow(&b->shapes, b->shape_count, &b->shape_room, sizeof *b->shapes))
        return out_of_memory(r);
    s.item = r->set->count - 1;
    s.height = r->now.size_numbers == 2 ? r->now.size[0] : -1;
    s.width = r->now.size_numbers == 2 ? r->now.size[1] : -1;
    eval_image *im = r->truth ? NULL : &r->set->images[r->set->items[s.item].image];
    if (im && (im->width == 0 || im->height == 0) && s.height >= 1 && s.width >= 1 && s.height <= INT32_MAX &&
        s.width <= INT32_MAX) {
        im->width = (int)s.width;
        im->height = (int)s.height;
    }
    b->shapes[b->shape_count++] = s;
    if (b->shape_count < BATCH_SHAPES && b->count < BATCH_NUMBERS && b->byte_count < BATCH_NUMBERS * 8)
        return true;
    return shapes_convert(b, r->set, r->truth ? r->truth : r->set, r->masks, r->err) == SAMITE_OK;
}

/* Box and ids that both kinds of records have. */
static bool common_fields(reader *r, eval_item *item)
{
    record *n = &r->now;
    *item = (eval_item){.id = -1, .image = -1, .category = -1};
    if (!n->seen[FIELD_IMAGE_ID])
        return missing(r, "image_id", "");
    if (!n->seen[FIELD_CATEGORY_ID])
        return missing(r, "category_id", "");
    if (n->box_numbers && n->box_numbers != 4)
        return missing(r, "bbox of 4 numbers", "expected [x, y, width, height]");
    item->has_box = n->seen[FIELD_BOX];
    if (item->has_box)
        memcpy(item->box, n->box, sizeof item->box);
    for (int i = 0; i < 4 && item->has_box; i++)
        if (!isfinite(item->box[i]))
            return missing(r, "finite bbox", "");
    if (n->flat && r->masks)
        return missing(r, "list of polygons as segmentation", "expected [[x, y, ...], ...], found [x, y, ...]");
    return true;
}

static bool result_end(reader *r)
{
    eval_set *s = r->set;
    record *n = &r->now;
    eval_item item;
    if (!common_fields(r, &item))
        return false;
    if (!n->seen[FIELD_SCORE] || !isfinite(n->value[FIELD_SCORE]))
        return missing(r, "score", "expected a number");
    if (r->records == 1 && !decide_mode(r))
        return false;
    if (!r->by_mask && !item.has_box)
        return missing(r, "bbox", "the first result has one, so all need it");
    if (r->by_mask && !n->seen[FIELD_SEGMENTATION])
        return missing(r, "segmentation", "the first result has one instead of a bbox, so all need it");
    item.image = match_image(&r->names, r->truth, s, &n->id[1]);
    item.category = match_category(&r->names, r->truth, s, &n->id[2]);
    s->matched_by_name |= r->names.open;
    if (item.image < 0)
        note_first(s->first_unknown, sizeof s->first_unknown, s->unknown_images++, &n->id[1]);
    else if (item.category < 0)
        s->unknown_categories++;
    if (item.image < 0 || item.category < 0) {
        if (r->take_shapes)
            forget_shape(r);
        return true;
    }
    item.score = n->value[FIELD_SCORE];
    item.has_area = !r->by_mask;
    item.area = item.box[2] * item.box[3];
    r->set->negative_boxes += item.has_box && (item.box[2] < 0 || item.box[3] < 0);
    if (!push_item(r, &item))
        return false;
    if (!r->by_mask && !n->seen[FIELD_SEGMENTATION])
        n->shape.kind = SHAPE_BOX;
    return !r->take_shapes || push_shape(r);
}

static bool annotation_end(reader *r)
{
    eval_set *s = r->set;
    record *n = &r->now;
    eval_item item;
    bool known = false;
    if (!common_fields(r, &item))
        return false;
    item.image = ids_find(&s->image_ids, &n->id[1]);
    if (item.image < 0) {
        note_first(s->first_unknown, sizeof s->first_unknown, s->unknown_images++, &n->id[1]);
        if (r->take_shapes)
            forget_shape(r);
        return true;
    }
    item.category = ids_put(&r->raw_categories, &n->id[2], &known);
    if (n->seen[FIELD_ID]) {
        item.id = ids_put(&s->ids, &n->id[0], &known);
        if (known)
            note_first(s->first_repeated, sizeof s->first_repeated, s->repeated_ids++, &n->id[0]);
    }
    if (item.category < 0 || (n->seen[FIELD_ID] && item.id < 0))
        return out_of_memory(r);
    item.crowd = n->seen[FIELD_CROWD] && n->value[FIELD_CROWD] != 0;
    item.ignore = n->seen[FIELD_IGNORE] && n->value[FIELD_IGNORE] != 0;
    s->no_crowd += !n->seen[FIELD_CROWD];
    s->ignore_flags += item.ignore && !item.crowd;
    item.has_area = n->seen[FIELD_AREA] && isfinite(n->value[FIELD_AREA]);
    item.area = item.has_area ? n->value[FIELD_AREA] : 0;
    s->no_area += !item.has_area;
    if (!r->masks && !item.has_box)
        return missing(r, "bbox", "--iou segm works without");
    if (r->masks && !n->seen[FIELD_SEGMENTATION])
        return missing(r, "segmentation", "--iou bbox works without");
    return push_item(r, &item) && (!r->take_shapes || push_shape(r));
}

bool record_end(reader *r)
{
    r->now.seen[FIELD_BOX] = r->now.box_numbers > 0;
    if (r->in == SECTION_IMAGES)
        return image_end(r);
    if (r->in == SECTION_CATEGORIES)
        return category_end(r);
    r->records++;
    return r->truth ? result_end(r) : annotation_end(r);
}

/* ---- whole files ---- */

static void reader_free(reader *r)
{
    for (int i = 0; i < 3; i++) {
        text_free(&r->now.id_text[i]);
        text_free(&r->now.names[i]);
    }
    shapes_free(&r->batch);
    ids_free(&r->raw_categories);
    match_free(&r->names);
}

/* Categories of items, so far numbers in raw_categories, become those of the set. */
static int resolve_categories(reader *r, samite_error *err)
{
    eval_set *s = r->set;
    size_t n = r->raw_categories.count;
    int32_t *to = malloc((n + 1) * sizeof *to);
    s->made_categories = !r->has[SECTION_CATEGORIES];
    bool fine = to != NULL;
    for (size_t i = 0; fine && i < n; i++) {
        const id_value *id = &r->raw_categories.item[i];
        if (s->made_categories)
            fine = put_category(r, id, NULL);
        to[i] = ids_find(&s->category_ids, id);
    }
    for (size_t i = 0; fine && i < s->count; i++) {
        s->items[i].category = to[s->items[i].category];
        s->unknown_categories += s->items[i].category < 0;
    }
    free(to);
    return fine ? SAMITE_OK : fail(err, SAMITE_RESOURCE, "not enough memory for the categories of %s", s->path);
}

static int finish_truth(reader *r, samite_error *err)
{
    eval_set *s = r->set;
    if (!r->has[SECTION_IMAGES])
        return fail(err, SAMITE_INPUT,
                    "%s has no \"images\"; expected an object with images, annotations and categories", s->path);
    int code = resolve_categories(r, err);
    for (size_t i = 0; i < s->count && !code; i++)
        if (!s->items[i].has_area)
            s->items[i].area = s->items[i].box[2] * s->items[i].box[3];
    s->image_order = ids_order(&s->image_ids);
    s->category_order = ids_order(&s->category_ids);
    if (!code && (!s->image_order || !s->category_order))
        code = fail(err, SAMITE_RESOURCE, "not enough memory for the ids of %s", s->path);
    return code ? code : resolve_prompts(s, err);
}

typedef struct source {
    const char *data;      /* NULL: a file */
    size_t      size;
    const char *name;
} source;

static int walk(reader *r, const source *from, samite_error *err)
{
    int code = from->data ? json_stream_bytes(from->data, from->size, from->name, &reader_events, r, err)
                          : json_stream_watched(from->name, &reader_events, reader_piece, r, err);
    if (!code)
        code = shapes_convert(&r->batch, r->set, r->truth ? r->truth : r->set, r->masks, err);
    return code;
}

static int read_all(eval_set *out, const eval_set *truth, const source *from, const eval_read_options *how,
                    samite_error *err)
{
    samite_error own = {0};
    reader r =
        {.set = out, .truth = truth, .masks = how->masks, .how = how, .take_shapes = how->masks || truth, .err = &own};
    *out = (eval_set){0};
    out->path = pool_string(&out->texts, from->name, strlen(from->name));
    int code =
        out->path ? walk(&r, from, &own) : fail(&own, SAMITE_RESOURCE, "not enough memory to read %s", from->name);
    if (!code && r.again) {
        r.second = r.images_read = true;
        r.depth = r.section_depth = r.record_depth = 0;
        code = walk(&r, from, &own);
    }
    if (!code && !truth)
        code = finish_truth(&r, &own);
    if (!code && truth && !r.has[SECTION_ANNOTATIONS])
        code = fail(&own, SAMITE_INPUT,
                    "%s has no results: expected a list of objects, or an object with \"annotations\"", out->path);
    if (!code && truth && out->unknown_images && (!how->strangers || out->count == 0))
        code = fail(&own, SAMITE_INPUT,
                    "%s does not belong to %s: %zu results are on images that are not there, the first on "
                    "image id %s",
                    out->path, truth->path, out->unknown_images, out->first_unknown);
    reader_free(&r);
    if (code) {
        eval_set_free(out);
        fail(err, code, "%s", own.text);
    }
    return code;
}

int eval_set_load(eval_set *out, const char *path, const eval_read_options *o, samite_error *err)
{
    return read_all(out, NULL, &(source){NULL, 0, path}, o, err);
}

int eval_results_load(eval_set *out, const eval_set *truth, const char *path, const eval_read_options *o,
                      samite_error *err)
{
    return read_all(out, truth, &(source){NULL, 0, path}, o, err);
}

int eval_set_read(eval_set *out, const char *path, bool masks, samite_error *err)
{
    return eval_set_load(out, path, &(eval_read_options){.masks = masks}, err);
}

int eval_results_read(eval_set *out, const eval_set *truth, const char *path, bool masks, bool strangers,
                      samite_error *err)
{
    return eval_results_load(out, truth, path, &(eval_read_options){.masks = masks, .strangers = strangers}, err);
}

int eval_set_parse(eval_set *out, const char *data, size_t size, const char *name, bool masks, samite_error *err)
{
    return read_all(out, NULL, &(source){data, size, name}, &(eval_read_options){.masks = masks, .prompts = true}, err);
}

int eval_results_parse(eval_set *out, const eval_set *truth, const char *data, size_t size, const char *name,
                       bool masks, bool strangers, samite_error *err)
{
    return read_all(out, truth, &(source){data, size, name},
                    &(eval_read_options){.masks = masks, .strangers = strangers}, err);
}

void eval_set_free(eval_set *s)
{
    ids_free(&s->image_ids);
    ids_free(&s->category_ids);
    ids_free(&s->ids);
    free(s->images);
    free(s->categories);
    free(s->items);
    free(s->prompts);
    free(s->prompt_ids);
    free(s->image_order);
    free(s->category_order);
    pool_free(&s->texts);
    *s = (eval_set){0};
}

int eval_item_mask(rle *out, const eval_set *images, const eval_item *item, samite_error *err)
{
    const eval_image *im = &images->images[item->image];
    return rle_from_string(out, item->mask, item->mask_size, im->width, im->height, "mask", err);
}

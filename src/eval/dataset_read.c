/* dataset_read.c - from JSON events to the fields of a record. */
#include "eval/dataset_read.h"

#include <string.h>

#define DEEPEST 64

static const struct { const char *name; field is; } field_names[] = {
    {"id", FIELD_ID}, {"image_id", FIELD_IMAGE_ID}, {"category_id", FIELD_CATEGORY_ID}, {"score", FIELD_SCORE},
    {"area", FIELD_AREA}, {"iscrowd", FIELD_CROWD}, {"ignore", FIELD_IGNORE}, {"bbox", FIELD_BOX},
    {"segmentation", FIELD_SEGMENTATION}, {"file_name", FIELD_FILE_NAME}, {"name", FIELD_NAME}, {"width", FIELD_WIDTH},
    {"height", FIELD_HEIGHT}, {"is_instance_exhaustive", FIELD_EXHAUSTIVE}, {"text_input", FIELD_TEXT_INPUT},
    {"prompts", FIELD_PROMPTS},
};

static bool is_word(const char *s, size_t size, const char *word)
{
    return strlen(word) == size && memcmp(s, word, size) == 0;
}

static field field_of(const char *s, size_t size)
{
    for (size_t i = 0; i < sizeof field_names / sizeof *field_names; i++)
        if (is_word(s, size, field_names[i].name))
            return field_names[i].is;
    return FIELD_OTHER;
}

static section section_of(const char *s, size_t size)
{
    return is_word(s, size, "images") ? SECTION_IMAGES : is_word(s, size, "annotations") ? SECTION_ANNOTATIONS :
           is_word(s, size, "categories") ? SECTION_CATEGORIES : SECTION_OTHER;
}

static bool out_of_memory(reader *r)
{
    fail(r->err, SAMITE_RESOURCE, "not enough memory to read %s", r->set->path);
    return false;
}

/* A key that comes twice starts anew. */
static void shape_begin(reader *r, shape_kind kind)
{
    const shape_batch *b = &r->batch;
    r->now.shape = (shape){.kind = kind, .first = kind == SHAPE_TEXT ? b->byte_count : b->count, .ends = b->end_count};
}

static void record_begin(reader *r)
{
    record *n = &r->now;
    memset(n->seen, 0, sizeof n->seen);
    n->box_numbers = n->size_numbers = 0;
    n->flat = false;
    n->first_prompt = r->set->prompt_count;
    shape_begin(r, SHAPE_POLYGONS);
    r->record_depth = r->depth;
    r->field = FIELD_OTHER;
}

static bool on_open(void *to, bool map)
{
    reader *r = to;
    if (++r->depth > DEEPEST) {
        fail(r->err, SAMITE_INPUT, "%s is nested more than %d deep; expected COCO JSON", r->set->path, DEEPEST);
        return false;
    }
    if (r->depth == 1) {
        if (!map && !r->truth) {
            fail(r->err, SAMITE_INPUT,
                 "%s is a list; expected an object with images, annotations and categories (is it a "
                 "result file? that is --dt)",
                 r->set->path);
            return false;
        }
        r->in = map ? SECTION_OTHER : SECTION_ANNOTATIONS;
        r->section_depth = map ? 2 : 1;
        r->has[r->in] = true;
    } else if (!r->record_depth) {
        if (map && r->in != SECTION_OTHER && r->depth == r->section_depth + 1)
            record_begin(r);
    } else if (r->field == FIELD_PROMPTS && !map && r->depth == r->record_depth + 1) {
        r->now.seen[FIELD_PROMPTS] = true;
        r->set->prompt_count = r->now.first_prompt;
    } else if (r->field == FIELD_SEGMENTATION) {
        int inside = r->depth - r->record_depth;
        if (inside == 1) {
            r->now.seen[FIELD_SEGMENTATION] = true;
            shape_begin(r, map ? SHAPE_TEXT : SHAPE_POLYGONS);
            r->part = map ? 0 : 'p';
        } else if (inside == 2 && r->part == 'c') {
            shape_begin(r, SHAPE_COUNTS);
        }
    }
    return true;
}

static bool end_polygon(reader *r)
{
    shape_batch *b = &r->batch;
    if (grow(&b->ends, b->end_count, &b->end_room, sizeof *b->ends))
        return out_of_memory(r);
    b->ends[b->end_count++] = b->count;
    r->now.shape.parts++;
    return true;
}

static bool on_close(void *to, bool map)
{
    reader *r = to;
    (void)map;
    bool fine = true;
    if (r->record_depth && r->depth == r->record_depth) {
        r->record_depth = 0;
        fine = record_end(r);
    } else if (r->record_depth && r->field == FIELD_SEGMENTATION && r->depth == r->record_depth + 2 && r->part == 'p' &&
               r->take_shapes) {
        fine = end_polygon(r);
    } else if (r->depth == r->section_depth && r->in == SECTION_IMAGES) {
        r->images_read = true;
    }
    r->depth--;
    return fine;
}

static bool on_key(void *to, const char *s, size_t size)
{
    reader *r = to;
    if (r->record_depth) {
        if (r->depth == r->record_depth)
            r->field = field_of(s, size);
        else if (r->field == FIELD_SEGMENTATION && r->depth == r->record_depth + 1)
            r->part = is_word(s, size, "size") ? 's' : is_word(s, size, "counts") ? 'c' : 0;
    } else if (r->depth == 1) {
        r->in = section_of(s, size);
        if (r->second && r->in != SECTION_ANNOTATIONS)
            r->in = SECTION_OTHER;
        r->has[r->in] = true;
        if (r->in == SECTION_ANNOTATIONS && !r->second && (r->truth || !r->images_read)) {
            r->again = true;
            r->in = SECTION_OTHER;
        }
    }
    return true;
}

/* Copies the characters of an id, which pass away with the event. */
static bool set_id(reader *r, id_value id)
{
    record *n = &r->now;
    int at = (int)r->field - FIELD_ID;
    n->id_text[at].size = 0;
    if (id.kind == ID_TEXT) {
        text_add(&n->id_text[at], id.text, id.size);
        if (n->id_text[at].failed)
            return out_of_memory(r);
        id.text = n->id_text[at].data;
    }
    n->id[at] = id;
    n->seen[r->field] = true;
    return true;
}

static bool is_id(field f)
{
    return f >= FIELD_ID && f <= FIELD_CATEGORY_ID;
}

static bool add_number(reader *r, const char *s, size_t size)
{
    shape_batch *b = &r->batch;
    if (!r->take_shapes)
        return true;
    if (grow(&b->numbers, b->count, &b->room, sizeof *b->numbers))
        return out_of_memory(r);
    b->numbers[b->count++] = real_from_json(s, size);
    r->now.shape.count++;
    return true;
}

static bool segmentation_number(reader *r, const char *s, size_t size)
{
    record *n = &r->now;
    int inside = r->depth - r->record_depth;
    if (inside == 1 && r->part == 'p')
        n->flat = true;
    else if (inside == 2 && r->part == 's' && n->size_numbers < 2)
        n->size[n->size_numbers++] = real_from_json(s, size);
    else if (inside == 2 && (r->part == 'p' || r->part == 'c'))
        return add_number(r, s, size);
    return true;
}

/* Is the value that comes an element of an image's prompts? */
static bool in_prompts(const reader *r)
{
    return r->how->prompts && r->in == SECTION_IMAGES && r->field == FIELD_PROMPTS && r->depth == r->record_depth + 1 &&
           r->now.seen[FIELD_PROMPTS];
}

static bool add_prompt(reader *r, id_value id)
{
    eval_set *s = r->set;
    if (id.kind == ID_TEXT && !(id.text = pool_string(&s->texts, id.text, id.size)))
        return out_of_memory(r);
    if (grow(&s->prompt_ids, s->prompt_count, &s->prompt_room, sizeof *s->prompt_ids))
        return out_of_memory(r);
    s->prompt_ids[s->prompt_count++] = id;
    return true;
}

/* A value that stands in a list of records without being one. */
static bool outside(reader *r)
{
    if (r->in == SECTION_OTHER || r->depth != r->section_depth)
        return true;
    fail(r->err, SAMITE_INPUT, "%s: expected a list of objects, found something else in it (after object %zu)",
         r->set->path, r->records);
    return false;
}

static bool on_number(void *to, const char *s, size_t size)
{
    reader *r = to;
    record *n = &r->now;
    if (!r->record_depth)
        return outside(r);
    if (r->field == FIELD_SEGMENTATION)
        return segmentation_number(r, s, size);
    if (in_prompts(r))
        return add_prompt(r, id_from_number(s, size));
    if (r->depth == r->record_depth + 1 && r->field == FIELD_BOX) {
        if (n->box_numbers < 4)
            n->box[n->box_numbers] = real_from_json(s, size);
        n->box_numbers++;
    }
    if (r->depth != r->record_depth || r->field == FIELD_PROMPTS)
        return true;
    if (is_id(r->field))
        return set_id(r, id_from_number(s, size));
    n->seen[r->field] = true;
    n->value[r->field] = real_from_json(s, size);
    return true;
}

static bool set_name(reader *r, const char *s, size_t size)
{
    int at = r->field == FIELD_FILE_NAME ? 0 : r->field == FIELD_NAME ? 1 : 2;
    text *t = &r->now.names[at];
    t->size = 0;
    text_add(t, s, size);
    r->now.seen[r->field] = true;
    return !t->failed || out_of_memory(r);
}

static bool add_text(reader *r, const char *s, size_t size)
{
    shape_batch *b = &r->batch;
    record *n = &r->now;
    if (!r->take_shapes)
        return true;
    while (b->byte_room - b->byte_count < size)
        if (grow(&b->bytes, b->byte_room, &b->byte_room, 1))
            return out_of_memory(r);
    if (size)
        memcpy(b->bytes + b->byte_count, s, size);
    shape_begin(r, SHAPE_TEXT);
    n->shape.count = size;
    b->byte_count += size;
    return true;
}

static bool on_string(void *to, const char *s, size_t size)
{
    reader *r = to;
    if (!r->record_depth)
        return outside(r);
    if (r->field == FIELD_SEGMENTATION && r->depth == r->record_depth + 1 && r->part == 'c')
        return add_text(r, s, size);
    if (in_prompts(r))
        return add_prompt(r, id_from_string(s, size));
    if (r->depth != r->record_depth)
        return true;
    if (is_id(r->field))
        return set_id(r, id_from_string(s, size));
    if (r->field == FIELD_FILE_NAME || r->field == FIELD_NAME || r->field == FIELD_TEXT_INPUT)
        return set_name(r, s, size);
    return true;
}

static bool on_other(void *to, int value)
{
    reader *r = to;
    if (!r->record_depth || value < 0 || r->depth != r->record_depth)
        return true;
    if (!is_id(r->field) && r->field != FIELD_SEGMENTATION && r->field != FIELD_BOX && r->field != FIELD_PROMPTS) {
        r->now.seen[r->field] = true;
        r->now.value[r->field] = value;
    }
    return true;
}

bool reader_piece(void *to, size_t at, size_t size)
{
    const reader *r = to;
    if (!r->how->progress || !r->how->progress(r->how->user, "read", at, size))
        return true;
    fail(r->err, SAMITE_CANCELLED, "interrupted");
    return false;
}

const json_events reader_events = {on_number, on_string, on_other, on_key, on_open, on_close};

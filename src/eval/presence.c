/* presence.c - how often the presence score is right; results that are drawn twice. */
#include "eval/presence.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

#define LARGEST_FILE ((size_t)1 << 30)

enum { THERE = 1, CROWD = 2 };

/* Counts of pairs. */
typedef struct tally {
    size_t present, present_right, absent, absent_right, left_out;
} tally;

typedef struct pair_key {
    uint64_t where;            /* image, category */
    double   score;
    uint32_t item;
} pair_key;

static uint64_t pair_of(int32_t image, int32_t category)
{
    return (uint64_t)image << 32 | (uint32_t)category;
}

static int by_pair(const void *a, const void *b)
{
    const pair_key *x = a, *y = b;
    if (x->where != y->where)
        return x->where < y->where ? -1 : 1;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return (x->item > y->item) - (x->item < y->item);
}

/* All items by image, category and falling score; NULL: out of memory. Those without a category are left out. */
static pair_key *sorted_pairs(const eval_set *s, size_t *count)
{
    pair_key *k = malloc((s->count + 1) * sizeof *k);
    *count = 0;
    for (size_t i = 0; k && i < s->count; i++)
        if (s->items[i].category >= 0)
            k[(*count)++] = (pair_key){pair_of(s->items[i].image, s->items[i].category), s->items[i].score, (uint32_t)i};
    if (k && *count > 1)
        qsort(k, *count, sizeof *k, by_pair);
    return k;
}

/* THERE, CROWD or both. */
static int what_is_there(const eval_set *truth, const pair_key *keys, size_t count, uint64_t where)
{
    size_t low = 0, high = count;
    int found = 0;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (keys[middle].where < where)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < count && keys[low].where == where; low++)
        found |= truth->items[keys[low].item].crowd ? CROWD : THERE;
    return found;
}

static int32_t find_id(const id_table *t, const json_t *id)
{
    id_value v;
    char digits[32];
    if (json_is_integer(id)) {
        int n = snprintf(digits, sizeof digits, "%" JSON_INTEGER_FORMAT, json_integer_value(id));
        v = id_from_number(digits, (size_t)n);
    } else if (json_is_string(id)) {
        v = id_from_string(json_string_value(id), json_string_length(id));
    } else {
        return -1;
    }
    return ids_find(t, &v);
}

static void count_pair(tally *n, bool there, bool said)
{
    n->present += there;
    n->present_right += there && said;
    n->absent += !there;
    n->absent_right += !there && !said;
}

static double share(size_t part, size_t whole)
{
    return whole ? (double)part / (double)whole : -1;
}

static void put_tally(findings *f, const tally *n, const char *path)
{
    const struct { const char *name; double value; } row[] = {
        {"accuracy", share(n->present_right + n->absent_right, n->present + n->absent)},
        {"present_right", share(n->present_right, n->present)}, {"absent_right", share(n->absent_right, n->absent)},
        {"present", (double)n->present}, {"absent", (double)n->absent},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        findings_number(f, "presence", row[i].name, row[i].value);
        findings_put(f, "presence", row[i].name, row[i].value);
    }
    if (n->left_out)
        findings_note(f, "%s: %zu pairs of image and category were not asked for, or are not known; left out", path,
                      n->left_out);
}

static int read_list(json_t **out, const char *path, samite_error *err)
{
    uint8_t *data;
    size_t size;
    json_error_t e;
    int code = file_read(&data, &size, path, LARGEST_FILE, err);
    if (code)
        return code;
    *out = json_loadb((const char *)data, size, 0, &e);
    free(data);
    if (!*out)
        return fail(err, SAMITE_INPUT, "%s, line %d, column %d: %s", path, e.line, e.column, e.text);
    if (json_is_array(*out))
        return SAMITE_OK;
    json_decref(*out);
    return fail(err, SAMITE_INPUT, "%s: expected a JSON list of {\"image_id\", \"category_id\", \"presence\"}", path);
}

int evaluate_presence(findings *f, const eval_set *truth, const uint8_t *images, const uint8_t *categories,
                      const char *path, double threshold, samite_error *err)
{
    json_t *list, *one;
    size_t i, count;
    tally n = {0};
    int code = read_list(&list, path, err);
    if (code)
        return code;
    pair_key *keys = sorted_pairs(truth, &count);
    if (!keys)
        code = fail(err, SAMITE_RESOURCE, "not enough memory for %zu objects", truth->count);
    json_array_foreach(list, i, one) {
        int32_t image = find_id(&truth->image_ids, json_object_get(one, "image_id"));
        int32_t category = find_id(&truth->category_ids, json_object_get(one, "category_id"));
        const json_t *p = json_object_get(one, "presence");
        if (!code && !json_is_number(p))
            code = fail(err, SAMITE_INPUT, "%s: entry %zu has no number \"presence\"", path, i + 1);
        if (code)
            break;
        int there = image < 0 || category < 0 ? CROWD : what_is_there(truth, keys, count, pair_of(image, category));
        bool chosen = image >= 0 && category >= 0 && (!images || images[image]) && (!categories || categories[category]);
        if (image < 0 || category < 0 || !eval_asked(truth, image, category))
            n.left_out++;
        else if (chosen && there != CROWD)
            count_pair(&n, (there & THERE) != 0, json_number_value(p) > threshold);
    }
    free(keys);
    json_decref(list);
    if (!code)
        put_tally(f, &n, path);
    return code;
}

int drop_doubles(eval_set *out, const eval_set *results, double iou, samite_error *err)
{
    size_t count, kept = 0;
    *out = *results;
    pair_key *keys = sorted_pairs(results, &count);
    uint8_t *keep = malloc(count + 1);
    double (*box)[4] = malloc((count + 1) * sizeof *box);
    out->items = malloc((count + 1) * sizeof *out->items);
    bool fine = keys && keep && box && out->items;
    for (size_t i = 0; fine && i < count; i++)
        memcpy(box[i], results->items[keys[i].item].box, sizeof *box);
    for (size_t i = 0, n; fine && i < count; i += n) {
        for (n = 1; i + n < count && keys[i + n].where == keys[i].where; n++) {
        }
        box_nms(keep + i, box + i, n, iou);
    }
    for (size_t i = 0; fine && i < count; i++)
        if (keep[i])
            out->items[kept++] = results->items[keys[i].item];
    out->count = out->room = kept;
    free(keys);
    free(keep);
    free(box);
    return fine ? SAMITE_OK : fail(err, SAMITE_RESOURCE, "not enough memory for %zu results", results->count);
}

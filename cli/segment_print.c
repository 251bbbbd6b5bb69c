/* segment_print.c - results of one picture as a table and as JSON. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "base/utf8.h"
#include "segment.h"

#define WIDEST_PROMPT 40

/* Columns that `s` takes on the terminal. */
static int display_width(const char *s)
{
    wchar_t wide[512];
    size_t n = mbstowcs(wide, s, sizeof wide / sizeof *wide);
    int width = n < sizeof wide / sizeof *wide ? wcswidth(wide, n) : -1;
    if (width >= 0)
        return width;
    width = 0;
    for (; *s; s++)
        width += ((unsigned char)*s & 0xC0) != 0x80;
    return width;
}

/* `s` for a terminal: no control characters, cut to `most` columns. Yours to free. */
static char *printable(const char *s, int most)
{
    char *clean = utf8_clean(s, NULL);
    for (char *c = clean; c && *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7F)
            *c = '?';
    if (!clean || most == 0 || display_width(clean) <= most)
        return clean;
    size_t n = strlen(clean);
    while (n > 0 && display_width(clean) > most - 3) {
        do
            n--;
        while (n > 0 && ((unsigned char)clean[n] & 0xC0) == 0x80);
        clean[n] = '\0';
    }
    memcpy(clean + n, "...", 4);      /* what was cut is at least as long */
    return clean;
}

static void print_cell(const char *s, int width)
{
    int pad = width - display_width(s);
    printf("  %s%*s", s, pad > 0 ? pad : 0, "");
}

static void print_row(const samite_object *o, const char *prompt, int width)
{
    const samite_instance *i = o->instance;
    char box[96];
    snprintf(box, sizeof box, "%.1f,%.1f,%.1f,%.1f", (double)i->box[0], (double)i->box[1], (double)i->box[2],
             (double)i->box[3]);
    print_cell(prompt, width);
    printf("  %5.3f  %-31s  %10llu\n", (double)i->score, box, (unsigned long long)i->area);
}

void print_table(const picture *p, const prompts *ask, bool with_name)
{
    char **name = calloc((size_t)ask->name_count + 1, sizeof *name);
    int width = 6;
    for (int i = 0; name && i < ask->name_count; i++) {
        name[i] = printable(ask->names[i], WIDEST_PROMPT);
        int w = name[i] ? display_width(name[i]) : 0;
        width = w > width ? w : width;
    }
    if (with_name) {
        char *file = printable(p->in->path, 0);
        printf("%s (%d x %d)\n", file ? file : "?", p->pixels.width, p->pixels.height);
        free(file);
    }
    if (p->objects > 0) {
        print_cell("prompt", width);
        printf("  %-5s  %-31s  %10s\n", "score", "box x0,y0,x1,y1", "area");
    }
    for (int i = 0; name && i < p->objects; i++)
        print_row(&p->object[i], name[p->object[i].name] ? name[p->object[i].name] : "?", width);
    for (int i = 0; name && i < ask->name_count; i++) {
        if (i < ask->count && p->result[i]->count == 0 && ask->everything)
            printf("  nothing found\n");
        else if (i < ask->count && p->result[i]->count == 0)
            printf("  %s: nothing found (presence %.3f)\n", name[i] ? name[i] : "?", (double)p->result[i]->presence);
        free(name[i]);
    }
    free(name);
}

static json_t *numbers(const float *n, int count)
{
    json_t *a = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(a, json_number((double)n[i]));
    return a;
}

json_t *prompt_json(const samite_prompt *p)
{
    json_t *boxes = json_array();
    for (int i = 0; i < p->box_count; i++) {
        const samite_box *b = &p->boxes[i];
        float corner[4] = {b->x0, b->y0, b->x1, b->y1};
        json_array_append_new(boxes, json_pack("{s:o, s:b}", "box", numbers(corner, 4), "like", !b->negative));
    }
    return json_pack("{s:o, s:o}", "text", p->text ? json_name(p->text) : json_null(), "boxes", boxes);
}

static json_t *instance_json(const samite_instance *i, int number)
{
    char *counts = NULL;
    json_t *o = json_pack("{s:i, s:o, s:o, s:I}", "id", number, "score", json_number((double)i->score), "box",
                          numbers(i->box, 4),
                          "area", (json_int_t)i->area);
    if (o && i->mask.runs && samite_mask_string(&counts, &i->mask, NULL) == SAMITE_OK)
        json_object_set_new(o, "segmentation", json_pack("{s:[i,i], s:s}", "size", i->mask.height, i->mask.width,
                                                         "counts", counts));
    bool bad = i->mask.runs && !counts;
    samite_free(counts);
    if (bad) {
        json_decref(o);
        return NULL;
    }
    return o;
}

/* The objects with that name. NULL: out of memory. */
static json_t *instances_json(const picture *p, int name)
{
    json_t *found = json_array();
    for (int k = 0; found && k < p->objects; k++)
        if (p->object[k].name == name && json_array_append_new(found, instance_json(p->object[k].instance, k + 1))) {
            json_decref(found);
            return NULL;
        }
    return found;
}

json_t *picture_json(const picture *p, const prompts *ask, const char *model)
{
    json_t *list = json_array(), *o = json_object();
    bool bad = !o || json_set_path(o, "file", p->in->path) || json_set_path(o, "model", model);
    for (int i = 0; i < ask->count && !bad; i++) {
        const samite_result *r = p->result[i];
        json_t *one = prompt_json(&ask->prompt[i]), *found = instances_json(p, i);
        bad |= !found;
        json_t *facts = json_pack("{s:o, s:i, s:b, s:o}", "presence", json_number((double)r->presence), "tokens",
                                  r->tokens, "cut",
                                  r->cut, "instances", found);
        bad |= json_object_update_new(one, facts) != 0;
        bad |= json_array_append_new(list, one) != 0;
    }
    json_t *facts = json_pack("{s:i, s:i, s:i, s:b, s:o}", "width", p->pixels.width, "height", p->pixels.height,
                              "exif_orientation", p->pixels.exif_orientation, "exif_applied", p->pixels.exif_applied,
                              "prompts", list);
    bad |= json_object_update_new(o, facts) != 0;
    if (ask->everything)
        bad |= json_object_set_new(o, "everything", everything_json(ask->everything)) != 0;
    if (ask->click) {
        json_t *click = click_json(ask->click);
        bad |= json_object_set_new(click, "presence", json_number((double)p->answer->presence)) != 0;
        if (ask->name_count > ask->count)
            bad |= json_object_set_new(click, "instances", instances_json(p, ask->count)) != 0;
        bad |= json_object_set_new(o, "click", click) != 0;
    }
    if (bad) {
        json_decref(o);
        return NULL;
    }
    return o;
}

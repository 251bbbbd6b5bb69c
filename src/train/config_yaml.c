/* config_yaml.c - YAML files of settings: nested mappings are dotted keys, lists are joined by commas. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/file.h"
#include "train/config.h"

#define LARGEST_FILE ((size_t)1 << 20)
#define DEEPEST 8

typedef struct reading {
    train_config *c;
    const char   *path;
    char          key[256];            /* dotted, of the mapping or value at hand */
    size_t        mark[DEEPEST];       /* length of the key at the beginning of each open mapping */
    int           depth;
    bool          want_value;
    text          list;                /* of an open sequence */
    bool          in_list;
} reading;

static int misplaced(const reading *r, const yaml_event_t *e, const char *what, samite_error *err)
{
    return fail(err, SAMITE_USAGE, "%s, line %zu: %s", r->path, e->start_mark.line + 1, what);
}

static int put(reading *r, const yaml_event_t *e, const char *value, samite_error *err)
{
    char where[512];
    snprintf(where, sizeof where, "%s, line %zu", r->path, e->start_mark.line + 1);
    r->want_value = false;
    return train_config_set(r->c, r->key, value, where, err);
}

static int on_scalar(reading *r, const yaml_event_t *e, samite_error *err)
{
    const char *s = (const char *)e->data.scalar.value;
    if (strlen(s) != e->data.scalar.length)
        return misplaced(r, e, "a zero byte", err);
    if (r->in_list) {
        text_printf(&r->list, "%s%s", r->list.size ? "," : "", s);
        return 0;
    }
    if (!r->depth)
        return misplaced(r, e, "expected settings (name: value), found a single word", err);
    if (r->want_value)
        return put(r, e, s, err);
    size_t at = r->mark[r->depth - 1];
    if (at + strlen(s) + 2 > sizeof r->key)
        return misplaced(r, e, "the name is too long", err);
    snprintf(r->key + at, sizeof r->key - at, "%s%s", at ? "." : "", s);
    r->want_value = true;
    return 0;
}

static int on_mapping(reading *r, const yaml_event_t *e, samite_error *err)
{
    if (r->depth == DEEPEST || r->in_list || (r->depth && !r->want_value))
        return misplaced(r, e, "a mapping does not belong here", err);
    r->mark[r->depth++] = r->want_value ? strlen(r->key) : 0;
    r->want_value = false;
    return 0;
}

static int on_event(reading *r, const yaml_event_t *e, samite_error *err)
{
    switch (e->type) {
    case YAML_SCALAR_EVENT:
        return on_scalar(r, e, err);
    case YAML_MAPPING_START_EVENT:
        return on_mapping(r, e, err);
    case YAML_MAPPING_END_EVENT:
        r->depth--;
        return 0;
    case YAML_SEQUENCE_START_EVENT:
        if (!r->want_value || r->in_list)
            return misplaced(r, e, "a list does not belong here", err);
        r->in_list = true;
        r->list.size = 0;
        return 0;
    case YAML_SEQUENCE_END_EVENT:
        r->in_list = false;
        return put(r, e, r->list.size ? r->list.data : "", err);
    case YAML_ALIAS_EVENT:
        return misplaced(r, e, "aliases (*name) are not understood", err);
    default:
        return 0;
    }
}

static int walk(reading *r, yaml_parser_t *p, samite_error *err)
{
    yaml_event_t e;
    for (bool done = false; !done;) {
        if (!yaml_parser_parse(p, &e))
            return fail(err, SAMITE_USAGE, "%s, line %zu: %s", r->path, p->problem_mark.line + 1,
                        p->problem ? p->problem : "broken YAML");
        done = e.type == YAML_STREAM_END_EVENT;
        int code = on_event(r, &e, err);
        yaml_event_delete(&e);
        if (code)
            return code;
    }
    return r->list.failed ? fail(err, SAMITE_RESOURCE, "out of memory") : 0;
}

int train_config_read(train_config *c, const char *path, samite_error *err)
{
    uint8_t *data;
    size_t size;
    yaml_parser_t parser;
    reading r = {.c = c, .path = path};
    int code = file_read(&data, &size, path, LARGEST_FILE, err);
    if (code)
        return code;
    if (!yaml_parser_initialize(&parser)) {
        free(data);
        return fail(err, SAMITE_RESOURCE, "not enough memory to read %s", path);
    }
    yaml_parser_set_input_string(&parser, data, size);
    code = walk(&r, &parser, err);
    yaml_parser_delete(&parser);
    text_free(&r.list);
    free(data);
    return code;
}

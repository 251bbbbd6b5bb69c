/* api_export.c - the parts of a model as files for other engines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api_export.h"
#include "base/folder.h"
#include "base/text.h"
#include "export/ascend.h"
#include "export/to_onnx.h"
#include "export/to_paddle.h"
#include "formats/onnx.h"
#include "runtime/config_file.h"

#define INSIDE_LIMIT ((uint64_t)1000 << 20)     /* bytes of weights from which on they get a file of their own */

static float *values_of(void *user, const param *p)
{
    /* A param is the first member of its registry entry. */
    return native_values(user, (const entry *)p);
}

static const char *file_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* What a file says about itself: pairs, NULL at the end. */
#define META(name, m, p, json) \
    const char *name[][2] = { \
        {"samite.part", export_part_name(p)}, {CONFIG_KEY, json}, {"samite.source", file_of((m)->n->source)}, \
        {"preprocessing", "RGB, resized to the input's size without keeping the aspect ratio, (x / 255 - 0.5) / 0.5"}, \
        {NULL, NULL}}

/* What may be free in a part: the number of pictures and prompts, or of points. Parts about one object stay that. */
static const char *symbol_of(export_part p)
{
    return p < EXPORT_DETECTOR ? "batch" : "points";
}

static bool is_free(export_part p, const samite_export_options *o)
{
    return p < EXPORT_DETECTOR ? o->batch < 0 : p == EXPORT_CLICK && o->points < 0;
}

static part_options part_options_of(const samite_export_options *o, export_part p)
{
    int batch = p < EXPORT_DETECTOR ? o->batch : 1;
    return (part_options){.batch = batch < 0 ? 2 : batch, .prompt = o->prompt_length, .boxes = o->boxes,
                          .points = o->points < 0 ? 2 : o->points, .trunk = export_trunk(o)};
}

/* ---- ONNX ---- */

/* The part, and where something is free the same with another number of it, from which follows what depends on it. */
static int make_graphs(graph *g, graph *other, const samite_model *m, export_part p, const samite_export_options *o,
                       samite_error *err)
{
    bool any = is_free(p, o);
    part_options options = part_options_of(o, p);
    int code = export_part_graph(g, m->n->net, p, &options, err);
    options.batch += p < EXPORT_DETECTOR;
    options.points++;
    if (!code && any)
        code = export_part_graph(other, m->n->net, p, &options, err);
    const char *depends = !code && any ? graph_same_but_sizes(g, other) : NULL;
    if (depends)
        code = fail(err, SAMITE_FAILED, "%s: %s depend on the number of %s", export_part_name(p), depends, symbol_of(p));
    return code;
}

static int write_graph(graph *g, const graph *other, const samite_model *m, export_part p, const char *path,
                       const samite_export_options *o, bool plain, samite_error *err)
{
    char *json = config_to_json(&m->n->net->c);
    if (!json)
        return fail(err, SAMITE_RESOURCE, "not enough memory to write %s", path);
    META(meta, m, p, json);
    uint64_t bytes = graph_weight_bytes(g) / (o->half ? 2 : 1);
    onnx_options as = {.name = export_part_name(p),
                       .version = SAMITE_VERSION,
                       .plain = plain,
                       .half = o->half != 0,
                       .external = o->external > 0 || (!o->external && bytes > INSIDE_LIMIT),
                       .other = is_free(p, o) ? other : NULL,
                       .symbol = symbol_of(p),
                       .meta = (const char *const(*)[2])meta,
                       .values = values_of,
                       .user = m->n};
    int code = graph_to_onnx(g, path, &as, err);
    free(json);
    return code;
}

static int write_part(const samite_model *m, export_part p, const char *path, const samite_export_options *o,
                      bool plain, samite_error *err)
{
    graph g = {0}, other = {0};
    int code = make_graphs(&g, &other, m, p, o, err);
    if (!code)
        code = write_graph(&g, &other, m, p, path, o, plain, err);
    graph_close(&g);
    graph_close(&other);
    return code;
}

char *export_path(const char *folder, export_part p)
{
    char name[64];
    snprintf(name, sizeof name, "%s.onnx", export_part_name(p));
    return path_join(folder, name);
}

bool export_wanted(const samite_export_options *o, int p)
{
    return (o->parts ? o->parts : (unsigned)SAMITE_PARTS_DETECTOR) >> p & 1;
}

bool export_trunk(const samite_export_options *o)
{
    return export_wanted(o, EXPORT_TRACKER_NECK);
}

typedef int (*part_writer)(const samite_model *m, export_part p, const samite_export_options *o, samite_error *err);

static int write_file(const samite_model *m, export_part p, const samite_export_options *o, bool plain,
                      samite_error *err)
{
    char *path = export_path(o->folder, p);
    int code = path ? write_part(m, p, path, o, plain, err)
                    : fail(err, SAMITE_RESOURCE, "not enough memory to write to %s", o->folder);
    if (!code)
        code = onnx_check(path, is_free(p, o), err);
    free(path);
    return code;
}

static int write_onnx(const samite_model *m, export_part p, const samite_export_options *o, samite_error *err)
{
    return write_file(m, p, o, false, err);
}

static int each_part(const samite_model *m, const samite_export_options *o, part_writer writer, samite_error *err)
{
    int code = 0;
    for (int p = 0; p < EXPORT_PARTS && !code; p++) {
        if (!export_wanted(o, p))
            continue;
        if (m->options.progress && m->options.progress(m->options.user, "export", (uint64_t)p, EXPORT_PARTS))
            code = fail(err, SAMITE_CANCELLED, "stopped");
        else
            code = writer(m, (export_part)p, o, err);
    }
    return code;
}

static int check_options(const samite_model *m, const samite_export_options *o, samite_error *err)
{
    if (o->batch < -1 || o->batch > 64)
        return fail(err, SAMITE_USAGE, "a batch of %d: expected 1 to 64, or -1 for any", o->batch);
    if (o->points < -1 || o->points > 64)
        return fail(err, SAMITE_USAGE, "%d points: expected 1 to 64, or -1 for any number", o->points);
    if (export_wanted(o, EXPORT_HEAD) && !m->n->available[PART_MASK_HEAD])
        return fail(err, SAMITE_INPUT, "%s has no mask head, which the grounding head of an export needs",
                    m->n->source);
    if (export_wanted(o, EXPORT_CLICK) && !native_has(m->n, PARTS_CLICK))
        return fail(err, SAMITE_INPUT, "%s has no tracker, which the parts for clicks need", m->n->source);
    if (o->parts & SAMITE_PARTS_MEMORY && !native_has(m->n, PARTS_TRACK))
        return fail(err, SAMITE_INPUT, "%s has no memory, which the parts for video need", m->n->source);
    return 0;
}

/* What comes with all the parts; NULL: nothing. */
typedef int (*set_writer)(const samite_model *m, const samite_export_options *o, samite_error *err);

/* All files are made in a folder of their own and moved when the last one is finished. */
static int write_set(samite_model *m, const samite_export_options *options, part_writer writer, set_writer rest,
                     samite_error *err)
{
    samite_export_options o = SAMITE_EXPORT_OPTIONS_INIT;
    folder_writer w;
    if (!m || !options || !options->folder)
        return fail(err, SAMITE_USAGE, "samite_export: no model or no folder given");
    options_copy(&o, sizeof o, options, options->size);
    int code = check_options(m, &o, err);
    if (!code)
        code = folder_writer_open(&w, o.folder, err);
    if (code)
        return code;
    o.folder = w.temp;
    code = each_part(m, &o, writer, err);
    if (!code && rest)
        code = rest(m, &o, err);
    if (!code)
        return folder_writer_commit(&w, err);
    folder_writer_abort(&w);
    return code;
}

int samite_export_onnx(samite_model *m, const samite_export_options *o, samite_error *err)
{
    return write_set(m, o, write_onnx, NULL, err);
}

/* ---- Paddle ---- */

static int write_paddle(const samite_model *m, export_part p, const samite_export_options *o, samite_error *err)
{
    graph g;
    part_options options = part_options_of(o, p);
    char *prefix = path_join(o->folder, export_part_name(p)), *json = config_to_json(&m->n->net->c);
    META(notes, m, p, json);
    int code = export_part_graph(&g, m->n->net, p, &options, err);
    if (!code)
        code = prefix && json
                   ? graph_to_paddle(&g, prefix, (const char *const(*)[2])notes, values_of, m->n, err)
                   : fail(err, SAMITE_RESOURCE, "not enough memory to write to %s", o->folder);
    graph_close(&g);
    free(json);
    free(prefix);
    return code;
}

static int write_pdparams(const samite_model *m, const samite_export_options *o, samite_error *err)
{
    char *path = path_join(o->folder, "sam3.pdparams");
    int code = path ? model_to_pdparams(m->n->net, path, values_of, m->n, err)
                    : fail(err, SAMITE_RESOURCE, "not enough memory to write to %s", o->folder);
    free(path);
    return code;
}

int samite_export_paddle(samite_model *m, const samite_export_options *o, samite_error *err)
{
    return write_set(m, o, write_paddle, write_pdparams, err);
}

/* ---- Ascend ---- */

static int write_plain(const samite_model *m, export_part p, const samite_export_options *o, samite_error *err)
{
    return write_file(m, p, o, true, err);
}

static ascend_options ascend_options_of(const samite_model *m, const samite_export_options *o)
{
    const config *c = &m->n->net->c;
    return (ascend_options){.soc = o->soc,
                            .precision = o->precision ? o->precision : "fast",
                            .aipp = o->aipp != 0,
                            .side = c->image,
                            .source = file_of(m->n->source),
                            .prompt = o->prompt_length ? o->prompt_length : c->context};
}

static int write_scripts(const samite_model *m, const samite_export_options *o, samite_error *err)
{
    ascend_options a = ascend_options_of(m, o);
    char *json = config_to_json(&m->n->net->c);
    a.config = json;
    int code = json ? ascend_write(o->folder, o->parts ? o->parts : (unsigned)SAMITE_PARTS_DETECTOR, &a, err)
                    : fail(err, SAMITE_RESOURCE, "not enough memory to write to %s", o->folder);
    free(json);
    return code;
}

int samite_export_ascend(samite_model *m, const samite_export_options *options, samite_error *err)
{
    samite_export_options o = SAMITE_EXPORT_OPTIONS_INIT;
    if (!m || !options)
        return fail(err, SAMITE_USAGE, "samite_export_ascend: no model or no options given");
    options_copy(&o, sizeof o, options, options->size);
    ascend_options a = ascend_options_of(m, &o);
    if (!a.soc || strncmp(a.soc, "Ascend", 6) != 0)
        return fail(err, SAMITE_USAGE,
                    "which chip? Give what npu-smi info shows with Ascend in front, such as Ascend310P3 or "
                    "Ascend910B3");
    if (strspn(a.soc, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") != strlen(a.soc))
        return fail(err, SAMITE_USAGE, "\"%s\" is no name of a chip", a.soc);
    if (!ascend_precision(a.precision))
        return fail(err, SAMITE_USAGE, "precision \"%s\": fast, mixed or exact", a.precision);
    o.external = o.external ? o.external : -1;
    o.size = sizeof o;
    return write_set(m, &o, write_plain, write_scripts, err);
}

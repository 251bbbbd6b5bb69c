/* api_import.c - weights back from exported files: which files there are, what network they are of, one file of all. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "api.h"
#include "base/file.h"
#include "base/text.h"
#include "export/assemble.h"
#include "formats/onnx.h"
#include "formats/paddle.h"
#include "runtime/config_file.h"

#define MOST_FILES 64
#define SOURCE_KEY "samite.source"

/* One exported file, or a program with its parameters. */
typedef struct imported {
    char       *path;
    onnx_file   onnx;
    file_map    program, data;     /* of PaddlePaddle; program.data NULL: a state dictionary */
    bool        state;
    tensor_list list;
} imported;

typedef struct importing {
    const samite_import_options *o;
    samite_imported *told;
    imported   file[MOST_FILES];
    int        files;
    native    *base;
    sam3      *net;
    config     c;
    assembly  *a;
    samite_error *err;
} importing;

static int no_memory(importing *m)
{
    return fail(m->err, SAMITE_RESOURCE, "not enough memory to read %s", m->o->path);
}

static void close_all(importing *m)
{
    assembly_free(m->a);
    for (int i = 0; i < m->files; i++) {
        imported *f = &m->file[i];
        tensor_list_free(&f->list);
        onnx_close(&f->onnx);
        file_map_close(&f->program);
        file_map_close(&f->data);
        free(f->path);
    }
    sam3_close(m->net);
    native_close(m->base);
}

/* ---- files ---- */

static int read_onnx(importing *m, imported *f)
{
    int code = onnx_open(&f->onnx, f->path, m->err);
    return code ? code : onnx_list_weights(&f->onnx, &f->list, m->err);
}

/* PATH is the program; its parameters lie beside it. */
static int read_program(importing *m, imported *f)
{
    text parameters = {0};
    text_add(&parameters, f->path, strlen(f->path) - strlen(".json"));
    text_printf(&parameters, ".pdiparams");
    int code = parameters.failed ? no_memory(m) : file_map_open(&f->program, f->path, m->err);
    if (!code)
        code = file_map_open(&f->data, parameters.data, m->err);
    if (!code)
        code = paddle_program_read(&f->list, &f->program, &f->data, m->err);
    text_free(&parameters);
    return code;
}

static int read_state(importing *m, imported *f)
{
    int code = file_map_open(&f->data, f->path, m->err);
    f->state = true;
    return code ? code : paddle_state_read(&f->list, f->data.data, f->data.size, f->path, m->err);
}

static const struct {
    const char *ending;
    int (*read)(importing *m, imported *f);
} kinds[] = {{".onnx", read_onnx}, {".json", read_program}, {".pdparams", read_state}};

/* `path` becomes ours. */
static int read_one(importing *m, char *path)
{
    if (!path || m->files == MOST_FILES) {
        free(path);
        return path ? fail(m->err, SAMITE_INPUT, "%s: more than %d exported files", m->o->path, MOST_FILES)
                    : no_memory(m);
    }
    imported *f = &m->file[m->files++];
    f->path = path;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (ends_with(path, kinds[i].ending))
            return kinds[i].read(m, f);
    return fail(m->err, SAMITE_INPUT, "%s: expected PART.onnx, PART.json, PART.pdiparams or a .pdparams file", path);
}

/* PART.pdiparams stands for the program beside it. */
static int read_named(importing *m, const char *path)
{
    text program = {0};
    bool parameters = ends_with(path, ".pdiparams");
    text_add(&program, path, strlen(path) - (parameters ? strlen(".pdiparams") : 0));
    if (parameters)
        text_printf(&program, ".json");
    return read_one(m, program.data);
}

/* A program is a .json file with parameters beside it. */
static bool is_exported(const char *folder, const char *name)
{
    struct stat st;
    text beside = {0};
    if (ends_with(name, ".onnx") || ends_with(name, ".pdparams"))
        return true;
    if (!ends_with(name, ".json"))
        return false;
    text_printf(&beside, "%s/%.*s.pdiparams", folder, (int)(strlen(name) - strlen(".json")), name);
    bool there = !beside.failed && stat(beside.data, &st) == 0;
    text_free(&beside);
    return there;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names of exported files in the folder, in order, so that messages do not depend on the disk. */
static int list_folder(importing *m, char **name, int *count)
{
    DIR *d = opendir(m->o->path);
    if (!d)
        return fail(m->err, SAMITE_INPUT, "%s: cannot be opened as a folder", m->o->path);
    int code = 0;
    for (struct dirent *e; !code && (e = readdir(d)) != NULL;) {
        if (!is_exported(m->o->path, e->d_name))
            continue;
        if (*count == MOST_FILES)
            code = fail(m->err, SAMITE_INPUT, "%s: more than %d exported files", m->o->path, MOST_FILES);
        else if (!(name[*count] = text_copy(e->d_name)))
            code = no_memory(m);
        else
            ++*count;
    }
    closedir(d);
    qsort(name, (size_t)*count, sizeof *name, by_name);
    return code;
}

static int read_folder(importing *m)
{
    char *name[MOST_FILES];
    int count = 0, code = list_folder(m, name, &count);
    for (int i = 0; i < count; i++) {
        if (!code)
            code = read_one(m, path_join(m->o->path, name[i]));
        free(name[i]);
    }
    if (!code && !count)
        code = fail(m->err, SAMITE_INPUT, "%s: no files that samite export wrote (*.onnx, *.json with *.pdiparams, "
                    "*.pdparams)", m->o->path);
    return code;
}

/* ---- the network ---- */

static const char *note_of(const imported *f, const char *key)
{
    for (size_t i = 0; i < f->list.note_count; i++)
        if (!strcmp(f->list.notes[i].key, key))
            return f->list.notes[i].value;
    return NULL;
}

/* Does a network of that size have all tensors of the state dictionary, in their shapes, and not many more? */
static bool is_state_of(const config *c, const imported *f)
{
    sam3 *net;
    samite_error ignored;
    if (sam3_open(&net, c, NULL))
        return false;
    assembly *a = assembly_new(net);
    size_t known = 0, tensors = net->all.count;
    bool fits = a && !assembly_add(a, &f->list, f->path, true, &ignored);
    for (size_t i = 0; fits && i < net->all.count; i++)
        known += assembly_has(a, i);
    assembly_free(a);
    sam3_close(net);
    return fits && known == f->list.count && known > tensors / 2;
}

/* State dictionaries say nothing about themselves: the presets are tried. */
static int guess_config(importing *m)
{
    static const char *const names[] = {"full", "small", "tiny"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (config_preset(&m->c, names[i]) && is_state_of(&m->c, &m->file[0]))
            return 0;
    return fail(m->err, SAMITE_INPUT, "%s: does not say what sizes the network has, and they are not those of SAM 3: give "
                "a model of the same sizes with --base, or the folder with the other exported files", m->file[0].path);
}

/* Do two files say different things about themselves? */
static bool notes_differ(const imported *a, const imported *b, const char *key)
{
    const char *x = note_of(a, key), *y = note_of(b, key);
    return x && y && strcmp(x, y) != 0;
}

static int find_config(importing *m)
{
    const imported *first = NULL;
    for (int i = 0; i < m->files; i++) {
        const char *text = note_of(&m->file[i], CONFIG_KEY);
        if (text && first && notes_differ(&m->file[i], first, SOURCE_KEY))
            return fail(m->err, SAMITE_INPUT, "%s was written from %s, %s from %s: they are files of different models",
                        m->file[i].path, note_of(&m->file[i], SOURCE_KEY), first->path, note_of(first, SOURCE_KEY));
        if (text && first && notes_differ(&m->file[i], first, CONFIG_KEY))
            return fail(m->err, SAMITE_INPUT, "%s is of another model or size than %s; export all parts again, from one "
                        "model", m->file[i].path, first->path);
        if (text && !first)
            first = &m->file[i];
    }
    if (first)
        return config_from_json(&m->c, note_of(first, CONFIG_KEY), first->path, m->err);
    if (m->base) {
        m->c = m->base->net->c;
        return 0;
    }
    for (int i = 0; i < m->files; i++)
        if (!m->file[i].state)
            return fail(m->err, SAMITE_INPUT, "%s: was not written by samite (no %s in it)", m->file[i].path, CONFIG_KEY);
    return guess_config(m);
}

/* The network, and the pieces of all files. */
static int find_pieces(importing *m)
{
    int code = find_config(m);
    if (!code)
        code = sam3_open(&m->net, &m->c, m->err);
    if (!code && !(m->a = assembly_new(m->net)))
        code = no_memory(m);
    for (int i = 0; i < m->files && !code; i++)
        code = assembly_add(m->a, &m->file[i].list, m->file[i].path, m->file[i].state, m->err);
    return code;
}

/* The base's tensor for entry `i`, or NULL. */
static const entry *base_entry(const importing *m, size_t i)
{
    const param *p = &m->net->all.entries[i]->p;
    const entry *e = m->base ? registry_find(&m->base->net->all, p->name) : NULL;
    bool same = e && !e->missing && e->p.t.axes == p->t.axes;
    for (int k = 0; same && k < p->t.axes; k++)
        same = e->p.t.dim[k] == p->t.dim[k];
    return same ? e : NULL;
}

/* ---- the file ---- */

static size_t make_plan(importing *m, weight *plan, size_t *entry_of)
{
    size_t count = 0;
    for (size_t i = 0; i < m->net->all.count; i++) {
        const param *p = &m->net->all.entries[i]->p;
        bool there = assembly_has(m->a, i);
        if (!there && !base_entry(m, i)) {
            if (!m->told->missing++)
                snprintf(m->told->first_missing, sizeof m->told->first_missing, "%s", p->name);
            continue;
        }
        ++*(there ? &m->told->tensors : &m->told->from_base);
        m->told->rounded += there && assembly_is_half(m->a, i);
        plan[count] = (weight){.name = p->name, .type = DT_F32, .axes = p->t.axes};
        memcpy(plan[count].dim, p->t.dim, sizeof p->t.dim);
        weight_set_strides(&plan[count]);
        entry_of[count++] = i;
    }
    return count;
}

static int put_one(importing *m, weights_writer *out, size_t i)
{
    const param *p = &m->net->all.entries[i]->p;
    size_t bytes = sizeof(float) * (size_t)tensor_count(&p->t);
    bool there = assembly_has(m->a, i);
    float *values = there ? malloc(bytes + 1) : native_values(m->base, base_entry(m, i));
    int code = values ? 0 : fail(m->err, SAMITE_RESOURCE, "not enough memory for %s", p->name);
    if (!code && there)
        code = assembly_fill(m->a, i, values, m->err);
    if (!code)
        weights_put(out, values, bytes);
    free(values);
    return code;
}

static int put_all(importing *m, const weight *plan, const size_t *entry_of, size_t count)
{
    weights_writer *out;
    char *json = config_to_json(&m->c);
    text_pair meta[] = {{(char *)(uintptr_t)CONFIG_KEY, json}, {(char *)(uintptr_t)"format", (char *)(uintptr_t)"pt"}};
    int code = json ? weights_create(&out, m->o->out, plan, count, meta, 2, m->err) : no_memory(m);
    free(json);
    if (code)
        return code;
    for (size_t i = 0; i < count && !code; i++) {
        if (m->o->progress && m->o->progress(m->o->user, "import", i, count))
            code = fail(m->err, SAMITE_CANCELLED, "stopped; %s was not written", m->o->out);
        else
            code = put_one(m, out, entry_of[i]);
    }
    if (!code)
        return weights_commit(out, m->err);
    weights_abort(out);
    return code;
}

static int write_all(importing *m)
{
    size_t room = m->net->all.count + 1;
    weight *plan = calloc(room, sizeof *plan);
    size_t *entry_of = calloc(room, sizeof *entry_of);
    int code = plan && entry_of ? 0 : no_memory(m);
    size_t count = code ? 0 : make_plan(m, plan, entry_of);
    if (!code && !m->told->tensors)
        code = fail(m->err, SAMITE_INPUT, "%s: no weights of SAM 3 in it", m->o->path);
    if (!code)
        code = put_all(m, plan, entry_of, count);
    free(plan);
    free(entry_of);
    return code;
}

int samite_import(const samite_import_options *options, samite_imported *out, samite_error *err)
{
    samite_import_options o = SAMITE_IMPORT_OPTIONS_INIT;
    struct stat st;
    if (!options || !options->path || !options->out || !out)
        return fail(err, SAMITE_USAGE, "samite_import: no path to read or none to write given");
    options_copy(&o, sizeof o, options, options->size);
    *out = (samite_imported){0};
    if (!ends_with(o.out, ".safetensors") && !ends_with(o.out, ".pt"))
        return fail(err, SAMITE_USAGE, "%s: the name to write must end in .safetensors or .pt", o.out);
    importing *m = calloc(1, sizeof *m);
    if (!m)
        return fail(err, SAMITE_RESOURCE, "not enough memory to read %s", o.path);
    *m = (importing){.o = &o, .told = out, .err = err};
    int code = o.base ? native_open(&m->base, o.base, &(native_options){0}, err) : 0;
    if (!code)
        code = stat(o.path, &st) == 0 && S_ISDIR(st.st_mode) ? read_folder(m) : read_named(m, o.path);
    out->files = m->files;
    if (!code)
        code = find_pieces(m);
    if (!code)
        code = write_all(m);
    close_all(m);
    free(m);
    return code;
}

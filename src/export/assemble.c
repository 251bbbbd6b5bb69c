/* assemble.c - finds the pieces of every parameter by their names, and joins them. */
#include "export/assemble.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "export/to_onnx.h"

typedef struct piece {
    struct piece *next;
    const weight *from;
    const char   *path;
    weight_view   view;
} piece;

struct assembly {
    const sam3 *m;
    name_map   *index;        /* of the registry's names */
    piece     **pieces;       /* [registry count] */
};

assembly *assembly_new(const sam3 *m)
{
    const registry *g = &m->all;
    assembly *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    a->m = m;
    a->index = name_map_new(g->count);
    a->pieces = calloc(g->count + 1, sizeof *a->pieces);
    bool ok = a->index && a->pieces;
    for (size_t i = 0; ok && i < g->count; i++)
        ok = name_map_put(a->index, g->entries[i]->p.name, (int64_t)i);
    if (ok)
        return a;
    assembly_free(a);
    return NULL;
}

void assembly_free(assembly *a)
{
    if (!a)
        return;
    for (size_t i = 0; a->pieces && i < a->m->all.count; i++)
        for (piece *p = a->pieces[i], *next; p; p = next) {
            next = p->next;
            free(p);
        }
    free(a->pieces);
    name_map_free(a->index);
    free(a);
}

bool is_linear_matrix(const sam3 *m, const param *p)
{
    for (size_t i = 0; i < m->all.layer_count; i++)
        if (m->all.layers[i].kind == LAYER_LINEAR && m->all.layers[i].linear->w == p)
            return p->t.axes == 2;
    return false;
}

/* ---- names ---- */

static int64_t rows_of(const param *p)
{
    return p->t.axes ? p->t.dim[0] : 1;
}

/* "A-B" behind `word`, which *s starts with: moves *s behind it. */
static bool read_pair(const char **s, const char *word, int64_t *a, int64_t *b)
{
    size_t n = strlen(word);
    char *end;
    if (strncmp(*s, word, n) != 0 || (*s)[n] < '0' || (*s)[n] > '9')
        return false;
    *a = strtoll(*s + n, &end, 10);
    if (*end != '-' || end[1] < '0' || end[1] > '9')
        return false;
    *b = strtoll(end + 1, &end, 10);
    *s = end;
    return true;
}

/* "_1" at the end of a name that was taken already. */
static bool is_number_behind(const char *s)
{
    size_t n = *s == '_' ? 1 + strspn(s + 1, "0123456789") : 0;
    return n > 1 && !s[n];
}

/* What stands behind the parameter's name: see name_of_view in graph.c. */
static bool read_view(weight_view *v, const char *s)
{
    int64_t rows = rows_of(v->p), to;
    v->rows = rows;
    if (read_pair(&s, "/rows", &v->first, &to)) {
        if (v->first < 0 || to <= v->first || to > rows)
            return false;
        v->rows = to - v->first;
    }
    if (read_pair(&s, "/halves", &v->halves, &v->halves_to) &&
        (v->halves < 2 || v->halves % 2 || v->halves_to < 1 || v->halves_to > v->rows || v->halves_to % v->halves))
        return false;
    if (!strncmp(s, "/T", 2)) {
        v->transpose = true;
        s += 2;
    }
    if (!strncmp(s, "/f16", 4))
        s += 4;
    return !*s || is_number_behind(s);
}

/* The parameter whose name `name` starts with, up to the first slash; -1: none. */
static int64_t parameter_of(const assembly *a, const char *name, const char **rest)
{
    char plain[256];
    size_t n = strcspn(name, "/");
    if (n >= sizeof plain)
        return -1;
    memcpy(plain, name, n);
    plain[n] = 0;
    *rest = name + n;
    int64_t at = name_map_get(a->index, plain);
    char *mark = at < 0 && !name[n] ? strrchr(plain, '_') : NULL;
    if (!mark || !is_number_behind(mark))
        return at;
    *mark = 0;
    *rest = name + (mark - plain);
    return name_map_get(a->index, plain);
}

/* ---- adding ---- */

static bool same_shape(const weight *w, const param *p)
{
    bool same = w->axes == p->t.axes;
    for (int i = 0; i < w->axes && same; i++)
        same = w->dim[i] == p->t.dim[i];
    return same;
}

/* Does the tensor have as many rows and columns as its name says? */
static bool fits(const weight *w, const weight_view *v, bool state)
{
    int64_t rows = rows_of(v->p), cols = rows ? tensor_count(&v->p->t) / rows : 0;
    if (w->type != DT_F32 && w->type != DT_F16)
        return false;
    if (v->transpose)
        return w->axes == 2 && w->dim[0] == cols && w->dim[1] == v->rows;
    return state ? same_shape(w, v->p) : weight_count(w) == v->rows * cols && (!w->axes || w->dim[0] == v->rows);
}

static int add_piece(assembly *a, size_t at, const weight *w, const weight_view *v, const char *path,
                     samite_error *err)
{
    piece *p = malloc(sizeof *p);
    if (!p)
        return fail(err, SAMITE_RESOURCE, "not enough memory to read %s", path);
    *p = (piece){.from = w, .path = path, .view = *v};
    piece **to = &a->pieces[at];
    while (*to && (w->type == DT_F16 || (*to)->from->type == DT_F32))      /* exact ones come first */
        to = &(*to)->next;
    p->next = *to;
    *to = p;
    return 0;
}

static int add_tensor(assembly *a, const weight *w, const char *path, bool state, samite_error *err)
{
    const char *rest = "";
    int64_t at = state ? name_map_get(a->index, w->name) : parameter_of(a, w->name, &rest);
    if (at < 0)
        return 0;
    weight_view v = {.p = &a->m->all.entries[at]->p};
    bool known = state || read_view(&v, rest);
    if (state) {
        v.rows = rows_of(v.p);
        v.transpose = is_linear_matrix(a->m, v.p);
    }
    if (known && fits(w, &v, state))
        return add_piece(a, (size_t)at, w, &v, path, err);
    char has[96], wants[96];
    weight expected = {.axes = v.p->t.axes};
    memcpy(expected.dim, v.p->t.dim, sizeof v.p->t.dim);
    return fail(err, SAMITE_INPUT, "%s: %.120s has %s numbers of shape %s, which do not fit the %s of the network", path,
                w->name, dtype_name(w->type), weight_shape(w, has, sizeof has),
                weight_shape(&expected, wants, sizeof wants));
}

int assembly_add(assembly *a, const tensor_list *list, const char *path, bool state, samite_error *err)
{
    int code = 0;
    for (size_t i = 0; i < list->count && !code; i++)
        code = add_tensor(a, &list->items[i], path, state, err);
    return code;
}

/* ---- joining ---- */

bool assembly_has(const assembly *a, size_t i)
{
    int64_t rows = rows_of(&a->m->all.entries[i]->p);
    for (int64_t at = 0; at < rows;) {
        int64_t to = at;
        for (const piece *p = a->pieces[i]; p; p = p->next)
            if (p->view.first <= at && p->view.first + p->view.rows > to)
                to = p->view.first + p->view.rows;
        if (to == at)
            return false;
        at = to;
    }
    return a->pieces[i] != NULL;
}

bool assembly_is_half(const assembly *a, size_t i)
{
    for (const piece *p = a->pieces[i]; p; p = p->next)
        if (p->from->type == DT_F16)
            return true;
    return false;
}

/* Copies the rows of `one` that a piece covers into `out`; those that are there already must be equal, unless the piece
 * is rounded. owner [rows]: who brought them. */
static const piece *join(float *out, const float *one, const piece **owner, const piece *p, int64_t cols)
{
    size_t bytes = sizeof *out * (size_t)cols;
    for (int64_t r = p->view.first; r < p->view.first + p->view.rows; r++) {
        if (!owner[r]) {
            memcpy(out + r * cols, one + r * cols, bytes);
            owner[r] = p;
        } else if (owner[r]->from->type == p->from->type && memcmp(out + r * cols, one + r * cols, bytes) != 0) {
            return owner[r];
        }
    }
    return NULL;
}

int assembly_fill(const assembly *a, size_t i, float *out, samite_error *err)
{
    const param *p = &a->m->all.entries[i]->p;
    int64_t rows = rows_of(p), count = tensor_count(&p->t);
    float *stored = malloc(sizeof *stored * (size_t)(count + 1)), *one = malloc(sizeof *one * (size_t)(count + 1));
    const piece **owner = calloc((size_t)rows + 1, sizeof *owner);
    int code = stored && one && owner ? 0 : fail(err, SAMITE_RESOURCE, "not enough memory for %s", p->name);
    for (const piece *q = a->pieces[i]; q && !code; q = q->next) {
        weight_to_f32(stored, q->from);
        view_take(one, &q->view, stored);
        const piece *other = join(out, one, owner, q, rows ? count / rows : 0);
        if (other)
            code = fail(err, SAMITE_INPUT, "%s has other numbers in %s than in %s: they are files of different models",
                        p->name, q->path, other->path);
    }
    free(stored);
    free(one);
    free(owner);
    return code;
}

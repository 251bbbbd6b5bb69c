/* pickle.c - the opcodes of pickle, as a stack machine that can only build values. */
#include "formats/pickle.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STACK_LIMIT ((size_t)1 << 22)
#define MARK_LIMIT 10000
#define MEMO_LIMIT ((size_t)1 << 22)
#define MEMORY_LIMIT ((size_t)512 << 20)
#define BLOCK_SIZE ((size_t)64 << 10)

typedef struct block {
    struct block *next;
    size_t used, room;
    _Alignas(16) char bytes[];
} block;

typedef struct stack {
    pickle_value **item;
    size_t count, room;
} stack;

struct pickle {
    const uint8_t *at, *end, *start;
    const char    *path;
    samite_error  *err;
    int            code;            /* first failure; everything after it does nothing */
    bool           stopped;
    block         *blocks;
    size_t         memory;
    stack          values, memo;
    size_t         marks[MARK_LIMIT], mark_count;
    pickle_value  *root;
    pickle_value   none;            /* stands in for a missing value after a failure */
};

static void damaged(pickle *p, const char *what)
{
    if (!p->code)
        p->code = fail(p->err, SAMITE_INPUT, "%s: damaged pickle at byte %zu: %s", p->path, (size_t)(p->at - p->start),
                       what);
}

static void too_large(pickle *p)
{
    if (!p->code)
        p->code = fail(p->err, SAMITE_RESOURCE, "%s: the pickle needs more memory than makes sense for a model file",
                       p->path);
}

/* `size` cleared bytes that live as long as the pickle; NULL after a failure. */
static void *take(pickle *p, size_t size)
{
    size = (size + 15) / 16 * 16;
    if (p->code)
        return NULL;
    if (size > MEMORY_LIMIT - p->memory) {
        too_large(p);
        return NULL;
    }
    p->memory += size;
    if (!p->blocks || size > p->blocks->room - p->blocks->used) {
        size_t room = size > BLOCK_SIZE ? size : BLOCK_SIZE;
        block *b = calloc(1, sizeof *b + room);
        if (!b) {
            too_large(p);
            return NULL;
        }
        b->room = room;
        b->next = p->blocks;
        p->blocks = b;
    }
    void *memory = p->blocks->bytes + p->blocks->used;
    p->blocks->used += size;
    return memory;
}

static pickle_value *new_value(pickle *p, pickle_kind kind)
{
    pickle_value *v = take(p, sizeof *v);
    if (!v)
        return &p->none;
    v->kind = kind;
    return v;
}

static bool set(pickle *p, stack *s, size_t at, pickle_value *v, size_t limit)
{
    if (at >= limit) {
        too_large(p);
        return false;
    }
    if (at >= s->room) {
        size_t room = s->room ? 2 * s->room : 256;
        while (room <= at)
            room *= 2;
        pickle_value **grown = realloc(s->item, room * sizeof *grown);
        if (!grown) {
            too_large(p);
            return false;
        }
        memset(grown + s->room, 0, (room - s->room) * sizeof *grown);
        s->item = grown;
        s->room = room;
    }
    s->item[at] = v;
    return true;
}

static void push(pickle *p, pickle_value *v)
{
    if (!p->code && set(p, &p->values, p->values.count, v, STACK_LIMIT))
        p->values.count++;
}

/* Values below the newest mark are out of reach until the mark is taken. */
static size_t floor_of(const pickle *p)
{
    return p->mark_count ? p->marks[p->mark_count - 1] : 0;
}

static pickle_value *top(pickle *p)
{
    if (p->code || p->values.count <= floor_of(p)) {
        damaged(p, "a value is missing");
        return &p->none;
    }
    return p->values.item[p->values.count - 1];
}

static pickle_value *pop(pickle *p)
{
    pickle_value *v = top(p);
    if (!p->code)
        p->values.count--;
    return v;
}

/* Takes the newest mark; the answer is where the values above it start. */
static size_t take_mark(pickle *p)
{
    if (p->code || p->mark_count == 0) {
        damaged(p, "a mark is missing");
        return p->values.count;
    }
    return p->marks[--p->mark_count];
}

/* The next `n` bytes; NULL when the pickle ends before. */
static const uint8_t *bytes(pickle *p, uint64_t n)
{
    if (p->code || n > (uint64_t)(p->end - p->at)) {
        damaged(p, "it ends too early");
        return NULL;
    }
    const uint8_t *b = p->at;
    p->at += n;
    return b;
}

static uint64_t number(pickle *p, int n)
{
    const uint8_t *b = bytes(p, (uint64_t)n);
    uint64_t v = 0;
    for (int i = n - 1; b && i >= 0; i--)
        v = v << 8 | b[i];
    return v;
}

static void push_text(pickle *p, pickle_kind kind, const void *s, size_t size)
{
    pickle_value *v = new_value(p, kind);
    char *copy = s ? take(p, size + 1) : NULL;
    if (!copy)
        return;
    memcpy(copy, s, size);
    v->text.s = copy;
    v->text.size = size;
    push(p, v);
}

static void push_counted_text(pickle *p, int width)
{
    uint64_t size = number(p, width);
    push_text(p, PICKLE_TEXT, bytes(p, size), (size_t)size);
}

/* Bytes stay where they are: arrays may be larger than what a pickle may need of memory. */
static void push_bytes(pickle *p, int width)
{
    uint64_t size = number(p, width);
    const uint8_t *b = bytes(p, size);
    pickle_value *v = new_value(p, PICKLE_BYTES);
    if (!p->code) {
        v->text.s = (const char *)b;
        v->text.size = (size_t)size;
    }
    push(p, v);
}

static void push_integer(pickle *p, pickle_kind kind, int64_t n)
{
    pickle_value *v = new_value(p, kind);
    if (!p->code)
        v->integer = n;
    push(p, v);
}

static pickle_value *opaque(pickle *p, const char *name)
{
    pickle_value *v = new_value(p, PICKLE_OPAQUE);
    if (!p->code) {
        v->text.s = name;
        v->text.size = strlen(name);
    }
    return v;
}

/* Little-endian two's complement of any length. */
static void push_long(pickle *p, uint64_t size)
{
    const uint8_t *b = bytes(p, size);
    if (!b)
        return;
    if (size > 8) {
        push(p, opaque(p, "a large integer"));
        return;
    }
    uint64_t v = size && b[size - 1] & 0x80 ? UINT64_MAX : 0;
    for (uint64_t i = size; i-- > 0;)
        v = v << 8 | b[i];
    push_integer(p, PICKLE_INT, (int64_t)v);
}

static void push_float(pickle *p)
{
    const uint8_t *b = bytes(p, 8);
    uint64_t bits = 0;
    for (int i = 0; b && i < 8; i++)
        bits = bits << 8 | b[i];
    pickle_value *v = new_value(p, PICKLE_FLOAT);
    if (!p->code)
        memcpy(&v->real, &bits, sizeof v->real);
    push(p, v);
}

static void append(pickle *p, pickle_value *list, pickle_value *v)
{
    if (p->code)
        return;
    if (list->list.count == list->list.room) {
        size_t room = list->list.room ? 2 * list->list.room : 8;
        pickle_value **grown = take(p, room * sizeof *grown);
        if (!grown)
            return;
        if (list->list.count)
            memcpy(grown, list->list.item, list->list.count * sizeof *grown);
        list->list.item = grown;
        list->list.room = room;
    }
    list->list.item[list->list.count++] = v;
}

/* Moves the values from stack position `from` on into `into`, if that is a container of the given kind; a container
 * that is not known here swallows them. */
static void collect(pickle *p, pickle_value *into, size_t from, pickle_kind kind)
{
    if (p->code)
        return;
    size_t count = p->values.count - from;
    if (into->kind == kind) {
        if (kind == PICKLE_DICT && count % 2) {
            damaged(p, "a key without a value");
            return;
        }
        for (size_t i = 0; i < count; i++)
            append(p, into, p->values.item[from + i]);
    } else if (into->kind != PICKLE_OPAQUE) {
        damaged(p, "items for something that is no container");
    }
    p->values.count = from;
}

/* New container of what stands above the newest mark. */
static void gather(pickle *p, pickle_kind kind)
{
    size_t from = take_mark(p);
    pickle_value *v = new_value(p, kind);
    collect(p, v, from, kind);
    push(p, v);
}

static void tuple_of(pickle *p, size_t n)
{
    pickle_value *v = new_value(p, PICKLE_TUPLE);
    if (p->values.count - floor_of(p) < n)
        damaged(p, "a value is missing");
    collect(p, v, p->values.count - n, PICKLE_TUPLE);
    push(p, v);
}

/* APPENDS, SETITEMS and ADDITEMS: what stands above the mark goes into the container below it. */
static void extend(pickle *p, pickle_kind kind)
{
    size_t from = take_mark(p);
    if (p->code || from <= floor_of(p)) {
        damaged(p, "a container is missing");
        return;
    }
    collect(p, p->values.item[from - 1], from, kind);
}

/* APPEND and SETITEM: the last `n` values go into the container below them. */
static void extend_by(pickle *p, pickle_kind kind, size_t n)
{
    if (p->code || p->values.count - floor_of(p) < n + 1) {
        damaged(p, "a container is missing");
        return;
    }
    size_t from = p->values.count - n;
    collect(p, p->values.item[from - 1], from, kind);
}

static void push_global(pickle *p, const char *module, size_t m, const char *name, size_t n)
{
    char *whole = take(p, m + n + 2);
    pickle_value *v = new_value(p, PICKLE_GLOBAL);
    if (p->code)
        return;
    memcpy(whole, module, m);
    whole[m] = '.';
    memcpy(whole + m + 1, name, n);
    v->text.s = whole;
    v->text.size = m + n + 1;
    push(p, v);
}

/* A line of text up to the line break; its length without it. */
static const char *line(pickle *p, size_t *size)
{
    const uint8_t *stop = p->code ? NULL : memchr(p->at, '\n', (size_t)(p->end - p->at));
    if (!stop) {
        damaged(p, "it ends too early");
        *size = 0;
        return "";
    }
    const char *s = (const char *)p->at;
    *size = (size_t)(stop - p->at);
    p->at = stop + 1;
    return s;
}

static void global_by_lines(pickle *p)
{
    size_t m, n;
    const char *module = line(p, &m), *name = line(p, &n);
    push_global(p, module, m, name, n);
}

static void global_by_stack(pickle *p)
{
    const pickle_value *name = pop(p), *module = pop(p);
    if (name->kind != PICKLE_TEXT || module->kind != PICKLE_TEXT)
        damaged(p, "a name that is no text");
    else
        push_global(p, module->text.s, module->text.size, name->text.s, name->text.size);
}

static pickle_value *argument(const pickle_value *args, size_t i)
{
    return i < args->list.count ? args->list.item[i] : NULL;
}

static pickle_value *rebuild_tensor(pickle *p, const pickle_value *args)
{
    if (args->list.count < 4) {
        damaged(p, "a tensor without storage, offset, size and stride");
        return &p->none;
    }
    pickle_value *v = new_value(p, PICKLE_TENSOR);
    if (!p->code)
        v->tensor = (pickle_tensor){argument(args, 0), argument(args, 1), argument(args, 2), argument(args, 3)};
    return v;
}

/* collections.OrderedDict() or OrderedDict([(key, value), ...]). */
static pickle_value *ordered_dict(pickle *p, const pickle_value *args)
{
    pickle_value *dict = new_value(p, PICKLE_DICT);
    const pickle_value *pairs = argument(args, 0);
    for (size_t i = 0; pairs && pairs->kind == PICKLE_LIST && i < pairs->list.count; i++) {
        const pickle_value *pair = pairs->list.item[i];
        if ((pair->kind != PICKLE_TUPLE && pair->kind != PICKLE_LIST) || pair->list.count != 2)
            continue;
        append(p, dict, pair->list.item[0]);
        append(p, dict, pair->list.item[1]);
    }
    return dict;
}

/* What `function(*args)` stands for. The few names that torch.save uses for tensors and dicts are known; any other
 * becomes a value that only remembers the name. */
static pickle_value *call(pickle *p, pickle_value *function, pickle_value *args)
{
    if (args->kind != PICKLE_TUPLE)
        return opaque(p, function->kind == PICKLE_GLOBAL ? function->text.s : "an unknown object");
    if (function->kind != PICKLE_GLOBAL)
        return opaque(p, function->kind == PICKLE_OPAQUE ? function->text.s : "an unknown object");
    const char *name = function->text.s;
    pickle_value *first = argument(args, 0);
    if (strcmp(name, "torch._utils._rebuild_tensor_v2") == 0 || strcmp(name, "torch._utils._rebuild_tensor") == 0)
        return rebuild_tensor(p, args);
    if (first && (strcmp(name, "torch._utils._rebuild_parameter") == 0 ||
                  strcmp(name, "torch._utils._rebuild_parameter_with_state") == 0))
        return first;
    if (args->list.count >= 3 && strcmp(name, "torch._tensor._rebuild_from_type_v2") == 0 &&
        first->kind == PICKLE_GLOBAL && pickle_is_text(first, "torch._utils._rebuild_tensor_v2") &&
        argument(args, 2)->kind == PICKLE_TUPLE)
        return rebuild_tensor(p, argument(args, 2));
    if (strcmp(name, "collections.OrderedDict") == 0)
        return ordered_dict(p, args);
    if (first && strcmp(name, "torch.Size") == 0)
        return first;
    pickle_value *made = opaque(p, name);
    if (!p->code)
        made->text.args = args;
    return made;
}

static void reduce(pickle *p)
{
    pickle_value *args = pop(p), *function = pop(p);
    if (!p->code)
        push(p, call(p, function, args));
}

/* BUILD: nothing that is known here has a state; others remember it. */
static void set_state(pickle *p)
{
    const pickle_value *state = pop(p);
    pickle_value *object = top(p);
    if (!p->code && object->kind == PICKLE_OPAQUE)
        object->text.state = state;
}

/* OBJ and INST: a class with arguments above a mark. */
static void object_above_mark(pickle *p, bool named)
{
    pickle_value *class = &p->none;
    if (named) {
        global_by_lines(p);
        class = pop(p);
    }
    size_t from = take_mark(p);
    if (!named && !p->code && p->values.count > from)
        class = p->values.item[from];
    if (p->code)
        return;
    p->values.count = from;
    push(p, opaque(p, class->kind == PICKLE_GLOBAL ? class->text.s : "an unknown object"));
}

static void persistent(pickle *p)
{
    const pickle_value *id = pop(p);
    pickle_value *v = new_value(p, PICKLE_STORAGE);
    if (!p->code && id->kind == PICKLE_TUPLE)
        v->list = id->list;
    push(p, v);
}

static void remember(pickle *p, uint64_t at)
{
    pickle_value *v = top(p);
    if (!p->code && at >= MEMO_LIMIT)
        too_large(p);
    if (!p->code && set(p, &p->memo, (size_t)at, v, MEMO_LIMIT) && at >= p->memo.count)
        p->memo.count = (size_t)at + 1;
}

static void recall(pickle *p, uint64_t at)
{
    if (at >= p->memo.count || !p->memo.item[at])
        damaged(p, "a reference to nothing");
    else
        push(p, p->memo.item[at]);
}

static void push_mark(pickle *p)
{
    if (p->mark_count == MARK_LIMIT)
        damaged(p, "nested too deeply");
    else
        p->marks[p->mark_count++] = p->values.count;
}

static void stop(pickle *p)
{
    p->root = pop(p);
    p->stopped = true;
}

static void check_protocol(pickle *p)
{
    uint64_t protocol = number(p, 1);
    if (!p->code && (protocol < 2 || protocol > 5))
        damaged(p, "its protocol is not 2 to 5");
}

/* Opcodes that push a value. */
static bool step_value(pickle *p, uint8_t op)
{
    switch (op) {
    case 'N': push(p, new_value(p, PICKLE_NONE)); return true;
    case 0x88: push_integer(p, PICKLE_BOOL, 1); return true;
    case 0x89: push_integer(p, PICKLE_BOOL, 0); return true;
    case 'J': push_integer(p, PICKLE_INT, (int32_t)number(p, 4)); return true;
    case 'K': push_integer(p, PICKLE_INT, (int64_t)number(p, 1)); return true;
    case 'M': push_integer(p, PICKLE_INT, (int64_t)number(p, 2)); return true;
    case 0x8A: push_long(p, number(p, 1)); return true;
    case 0x8B: push_long(p, number(p, 4)); return true;
    case 'G': push_float(p); return true;
    case 'X': case 'T': push_counted_text(p, 4); return true;
    case 0x8C: case 'U': push_counted_text(p, 1); return true;
    case 0x8D: push_counted_text(p, 8); return true;
    case 'C': push_bytes(p, 1); return true;
    case 'B': push_bytes(p, 4); return true;
    case 0x8E: case 0x96: push_bytes(p, 8); return true;
    case ')': push(p, new_value(p, PICKLE_TUPLE)); return true;
    case ']': case 0x8F: push(p, new_value(p, PICKLE_LIST)); return true;
    case '}': push(p, new_value(p, PICKLE_DICT)); return true;
    case 'c': global_by_lines(p); return true;
    case 'h': recall(p, number(p, 1)); return true;
    case 'j': recall(p, number(p, 4)); return true;
    default: return false;
    }
}

/* Opcodes that work on what is there. */
static bool step_work(pickle *p, uint8_t op)
{
    switch (op) {
    case 0x80: check_protocol(p); return true;
    case 0x95: number(p, 8); return true;
    case '(': push_mark(p); return true;
    case '.': stop(p); return true;
    case '0':
        if (p->mark_count && p->values.count == floor_of(p))
            p->mark_count--;
        else
            pop(p);
        return true;
    case '1': p->values.count = take_mark(p); return true;
    case '2': push(p, top(p)); return true;
    case 't': gather(p, PICKLE_TUPLE); return true;
    case 0x85: case 0x86: case 0x87: tuple_of(p, op - 0x84u); return true;
    case 'l': case 0x91: gather(p, PICKLE_LIST); return true;
    case 'd': gather(p, PICKLE_DICT); return true;
    case 'a': extend_by(p, PICKLE_LIST, 1); return true;
    case 's': extend_by(p, PICKLE_DICT, 2); return true;
    case 'e': case 0x90: extend(p, PICKLE_LIST); return true;
    case 'u': extend(p, PICKLE_DICT); return true;
    case 'q': remember(p, number(p, 1)); return true;
    case 'r': remember(p, number(p, 4)); return true;
    case 0x94: remember(p, p->memo.count); return true;
    case 0x93: global_by_stack(p); return true;
    case 'R': case 0x81: reduce(p); return true;
    case 0x92: pop(p); reduce(p); return true;          /* keyword arguments do not matter here */
    case 'b': set_state(p); return true;
    case 'o': object_above_mark(p, false); return true;
    case 'i': object_above_mark(p, true); return true;
    case 'Q': persistent(p); return true;
    default: return false;
    }
}

static void run(pickle *p)
{
    while (!p->code && !p->stopped) {
        const uint8_t *op = bytes(p, 1);
        if (op && !step_value(p, *op) && !step_work(p, *op)) {
            char what[48];
            snprintf(what, sizeof what, "opcode 0x%02x is not supported", *op);
            damaged(p, what);
        }
    }
}

int pickle_open(pickle **out, const uint8_t *data, size_t size, const char *path, samite_error *err)
{
    *out = NULL;
    pickle *p = calloc(1, sizeof *p);
    if (!p)
        return fail(err, SAMITE_RESOURCE, "%s: out of memory", path);
    p->start = p->at = data;
    p->end = data + size;
    p->path = path;
    p->err = err;
    if (size < 2 || data[0] != 0x80)
        damaged(p, "it does not start like one of protocol 2 to 5");
    run(p);
    int code = p->code;
    if (code)
        pickle_close(p);
    else
        *out = p;
    return code;
}

void pickle_close(pickle *p)
{
    if (!p)
        return;
    while (p->blocks) {
        block *next = p->blocks->next;
        free(p->blocks);
        p->blocks = next;
    }
    free(p->values.item);
    free(p->memo.item);
    free(p);
}

const pickle_value *pickle_root(const pickle *p)
{
    return p->root;
}

bool pickle_is_text(const pickle_value *v, const char *s)
{
    bool text = v && (v->kind == PICKLE_TEXT || v->kind == PICKLE_GLOBAL || v->kind == PICKLE_OPAQUE);
    return text && strlen(s) == v->text.size && memcmp(v->text.s, s, v->text.size) == 0;
}

const pickle_value *pickle_get(const pickle_value *dict, const char *key)
{
    if (!dict || dict->kind != PICKLE_DICT)
        return NULL;
    for (size_t i = dict->list.count; i >= 2; i -= 2)
        if (dict->list.item[i - 2]->kind == PICKLE_TEXT && pickle_is_text(dict->list.item[i - 2], key))
            return dict->list.item[i - 1];
    return NULL;
}

const char *pickle_describe(const pickle_value *v, char *out, size_t room)
{
    static const char *const words[] = {"None", "a boolean", "an integer", "a number", "text", "bytes", "a tuple", "a list",
                                        "a dict", "a class", "a storage", "a tensor"};
    if (v->kind == PICKLE_OPAQUE)
        snprintf(out, room, "an object of %s", v->text.s);
    else
        snprintf(out, room, "%s", words[v->kind]);
    return out;
}

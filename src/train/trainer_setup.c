/* trainer_setup.c - data and model of a training. */
#define _GNU_SOURCE
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"
#include "base/threads.h"
#include "train/random.h"
#include "train/trainer.h"

#define DETECTOR ((1u << PART_MASK_HEAD) - 1)      /* every part before the mask head */

void trainer_say(const trainer *t, const char *format, ...)
{
    char line[1024];
    va_list args;
    if (!t->h->log || (t->team && team_rank(t->team) > 0))
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    t->h->log(t->h->user, line);
}

void trainer_tell(const trainer *t, const char *format, ...)
{
    char line[1024];
    va_list args;
    int n = 0, size = t->team ? team_size(t->team) : 1;
    if (!t->h->log)
        return;
    if (size > 1)
        n = snprintf(line, sizeof line, "process %d of %d: ", team_rank(t->team), size);
    va_start(args, format);
    vsnprintf(line + n, sizeof line - (size_t)n, format, args);
    va_end(args);
    t->h->log(t->h->user, line);
}

/* ---- data ---- */

static int check_rows(const trainer *t, samite_error *err)
{
    const train_set *s = &t->set;
    const train_row *first = NULL;
    for (size_t i = 0; i < s->row_count && !first; i++)
        first = &s->rows[i];
    if (t->c->strict && first)
        return fail(err, SAMITE_INPUT,
                    "%s: %d rows rejected, %d doubtful; first: image %s, annotation %s: %s (data.strict)", s->path,
                    s->rejected, s->noted, *first->image ? first->image : "-",
                    *first->annotation ? first->annotation : "-", first->why);
    if (s->rejected || s->noted)
        trainer_say(t, "%s: %d rows rejected, %d doubtful; first: image %s, annotation %s: %s", s->path, s->rejected,
                    s->noted, *first->image ? first->image : "-", *first->annotation ? first->annotation : "-",
                    first->why);
    if (!train_set_objects(s))
        return fail(err, SAMITE_INPUT,
                    "%s: no usable annotation in %d pictures%s%s; training would only learn that nothing is there",
                    s->path, s->chosen, first ? "; first problem: " : "", first ? first->why : "");
    return 0;
}

static int count_steps(trainer *t, samite_error *err)
{
    const train_config *c = t->c;
    int64_t whole = (int64_t)t->share * (t->team ? team_size(t->team) : 1);
    t->iters = (int)(t->set.chosen / whole);
    if (!t->iters)
        return fail(err, SAMITE_USAGE,
                    "%d pictures are fewer than one step needs: %d per pass x %d passes x %d processes = %lld; lower "
                    "trainer.train_batch_size",
                    t->set.chosen, c->batch, c->accumulate, t->team ? team_size(t->team) : 1, (long long)whole);
    return 0;
}

int trainer_data(trainer *t, samite_error *err)
{
    const train_config *c = t->c;
    if (c->scenes) {
        int bad = trainer_scenes(t, err);
        if (bad)
            return bad;
        t->share = c->batch * c->accumulate;
        return count_steps(t, err);
    }
    train_options o = {c->train_annotations, c->train_images, c->limit, c->masks, c->keep_unused};
    int code = train_set_read(&t->set, &o, err);
    if (!code)
        code = check_rows(t, err);
    if (code)
        return code;
    t->share = c->batch * c->accumulate;
    return count_steps(t, err);
}

/* ---- which parts learn ---- */

static const struct { const char *name; model_part part;
} part_names[] = {{"trunk", PART_TRUNK},       {"neck", PART_NECK},     {"text", PART_TEXT},
                  {"examples", PART_GEOMETRY}, {"fusion", PART_FUSION}, {"decoder", PART_DECODER},
                  {"masks", PART_MASK_HEAD}};

static int read_freeze(unsigned *parts, const char *list, samite_error *err)
{
    for (const char *s = list; s && *s;) {
        size_t n = strcspn(s, ", "), i = 0;
        while (i < sizeof part_names / sizeof *part_names &&
               (strlen(part_names[i].name) != n || strncmp(part_names[i].name, s, n) != 0))
            i++;
        if (n && i == sizeof part_names / sizeof *part_names)
            return fail(err, SAMITE_USAGE,
                        "trainer.freeze: \"%.*s\" is no part; there are trunk, neck, text, examples, fusion, decoder, "
                        "masks",
                        (int)n, s);
        if (n)
            *parts &= ~(1u << part_names[i].part);
        s += n + (s[n] != '\0');
    }
    return *parts ? 0 : fail(err, SAMITE_USAGE, "trainer.freeze names all parts; nothing is left to learn");
}

/* Do gradients pass through the part's layers on their way to others? */
static bool passes(unsigned learning, int part)
{
    static const unsigned before[] = {
        [PART_TRUNK] = 0, [PART_NECK] = 1u << PART_TRUNK, [PART_TEXT] = 0,
        [PART_GEOMETRY] = 1u << PART_TRUNK | 1u << PART_NECK,
        [PART_FUSION] = (1u << PART_FUSION) - 1, [PART_DECODER] = (1u << PART_DECODER) - 1,
        [PART_MASK_HEAD] = (1u << PART_MASK_HEAD) - 1};
    return (learning & before[part]) != 0;
}

/* Plain f32 values, straight from the mapped file where it holds them so. */
static bool hold_values(const native *n, entry *e)
{
    const weight *w = n->file ? weights_find(n->file, e->p.name) : NULL;
    if (e->p.t.data || e->missing)
        return true;
    if (w && w->type == DT_F32 && weight_contiguous(w) && (uintptr_t)w->data % sizeof(float) == 0) {
        e->p.t.data = (float *)(uintptr_t)w->data;
        return true;
    }
    e->p.t.data = native_values(n, e);
    e->p.owned = e->p.t.data != NULL;
    return e->p.owned;
}

/* Frozen parts behind which nothing learns are packed, as for inference; the others need their weights for backward. */
static int prepare_frozen(trainer *t, bool adapted, samite_error *err)
{
    registry *g = &t->n->net->all;
    unsigned pack = 0;
    for (int p = 0; p <= (t->c->masks ? PART_MASK_HEAD : PART_DECODER) && !t->c->patches_only; p++) {
        bool learns = t->parts >> p & 1, hold = learns ? adapted : passes(t->parts, p);
        if (!learns && !hold)
            pack |= 1u << p;
        for (size_t i = 0; hold && i < g->count; i++)
            if (g->entries[i]->part == (model_part)p && !hold_values(t->n, g->entries[i]))
                return fail(err, SAMITE_RESOURCE, "not enough memory for the %s", model_part_name((model_part)p));
    }
    return pack ? native_prepare(t->n, pack, NULL, NULL, err) : 0;
}

/* ---- the model ---- */

static learn_rates rates_of(const train_config *c)
{
    learn_rates r = official_rates;
    r.rest = c->lr, r.vision = c->lr_vision, r.language = c->lr_language;
    r.weight_decay = c->weight_decay, r.layer_decay = c->layer_decay;
    r.timescale = c->timescale, r.warmup = c->warmup, r.cooldown = c->cooldown;
    r.clip = c->clip, r.beta2 = c->beta2, r.average = c->ema;
    return r;
}

static loss_weights weights_of(const train_config *c)
{
    return (loss_weights){(float)c->bbox,     (float)c->giou,       (float)c->ce,       (float)c->presence,
                          (float)c->mask,     (float)c->dice,       (float)c->semantic, (float)c->semantic_dice,
                          (float)c->positive, (float)c->one_to_many};
}

static int open_learners(trainer *t, samite_error *err)
{
    const train_config *c = t->c;
    learn_rates rates = rates_of(c);
    if (!c->lora_rank)
        return optimizer_open(&t->o, t->n, t->parts, c->masks, &rates, err);
    double alpha = c->lora_alpha > 0 ? c->lora_alpha : 2.0 * c->lora_rank;
    int code = adapters_open(&t->a, t->n, t->parts, c->lora_rank, alpha, (uint64_t)c->seed, err);
    if (!code)
        code = optimizer_open(&t->o, t->n, 0, c->masks, &rates, err);
    for (int i = 0; i < t->a.count && !code; i++) {
        code = optimizer_add(&t->o, t->n, &t->a.item[i].down, err);
        if (!code)
            code = optimizer_add(&t->o, t->n, &t->a.item[i].up, err);
    }
    return code;
}

static uint64_t bytes_of(const char *s)
{
    char *end;
    double v = s ? strtod(s, &end) : 0;
    int power = !s ? 0 : *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : *end == 'T' ? 40 : 0;
    return v > 0 ? (uint64_t)ldexp(v, power) : 0;
}

/* Maps belong to a model, a set of pictures and a side of the input. */
static uint64_t cache_key(const trainer *t)
{
    const char *const of[] = {t->c->checkpoint, t->set.path, t->set.pictures};
    uint64_t key = (uint64_t)t->n->net->c.image;
    for (int i = 0; i < 3; i++) {
        struct stat st;
        for (const char *s = of[i]; *s; s++)
            key = random_mix(key + (unsigned char)*s);
        if (stat(of[i], &st) == 0)
            key = random_mix(random_mix(key + (uint64_t)st.st_size) + (uint64_t)st.st_mtime);
    }
    return key;
}

static int name_cache(trainer *t, samite_error *err)
{
    if (!t->c->cache_features)
        return 0;
    if (t->parts >> PART_TRUNK & 1)
        return fail(err, SAMITE_USAGE, "trainer.cache_features needs a frozen trunk (trainer.freeze: trunk)");
    if (asprintf(&t->features, "%s/features_%016llx", t->c->output, (unsigned long long)cache_key(t)) < 0) {
        t->features = NULL;
        return fail(err, SAMITE_RESOURCE, "out of memory");
    }
    return 0;
}

int trainer_model(trainer *t, samite_error *err)
{
    const train_config *c = t->c;
    native_options o = {c->resolution, c->precision};
    t->parts = DETECTOR | (c->masks ? 1u << PART_MASK_HEAD : 0);
    t->weights = weights_of(c);
    threads_set(c->threads);
    int code = native_open(&t->n, c->checkpoint, &o, err);
    if (!code && c->masks && !native_has(t->n, PARTS_MASKS))
        code = fail(err, SAMITE_INPUT,
                    "%s has no mask head, which model.enable_segmentation needs; start from a file with all parts",
                    c->checkpoint);
    if (!code && t->n->type == GEMM_BF16 && !gemm_has(GEMM_BF16))
        trainer_say(t, "this processor has no bf16 instructions: everything is computed in f32");
    if (!code)
        code = read_freeze(&t->parts, c->freeze, err);
    if (c->patches_only)
        t->parts &= 1u << PART_TRUNK | 1u << PART_NECK | 1u << PART_TEXT;
    if (!code)
        code = sampler_open(&t->sampler, &t->set, &t->n->net->c, err);
    if (!code && t->sampler.cut)
        trainer_say(t, "%d category names are longer than %d tokens and are cut", t->sampler.cut, t->n->net->c.context);
    if (!code)
        code = open_learners(t, err);
    if (!code && (c->patches > 0 || c->match > 0))
        code = trainer_aids(t, err);
    if (!code)
        code = prepare_frozen(t, c->lora_rank > 0, err);
    if (!code)
        code = name_cache(t, err);
    if (!code)
        code = tapes_open(
            &t->tapes,
            &(run_options){.memory_limit = bytes_of(c->memory_limit), .keep_all = !c->checkpointing, .type = t->n->type},
            err);
    if (!code)
        code = loader_open(&t->loader, &t->sampler, c->skip_bad, t->share, err);
    return code;
}

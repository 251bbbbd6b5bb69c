/* api_describe.c - what a model is made of and costs, and what this machine can do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "api.h"
#include "base/text.h"
#include "base/threads.h"
#include "io/versions.h"

/* ---- the work, from a trace ---- */

static model_part part_of(const char *path)
{
    static const struct { const char *prefix; model_part part; } table[] = {
        {"trunk", PART_TRUNK}, {"neck", PART_NECK}, {"text", PART_TEXT}, {"geometry", PART_GEOMETRY},
        {"fusion", PART_FUSION}, {"decoder", PART_DECODER}, {"mask_head", PART_MASK_HEAD},
        {"tracker_neck", PART_TRACKER_NECK},
    };
    for (size_t i = 0; path && i < sizeof table / sizeof *table; i++)
        if (starts_with(path, table[i].prefix))
            return table[i].part;
    return PART_COUNT;
}

/* One picture, one prompt of all text positions, all masks: shapes only. */
static void trace_model(run *r, const sam3 *net)
{
    int64_t side = net->c.image;
    int32_t *query = calloc((size_t)net->c.queries, sizeof *query);
    encoded_image im;
    sam3_encode_image(r, net, run_input(r, NULL, 4, (int64_t[]){1, side, side, 3}), false, &im);
    tensor *said = text_forward(r, &net->text, run_indices(r, NULL, 2, (int64_t[]){1, net->c.context}));
    grounded g;
    sam3_ground(r, net, &im, said, NULL, NULL, &g);
    if (query)
        sam3_masks(r, net, &im, &g, query, net->c.queries);
    free(query);
}

static int trace_costs(const sam3 *net, double *flops, uint64_t *peak, samite_error *err)
{
    run *r = run_open(&(run_options){.mode = TRACE}, err);
    if (!r)
        return SAMITE_RESOURCE;
    trace_model(r, net);
    int code = run_status(r, err);
    for (size_t i = 0; i < run_nodes(r); i++) {
        const op_node *n = run_node(r, i);
        model_part p = part_of(n->part);
        if (p < PART_COUNT)
            flops[p] += n->flops;
    }
    *peak = run_peak(r);
    run_close(r);
    return code;
}

/* ---- the model ---- */

static const char *kind_of(const native *n)
{
    if (!n->file)
        return "SAM 3 by formula (finds nothing meaningful)";
    if (!n->available[PART_MASK_HEAD])
        return "SAM 3 detector without masks";
    return n->available[PART_CLICK] && n->available[PART_TRACKER_NECK] ? "SAM 3" : "SAM 3 detector";
}

/* "f32 1188, bf16 3". */
static const char *types_of(const native *n, char *out, size_t room)
{
    size_t count[DT_COUNT] = {0}, used = 0;
    if (!n->file) {
        snprintf(out, room, "f32 %zu", n->net->all.count);
        return out;
    }
    for (size_t i = 0; i < weights_count(n->file); i++)
        count[weights_at(n->file, i)->type]++;
    *out = 0;
    for (int t = 0; t < DT_COUNT && used < room; t++)
        if (count[t])
            used += (size_t)snprintf(out + used, room - used, "%s%s %zu", used ? ", " : "", dtype_name((dtype)t), count[t]);
    return out;
}

static void describe_parts(const native *n, const double *flops, samite_model_info *out)
{
    const registry *g = &n->net->all;
    out->parts = PART_COUNT;
    for (int p = 0; p < PART_COUNT; p++)
        out->part[p] = (samite_part_info){.name = model_part_name((model_part)p), .flops = flops[p]};
    for (size_t i = 0; i < g->count; i++) {
        const entry *e = g->entries[i];
        samite_part_info *part = &out->part[e->part];
        if (e->missing)
            continue;
        const weight *w = n->file ? weights_find(n->file, e->p.name) : NULL;
        uint64_t elements = (uint64_t)tensor_count(&e->p.t);
        part->parameters += elements;
        part->bytes += w ? weight_bytes(w) : elements * sizeof(float);
        out->weight_bytes += elements * (n->type == GEMM_BF16 && !e->raw ? 2 : 4);
    }
}

int samite_model_describe(const samite_model *m, samite_model_info *info, samite_error *err)
{
    if (!m || !info)
        return fail(err, SAMITE_USAGE, "samite_model_describe: no model given");
    const native *n = m->n;
    const config *c = &n->net->c;
    double flops[PART_COUNT] = {0};
    samite_model_info out = {.kind = kind_of(n), .source = n->source, .input_side = c->image, .patch = c->patch,
        .window = c->vit_window, .queries = c->queries, .context = c->context, .trunk_width = c->vit_dim,
        .trunk_depth = c->vit_depth, .trunk_heads = c->vit_heads, .text_width = c->text_dim,
        .text_layers = c->text_layers, .width = c->d, .loaded = n->loaded, .ignored = n->ignored, .missing = n->missing,
        .has_masks = n->available[PART_MASK_HEAD], .has_tracker = n->available[PART_TRACKER_NECK] && n->available[PART_CLICK]};
    out.types = types_of(n, ((samite_model *)(uintptr_t)m)->types, sizeof m->types);
    int code = trace_costs(n->net, flops, &out.activation_bytes, err);
    if (code)
        return code;
    describe_parts(n, flops, &out);
    out.size = info->size;
    memcpy(info, &out, info->size < sizeof out ? info->size : sizeof out);
    return 0;
}

int samite_model_sides(const samite_model *m, int *sides, int max)
{
    if (!m || !sides)
        return 0;
    const config *c = &m->n->net->c;
    int step = c->patch * c->vit_window, n = 0;
    for (int side = step; n < max && config_side_valid(c, side); side += step)
        sides[n++] = side;
    return n;
}

/* ---- the machine ---- */

static void cpu_name(char *out, size_t room)
{
    char line[512];
    snprintf(out, room, "unknown");
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f)) {
        char *value = strchr(line, ':');
        if (!starts_with(line, "model name") || !value)
            continue;
        value[strcspn(value, "\n")] = 0;
        snprintf(out, room, "%s", value + 2);
        break;
    }
    if (f)
        fclose(f);
}

void samite_machine_describe(samite_machine *out)
{
    struct sysinfo s;
    if (!out)
        return;
    *out = (samite_machine){.threads = threads_count(), .cores = threads_available()};
    cpu_name(out->cpu, sizeof out->cpu);
    snprintf(out->features, sizeof out->features, "%s", kernels_cpu_features());
    snprintf(out->kernels, sizeof out->kernels, "%s", kernels_get()->level);
    if (sysinfo(&s) == 0) {
        out->memory_bytes = (uint64_t)s.totalram * s.mem_unit;
        out->memory_free = (uint64_t)(s.freeram + s.bufferram) * s.mem_unit;
    }
    int used = snprintf(out->libraries, sizeof out->libraries, "%s, ", gemm_library());
    io_versions(out->libraries + used, sizeof out->libraries - (size_t)used);
}

char *samite_cache_folder(void)
{
    return pack_cache_folder();
}

int samite_cache_survey(const char *folder, int remove, uint64_t *bytes, int *files, samite_error *err)
{
    if (!folder || !bytes || !files)
        return fail(err, SAMITE_USAGE, "samite_cache_survey: no folder given");
    return pack_cache_survey(folder, remove != 0, bytes, files, err);
}

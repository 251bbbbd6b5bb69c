/* neck.c - a pyramid from the trunk's last map: enlarge or halve it, then 1x1 and 3x3 convolutions to width d. */
#include "model/neck.h"

void neck_declare(neck *n, registry *g, const char *name, model_part part, const config *c)
{
    int64_t d = c->vit_dim, width[NECK_LEVELS] = {d / 4, d / 2, d, d};
    size_t mark = registry_enter(g, "detector.backbone.vision_backbone.%s", name);
    g->part = part;
    for (int i = 0; i < NECK_LEVELS; i++) {
        size_t inner = registry_enter(g, "%d", i), from = g->count;
        if (i == 0) {
            declare_up(g, "dconv_2x2_0", &n->up0, d, d / 2);
            declare_up(g, "dconv_2x2_1", &n->up1, d / 2, d / 4);
        } else if (i == 1) {
            declare_up(g, "dconv_2x2", &n->up, d, d / 2);
        }
        declare_conv1(g, "conv_1x1", &n->reduce[i], width[i], c->d);
        if (i < 2)
            *(i ? &n->up.then : &n->up1.then) = &n->reduce[i];
        declare_conv(g, "conv_3x3", &n->smooth[i], c->d, c->d, 3, 1, 1, 1);
        if (i == NECK_LEVELS - 1)
            registry_unused(g, from);
        registry_leave(g, inner);
    }
    registry_leave(g, mark);
}

/* Enlarged or halved, then reduced to width d. */
static tensor *scaled(run *r, const neck *n, tensor *x, int level)
{
    const linear_w *reduce = &n->reduce[level];
    switch (level) {
    case 0: return conv_up2_linear(r, conv_up2(r, x, &n->up0, ACT_GELU), &n->up1, reduce);
    case 1: return conv_up2_linear(r, x, &n->up, reduce);
    case 2: return linear(r, x, reduce);
    default: return linear(r, max_pool2(r, x), reduce);
    }
}

tensor *neck_level(run *r, const neck *n, tensor *x, int level, const char *prefix)
{
    run_part(r, "%s.%d", prefix, level);
    size_t mark = run_mark(r);
    tensor *y = conv(r, scaled(r, n, x, level), &n->smooth[level], ACT_NONE);
    return run_keep(r, mark, note(r, y, "%s.%d", prefix, level));
}

void neck_forward(run *r, const neck *n, tensor *x, tensor **level, int levels, const char *prefix)
{
    for (int i = 0; i < levels; i++)
        level[i] = neck_level(r, n, x, i, prefix);
}

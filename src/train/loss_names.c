/* loss_names.c - losses under the names that the official logs use. */
#include <stdio.h>

#include "train/forward.h"

static void add_loss(named_loss *out, int *n, const char *name, const char *suffix, double value)
{
    named_loss *l = &out[*n];
    *n += 1;
    snprintf(l->name, sizeof l->name, "%s%s", name, suffix);
    l->value = value;
}

static void add_layer(named_loss *out, int *n, const loss_terms *x, double f1_weight, const char *suffix, bool masks)
{
    add_loss(out, n, "loss_bbox", suffix, x->bbox);
    add_loss(out, n, "loss_giou", suffix, x->giou);
    add_loss(out, n, "loss_ce", suffix, x->ce);
    add_loss(out, n, "ce_f1", suffix, f1_weight * terms_f1(x));
    add_loss(out, n, "presence_loss", suffix, x->presence);
    add_loss(out, n, "presence_dec_acc", suffix, x->presence_accuracy);
    if (masks) {
        add_loss(out, n, "loss_mask", suffix, x->mask);
        add_loss(out, n, "loss_dice", suffix, x->dice);
    }
}

/* The last layer has no suffix, the others _aux_I; the one-to-many half has _o2m behind. */
int losses_by_name(named_loss *out, const step_losses *l, const loss_weights *w, bool masks)
{
    int n = 0;
    char suffix[24];
    for (int at = 0; at < l->layers; at++) {
        int i = at ? at - 1 : l->layers - 1;
        for (int half = 0; half < 2; half++) {
            if (i + 1 < l->layers)
                snprintf(suffix, sizeof suffix, "_aux_%d%s", i, half ? "_o2m" : "");
            else
                snprintf(suffix, sizeof suffix, "%s", half ? "_o2m" : "");
            add_layer(out, &n, half ? &l->many[i] : &l->one[i], half ? w->one_to_many : 1, suffix,
                      masks && i + 1 == l->layers);
        }
    }
    if (masks) {
        add_loss(out, &n, "loss_semantic_seg", "", l->semantic);
        add_loss(out, &n, "loss_semantic_dice", "", l->semantic_dice);
        add_loss(out, &n, "miou_semantic_seg", "", l->present > 0 ? l->semantic_iou : 1);
        add_loss(out, &n, "loss_semantic_presence", "", 0);     /* a loss that no configuration switches on */
        add_loss(out, &n, "presence_acc", "", 0);
    }
    add_loss(out, &n, "core_loss", "", l->core);
    return n;
}

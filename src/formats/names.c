/* names.c - names of tensors: their official form, and what they tell about a file. */
#include "formats/names.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "formats/hf_names.h"

/* Moves *name behind `prefix` if it starts with it. */
static bool skip(const char **name, const char *prefix)
{
    bool there = starts_with(*name, prefix);
    if (there)
        *name += strlen(prefix);
    return there;
}

char *official_name(const char *name)
{
    while (skip(&name, "module.") || skip(&name, "_orig_mod.") || skip(&name, "model."))
        ;
    if (starts_with(name, "tracker."))
        return text_copy(name);
    skip(&name, "detector.");
    const char *part = skip(&name, "inst_interactive_predictor.model.") ? "tracker." : "detector.";
    text whole = {0};
    text_printf(&whole, "%s%s", part, name);
    if (whole.failed)
        text_free(&whole);
    return whole.data;
}

/* How many tensors have `part` somewhere in their names. */
static size_t named(const tensor_list *l, const char *part)
{
    size_t n = 0;
    for (size_t i = 0; i < l->count; i++)
        n += strstr(l->items[i].name, part) != NULL;
    for (size_t i = 0; i < l->refused_count; i++)
        n += strstr(l->refused[i].key, part) != NULL;
    return n;
}

const char *guess_from_names(const tensor_list *l)
{
    size_t count = l->count + l->refused_count;
    if (named(l, "lora_") * 2 > count)
        return "a LoRA adapter";
    if (named(l, "tracker.model.") || named(l, "interactive_convs."))
        return "SAM 3.1 multiplex";
    if (hf_detect(l))
        return "a Hugging Face transformers SAM 3";
    if (named(l, "image_encoder.trunk."))
        return "SAM 2";
    if (named(l, "image_encoder.blocks.") || named(l, "image_encoder.layers."))
        return "SAM 1";
    if (named(l, "vision_backbone.trunk.blocks."))
        return named(l, "sam_mask_decoder.") ? "SAM 3" : "a detector-only fine-tune";
    if (named(l, "exp_avg") || named(l, "optimizer"))
        return "a training checkpoint without weights";
    return "something else than a SAM model";
}

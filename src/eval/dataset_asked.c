/* dataset_asked.c - which categories are asked of which image, where the file says so. */
#include <stdlib.h>
#include <string.h>

#include "eval/dataset_read.h"

/* An id, else a name that only one category has; -1. */
static int32_t category_of(const eval_set *s, const id_value *id)
{
    int32_t at = ids_find(&s->category_ids, id);
    for (size_t i = 0; at < 0 && id->kind == ID_TEXT && i < s->category_ids.count; i++)
        if (s->categories[i] && strcmp(s->categories[i], id->text) == 0)
            at = (int32_t)i;
    return at;
}

int resolve_prompts(eval_set *s, samite_error *err)
{
    char name[64];
    s->prompts = malloc((s->prompt_count + 1) * sizeof *s->prompts);
    if (!s->prompts)
        return fail(err, SAMITE_RESOURCE, "not enough memory for the prompts of %s", s->path);
    for (size_t i = 0; i < s->prompt_count; i++)
        if ((s->prompts[i] = category_of(s, &s->prompt_ids[i])) < 0)
            return fail(err, SAMITE_INPUT, "%s: the \"prompts\" of an image name \"%s\", which is no category of the file "
                        "(--all-prompts asks for every category instead)", s->path,
                        id_print(name, sizeof name, &s->prompt_ids[i]));
    return SAMITE_OK;
}

bool eval_asked(const eval_set *truth, int32_t image, int32_t category)
{
    const eval_image *im = &truth->images[image];
    bool asked = !im->has_prompts;
    for (size_t i = 0; i < im->prompts && !asked; i++)
        asked = truth->prompts[im->prompt + i] == category;
    return asked;
}

void eval_drop_unasked(eval_set *s, const eval_set *truth)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->count; i++) {
        if (s->items[i].category < 0 || eval_asked(truth, s->items[i].image, s->items[i].category))
            s->items[kept++] = s->items[i];
        else
            s->unasked++;
    }
    s->count = kept;
}

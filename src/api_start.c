/* api_start.c - a model to be trained from nothing, in the public API. */
#include <string.h>

#include "base/text.h"
#include "model/tokenizer_reduced.h"
#include "runtime/native_write.h"
#include "train/scene.h"
#include "train/start.h"

int samite_start(const char *size, const char *sprites, uint64_t seed, const char *out, samite_error *err)
{
    config c;
    scene_world w = {0};
    native *n = NULL;
    if (!size || !out)
        return fail(err, SAMITE_USAGE, "samite_start: the size of the model and the file to write are needed");
    if (!config_preset(&c, size))
        return fail(err, SAMITE_USAGE, "%s: a model that knows nothing is one of demo, tiny, small, full", size);
    int code = sprites ? scene_world_open(&w, sprites, err) : 0;
    if (!code && sprites && !tokens_keep(&c, w.prompt, w.prompts))
        code = fail(err, SAMITE_RESOURCE, "%s: its names have more than %d tokens", sprites, MAX_KEPT_TOKENS);
    if (!code)
        code = native_open_empty(&n, out, &c, err);
    if (!code)
        code = start_weights(n, seed, err);
    if (!code)
        code = native_write(n, out, &WRITE_AS_STORED, NULL, NULL, err);
    native_close(n);
    scene_world_close(&w);
    return code;
}

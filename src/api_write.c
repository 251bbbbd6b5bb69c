/* api_write.c - writes a model under official names, in another type or container. */
#include "api.h"
#include "runtime/native_write.h"

static int on_step(void *user, uint64_t done, uint64_t total)
{
    const samite_model *m = user;
    return m->options.progress && m->options.progress(m->options.user, "write", done, total);
}

int samite_model_write(const samite_model *m, const char *path, const char *type, samite_error *err)
{
    if (!m || !path || !*path)
        return fail(err, SAMITE_USAGE, "samite_model_write: no path given");
    return native_write(m->n, path, type, on_step, (void *)(uintptr_t)m, err);
}

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
    samite_write_options o = SAMITE_WRITE_OPTIONS_INIT;
    o.type = type;
    return samite_model_write_with(m, path, &o, err);
}

int samite_model_write_with(const samite_model *m, const char *path, const samite_write_options *options,
                            samite_error *err)
{
    samite_write_options o = SAMITE_WRITE_OPTIONS_INIT;
    if (!m || !path || !*path || !options)
        return fail(err, SAMITE_USAGE, "samite_model_write: no path given");
    options_copy(&o, sizeof o, options, options->size);
    write_choice how = {o.type, o.detector_only != 0, o.nms};
    if (!(o.nms <= 1))
        return fail(err, SAMITE_USAGE, "overlap of results %g: expected 0 to 1, or less than 0 for the model's own",
                    (double)o.nms);
    return native_write(m->n, path, &how, on_step, (void *)(uintptr_t)m, err);
}

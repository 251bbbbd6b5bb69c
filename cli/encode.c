/* encode.c - `samite encode`: pictures encoded once, into files that segment takes instead of pictures. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "inputs.h"
#include "session.h"

typedef struct encode_settings {
    engine_settings engine;
    const char     *out, *type;
    bool            no_exif, recursive, no_picture;
} encode_settings;

#define AT(member) offsetof(encode_settings, member)
static const option options[] = {
    {"--out", 'o', OPTION_TEXT, AT(out), "FILE",
     .help = "FILE.safetensors for one picture, else a folder for a file per picture"},
    {"--dtype", 0, OPTION_CHOICE, AT(type), "TYPE", .help = "of the stored features: f16, bf16 or f32 (default: f16)",
     .choices = "f16|bf16|f32"},
    {"--no-picture", 0, OPTION_FLAG, AT(no_picture), NULL,
     .help = "leave the picture out of the file: smaller, but overlays cannot be drawn"},
    {"--recursive", 'r', OPTION_FLAG, AT(recursive), NULL, .help = "look into folders below the given ones"},
    {"--no-exif", 0, OPTION_FLAG, AT(no_exif), NULL, .help = "do not turn pictures upright by their EXIF orientation"},
    ENGINE_OPTIONS(encode_settings),
    {0}
};

typedef struct encoder {
    const encode_settings *settings;
    inputs        in;
    samite_model *model;
    samite_image *image;
    bool          one;             /* --out names a file */
} encoder;

/* Yours to free; NULL: out of memory. */
static char *out_path(const encoder *e, const input *in)
{
    text name = {0};
    if (e->one)
        return text_copy(e->settings->out);
    text_printf(&name, "%s/%s.safetensors", e->settings->out, in->name);
    return name.failed ? NULL : name.data;
}

static int encode_pixels(encoder *e, const samite_pixels *pixels, const char *path, samite_error *err)
{
    int code = e->model ? SAMITE_OK : open_model(&e->model, &e->settings->engine, err);
    if (!code)
        code = e->image ? samite_image_replace(e->image, pixels, err)
                        : samite_image_open(&e->image, e->model, pixels, err);
    if (!code)
        code = check_interrupt(err);
    return code ? code : samite_image_save(e->image, path, e->settings->type,
                                           e->settings->no_picture ? NULL : pixels, err);
}

static int encode_one(encoder *e, const input *in, samite_error *err)
{
    samite_pixels pixels = {0};
    int code = samite_pixels_read(&pixels, in->path, e->settings->no_exif ? SAMITE_NO_EXIF : 0, err);
    if (code)
        return code;
    char *path = out_path(e, in);
    code = path ? encode_pixels(e, &pixels, path, err) : fail(err, SAMITE_RESOURCE, "out of memory");
    progress_make_way();
    if (!code && !e->settings->engine.quiet)
        printf("%s\n", path);
    free(path);
    samite_pixels_free(&pixels);
    return code;
}

static int encode_all(encoder *e, const words *paths, samite_error *err)
{
    const encode_settings *s = e->settings;
    if (!s->out)
        return fail(err, SAMITE_USAGE, "--out is missing: name a file that ends in .safetensors, or a folder");
    int code = inputs_collect(&e->in, paths, s->recursive, NULL, err);
    if (code)
        return code;
    e->one = ends_with(s->out, ".safetensors");
    if (e->one && !e->in.single)
        return fail(err, SAMITE_USAGE, "--out %s is one file, and there are %d pictures: name a folder", s->out, e->in.count);
    if (!e->one && (code = make_folders(s->out, err)))
        return code;
    for (int i = 0; i < e->in.count && !code; i++) {
        progress_item(i, e->in.count);
        code = encode_one(e, &e->in.item[i], err);
    }
    return code;
}

static int run(int argc, char **argv)
{
    encode_settings s = {0};
    encoder e = {.settings = &s};
    samite_error err = {0};
    words paths = {0};
    int status;
    if (command_parse(&encode_command, &s, argc, argv, &paths, 1, INT_MAX, &status)) {
        progress_begin(s.engine.quiet);
        int code = encode_all(&e, &paths, &err);
        progress_end();
        status = finish_output(code ? report(&err) : EXIT_OK);
        samite_image_free(e.image);
        samite_model_free(e.model);
        inputs_free(&e.in);
    }
    words_free(&paths);
    return status;
}

static const char details[] =
    "Encoding a picture is nearly all the work of a prompt; samite segment FILE.safetensors starts behind it. The file\n"
    "belongs to the model and the --size it was made with.\n"
    "\n"
    "Examples:\n"
    "  samite encode photo.jpg -m sam3.pt -o photo.safetensors\n"
    "  samite segment photo.safetensors -m sam3.pt --text dog --text cat\n"
    "  samite encode photos -m sam3.pt -o encoded --dtype bf16\n";

const command encode_command = {
    "encode", "encode pictures once, for prompts later", "encode PICTURE... -m MODEL -o FILE.safetensors|DIR [options]",
    details, options, run,
};

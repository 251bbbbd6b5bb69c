/* json.c - what jansson refuses, made acceptable: odd bytes, infinities. */
#include "base/json.h"

#include <math.h>
#include <stdlib.h>

#include "base/text.h"
#include "base/utf8.h"

json_t *json_number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

json_t *json_name(const char *bytes)
{
    char *clean = utf8_clean(bytes, NULL);
    json_t *s = clean ? json_string(clean) : NULL;
    free(clean);
    return s;
}

int json_set_path(json_t *object, const char *key, const char *path)
{
    bool odd = false;
    char *clean = utf8_clean(path, &odd);
    int bad = !clean || json_object_set_new(object, key, json_string(clean));
    if (odd && !bad) {
        text hex = {0}, name = {0};
        for (const unsigned char *c = (const unsigned char *)path; *c; c++)
            text_printf(&hex, "%02x", *c);
        text_printf(&name, "%s_hex", key);
        bad = hex.failed || name.failed || json_object_set_new(object, name.data, json_string(hex.data));
        text_free(&hex);
        text_free(&name);
    }
    free(clean);
    return bad ? -1 : 0;
}

static int to_writer(const char *data, size_t size, void *user)
{
    file_write(user, data, size);
    return 0;
}

bool json_write(file_writer *w, const json_t *o)
{
    return o && json_dump_callback(o, to_writer, w, JSON_COMPACT | JSON_REAL_PRECISION(9) | JSON_ENCODE_ANY) == 0;
}

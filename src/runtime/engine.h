/* engine.h - something that computes the parts of a deployment: named tensors in, named tensors out.
 *
 * A part is the image encoder, the text encoder, the grounding head, ...: see export/parts.h for names and shapes. Who
 * computes is chosen by a name such as "onnxruntime:cuda"; libraries are looked for when an engine is opened, never
 * before, and an engine that cannot do what was asked for says so instead of doing something else.
 */
#ifndef RUNTIME_ENGINE_H
#define RUNTIME_ENGINE_H

#include <stdbool.h>

#include "base/dtype.h"
#include "base/error.h"

#define ENGINE_AXES 8

typedef struct engine_tensor {
    const char *name;              /* borrowed */
    dtype       type;
    int         axes;
    int64_t     dim[ENGINE_AXES];
    void       *data;              /* row-major */
    bool        owned;             /* data is freed by engine_tensor_free */
    uint64_t resident; /* of an output: the engine may still have it on its device under this number; 0: no */
} engine_tensor;

typedef struct engine_options {
    int         threads;           /* 0 = the engine's own choice */
    const char *library;           /* path of its library, or NULL = look for it */
    const char *const *setting;    /* "key=value" for the provider or device */
    int         settings;
} engine_options;

typedef struct engine engine;
typedef struct engine_part engine_part;
struct native;

/* What an engine implements; both structs are the first member of its own. */
typedef struct engine_driver {
    const char *name;
    int  (*load)(engine_part **out, engine *e, const char *path, samite_error *err);
    /* Fills data, type and shape of out[0..outputs), whose names are given. */
    int (*run)(engine_part *p, const engine_tensor *in, int inputs, engine_tensor *out, int outputs, samite_error *err);
    void (*unload)(engine_part *p);
    void (*close)(engine *e);
} engine_driver;
struct engine { const engine_driver *driver; };
struct engine_part { engine *e; };

/* "onnxruntime[:PROVIDER]", "openvino[:DEVICE]" or "ascend[:NUMBER]". */
int  engine_open(engine **out, const char *name, const engine_options *o, samite_error *err);
void engine_close(engine *e);                                            /* accepts NULL */
/* Our own network; load() takes the name of a part instead of a path. `n` must stay. */
int  native_engine_open(engine **out, struct native *n, samite_error *err);
int  engine_load(engine_part **out, engine *e, const char *path, samite_error *err);
void engine_unload(engine_part *p);                                      /* accepts NULL */
int engine_run(engine_part *p, const engine_tensor *in, int inputs, engine_tensor *out, int outputs, samite_error *err);

int64_t engine_count(const engine_tensor *t);                            /* elements */
size_t  engine_bytes(const engine_tensor *t);
int     engine_make(engine_tensor *t, dtype type, int axes, const int64_t *dim, samite_error *err);   /* owned memory */
void    engine_tensor_free(engine_tensor *t);
engine_tensor *engine_find(engine_tensor *t, int count, const char *name); /* NULL: absent */

/* For drivers. Opens the first library that is there: `given` alone if it is not NULL; else the variable `env`, the
 * plain names, and python packages of this user and machine that hold `pattern`. *handle for dlsym; the path for
 * messages. */
int engine_library(void **handle, char *path, size_t room, const char *given, const char *env, const char *const *names,
                   const char *pattern, const char *what, samite_error *err);
int  onnxruntime_open(engine **out, const char *provider, const engine_options *o, samite_error *err);
int  ascend_open(engine **out, const char *device, const engine_options *o, samite_error *err);
int  openvino_open(engine **out, const char *device, const engine_options *o, samite_error *err);

#endif

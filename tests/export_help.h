/* export_help.h - what the tests of export share: folders that go away, exports of small models, copies of files. */
#ifndef TESTS_EXPORT_HELP_H
#define TESTS_EXPORT_HELP_H

#define _GNU_SOURCE
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/file.h"
#include "export/lower.h"
#include "export/parts.h"
#include "export/to_onnx.h"
#include "formats/onnx.h"
#include "formats/paddle.h"
#include "formats/protobuf.h"
#include "runtime/engine.h"
#include "runtime/native.h"

#include <cmocka.h>

#define TINY TEST_DATA "/tiny"

static char folder[64];          /* exports of formula:tiny */
static char other[64];           /* of the same size, with other weights */

static char own_folder[16][64];         /* folders to be removed */
static int folders;

static inline void make_folder(char *where)
{
    strcpy(where, "/tmp/samite_export_XXXXXX");
    assert_non_null(mkdtemp(where));
    assert_true(folders < 16);
    strcpy(own_folder[folders++], where);
}

static inline samite_model *open_model(const char *path, const char *engine)
{
    samite_options o = SAMITE_OPTIONS_INIT;
    samite_error e = {0};
    samite_model *m = NULL;
    o.engine = engine;
    o.threads = 1;           /* so small that waiting for each other takes longer */
    if (samite_model_open(&m, path, &o, &e))
        fail_msg("%s", e.text);
    return m;
}

static inline void export_to(char *where, const char *model, int external)
{
    samite_export_options o = SAMITE_EXPORT_OPTIONS_INIT;
    samite_error e = {0};
    samite_model *m = open_model(model, NULL);
    make_folder(where);
    o.folder = where;
    o.external = external;
    if (samite_export_onnx(m, &o, &e))
        fail_msg("%s", e.text);
    samite_model_free(m);
}

static inline const char *path_of(const char *where, const char *file)
{
    static char path[4][256];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", where, file);
    return path[turn];
}

static inline void copy_file(const char *to, const char *from, size_t limit)
{
    uint8_t *data;
    size_t size;
    assert_int_equal(file_read(&data, &size, from, (size_t)1 << 30, NULL), 0);
    FILE *f = fopen(to, "wb");
    assert_non_null(f);
    fwrite(data, 1, size < limit ? size : limit, f);
    fclose(f);
    free(data);
}

static const char *const runtimes[] = {"onnxruntime", "openvino"};
enum { RUNTIMES = sizeof runtimes / sizeof *runtimes };

/* Whether that engine's library is on this machine. Where it is not, what needs it says so and is left out. */
static inline bool have_engine(const char *name)
{
    engine *e;
    samite_error err = {0};
    if (!engine_open(&e, name, &(engine_options){.threads = 1}, &err)) {
        engine_close(e);
        return true;
    }
    print_message("left out: %s\n", err.text);
    return false;
}

static inline bool have_runtime(void)
{
    return have_engine("onnxruntime");
}

static inline int set_up(void **state)
{
    export_to(folder, "formula:tiny", 0);
    export_to(other, "formula:tiny,seed=5", 0);
    return 0;
}

static inline int remove_one(const char *path, const struct stat *s, int kind, struct FTW *place)
{
    return remove(path);
}

static inline int tear_down(void **state)
{
    for (int i = 0; i < folders; i++)
        nftw(own_folder[i], remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return 0;
}

#endif

/* samite.h - SAM 3 in C: open a model, encode a picture once, ask for as many things in it as you like.
 *
 *     samite_error e; samite_model *m; samite_image *im; samite_result *res;
 *     samite_options o = SAMITE_OPTIONS_INIT;
 *     samite_model_open(&m, "sam3.pt", &o, &e);
 *     samite_image_open(&im, m, &pixels, &e);
 *     samite_prompt p = SAMITE_PROMPT_INIT; p.text = "dog";
 *     samite_image_segment(im, &p, &res, &e);          then res->count instances, best first
 *
 * Every function returns 0 or a negative SAMITE_ code and then fills *err (which may be NULL). `**out` is yours to free
 * with the matching _free, which accepts NULL; a returned `const` pointer is borrowed. A model is immutable after open
 * and may be shared by threads; an image belongs to one thread at a time. The library never prints, exits or signals.
 */
#ifndef SAMITE_H
#define SAMITE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SAMITE_API __attribute__((visibility("default")))
#else
#define SAMITE_API
#endif

#define SAMITE_VERSION "0.1.0"

/* Error codes. The command line exits with the positive number. */
enum {
    SAMITE_OK = 0,
    SAMITE_FAILED = -1,      /* a check did not hold: out of tolerance, internal error */
    SAMITE_USAGE = -2,       /* wrong argument or option */
    SAMITE_INPUT = -3,       /* a file or other input cannot be used */
    SAMITE_RESOURCE = -4,    /* memory, disk space */
    SAMITE_CANCELLED = -130  /* the progress callback asked to stop */
};

/* One line for a person: names the file and the item, what was expected and found, and what to do. */
typedef struct samite_error {
    int  code;
    char text[512];
} samite_error;

#ifdef __cplusplus
}
#endif
#endif

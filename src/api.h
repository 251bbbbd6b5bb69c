/* api.h - what the files of the public API share: the insides of its handles. */
#ifndef API_H
#define API_H

#include <stdatomic.h>

#include "api_engine.h"
#include "io/image.h"
#include "track/net.h"
#include "runtime/native.h"
#include "samite.h"

/* The text features of a prompt, kept so that a batch of pictures encodes each prompt once. */
typedef struct words {
    char  *text;
    int    tokens;            /* real ones, start and end included */
    bool   cut;
    float *values;            /* [tokens, d] */
} words;

#define ENGINE_FEATURES 4      /* of a picture, as another engine's head wants them */
#define ENGINE_TRACKED  4      /* the same for its heads for clicks and video */
#define WORDS_KEPT 256        /* prompts remembered per model; the oldest makes room */
#define ANSWERS_KEPT 16       /* answers remembered per picture, likewise */

/* An answered prompt: strings, boxes and result are owned. */
typedef struct answered {
    samite_prompt  prompt;
    samite_result *result;
} answered;

struct samite_model {
    native          *n;
    samite_options   options; /* strings not kept */
    atomic_int       users;   /* handle and images */
    double           opened_in;   /* seconds samite_model_open took */
    char             types[128];  /* text of samite_model_info.types */
    part_engine     *parts;   /* another engine computes, or NULL */
    pthread_mutex_t  lock;    /* guards the list of words, and parts being loaded */
    pthread_mutex_t  scarce;  /* with low_memory: held while the trunk or the text encoder is in memory */
    words            known[WORDS_KEPT];
    int              known_count, known_next;
};

struct samite_image {
    samite_model *model;
    run          *r;
    float        *input;      /* [S, S, 3] */
    int           width, height;   /* of the picture */
    encoded_image encoded;
    click_image   clicks;          /* of the same picture, made when first asked for; see image_clicks */
    bool          clicks_ready;
    answered      answers[ANSWERS_KEPT];       /* of the same picture */
    int           next_answer;
    engine_tensor features[ENGINE_FEATURES];   /* instead of `encoded` when another engine computes */
    engine_tensor tracked[ENGINE_TRACKED];     /* and instead of `clicks`, of which only shapes are true then */
    elsewhere     outside;         /* how that engine is asked about this picture; see api_engine_track.c */
    float        *no_pointer;
    engine_found  found;           /* by its last grounding for a video */
    const char   *stage;      /* for progress */
    uint64_t      first, total;    /* parts of the run begun before this stage; parts of the stage */
};

/* Copies a versioned options struct of the caller: `size` bytes as the caller knows it, the rest from *defaults. */
void options_copy(void *out, size_t known, const void *in, size_t size);

void model_log(const samite_model *m, const char *format, ...) __attribute__((format(printf, 2, 3)));
void model_retain(samite_model *m);

/* An image session without a picture: the run and its memory. */
int  image_new(samite_image **out, samite_model *m, samite_error *err);
void image_stage(samite_image *im, const char *stage, uint64_t total);
/* Encodes the normalised input in im->input. keep_trunk as in sam3_encode_image. */
int  image_encode(samite_image *im, bool keep_trunk, samite_error *err);
/* Makes im->clicks, unless it is there. Call it outside run_save .. run_restore: it stays as long as the picture. */
int  image_clicks(samite_image *im, samite_error *err);
/* Prepares parts of the model, with progress as stage "load". */
int  image_prepare(samite_image *im, unsigned parts, samite_error *err);
/* Refuses a text in which nothing is left after cleaning; NULL is fine. */
int  check_words(const samite_model *m, const char *text, samite_error *err);
/* Text features of `text` as a value of the run; *info borrowed until the next call on the model from this thread. */
int  image_words(samite_image *im, const char *text, tensor **out, int *tokens, bool *cut, samite_error *err);

/* A copy of the answer to the same prompt on the same picture, or NULL: none is remembered, or memory ran out. */
samite_result *answer_recall(const samite_image *im, const samite_prompt *p);
/* Keeps a copy; failing to keep is harmless. */
void answer_remember(samite_image *im, const samite_prompt *p, const samite_result *res);
void answers_forget(samite_image *im);

#endif

/* api_engine.h - a model whose parts are computed by another engine. */
#ifndef API_ENGINE_H
#define API_ENGINE_H

#include "export/parts.h"
#include "runtime/engine.h"

struct samite_model;
struct samite_image;

/* What the text encoder said about a prompt. */
typedef struct engine_words {
    char         *said;
    int           tokens;
    bool          cut;
    engine_tensor out[2];                /* memory, mask */
} engine_words;

#define ENGINE_WORDS 64                  /* prompts remembered; the oldest makes room */

typedef struct part_engine {
    engine      *e;
    char        *folder;
    engine_part *part[EXPORT_DETECTOR];     /* loaded when first needed, under the model's lock */
    int          prompt;                 /* tokens of a prompt */
    int          boxes;                  /* example boxes that the head takes; 0: none */
    engine_words words[ENGINE_WORDS];    /* under the model's lock */
    int          next_words;
} part_engine;

/* What the head found: outputs of its last layer, borrowed from `out`. */
typedef struct engine_found {
    engine_tensor out[4];
    const float  *logits, *boxes, *masks;    /* [Q], [Q, 4], [Q, side, side] */
    float         presence;
    int           queries, side;
} engine_found;

/* Opens a model from a folder of exported parts: m->n without weights, m->parts. */
int  engine_model_open(struct samite_model *m, const char *folder, samite_error *err);
void engine_model_close(struct samite_model *m);
/* im->input to im->features. */
int  engine_encode(struct samite_image *im, samite_error *err);
void engine_features_free(struct samite_image *im);
/* x: example boxes, or NULL. */
int engine_ground(struct samite_image *im, const char *said, const examples *x, engine_found *out, int *tokens,
                  bool *cut, samite_error *err);
void engine_found_free(engine_found *f);

#endif

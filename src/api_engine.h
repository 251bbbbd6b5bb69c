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
    char        *config;                 /* of the image encoder, which the other parts must share */
    bool         converted;              /* into a form that says nothing about itself: parts.json does */
    engine_part *part[EXPORT_PARTS];     /* loaded when first needed, under the model's lock */
    int          prompt;                 /* tokens of a prompt */
    int          boxes;                  /* example boxes that the head takes; 0: none */
    int          points;                 /* of a click; -1: any number */
    int          maps, pointers;         /* places of the memory attention */
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
/* im->input to im->features; track: and im->tracked, im->clicks. */
int  engine_encode(struct samite_image *im, bool track, samite_error *err);
/* The picture as the image encoders take it; yours to free. */
int  engine_input(const struct samite_image *im, engine_tensor *out, samite_error *err);
/* PART.onnx or PART.om in the model's folder; yours to free. NULL: out of memory. */
char *engine_part_path(const struct samite_model *m, export_part p);
/* Loads a part unless it is there. */
int  engine_part_ready(struct samite_model *m, export_part p, samite_error *err);
/* As image_words: *out is a value of im->r. */
int  engine_words_value(struct samite_image *im, const char *said, tensor **out, int *tokens, bool *cut,
                        samite_error *err);
void engine_features_free(struct samite_image *im);
/* x: example boxes, or NULL. */
int engine_ground(struct samite_image *im, const char *said, const examples *x, engine_found *out, int *tokens,
                  bool *cut, samite_error *err);
/* The same with words [tokens, d] that engine_words_value gave. */
int  engine_ground_values(struct samite_image *im, const float *words, int tokens, const examples *x, engine_found *out,
                          samite_error *err);
void engine_found_free(engine_found *f);

bool engine_has_part(const struct samite_model *m, export_part p);

/* api_engine_track.c. Errors name what is missing and the command that exports it. */
int  engine_check_video(struct samite_model *m, samite_error *err);
/* One part; video: the image encoder must give what video needs. */
int  engine_check_part(struct samite_model *m, export_part p, bool video, samite_error *err);
bool engine_gives_trunk(struct samite_model *m);
/* Makes im->outside ready for a video. */
int  engine_track_open(struct samite_image *im, samite_error *err);
/* The trunk's map to im->tracked and im->clicks. */
int  engine_track_picture(struct samite_image *im, const engine_tensor *trunk, samite_error *err);
/* The same from im->input, for clicks on a picture. */
int  engine_clicks(struct samite_image *im, samite_error *err);
void engine_tracked_free(struct samite_image *im);

#endif

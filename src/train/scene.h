/* scene.h - made-up pictures with exact masks: named sprites and coloured shapes on drawn backgrounds. The same seed
 * makes the same scene. */
#ifndef TRAIN_SCENE_H
#define TRAIN_SCENE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/random.h"

enum { SCENE_MOST = 12, SCENE_COLOURS = 7, SCENE_SHAPES = 5, SPRITE_LEVELS = 3 };

/* The same picture in halves of its size; premultiplied. */
typedef struct sprite {
    int      width[SPRITE_LEVELS], height[SPRITE_LEVELS];
    uint8_t *rgba[SPRITE_LEVELS];
    bool     held;               /* kept from training */
} sprite;

typedef struct sprite_name {
    char *name;
    int   first, count;          /* of the sprites; those kept from training come last */
    int   held;
} sprite_name;

/* What may be drawn. Classes are the sprites' names, then every colour of every shape; prompts are the classes, then
 * the shapes, true of every colour. */
typedef struct scene_world {
    char        *path;
    sprite      *sprites;
    int          sprite_count;
    sprite_name *names;
    int          name_count, classes, prompts;
    char       **prompt;         /* [prompts] */
    sprite       shape[SCENE_SHAPES];
} scene_world;

/* Reads the file that tools/make_sprites.py writes. */
int  scene_world_open(scene_world *w, const char *path, samite_error *err);
void scene_world_close(scene_world *w);
/* Is `prompt` true of an object of `class`? */
bool scene_true(const scene_world *w, int class, int prompt);

typedef struct scene_options {
    int   side, least, most;     /* objects, at most SCENE_MOST */
    bool  all_differ;            /* as many classes as objects, instead of at most four */
    bool  held;                  /* only sprites kept from training, where a name has some */
} scene_options;

typedef struct scene {
    int      side, objects;
    int      class[SCENE_MOST];
    uint8_t *rgb;                /* [side, side, 3] */
    uint8_t *owner;              /* [side, side] 0: background, i + 1: object i, which is not covered there */
} scene;

int  scene_make(scene *s, const scene_world *w, const scene_options *o, uint64_t seed, samite_error *err);
void scene_free(scene *s);

/* A sequence of random numbers. */
typedef struct dice { uint64_t key, at; } dice;

static inline float dice_real(dice *d, float low, float high)
{
    return low + (high - low) * (float)(random_next(d->key, d->at++) >> 40) * 0x1p-24f;
}

static inline int dice_below(dice *d, int n)
{
    return (int)((random_next(d->key, d->at++) >> 32) * (uint64_t)n >> 32);
}

/* scene_ground.c: what objects lie on, and what happens to the whole picture in the end; [side, side, 3] of 0..255. */
void scene_background(float *rgb, int side, dice *d);
void scene_finish(float *rgb, float *room, int side, dice *d);

#endif

/* config.h - everything about a training run, by name: YAML files, single settings, and the file that is kept with the
 * run. */
#ifndef TRAIN_CONFIG_H
#define TRAIN_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/text.h"

/* Strings are owned; NULL where nothing was said. */
typedef struct train_config {
    /* paths */
    char  *data, *train_annotations, *train_images, *val_annotations, *val_images, *output;
    /* model */
    char  *checkpoint, *precision;
    int    resolution;
    bool   masks;
    /* data */
    int    limit, val_limit;
    bool   strict, skip_bad, keep_unused, random_placement;
    char  *scenes;
    int    scene_count, scene_prompts;
    bool   scenes_crowded;
    /* trainer */
    int    epochs, batch, accumulate, val_frequency, prompts_per_pass, threads;
    bool   skip_first_val, val_base, checkpointing, cache_features;
    int    seed;
    char  *accelerator, *on_nonfinite, *freeze, *memory_limit;
    /* optim */
    double lr, lr_vision, lr_language, layer_decay, weight_decay, timescale, warmup, cooldown, clip, beta2, ema, least_rate;
    char  *schedule;
    /* loss */
    double dropout, drop_path;
    double bbox, giou, ce, presence, mask, dice, semantic, semantic_dice, positive, one_to_many, patches, match;
    bool   patches_only, begin_aligned;
    /* lora */
    int    lora_rank;
    double lora_alpha;
    /* distributed */
    char  *backend;
    /* checkpoint */
    int    save_frequency, save_steps, keep_last;
    bool   keep_best, skip_saving;
    /* logging */
    int    log_frequency, overlays;
    bool   tensorboard, report;
} train_config;

/* Official values. false: out of memory. */
bool train_config_init(train_config *c);
void train_config_free(train_config *c);
/* `key` is "trainer.max_epochs", or its last word where that is enough. An unknown key or a value that does not fit is
 * SAMITE_USAGE; the line names the nearest key, or what would fit. `where` is put in front ("a.yaml, line 3"; may be
 * NULL). */
int  train_config_set(train_config *c, const char *key, const char *value, const char *where, samite_error *err);
/* Reads a YAML file on top of what is there. */
int  train_config_read(train_config *c, const char *path, samite_error *err);
/* All settings as YAML. */
void train_config_print(const train_config *c, text *out);
/* Lines "key  value  what it is" for help. */
void train_config_help(text *out);
/* Fills the paths that follow from others (data folder, model in the environment excluded) and checks what belongs
 * together. */
int  train_config_resolve(train_config *c, samite_error *err);

#endif

/* config.c - the table of settings, and what is done with it. */
#define _GNU_SOURCE
#include "train/config.h"

#include <ctype.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef enum kind { TEXT, FLAG, INT, REAL } kind;

typedef struct setting {
    const char *key, *alias;       /* alias: another name people know, or NULL */
    kind        kind;
    size_t      at;
    const char *usual;             /* as text; NULL: nothing */
    double      least, most;
    const char *choices;           /* "a|b" or NULL */
    const char *help;
} setting;

#define AT(member) offsetof(train_config, member)
static const setting settings[] = {
    {"paths.data", "roboflow_vl_100_root", TEXT, AT(data), NULL, 0, 0, NULL,
     "folder in Roboflow layout (train/, valid/ or test/) or a COCO folder"},
    {"paths.train_annotations", "ann_file", TEXT, AT(train_annotations), NULL, 0, 0, NULL,
     "COCO instances JSON to learn from"},
    {"paths.train_images", "img_folder", TEXT, AT(train_images), NULL, 0, 0, NULL, "folder of its pictures"},
    {"paths.val_annotations", NULL, TEXT, AT(val_annotations), NULL, 0, 0, NULL,
     "COCO instances JSON to validate with"},
    {"paths.val_images", NULL, TEXT, AT(val_images), NULL, 0, 0, NULL, "folder of its pictures"},
    {"paths.output", "experiment_log_dir", TEXT, AT(output), "run", 0, 0, NULL,
     "folder for checkpoints, logs and the report"},
    {"model.checkpoint_path", NULL, TEXT, AT(checkpoint), NULL, 0, 0, NULL,
     "weights to start from: sam3.pt, .safetensors, a folder, formula:tiny"},
    {"model.resolution", NULL, INT, AT(resolution), "0", 0, 65536, NULL,
     "side of the square input in pixels; 0 = the model's own"},
    {"model.enable_segmentation", NULL, FLAG, AT(masks), "false", 0, 0, NULL, "learn masks too"},
    {"model.precision", NULL, TEXT, AT(precision), "f32", 0, 0, "f32|bf16",
     "arithmetic of products, forward and backward; weights that learn, sums, norms, losses and optimizer are f32"},
    {"model.dropout", NULL, REAL, AT(dropout), "0.1", 0, 0.99, NULL,
     "share of numbers left out in fusion encoder, decoder and example encoder"},
    {"model.drop_path", "drop_path_rate", REAL, AT(drop_path), "0.1", 0, 0.99, NULL,
     "share of branches left out in the trunk's last block; less before it, none while the trunk is frozen"},
    {"data.limit_ids", "num_images", INT, AT(limit), "0", 0, 1e9, NULL,
     "learn from that many images, chosen as the official loader does; 0 = all"},
    {"data.val_limit_ids", NULL, INT, AT(val_limit), "0", 0, 1e9, NULL, "validate with that many; 0 = all"},
    {"data.strict", NULL, FLAG, AT(strict), "false", 0, 0, NULL,
     "refuse a data set in which any row is rejected or doubtful"},
    {"data.skip_bad", NULL, FLAG, AT(skip_bad), "false", 0, 0, NULL,
     "take the next picture for one that cannot be read"},
    {"data.keep_unused_category", NULL, FLAG, AT(keep_unused), "false", 0, 0, NULL,
     "ask for a first category that only names the group of others"},
    {"data.random_placement", NULL, FLAG, AT(random_placement), "true", 0, 0, NULL,
     "random size and place of the picture on the input"},
    {"data.scenes", NULL, TEXT, AT(scenes), NULL, 0, 0, NULL,
     "learn from made-up scenes of this sprite file (tools/make_sprites.py), other ones in every epoch"},
    {"data.scenes_per_epoch", NULL, INT, AT(scene_count), "4800", 1, 1e8, NULL, "made-up scenes in an epoch"},
    {"data.prompts_per_scene", NULL, INT, AT(scene_prompts), "5", 0, 64, NULL,
     "prompts asked of a made-up scene, about a third of them of what is not there"},
    {"data.scenes_crowded", NULL, FLAG, AT(scenes_crowded), "false", 0, 0, NULL,
     "5 to 12 objects of as many kinds in a scene, instead of 1 to 6"},
    {"trainer.max_epochs", "epochs", INT, AT(epochs), "20", 1, 1e6, NULL, "times that every picture is seen"},
    {"trainer.train_batch_size", "batch_size", INT, AT(batch), "1", 1, 4096, NULL, "pictures per process and pass"},
    {"trainer.gradient_accumulation_steps", NULL, INT, AT(accumulate), "1", 1, 4096, NULL,
     "passes per optimizer step; exact, as one large batch"},
    {"trainer.prompts_per_pass", NULL, INT, AT(prompts_per_pass), "8", 0, 1e6, NULL,
     "prompts held in memory together; exact; 0 = all"},
    {"trainer.activation_checkpointing", NULL, FLAG, AT(checkpointing), "true", 0, 0, NULL,
     "compute blocks twice instead of keeping them"},
    {"trainer.cache_features", NULL, FLAG, AT(cache_features), "false", 0, 0, NULL,
     "frozen trunk: keep its maps on disk; pictures are then not placed at random"},
    {"trainer.freeze", NULL, TEXT, AT(freeze), NULL, 0, 0, NULL,
     "parts that do not learn: trunk, neck, text, examples, fusion, decoder, masks; several with commas"},
    {"trainer.patches_only", NULL, FLAG, AT(patches_only), "false", 0, 0, NULL,
     "only trunk, neck and text encoder learn, from loss.patches alone"},
    {"trainer.begin_aligned", NULL, FLAG, AT(begin_aligned), "false", 0, 0, NULL,
     "before the first step: features of picture and words to the same scale, so that fusion can compare them"},
    {"trainer.val_epoch_freq", NULL, INT, AT(val_frequency), "10", 0, 1e6, NULL,
     "validate after every N epochs besides the last; 0 = only the last"},
    {"trainer.skip_first_val", NULL, FLAG, AT(skip_first_val), "true", 0, 0, NULL,
     "no validation after the first epoch"},
    {"trainer.val_base_model", NULL, FLAG, AT(val_base), "true", 0, 0, NULL, "score the model before training too"},
    {"trainer.seed_value", NULL, INT, AT(seed), "123", 0, 2e9, NULL, "seed of order and placement"},
    {"trainer.on_nonfinite", NULL, TEXT, AT(on_nonfinite), "stop", 0, 0, "stop|skip",
     "a loss or gradient that is no number: stop, or leave the step out"},
    {"trainer.accelerator", "device", TEXT, AT(accelerator), "cpu", 0, 0, "cpu", "what computes"},
    {"trainer.threads", "num_train_workers", INT, AT(threads), "0", 0, 4096, NULL, "threads; 0 = all physical cores"},
    {"trainer.memory_limit", NULL, TEXT, AT(memory_limit), NULL, 0, 0, NULL,
     "most memory for activations, such as 20G"},
    {"optim.lr_transformer", "lr", REAL, AT(lr), "8e-5", 0, 10, NULL, "base rate of all behind the encoders"},
    {"optim.lr_vision_backbone", NULL, REAL, AT(lr_vision), "2.5e-5", 0, 10, NULL, "of trunk and neck"},
    {"optim.lr_language_backbone", NULL, REAL, AT(lr_language), "5e-6", 0, 10, NULL, "of the text encoder"},
    {"optim.lrd_vision_backbone", NULL, REAL, AT(layer_decay), "0.9", 0, 1, NULL,
     "factor per trunk block towards the input"},
    {"optim.wd", "weight_decay", REAL, AT(weight_decay), "0.1", 0, 10, NULL,
     "weight decay, not of biases and LayerNorm"},
    {"optim.schedule", "scheduler", TEXT, AT(schedule), "official", 0, 0, "official|fixed|cosine",
     "fixed: the first step counts and no step is counted twice; cosine: falls to optim.least_rate"},
    {"optim.least_rate", NULL, REAL, AT(least_rate), "0.02", 0, 1, NULL, "where the cosine schedule ends, of the base rates"},
    {"optim.beta2", NULL, REAL, AT(beta2), "0.999", 0, 0.999999, NULL, "memory of AdamW's second moment"},
    {"optim.ema", NULL, REAL, AT(ema), "0", 0, 0.999999, NULL,
     "decay of the running mean of the weights, saved beside them as NAME.ema.pt; 0 = none is kept"},
    {"optim.scheduler_timescale", NULL, REAL, AT(timescale), "20", 1e-3, 1e9, NULL, "steps"},
    {"optim.scheduler_warmup", NULL, REAL, AT(warmup), "20", 0, 1e9, NULL, "steps"},
    {"optim.scheduler_cooldown", NULL, REAL, AT(cooldown), "20", 0, 1e9, NULL, "steps"},
    {"optim.gradient_clip", "max_norm", REAL, AT(clip), "0.1", 0, 1e9, NULL,
     "largest norm of a gradient; 0 = no limit"},
    {"loss.loss_bbox", NULL, REAL, AT(bbox), "5", 0, 1e6, NULL, "weight"},
    {"loss.loss_giou", NULL, REAL, AT(giou), "2", 0, 1e6, NULL, "weight"},
    {"loss.loss_ce", NULL, REAL, AT(ce), "20", 0, 1e6, NULL, "weight"},
    {"loss.presence_loss", NULL, REAL, AT(presence), "20", 0, 1e6, NULL, "weight"},
    {"loss.loss_mask", NULL, REAL, AT(mask), "200", 0, 1e6, NULL, "weight"},
    {"loss.loss_dice", NULL, REAL, AT(dice), "10", 0, 1e6, NULL, "weight"},
    {"loss.loss_semantic_seg", NULL, REAL, AT(semantic), "20", 0, 1e6, NULL, "weight"},
    {"loss.loss_semantic_dice", NULL, REAL, AT(semantic_dice), "30", 0, 1e6, NULL, "weight"},
    {"loss.pos_weight", NULL, REAL, AT(positive), "10", 0, 1e6, NULL, "weight of a matched query in loss_ce"},
    {"loss.o2m_weight", NULL, REAL, AT(one_to_many), "2", 0, 1e6, NULL, "weight of the one-to-many half"},
    {"loss.patches", NULL, REAL, AT(patches), "0", 0, 1e6, NULL,
     "weight; made-up scenes: what class every patch shows"},
    {"loss.match", NULL, REAL, AT(match), "0", 0, 1e6, NULL,
     "weight; made-up scenes: which patches belong to the prompt, after every fusion layer"},
    {"lora.rank", NULL, INT, AT(lora_rank), "0", 0, 4096, NULL,
     "learn adapters of that rank instead of the weights; 0 = no adapters"},
    {"lora.alpha", NULL, REAL, AT(lora_alpha), "0", 0, 1e6, NULL, "adapters count alpha / rank; 0 = twice the rank"},
    {"distributed.backend", NULL, TEXT, AT(backend), "auto", 0, 0, "auto|mpi|none", "auto: MPI when started by mpirun"},
    {"checkpoint.save_freq", NULL, INT, AT(save_frequency), "1", 1, 1e6, NULL,
     "a checkpoint after every N epochs, and at the end"},
    {"checkpoint.save_steps", NULL, INT, AT(save_steps), "0", 0, 1e9, NULL, "also after every N steps; 0 = no"},
    {"checkpoint.keep_last", NULL, INT, AT(keep_last), "1", 1, 1e6, NULL, "checkpoints that stay"},
    {"checkpoint.keep_best", NULL, FLAG, AT(keep_best), "true", 0, 0, NULL,
     "best.pt is the one with the best validation AP"},
    {"checkpoint.skip_saving_ckpts", NULL, FLAG, AT(skip_saving), "false", 0, 0, NULL, "save nothing"},
    {"logging.log_freq", NULL, INT, AT(log_frequency), "10", 1, 1e9, NULL, "steps between lines of the log"},
    {"logging.overlays", NULL, INT, AT(overlays), "4", 0, 100, NULL, "validation pictures shown in the report"},
    {"logging.tensorboard", NULL, FLAG, AT(tensorboard), "true", 0, 0, NULL, "write TensorBoard event files"},
    {"logging.report", NULL, FLAG, AT(report), "true", 0, 0, NULL, "write report.html"},
};
#define COUNT (sizeof settings / sizeof *settings)

/* ---- one setting ---- */

static int refuse(samite_error *err, const char *where, const char *key, const char *value, const char *wanted)
{
    return fail(err, SAMITE_USAGE, "%s%s%s is \"%s\"; expected %s", where ? where : "", where ? ": " : "", key, value,
                wanted);
}

static bool is_choice(const char *choices, const char *value)
{
    size_t n = strlen(value);
    for (const char *c = choices; c; c = strchr(c, '|'), c = c ? c + 1 : NULL)
        if (strncmp(c, value, n) == 0 && (c[n] == '|' || !c[n]))
            return true;
    return false;
}

static bool says(const char *value, const char *const *words)
{
    for (; *words; words++)
        if (strcasecmp(value, *words) == 0)
            return true;
    return false;
}

static int store(train_config *c, const setting *s, const char *value, const char *where, samite_error *err)
{
    static const char *const yes[] = {"true", "yes", "on", "1", NULL}, *const no[] = {"false", "no", "off", "0", NULL};
    static const char *const nothing[] = {"null", "~", "", NULL};
    void *to = (char *)c + s->at;
    char wanted[96], *end;
    bool none = says(value, nothing);
    if (s->kind == FLAG) {
        if (!says(value, yes) && !says(value, no))
            return refuse(err, where, s->key, value, "true or false");
        *(bool *)to = says(value, yes);
        return 0;
    }
    if (s->kind == TEXT) {
        if (s->choices && !is_choice(s->choices, value)) {
            snprintf(wanted, sizeof wanted, "%s", s->choices);
            return refuse(err, where, s->key, value, wanted);
        }
        char *copy = none ? NULL : text_copy(value);
        if (!none && !copy)
            return fail(err, SAMITE_RESOURCE, "out of memory");
        free(*(char **)to);
        *(char **)to = copy;
        return 0;
    }
    double v = none ? strtod(s->usual, NULL) : strtod(value, &end);
    if (!none &&
        (end == value || *end || !isfinite(v) || v < s->least || v > s->most || (s->kind == INT && v != floor(v)))) {
        snprintf(wanted, sizeof wanted, "%s from %g to %g", s->kind == INT ? "a whole number" : "a number", s->least,
                 s->most);
        return refuse(err, where, s->key, value, wanted);
    }
    if (s->kind == INT)
        *(int *)to = (int)v;
    else
        *(double *)to = v;
    return 0;
}

static const char *last_word(const char *key)
{
    const char *dot = strrchr(key, '.');
    return dot ? dot + 1 : key;
}

static const setting *find(const char *key)
{
    for (size_t i = 0; i < COUNT; i++)
        if (strcmp(settings[i].key, key) == 0)
            return &settings[i];
    if (strchr(key, '.'))
        return NULL;
    for (size_t i = 0; i < COUNT; i++)
        if (strcmp(last_word(settings[i].key), key) == 0 || (settings[i].alias && strcmp(settings[i].alias, key) == 0))
            return &settings[i];
    return NULL;
}

/* The nearest key, by its whole name or its last word. */
static const char *nearest(const char *key)
{
    const char *words[2 * COUNT], *last[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        words[i] = settings[i].key;
        last[i] = last_word(settings[i].key);
    }
    const char *whole = closest_word(key, words, COUNT);
    if (whole)
        return whole;
    const char *word = closest_word(last_word(key), last, COUNT);
    const setting *s = find(word ? word : last_word(key));
    return s ? s->key : NULL;
}

int train_config_set(train_config *c, const char *key, const char *value, const char *where, samite_error *err)
{
    const setting *s = find(key);
    if (s)
        return store(c, s, value, where, err);
    const char *near = nearest(key);
    return fail(err, SAMITE_USAGE, "%s%sthere is no setting \"%s\"%s%s%s; samite train --settings lists all",
                where ? where : "", where ? ": " : "", key, near ? "; did you mean \"" : "", near ? near : "",
                near ? "\"?" : "");
}

bool train_config_init(train_config *c)
{
    bool ok = true;
    memset(c, 0, sizeof *c);
    for (size_t i = 0; i < COUNT; i++)
        if (settings[i].usual)
            ok &= store(c, &settings[i], settings[i].usual, NULL, NULL) == 0;
    return ok;
}

void train_config_free(train_config *c)
{
    for (size_t i = 0; i < COUNT; i++)
        if (settings[i].kind == TEXT)
            free(*(char **)((char *)c + settings[i].at));
    memset(c, 0, sizeof *c);
}

/* ---- printing ---- */

static void print_quoted(text *out, const char *s)
{
    text_add(out, "\"", 1);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            text_add(out, "\\", 1);
        if ((unsigned char)*s < 0x20)
            text_printf(out, "\\x%02x", (unsigned)*s);
        else
            text_add(out, s, 1);
    }
    text_add(out, "\"", 1);
}

static void print_value(text *out, const train_config *c, const setting *s)
{
    const void *from = (const char *)c + s->at;
    if (s->kind == FLAG)
        text_printf(out, "%s", *(const bool *)from ? "true" : "false");
    else if (s->kind == INT)
        text_printf(out, "%d", *(const int *)from);
    else if (s->kind == REAL)
        text_printf(out, "%.17g", *(const double *)from);
    else if (*(char *const *)from)
        print_quoted(out, *(char *const *)from);
    else
        text_printf(out, "null");
}

void train_config_print(const train_config *c, text *out)
{
    char section[32] = "";
    for (size_t i = 0; i < COUNT; i++) {
        const char *key = settings[i].key, *word = last_word(key);
        size_t n = (size_t)(word - key - 1);
        if (strncmp(section, key, n) != 0 || section[n])
            text_printf(out, "%.*s:\n", (int)n, key);
        snprintf(section, sizeof section, "%.*s", (int)n, key);
        text_printf(out, "  %s: ", word);
        print_value(out, c, &settings[i]);
        text_add(out, "\n", 1);
    }
}

void train_config_help(text *out)
{
    for (size_t i = 0; i < COUNT; i++)
        text_printf(out, "%-38s %-10s %s\n", settings[i].key, settings[i].usual ? settings[i].usual : "-",
                    settings[i].help);
}

/* ---- what follows from what ---- */

static bool exists(const char *path)
{
    struct stat st;
    return path && stat(path, &st) == 0;
}

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* FOLDER/SET/_annotations.coco.json with its pictures beside it. */
static bool roboflow_set(const char *folder, const char *set, char **annotations, char **images)
{
    char *file = NULL, *pictures = NULL;
    if (asprintf(&file, "%s%s%s/_annotations.coco.json", folder, *set ? "/" : "", set) < 0 ||
        asprintf(&pictures, "%s%s%s", folder, *set ? "/" : "", set) < 0 || !exists(file)) {
        free(file);
        free(pictures);
        return false;
    }
    free(*annotations);
    free(*images);
    *annotations = file;
    *images = pictures;
    return true;
}

/* FOLDER/annotations/instances_SET.json with FOLDER/SET. */
static bool coco_set(const char *folder, const char *set, char **annotations, char **images)
{
    char *file = NULL, *pictures = NULL;
    if (asprintf(&file, "%s/annotations/instances_%s.json", folder, set) < 0 ||
        asprintf(&pictures, "%s/%s", folder, set) < 0 || !exists(file)) {
        free(file);
        free(pictures);
        return false;
    }
    free(*annotations);
    free(*images);
    *annotations = file;
    *images = pictures;
    return true;
}

static int find_data(train_config *c, samite_error *err)
{
    if (!c->data)
        return 0;
    if (!exists(c->data))
        return fail(err, SAMITE_INPUT,
                    "%s: no such file or folder; paths.data is a COCO JSON file, a Roboflow or a COCO folder", c->data);
    if (!is_folder(c->data)) {
        free(c->train_annotations);
        c->train_annotations = text_copy(c->data);
        return c->train_annotations ? 0 : fail(err, SAMITE_RESOURCE, "out of memory");
    }
    char **ta = &c->train_annotations, **ti = &c->train_images, **va = &c->val_annotations, **vi = &c->val_images;
    bool own = *va != NULL;
    if (roboflow_set(c->data, "train", ta, ti)) {
        (void)(own || roboflow_set(c->data, "test", va, vi) || roboflow_set(c->data, "valid", va, vi));
    } else if (coco_set(c->data, "train2017", ta, ti) || coco_set(c->data, "train2014", ta, ti)) {
        (void)(own || coco_set(c->data, "val2017", va, vi) || coco_set(c->data, "val2014", va, vi));
    } else if (!roboflow_set(c->data, "", ta, ti) && !c->train_annotations) {
        return fail(err, SAMITE_INPUT,
                    "%s: neither train/_annotations.coco.json (Roboflow) nor annotations/instances_train2017.json "
                    "(COCO) is there; name the files with paths.train_annotations and paths.train_images",
                    c->data);
    }
    return 0;
}

int train_config_resolve(train_config *c, samite_error *err)
{
    int code = find_data(c, err);
    if (code)
        return code;
    if (!c->train_annotations && !c->scenes)
        return fail(err, SAMITE_USAGE, "nothing to learn from: give paths.data or paths.train_annotations (--data)");
    if (!c->train_images && !c->scenes)
        return fail(err, SAMITE_USAGE, "%s: where are the pictures? give paths.train_images (--images)",
                    c->train_annotations);
    if (c->val_annotations && !c->val_images)
        return fail(err, SAMITE_USAGE, "%s: where are the pictures? give paths.val_images", c->val_annotations);
    if (!c->checkpoint)
        return fail(err, SAMITE_USAGE, "no model to start from: give model.checkpoint_path (-m)");
    if (!c->output)
        return fail(err, SAMITE_USAGE, "no folder for results: give paths.output (--out)");
    if (c->scenes && (c->train_annotations || c->cache_features || c->lora_rank))
        return fail(err, SAMITE_USAGE, "data.scenes goes neither with a data set nor with cached features or adapters");
    if (!c->scenes && (c->patches > 0 || c->match > 0 || c->patches_only || c->begin_aligned))
        return fail(err, SAMITE_USAGE, "losses on patches need made-up scenes: give data.scenes");
    if (c->patches_only && c->patches <= 0)
        return fail(err, SAMITE_USAGE, "trainer.patches_only needs a weight: give loss.patches");
    if (c->cache_features && c->random_placement)
        c->random_placement = false;
    return 0;
}

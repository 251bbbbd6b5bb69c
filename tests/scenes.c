/* scenes.c - made-up pictures, a network that starts from nothing, its reduced words, and the losses on patches. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/safetensors.h"
#include "model/tokenizer_reduced.h"
#include "runtime/native_write.h"
#include "samite.h"
#include "train/patch_loss.h"
#include "train/scene_batch.h"
#include "train/start.h"

#include <cmocka.h>      /* last: it makes a macro of `fail` */

enum { CLASSES = 5, WIDE = 16, PATCHES = 7, LONGEST = 3 };

static char folder[64], sprites[96];

static float number(int i)
{
    return (float)((double)(random_next(7, (uint64_t)i) >> 11) * 0x1p-53 * 2 - 1);
}

/* Three names, one of them with a picture kept from training. */
static int make_sprites(void **state)
{
    static const char *const names[] = {"dog/0", "cat/0", "held/cat/2", "ice cream/0"};
    weight plan[4];
    uint8_t rgba[24 * 20 * 4];
    safetensors_writer w;
    samite_error e;
    snprintf(folder, sizeof folder, "%s/samite-scenes-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(folder))
        return -1;
    snprintf(sprites, sizeof sprites, "%s/sprites.safetensors", folder);
    for (int i = 0; i < 4; i++) {
        plan[i] = (weight){.name = names[i], .type = DT_U8, .axes = 3, .dim = {24, 20, 4}};
        weight_set_strides(&plan[i]);
    }
    if (safetensors_create(&w, sprites, plan, 4, NULL, 0, &e))
        return -1;
    for (int i = 0; i < 4; i++) {
        for (size_t k = 0; k < sizeof rgba; k++)
            rgba[k] = k % 4 == 3 ? 255 : (uint8_t)(40 * i + 10);
        safetensors_put(&w, rgba, sizeof rgba);
    }
    return safetensors_commit(&w, &e);
}

static int remove_folder(void **state)
{
    char command[96];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

/* ---- losses ---- */

typedef struct all_inputs {
    float words[CLASSES * LONGEST * WIDE], f[PATCHES * WIDE], head[WIDE + 2];
} all_inputs;

static const int tokens[CLASSES] = {2, 3, 1, 3, 2};

static void make_share(float *share)
{
    memset(share, 0, sizeof(float) * PATCHES * CLASSES);
    for (int p = 0; p < PATCHES; p++) {
        share[p * CLASSES + p % CLASSES] = p % 3 * 0.4f;
        share[p * CLASSES + (p + 2) % CLASSES] += 0.1f;
    }
}

/* The loss, and in *grad the gradient at everything that goes in. */
static double patches_at(const all_inputs *x, all_inputs *grad)
{
    float share[PATCHES * CLASSES], room[CLASSES + 1 + 2 * WIDE];
    class_vectors v;
    patch_result result;
    memset(grad, 0, sizeof *grad);
    make_share(share);
    assert_true(class_vectors_open(&v, CLASSES, WIDE));
    class_vectors_make(&v, x->words, LONGEST, tokens);
    patch_head h = {x->head, x->head[WIDE], x->head[WIDE + 1], grad->head, 0, 0};
    patch_loss(&result, grad->f, &v, &h, x->f, share, PATCHES, 1, room);
    class_vectors_back(&v, grad->words, LONGEST, tokens);
    grad->head[WIDE] = h.doffset;
    grad->head[WIDE + 1] = h.dlog_scale;
    class_vectors_close(&v);
    return result.loss;
}

static void close_to(double found, double expected, const char *what, int at)
{
    if (fabs(found - expected) > 2e-3 * fabs(expected) + 2e-5)
        fail_msg("%s %d: gradient %g, by differences %g", what, at, found, expected);
}

static void patch_gradients(void **state)
{
    all_inputs x, grad, none;
    float *all = (float *)&x, *by = (float *)&grad;
    const int n = (int)(sizeof x / sizeof(float));
    for (int i = 0; i < n; i++)
        all[i] = number(i);
    x.head[WIDE + 1] = 0.7f;
    patches_at(&x, &grad);
    for (int i = 0; i < n; i++) {
        float keep = all[i], step = 4e-3f;
        all[i] = keep + step;
        double up = patches_at(&x, &none);
        all[i] = keep - step;
        double down = patches_at(&x, &none);
        all[i] = keep;
        close_to(by[i], (up - down) / (2 * (double)step), "patches, number", i);
    }
}

static double match_at(const float *x, const float *gain, float *dx, float *dgain)
{
    float belongs[PATCHES], counts[PATCHES], room[2 * WIDE];
    for (int p = 0; p < PATCHES; p++) {
        belongs[p] = p % 3 * 0.5f;
        counts[p] = 0.1f + p % 2;
    }
    memset(dx, 0, sizeof(float) * PATCHES * WIDE);
    memset(dgain, 0, sizeof(float) * (WIDE + 1));
    return match_loss(dx, dgain, x, gain, belongs, counts, PATCHES, WIDE, 1, room);
}

static void match_gradients(void **state)
{
    enum { ALL = PATCHES * WIDE + WIDE + 1 };
    float x[ALL], grad[ALL], none[ALL];
    for (int i = 0; i < ALL; i++)
        x[i] = number(i);
    match_at(x, x + PATCHES * WIDE, grad, grad + PATCHES * WIDE);
    for (int i = 0; i < ALL; i++) {
        float keep = x[i], step = 4e-3f;
        x[i] = keep + step;
        double up = match_at(x, x + PATCHES * WIDE, none, none + PATCHES * WIDE);
        x[i] = keep - step;
        double down = match_at(x, x + PATCHES * WIDE, none, none + PATCHES * WIDE);
        x[i] = keep;
        close_to(grad[i], (up - down) / (2 * (double)step), "match, number", i);
    }
}

/* ---- scenes ---- */

static void open_world(scene_world *w)
{
    samite_error e = {0};
    if (scene_world_open(w, sprites, &e))
        fail_msg("%s", e.text);
}

static void scenes_repeat(void **state)
{
    scene_world w;
    scene a, b;
    samite_error e;
    scene_options o = {.side = 84, .least = 1, .most = 6};
    open_world(&w);
    assert_int_equal(w.name_count, 3);
    assert_string_equal(w.prompt[2], "ice cream");
    assert_string_equal(w.prompt[3], "red circle");
    assert_true(scene_true(&w, 3, w.classes));
    assert_false(scene_true(&w, 0, w.classes));
    for (uint64_t seed = 0; seed < 8; seed++) {
        bool there[SCENE_MOST + 1] = {0};
        assert_int_equal(scene_make(&a, &w, &o, seed, &e), 0);
        assert_int_equal(scene_make(&b, &w, &o, seed, &e), 0);
        assert_memory_equal(a.rgb, b.rgb, 3 * 84 * 84);
        assert_memory_equal(a.owner, b.owner, 84 * 84);
        for (int i = 0; i < 84 * 84; i++)
            there[a.owner[i]] = true;
        for (int i = 0; i < a.objects; i++)
            assert_true(there[i + 1] && a.class[i] >= 0 && a.class[i] < w.classes);
        scene_free(&a);
        scene_free(&b);
    }
    scene_world_close(&w);
}

static void prompts_are_true_or_not(void **state)
{
    scene_world w;
    scene s;
    samite_error e;
    scene_options o = {.side = 84, .least = 2, .most = 6};
    int yes = 0, no = 0;
    open_world(&w);
    for (uint64_t seed = 0; seed < 30; seed++) {
        int prompt[6];
        dice d = {seed, 0};
        assert_int_equal(scene_make(&s, &w, &o, seed, &e), 0);
        int n = scene_prompts(&w, &s, &d, prompt, 6);
        assert_in_range(n, 3, 6);
        for (int i = 0; i < n; i++) {
            bool there = false;
            for (int k = 0; k < s.objects; k++)
                there |= scene_true(&w, s.class[k], prompt[i]);
            yes += there;
            no += !there;
            for (int k = 0; k < i; k++)
                assert_int_not_equal(prompt[i], prompt[k]);
        }
        scene_free(&s);
    }
    assert_true(yes > 30 && no > 30);
    scene_world_close(&w);
}

/* What `samite scenes` writes is a data set without a doubtful row, and the same one for the same seed. */
static void data_sets_are_read(void **state)
{
    char out[128], json[160], pictures[160];
    train_set set;
    samite_error e = {0};
    samite_scenes_options o = SAMITE_SCENES_OPTIONS_INIT;
    snprintf(out, sizeof out, "%s/set", folder);
    snprintf(json, sizeof json, "%s/instances.json", out);
    snprintf(pictures, sizeof pictures, "%s/pictures", out);
    o.sprites = sprites;
    o.count = 5;
    o.side = 84;
    if (samite_scenes(&o, out, &e) ||
        train_set_read(&set, &(train_options){.annotations = json, .pictures = pictures, .masks = true}, &e))
        fail_msg("%s", e.text);
    assert_int_equal(set.chosen, 5);
    assert_int_equal(set.rejected + set.noted, 0);
    assert_int_equal(set.prompt_count, 3 + SCENE_COLOURS * SCENE_SHAPES + SCENE_SHAPES);
    assert_true(train_set_objects(&set) >= 5);
    train_set_free(&set);
    o.side = 7;
    assert_int_equal(samite_scenes(&o, out, &e), SAMITE_USAGE);
    o.sprites = NULL;
    assert_int_equal(samite_scenes(&o, out, &e), SAMITE_USAGE);
}

static void files_that_are_none(void **state)
{
    scene_world w;
    samite_error e = {0};
    char path[128];
    snprintf(path, sizeof path, "%s/other", folder);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs("no sprites", f);
    fclose(f);
    assert_int_not_equal(scene_world_open(&w, path, &e), 0);
    assert_non_null(strstr(e.text, "other"));
    assert_int_not_equal(scene_world_open(&w, "/nowhere/sprites", &e), 0);
}

/* ---- words and weights ---- */

static void words_of_a_small_table(void **state)
{
    char *const known[] = {(char[]){"dog"}, (char[]){"ice cream"}};
    config c;
    int32_t ids[8];
    int unknown;
    bool cut = true;
    assert_true(config_preset(&c, "demo"));
    assert_true(tokens_keep(&c, known, 2));
    assert_int_equal(c.kept, 7);                    /* dog, ice, cream, visual, padding, start, end */
    assert_int_equal(tokenize_reduced(ids, &c, "Ice  cream", 10, &cut, &unknown), 4);
    assert_int_equal(unknown, 0);
    assert_false(cut);
    assert_int_equal(ids[0], c.kept - 2);
    assert_int_equal(ids[3], c.kept - 1);
    assert_int_equal(ids[4], 0);
    assert_int_equal(tokenize_reduced(ids, &c, "dragon", 6, &cut, &unknown), 2);
    assert_int_equal(unknown, 1);
    char lacking[128];
    assert_int_equal(tokens_unknown(lacking, sizeof lacking, &c, "dogs dog dragonfly", 18), 2);
    assert_non_null(strstr(lacking, "'dogs' (near: 'dog'), 'dragonfly'"));
    assert_int_equal(tokens_unknown(lacking, sizeof lacking, &c, "ice", 3), 0);
    assert_int_equal(tokenize_reduced(ids, &c, "dog dog dog dog dog dog dog dog", 31, &cut, &unknown), 8);
    assert_true(cut);
    assert_int_equal(ids[7], c.kept - 1);
}

static void starts_repeat(void **state)
{
    char a[128], b[128];
    samite_error e = {0};
    native *n[2];
    snprintf(a, sizeof a, "%s/a.safetensors", folder);
    snprintf(b, sizeof b, "%s/b.safetensors", folder);
    if (samite_start("tiny", sprites, 5, a, &e) || samite_start("tiny", sprites, 5, b, &e) ||
        native_open(&n[0], a, &(native_options){0}, &e) || native_open(&n[1], b, &(native_options){0}, &e))
        fail_msg("%s", e.text);
    assert_int_equal(n[0]->net->c.kept, n[0]->net->c.vocabulary);
    assert_true(native_has(n[0], PARTS_TRACK | PARTS_MASKS));
    for (size_t i = 0; i < n[0]->net->all.count; i++) {
        const entry *x = n[0]->net->all.entries[i];
        float *p = native_values(n[0], x), *q = native_values(n[1], n[1]->net->all.entries[i]);
        assert_non_null(p);
        assert_non_null(q);
        assert_memory_equal(p, q, sizeof(float) * (size_t)tensor_count(&x->p.t));
        for (int64_t k = 0; k < tensor_count(&x->p.t); k++)
            assert_true(isfinite(p[k]));
        free(p);
        free(q);
    }
    native_close(n[0]);
    native_close(n[1]);
    assert_int_equal(samite_start("huge", NULL, 1, a, &e), SAMITE_USAGE);
}

/* ---- a training ---- */

static void train(const char *out, const char *from, const char *const (*more)[2], int epochs, bool resume)
{
    samite_training *t;
    samite_error e = {0};
    char text[16];
    samite_training_options o = SAMITE_TRAINING_OPTIONS_INIT;
    snprintf(text, sizeof text, "%d", epochs);
    assert_int_equal(samite_training_new(&t, &e), 0);
    const char *const usual[][2] = {
        {"scenes", sprites}, {"scenes_per_epoch", "4"}, {"batch_size", "2"}, {"checkpoint_path", from}, {"output", out},
        {"max_epochs", text}, {"dropout", "0"}, {"drop_path", "0"}, {"patches", "1"}, {"seed_value", "3"}, {"report", "false"},
        {"schedule", "fixed"}, {"tensorboard", "false"}, {NULL, NULL}};
    for (int i = 0; usual[i][0]; i++)
        assert_int_equal(samite_training_set(t, usual[i][0], usual[i][1], &e), 0);
    for (int i = 0; more[i][0]; i++)
        assert_int_equal(samite_training_set(t, more[i][0], more[i][1], &e), 0);
    o.resume = resume;
    if (samite_training_run(t, &o, &e))
        fail_msg("%s", e.text);
    samite_training_free(t);
}

/* What learns changes, what does not stays as it was. */
static void compare_parts(const char *a, const char *b, unsigned changed)
{
    native *n[2];
    samite_error e = {0};
    unsigned differ = 0;
    if (native_open(&n[0], a, &(native_options){0}, &e) || native_open(&n[1], b, &(native_options){0}, &e))
        fail_msg("%s", e.text);
    for (size_t i = 0; i < n[0]->net->all.count; i++) {
        const entry *x = n[0]->net->all.entries[i];
        float *p = native_values(n[0], x), *q = native_values(n[1], n[1]->net->all.entries[i]);
        assert_true(p && q);
        if (memcmp(p, q, sizeof(float) * (size_t)tensor_count(&x->p.t)) != 0)
            differ |= 1u << x->part;
        free(p);
        free(q);
    }
    native_close(n[0]);
    native_close(n[1]);
    assert_int_equal(differ, changed);
}

static void two_stages(void **state)
{
    static const char *const patches[][2] = {{"patches_only", "true"}, {"scenes_crowded", "true"}, {NULL, NULL}};
    static const char *const joint[][2] = {{"enable_segmentation", "true"}, {"match", "10"}, {"begin_aligned", "true"},
                                           {"prompts_per_scene", "2"}, {NULL, NULL}};
    char start[128], first[128], one[192], second[128], two[192];
    samite_error e = {0};
    snprintf(start, sizeof start, "%s/start.safetensors", folder);
    snprintf(first, sizeof first, "%s/first", folder);
    snprintf(second, sizeof second, "%s/second", folder);
    snprintf(one, sizeof one, "%s/checkpoints/checkpoint_2.pt", first);
    snprintf(two, sizeof two, "%s/checkpoints/checkpoint_1.pt", second);
    if (samite_start("tiny", sprites, 1, start, &e))
        fail_msg("%s", e.text);
    train(first, start, patches, 2, false);
    compare_parts(start, one, 1u << PART_TRUNK | 1u << PART_NECK | 1u << PART_TEXT);
    train(second, one, joint, 1, false);
    compare_parts(one, two, (1u << PART_TRACKER_NECK) - 1);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(patch_gradients),
        cmocka_unit_test(match_gradients),
        cmocka_unit_test(scenes_repeat),
        cmocka_unit_test(prompts_are_true_or_not),
        cmocka_unit_test(data_sets_are_read),
        cmocka_unit_test(files_that_are_none),
        cmocka_unit_test(words_of_a_small_table),
        cmocka_unit_test(starts_repeat),
        cmocka_unit_test(two_stages),
    };
    return cmocka_run_group_tests(tests, make_sprites, remove_folder);
}

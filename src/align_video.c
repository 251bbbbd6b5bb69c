/* align_video.c - repeats the requests of a video reference, in the official way, and compares what comes of each. */
#include "align_video.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "formats/safetensors.h"
#include "io/preprocess.h"
#include "io/video_official.h"

#define MAX_POINTS   16
#define MAX_BOXES    16
#define MAX_VARIANTS 32

/* ---- frames ---- */

static int read_frame(video_variant *v, int64_t frame, samite_error *err)
{
    char name[64];
    pixels p;
    image_options o = IMAGE_OPTIONS_INIT;
    snprintf(name, sizeof name, "frames/%05lld.png", (long long)frame);
    char *path = path_join(v->a->o->reference, name);
    int code = path ? image_read(&p, path, &o, err) : fail(err, SAMITE_RESOURCE, "not enough memory");
    free(path);
    if (code)
        return code;
    v->im->width = p.width;
    v->im->height = p.height;
    code = official_picture(v->im->input, &p, v->im->model->n->net->c.image, err);
    pixels_free(&p);
    return code;
}

static int view(void *user, int64_t frame, frame_view *out, samite_error *err)
{
    video_variant *v = user;
    samite_image *im = v->im;
    int code = read_frame(v, frame, err);
    if (!code && !(code = image_encode(im, true, err)))
        code = image_clicks(im, err);
    *out = (frame_view){{im->r, &im->clicks, frame}, &im->encoded, im->width, im->height};
    return code;
}

/* ---- options ---- */

static const struct { const char *name; size_t at; } reals[] = {
    {"score_threshold_detection", offsetof(track_options, score)}, {"det_nms_thresh", offsetof(track_options, nms)},
    {"assoc_iou_thresh", offsetof(track_options, overlap)}, {"trk_assoc_iou_thresh", offsetof(track_options, match)},
    {"new_det_thresh", offsetof(track_options, new_score)},
    {"suppress_overlapping_based_on_recent_occlusion_threshold", offsetof(track_options, occlusion)},
    {"reconstruction_bbox_iou_thresh", offsetof(track_options, renew_box_overlap)},
    {"reconstruction_bbox_det_score", offsetof(track_options, renew_box_detection)},
};
static const struct { const char *name; size_t at; } whole[] = {
    {"hotstart_delay", offsetof(track_options, delay)}, {"fill_hole_area", offsetof(track_options, hole_area)},
    {"hotstart_unmatch_thresh", offsetof(track_options, unmatched_limit)},
    {"hotstart_dup_thresh", offsetof(track_options, duplicate_limit)},
    {"init_trk_keep_alive", offsetof(track_options, alive_start)},
    {"max_trk_keep_alive", offsetof(track_options, alive_most)},
    {"min_trk_keep_alive", offsetof(track_options, alive_least)},
    {"recondition_every_nth_frame", offsetof(track_options, renew_every)},
    {"max_num_objects", offsetof(track_options, max_objects)},
};
static const struct { const char *name; size_t at; bool inverted; } flags[] = {
    {"o2o_matching_masklets_enable", offsetof(track_options, one_to_one), false},
    {"suppress_det_close_to_boundary", offsetof(track_options, avoid_border), false},
    {"suppress_unmatched_only_within_hotstart", offsetof(track_options, hide_unmatched), true},
    {"decrease_trk_keep_alive_for_empty_masklets", offsetof(track_options, empty_counts), false},
};

static track_options read_options(const json_t *about)
{
    track_options o = TRACK_OPTIONS_INIT;
    const json_t *p = json_object_get(about, "params"), *v;
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if ((v = json_object_get(p, reals[i].name)) != NULL)
            *(float *)((char *)&o + reals[i].at) = (float)json_number_value(v);
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if ((v = json_object_get(p, whole[i].name)) != NULL)
            *(int *)((char *)&o + whole[i].at) = (int)json_integer_value(v);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if ((v = json_object_get(p, flags[i].name)) != NULL)
            *(bool *)((char *)&o + flags[i].at) = json_is_true(v) != flags[i].inverted;
    if (json_is_true(json_object_get(p, "masklet_confirmation_enable")))
        o.confirm = (int)json_integer_value(json_object_get(p, "masklet_confirmation_consecutive_det_thresh"));
    o.select_memories = !json_is_false(json_object_get(json_object_get(about, "tracker"), "use_memory_selection"));
    o.official = true;
    return o;
}

/* ---- requests ---- */

static float number(const json_t *list, size_t i)
{
    return (float)json_number_value(json_array_get(list, i));
}

static int64_t number_or(const json_t *request, const char *name, int64_t otherwise)
{
    const json_t *v = json_object_get(request, name);
    return json_is_integer(v) ? json_integer_value(v) : otherwise;
}

static int ask_points(video_variant *v, const json_t *request, samite_error *err)
{
    const json_t *at = json_object_get(request, "points"), *labels = json_object_get(request, "point_labels");
    float xy[2 * MAX_POINTS], side = (float)v->im->model->n->net->c.image;
    int kind[MAX_POINTS], n = (int)json_array_size(at);
    if (n > MAX_POINTS)
        return fail(err, SAMITE_INPUT, "a request with %d points, at most %d work", n, MAX_POINTS);
    for (int i = 0; i < n; i++) {
        xy[2 * i] = number(json_array_get(at, (size_t)i), 0) * side;
        xy[2 * i + 1] = number(json_array_get(at, (size_t)i), 1) * side;
        kind[i] = number(labels, (size_t)i) != 0 ? POINT_POSITIVE : POINT_NEGATIVE;
    }
    pointed p = {.id = number_or(request, "obj_id", 0), .xy = xy, .kind = kind, .count = n};
    return requests_point(v->q, number_or(request, "frame_index", 0), &p, video_answer, v, err);
}

/* Features of the words, [tokens, d], yours to free. */
static int encode_words(video_variant *v, const char *text, float **out, int *tokens, samite_error *err)
{
    tensor *t;
    bool cut;
    run_reset(v->im->r);
    int code = image_words(v->im, text, &t, tokens, &cut, err);
    if (code)
        return code;
    size_t bytes = sizeof(float) * (size_t)tensor_count(t);
    if (!(*out = malloc(bytes)))
        return fail(err, SAMITE_RESOURCE, "not enough memory for a prompt");
    memcpy(*out, t->data, bytes);
    return 0;
}

static int ask_words(video_variant *v, const json_t *request, samite_error *err)
{
    const char *text = json_string_value(json_object_get(request, "text"));
    const json_t *boxes = json_object_get(request, "bounding_boxes");
    const json_t *labels = json_object_get(request, "bounding_box_labels");
    float box[4 * MAX_BOXES], *words;
    int positive[MAX_BOXES], n = (int)json_array_size(boxes), tokens;
    if (n > MAX_BOXES)
        return fail(err, SAMITE_INPUT, "a request with %d boxes, at most %d work", n, MAX_BOXES);
    for (int i = 0; i < n; i++) {
        const json_t *b = json_array_get(boxes, (size_t)i);
        for (size_t k = 0; k < 2; k++) {
            box[4 * i + (int)k] = number(b, k) + number(b, 2 + k) / 2;
            box[4 * i + 2 + (int)k] = number(b, 2 + k);
        }
        positive[i] = number(labels, (size_t)i) != 0;
    }
    int code = encode_words(v, text ? text : "visual", &words, &tokens, err);
    if (code)
        return code;
    int64_t frame = number_or(request, "frame_index", 0);
    sought what = {words, tokens, text != NULL, box, positive, n, frame};
    code = requests_prompt(v->q, &what, frame, video_answer, v, err);
    free(words);
    return code;
}

static int run_request(video_variant *v, const json_t *request, samite_error *err)
{
    const char *type = json_string_value(json_object_get(request, "type"));
    if (!type)
        return fail(err, SAMITE_INPUT, "a request without a type");
    if (strcmp(type, "add_prompt") == 0)
        return json_object_get(request, "points") ? ask_points(v, request, err) : ask_words(v, request, err);
    if (strcmp(type, "remove_object") == 0)
        return requests_remove(v->q, number_or(request, "obj_id", -1), err);
    if (strcmp(type, "reset_session") == 0) {
        requests_reset(v->q);
        return 0;
    }
    if (strcmp(type, "propagate_in_video") != 0)
        return fail(err, SAMITE_INPUT, "request %s is unknown", type);
    const char *direction = json_string_value(json_object_get(request, "propagation_direction"));
    return requests_propagate(v->q, direction && strcmp(direction, "backward") == 0,
                              number_or(request, "start_frame_index", -1),
                              number_or(request, "max_frame_num_to_track", -1), video_answer, v, err);
}

static void equal_number(video_variant *v, const char *what, json_int_t ours, json_int_t theirs)
{
    char name[64];
    snprintf(name, sizeof name, "c%d.%s", v->call, what);
    json_t *expected = json_integer(theirs);
    video_equal(v, name, json_integer(ours), expected);
    json_decref(expected);
}

/* One call: the request, then whether it failed where the original failed. */
static int run_call(video_variant *v, const json_t *call, samite_error *err)
{
    samite_error trouble = {0};
    v->trace = json_object_get(call, "trace");
    v->worked = v->answered = 0;
    int code = run_request(v, json_object_get(call, "request"), &trouble);
    if (code && code != SAMITE_USAGE) {
        if (err)
            *err = trouble;
        return code;
    }
    const json_t *answers = json_object_get(call, "responses");
    equal_number(v, "refused", code != 0, json_object_get(call, "error") != NULL);
    equal_number(v, "worked", v->worked, (json_int_t)json_array_size(v->trace));
    equal_number(v, "answers", v->answered, json_is_array(answers) ? (json_int_t)json_array_size(answers) : 0);
    return 0;
}

/* ---- a variant ---- */

/* A model like `m` with the tensors of a file in place of its own. */
static int open_changed(samite_model **out, const samite_model *m, const char *path, samite_error *err)
{
    file_map file;
    tensor_list list = {0};
    samite_options o = SAMITE_OPTIONS_INIT;
    o.threads = m->options.threads;
    int code = samite_model_open(out, m->n->source, &o, err);
    if (code || (code = file_map_open(&file, path, err)))
        return code;
    code = safetensors_read(&list, file.data, file.size, path, err);
    for (size_t i = 0; i < list.count && !code; i++) {
        const weight *w = &list.items[i];
        entry *e = registry_find(&(*out)->n->net->all, w->name);
        if (!e || tensor_count(&e->p.t) != weight_count(w)) {
            code = fail(err, SAMITE_INPUT, "%s: tensor %s does not belong to %s", path, w->name, m->n->source);
            break;
        }
        if (!(e->p.t.data = malloc(sizeof(float) * (size_t)weight_count(w))))
            code = fail(err, SAMITE_RESOURCE, "not enough memory for the tensors of %s", path);
        else
            weight_to_f32(e->p.t.data, w);
        e->p.owned = e->p.t.data != NULL;
    }
    tensor_list_free(&list);
    file_map_close(&file);
    return code;
}

static bool shows_absence(const json_t *about)
{
    size_t i;
    const json_t *rule;
    json_array_foreach(json_object_get(about, "overrides"), i, rule) {
        const char *name = json_string_value(json_array_get(rule, 0));
        if (name && ends_with(name, "pred_obj_score_head.layers.2.bias"))
            return json_number_value(json_array_get(rule, 3)) < 0;
    }
    return false;
}

static int run_calls(video_variant *v, samite_error *err)
{
    track_options o = read_options(v->about);
    session *s;
    request_calls calls = {view, video_worked, v};
    int64_t frames = number_or(v->about, "frames", 0);
    int code = image_prepare(v->im, PARTS_IMAGE | PARTS_TEXT | PARTS_GROUND | PARTS_MASKS | PARTS_TRACK, err);
    if (!code)
        code = session_open(&s, v->im->model->n->net, &o, frames, err);
    if (code)
        return code;
    s->remembered = video_remembered;
    s->detected = video_detected;
    s->user = v;
    code = requests_open(&v->q, s, frames, (int)number_or(v->about, "width", 0), (int)number_or(v->about, "height", 0),
                         &calls, err);
    const json_t *call;
    size_t i;
    json_array_foreach(json_object_get(v->about, "calls"), i, call) {
        v->call = (int)i;
        if (!code)
            code = run_call(v, call, err);
    }
    requests_close(v->q);
    return code;
}

static void report_rest(aligner *a)
{
    for (size_t i = 0; i < a->reference.count; i++)
        if (!a->used[i])
            align_row(a, &(samite_compared){.name = a->reference.items[i].name, .relative = INFINITY,
                                            .note = "not computed here"});
}

/* Reads the tensors of the variant into a->reference and repeats its calls. */
static int compare_variant(aligner *a, samite_model *changed, json_t *about, const char *path, const tensor_list *seen,
                           samite_error *err)
{
    file_map file;
    video_variant v = {.a = a, .about = about, .seen = seen};
    int code = file_map_open(&file, path, err);
    if (code)
        return code;
    code = safetensors_read(&a->reference, file.data, file.size, path, err);
    a->used = calloc(a->reference.count + 1, sizeof *a->used);
    if (!code && !a->used)
        code = fail(err, SAMITE_RESOURCE, "not enough memory for the comparison");
    if (!code)
        code = image_new(&v.im, changed, err);
    if (!code)
        code = run_calls(&v, err);
    if (!code)
        report_rest(a);
    samite_image_free(v.im);
    free(a->used);
    a->used = NULL;
    tensor_list_free(&a->reference);
    a->reference = (tensor_list){0};
    file_map_close(&file);
    return code;
}

static int run_variant(aligner *a, samite_model *m, const char *name, const tensor_list *seen, samite_error *err)
{
    char file[300], title[64];
    snprintf(file, sizeof file, "video_%.200s.json", name);
    snprintf(title, sizeof title, "%.60s", name);
    char *path = path_join(a->o->reference, file);
    json_t *about = path ? json_load_file(path, 0, NULL) : NULL;
    if (!about) {
        int code = fail(err, SAMITE_INPUT, "%s: no readable JSON", path ? path : file);
        free(path);
        return code;
    }
    free(path);
    samite_model *changed = NULL;
    path = path_join(a->o->reference, shows_absence(about) ? "overrides_absent.safetensors" : "overrides.safetensors");
    int code = path ? open_changed(&changed, m, path, err) : fail(err, SAMITE_RESOURCE, "not enough memory");
    free(path);
    snprintf(file, sizeof file, "video_%.200s.safetensors", name);
    path = path_join(a->o->reference, file);
    a->title = title;
    if (!code)
        code = path ? compare_variant(a, changed, about, path, seen, err)
                    : fail(err, SAMITE_RESOURCE, "not enough memory");
    a->title = NULL;
    free(path);
    samite_model_free(changed);
    json_decref(about);
    return code;
}

static int by_name(const void *x, const void *y)
{
    return strcmp(*(char *const *)x, *(char *const *)y);
}

/* The plainest variant, whose detections are recorded; there may be none. */
static int read_seen(aligner *a, file_map *file, tensor_list *seen, samite_error *err)
{
    char *path = path_join(a->o->reference, "video_text.safetensors");
    if (!path)
        return fail(err, SAMITE_RESOURCE, "not enough memory");
    int code = file_map_open(file, path, NULL) ? 0 : safetensors_read(seen, file->data, file->size, path, err);
    free(path);
    return code;
}

int align_video(aligner *a, samite_model *m, samite_error *err)
{
    char *names[MAX_VARIANTS];
    size_t count = 0;
    DIR *d = opendir(a->o->reference);
    if (!d)
        return fail(err, SAMITE_INPUT, "%s: cannot be opened as a folder of reference numbers", a->o->reference);
    free(a->used);
    a->used = NULL;
    for (struct dirent *e; count < MAX_VARIANTS && (e = readdir(d)) != NULL;)
        if (starts_with(e->d_name, "video_") && ends_with(e->d_name, ".json") &&
            (names[count] = text_copy(e->d_name + 6)))
            names[count++][strlen(e->d_name + 6) - 5] = '\0';
    closedir(d);
    qsort(names, count, sizeof *names, by_name);
    file_map file = {0};
    tensor_list seen = {0};
    int code = align_loaders(a, m, err);
    if (!code)
        code = read_seen(a, &file, &seen, err);
    for (size_t i = 0; i < count; i++) {
        if (!code)
            code = run_variant(a, m, names[i], &seen, err);
        free(names[i]);
    }
    tensor_list_free(&seen);
    file_map_close(&file);
    return code;
}

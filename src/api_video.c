/* api_video.c - a video session of the public API: frames are pushed, results come when they are decided. */
#include <stdlib.h>
#include <string.h>

#include "api_video.h"
#include "base/progress.h"
#include "io/preprocess.h"
#include "io/video_official.h"

#define PARTS_VIDEO (PARTS_IMAGE | PARTS_TEXT | PARTS_GROUND | PARTS_MASKS | PARTS_TRACK)

/* ---- options ---- */

static track_options to_inside(const samite_video_options *o)
{
    return (track_options){
        .score = o->score, .nms = o->nms, .detect_every = o->detect_every, .overlap = o->overlap, .match = o->match,
        .one_to_one = o->one_to_one, .new_score = o->new_score, .avoid_border = o->avoid_border, .border = 0.025f,
        .max_objects = o->max_objects, .delay = o->delay, .unmatched_limit = o->unmatched_limit,
        .duplicate_limit = o->duplicate_limit, .hide_unmatched = o->hide_unmatched, .alive_start = o->keep_alive_start,
        .alive_most = o->keep_alive_most, .alive_least = o->keep_alive_least, .empty_counts = o->empty_counts,
        .confirm = o->confirm, .hole_area = o->hole_area, .occlusion = o->occlusion, .keep_share = o->keep_share,
        .renew_every = o->renew_every, .renew_detection = o->renew_detection, .renew_overlap = o->renew_overlap,
        .renew_logit = o->renew_logit, .renew_box_overlap = o->renew_box_overlap,
        .renew_box_detection = o->renew_box_detection, .select_memories = !o->no_selection,
        .click_window = o->click_window, .official = o->official,
    };
}

static int check_options(const samite_video_options *o, samite_error *err)
{
    const float share[] = {o->score, o->nms, o->overlap, o->match, o->new_score, o->occlusion, o->keep_share,
                           o->renew_detection, o->renew_overlap, o->renew_box_overlap, o->renew_box_detection};
    for (size_t i = 0; i < sizeof share / sizeof *share; i++)
        if (!(share[i] >= 0 && share[i] <= 1))
            return fail(err, SAMITE_USAGE, "a threshold of %g: expected 0 to 1", (double)share[i]);
    if (o->frames < 0 || o->max_objects < 1 || o->detect_every < 1 || o->delay < 0 || o->delay > 10000)
        return fail(err, SAMITE_USAGE,
                    "%lld frames, %d objects at most, detection on every %d frames, delay of %d: expected at "
                    "least 0, 1, 1 and 0 (to 10000)", (long long)o->frames, o->max_objects, o->detect_every, o->delay);
    if (o->hole_area < 0 || o->renew_every < 0 || o->click_window < 0 || o->confirm < 0 || o->confirm > 1000)
        return fail(err, SAMITE_USAGE, "negative numbers of pixels or frames among the options of a video");
    return 0;
}

/* Fewer objects where memory is limited. */
static int limit_objects(samite_video *v, uint64_t limit, samite_error *err)
{
    uint64_t each = session_bytes_per_object(v->s);
    if (!limit)
        return 0;
    if (limit < each)
        return fail(err, SAMITE_RESOURCE, "a memory limit of %llu bytes holds no object: one needs %llu",
                    (unsigned long long)limit, (unsigned long long)each);
    if (limit / each < (uint64_t)v->s->o.max_objects)
        v->s->o.max_objects = (int)(limit / each);
    return 0;
}

int samite_video_open(samite_video **out, samite_model *m, const samite_video_options *options, samite_error *err)
{
    if (!out || !m)
        return fail(err, SAMITE_USAGE, "samite_video_open: no model given");
    *out = NULL;
    samite_video_options o = SAMITE_VIDEO_OPTIONS_INIT;
    if (options)
        options_copy(&o, sizeof o, options, options->size);
    int code = check_options(&o, err);
    if (!code && !m->parts && !native_has(m->n, PARTS_VIDEO))
        code = fail(err, SAMITE_INPUT, "%s has no tracker or no mask head: video cannot be followed with it",
                    m->n->source);
    if (code)
        return code;
    samite_video *v = calloc(1, sizeof *v);
    if (!v)
        return fail(err, SAMITE_RESOURCE, "not enough memory for a video session");
    track_options inside = to_inside(&o);
    v->model = m;
    code = image_new(&v->im, m, err);
    if (!code && m->parts)
        code = engine_track_open(v->im, err);
    if (!code)
        code = session_open(&v->s, m->n->net, &inside, o.frames, err);
    if (!code && m->parts)
        v->s->tables.e = &v->im->outside;
    if (!code) {
        v->s->may_turn = o.may_turn;
        code = limit_objects(v, o.memory_limit, err);
    }
    if (code)
        samite_video_free(v);
    else
        *out = v;
    return code;
}

static void drop_waiting(samite_video *v)
{
    for (int i = 0; i < v->count; i++)
        record_free(&v->waiting[i]);
    v->count = 0;
    record_free(&v->shown);
}

void samite_video_free(samite_video *v)
{
    if (!v)
        return;
    drop_waiting(v);
    free(v->waiting);
    session_close(v->s);
    samite_image_free(v->im);
    free(v);
}

void samite_video_reset(samite_video *v)
{
    if (!v)
        return;
    drop_waiting(v);
    session_reset(v->s);
    v->s->backward = false;
    v->prompted = v->pushed = v->broken = false;
}

void samite_video_state(const samite_video *v, samite_video_status *out)
{
    samite_video_status st = {.size = out->size, .objects = v->s->all.count, .waiting = v->count,
                              .max_objects = v->s->o.max_objects, .bytes = session_bytes(v->s),
                              .encode_seconds = v->encoding, .track_seconds = v->tracking,
                              .detect_seconds = v->s->detecting};
    for (int i = 0; i < v->count; i++)
        st.bytes += record_bytes(&v->waiting[i]);
    st.bytes += record_bytes(&v->shown);
    memcpy(out, &st, out->size < sizeof st ? out->size : sizeof st);
}

/* ---- prompts ---- */

static int check_boxes(const samite_prompt *p, bool official, samite_error *err)
{
    if (!p->text && !p->box_count)
        return fail(err, SAMITE_USAGE, "a prompt needs a text or example boxes");
    if (p->box_count < 0 || p->box_count > 1024 || (p->box_count && !p->boxes))
        return fail(err, SAMITE_USAGE, "%d example boxes: expected 0 to 1024", p->box_count);
    if (official && p->box_count > 1)
        return fail(err, SAMITE_USAGE, "%d example boxes: the official program takes one", p->box_count);
    for (int i = 0; i < p->box_count; i++) {
        const samite_box *b = &p->boxes[i];
        if (!(b->x0 < b->x1 && b->y0 < b->y1 && b->x0 > -1e9f && b->y0 > -1e9f && b->x1 < 1e9f && b->y1 < 1e9f))
            return fail(err, SAMITE_USAGE, "example box %d (%g,%g,%g,%g) is empty: expected X0 < X1 and Y0 < Y1", i + 1,
                        (double)b->x0, (double)b->y0, (double)b->x1, (double)b->y1);
    }
    return 0;
}

/* Boxes stay in pixels until the size of their frame is known; see scale_boxes. */
static void copy_boxes(const samite_prompt *p, float *box, int *positive)
{
    for (int i = 0; i < p->box_count; i++) {
        memcpy(box + 4 * i, (float[]){p->boxes[i].x0, p->boxes[i].y0, p->boxes[i].x1, p->boxes[i].y1}, 4 * sizeof *box);
        positive[i] = !p->boxes[i].negative;
    }
}

static int seek(samite_video *v, const samite_prompt *p, int64_t frame, samite_error *err)
{
    tensor *words;
    int tokens;
    bool cut;
    float *box = malloc(sizeof *box * 4 * ((size_t)p->box_count + 1));
    int *positive = malloc(sizeof *positive * ((size_t)p->box_count + 1));
    int code = box && positive ? 0 : fail(err, SAMITE_RESOURCE, "not enough memory for %d boxes", p->box_count);
    run_point before = run_save(v->im->r);
    if (!code)
        code = image_words(v->im, p->text ? p->text : "visual", &words, &tokens, &cut, err);
    if (!code) {
        copy_boxes(p, box, positive);
        sought what = {words->data, tokens, p->text != NULL, box, positive, p->box_count, frame};
        code = session_seek(v->s, &what, err);
    }
    run_restore(v->im->r, before);
    free(box);
    free(positive);
    return code;
}

int samite_video_prompt(samite_video *v, const samite_prompt *prompt, int64_t frame, samite_error *err)
{
    if (!v || !prompt)
        return fail(err, SAMITE_USAGE, "samite_video_prompt: no video or no prompt given");
    samite_prompt p = SAMITE_PROMPT_INIT;
    options_copy(&p, sizeof p, prompt, prompt->size);
    bool backward = v->s->backward;
    if (frame < 0)
        frame = !v->pushed ? 0 : backward ? v->frame - 1 : v->frame + 1;
    int code = check_words(v->model, p.text, err);
    if (!code)
        code = check_boxes(&p, v->s->o.official, err);
    if (!code)
        code = seek(v, &p, frame, err);
    if (code)
        return code;
    drop_waiting(v);
    v->prompted = true;
    v->broken = false;
    return 0;
}

/* Pixels of the frame that the boxes belong to become shares. */
static int scale_boxes(samite_video *v, int64_t frame, samite_error *err)
{
    session *s = v->s;
    float w = (float)v->im->width, h = (float)v->im->height;
    for (int i = 0; i < s->box_count; i++) {
        float *b = s->boxes + 4 * i, x0 = b[0], y0 = b[1], x1 = b[2], y1 = b[3];
        if (x0 >= w || y0 >= h || x1 <= 0 || y1 <= 0)
            return fail(err, SAMITE_USAGE, "example box %d (%g,%g,%g,%g) lies outside frame %lld of %d x %d pixels",
                        i + 1,
                        (double)x0, (double)y0, (double)x1, (double)y1, (long long)frame, v->im->width, v->im->height);
    }
    for (int i = 0; i < s->box_count; i++) {
        float *b = s->boxes + 4 * i, x0 = b[0] > 0 ? b[0] / w : 0, y0 = b[1] > 0 ? b[1] / h : 0;
        float x1 = b[2] < w ? b[2] / w : 1, y1 = b[3] < h ? b[3] / h : 1;
        memcpy(b, (float[]){(x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0}, 4 * sizeof *b);
    }
    return 0;
}

/* ---- frames ---- */

frame_view video_view(const samite_video *v)
{
    return (frame_view){{v->im->r, &v->im->clicks, v->frame}, &v->im->encoded, v->im->width, v->im->height};
}

static int encode(samite_video *v, const samite_pixels *px, samite_error *err)
{
    pixels p = {.width = px->width, .height = px->height, .rgb = px->rgb};
    int side = v->model->n->net->c.image;
    double start = seconds_now();
    int code = v->model->parts ? 0 : image_prepare(v->im, PARTS_VIDEO, err);
    if (!code)
        code = v->s->o.official ? official_picture(v->im->input, &p, side, err)
                                : preprocess(v->im->input, &p, side, err);
    v->im->width = px->width;
    v->im->height = px->height;
    if (!code)
        code = image_encode(v->im, true, err);
    if (!code)
        code = image_clicks(v->im, err);
    v->encoding += seconds_now() - start;
    return code;
}

static int step_frame(samite_video *v, record *r, samite_error *err)
{
    frame_view view = video_view(v);
    double start = seconds_now();
    image_stage(v->im, "track", 1);
    int code = session_step(v->s, &view, r, err);
    if (!code && v->prompted && v->s->o.official) {        /* prompting and propagating are two steps there */
        record_free(r);
        code = session_step(v->s, &view, r, err);
    }
    v->prompted = false;
    v->tracking += seconds_now() - start;
    return code;
}

static int keep_waiting(samite_video *v, const record *r, samite_error *err)
{
    if (v->count == v->room) {
        int room = v->room ? 2 * v->room : 32;
        record *more = realloc(v->waiting, sizeof *more * (size_t)room);
        if (!more)
            return fail(err, SAMITE_RESOURCE, "not enough memory for %d results", room);
        v->waiting = more;
        v->room = room;
    }
    v->waiting[v->count++] = *r;
    return 0;
}

/* Hands out the oldest record that waits. */
static int give_out(samite_video *v, samite_video_results *r, samite_error *err)
{
    const track_options *o = &v->s->o;
    hiding h = {.gone = o->delay > 0, .by_rule = true};
    int ahead = o->confirm > 0 ? o->confirm - 1 : 0;
    if (o->confirm > 0) {
        const record *later = &v->waiting[ahead < v->count ? ahead : v->count - 1];
        h.unconfirmed = later->unconfirmed;
        h.unconfirmed_count = later->unconfirmed_count;
    }
    int code = video_add_result(v, r, &v->waiting[0], &h, v->waiting[0].width, v->waiting[0].height, err);
    record_free(&v->shown);
    v->shown = v->waiting[0];
    v->count--;
    memmove(v->waiting, v->waiting + 1, sizeof *v->waiting * (size_t)v->count);
    return code;
}

static int check_push(const samite_video *v, const samite_pixels *px, int64_t frame, samite_error *err)
{
    if (!px || !px->rgb || px->width < 1 || px->height < 1)
        return fail(err, SAMITE_USAGE, "samite_video_push: no picture given");
    if (v->broken)
        return fail(err, SAMITE_FAILED, "this video session failed before: reset it");
    if (frame < 0 || (v->s->frames && frame >= v->s->frames))
        return fail(err, SAMITE_USAGE, "frame %lld: expected 0 to %lld", (long long)frame,
                    v->s->frames ? (long long)v->s->frames - 1 : INT64_MAX);
    if (v->pushed && (v->s->backward ? frame >= v->frame : frame <= v->frame))
        return fail(err, SAMITE_USAGE, "frame %lld after frame %lld: numbers must %s", (long long)frame,
                    (long long)v->frame,
                    v->s->backward ? "fall" : "grow");
    return 0;
}

static int push(samite_video *v, const samite_pixels *px, int64_t frame, double time, samite_video_results *r,
                samite_error *err)
{
    record one;
    int code = encode(v, px, err);
    if (!code && v->s->box_count && v->s->box_frame == frame)
        code = scale_boxes(v, frame, err);
    if (code)
        return code;
    v->frame = frame;
    v->time = time;
    v->pushed = true;
    if ((code = step_frame(v, &one, err)))
        return code;
    one.time = time;
    if ((code = keep_waiting(v, &one, err))) {
        record_free(&one);
        return code;
    }
    return v->count >= v->s->o.delay ? give_out(v, r, err) : 0;
}

static int make_results(samite_video_results **out, int most, samite_error *err)
{
    samite_video_results *r = calloc(1, sizeof *r);
    if (r)
        r->frame = calloc((size_t)most + 1, sizeof *r->frame);
    if (!r || !r->frame) {
        free(r);
        return fail(err, SAMITE_RESOURCE, "not enough memory for results");
    }
    *out = r;
    return 0;
}

int samite_video_push(samite_video *v, const samite_pixels *pixels, int64_t frame, double time,
                      samite_video_results **out, samite_error *err)
{
    if (!v || !out)
        return fail(err, SAMITE_USAGE, "samite_video_push: no video given");
    *out = NULL;
    int code = check_push(v, pixels, frame, err);
    if (!code)
        code = make_results(out, 1, err);
    if (code)
        return code;
    if ((code = push(v, pixels, frame, time, *out, err))) {
        v->broken = true;
        samite_video_results_free(*out);
        *out = NULL;
    }
    return code;
}

int samite_video_flush(samite_video *v, samite_video_results **out, samite_error *err)
{
    if (!v || !out)
        return fail(err, SAMITE_USAGE, "samite_video_flush: no video given");
    *out = NULL;
    int code = make_results(out, v->count, err);
    while (!code && v->count)
        code = give_out(v, *out, err);
    if (code) {
        samite_video_results_free(*out);
        *out = NULL;
    }
    return code;
}

int samite_video_turn(samite_video *v, int backward, samite_error *err)
{
    if (!v)
        return fail(err, SAMITE_USAGE, "samite_video_turn: no video given");
    if (v->count)
        return fail(err, SAMITE_USAGE, "%d frames wait for their results: flush before turning", v->count);
    if (!v->s->may_turn && v->pushed && !v->s->o.official)
        return fail(err, SAMITE_USAGE, "this session was not opened to turn round: set may_turn");
    v->s->backward = backward;
    v->pushed = false;
    return 0;
}

/* track.c - `samite track`: everything a word names, and objects pointed at, through the frames of a video. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/progress.h"
#include "page_files.h"
#include "track.h"

#define AT(member) offsetof(track_settings, member)
static const option options[] = {
    {"--text", 't', OPTION_TEXT, AT(text), "WORDS", .help = "what to look for, a noun phrase"},
    {"--like", 0, OPTION_CALL, AT(asks), "F:X0,Y0,X1,Y1", .parse = parse_ask_like,
     .help = "look for what this box on frame F shows; ,neg: not for this. Repeatable, one frame"},
    {"--object", 0, OPTION_CALL, AT(asks), "ID", .parse = parse_ask_object,
     .help = "the following --point, --box and --mask are about this object"},
    {"--point", 0, OPTION_CALL, AT(asks), "F:X,Y", .parse = parse_ask_point,
     .help = "a point of an object on frame F; ,neg: not part of it. Repeatable"},
    {"--box", 0, OPTION_CALL, AT(asks), "F:X0,Y0,X1,Y1", .parse = parse_ask_box, .help = "a box around an object"},
    {"--mask", 0, OPTION_CALL, AT(asks), "F:FILE", .parse = parse_ask_mask,
     .help = "an object's mask, a picture of the frame's size that is bright inside"},
    {"--remove", 0, OPTION_CALL, AT(asks), "F:ID", .parse = parse_ask_remove, .help = "forget an object after frame F"},
    {"--from", 0, OPTION_INT, AT(from), "F", .help = "first frame (default: 0)", .least = 0, .most = 1e9},
    {"--to", 0, OPTION_INT, AT(to), "F", .help = "last frame (default: the last)", .least = 0, .most = 1e9},
    {"--stride", 0, OPTION_INT, AT(stride), "N", .help = "every N-th frame; numbers and times stay those of the video",
     .least = 1, .most = 1e6},
    {"--direction", 0, OPTION_CHOICE, AT(direction), "WAY", .choices = "forward|backward|both",
     .help = "forward (default), backward, or both: forward, then backward from --start"},
    {"--start", 0, OPTION_INT, AT(start), "F",
     .help = "where backward and both begin (default: --to, or the first prompt)",
     .least = 0, .most = 1e9},
    {"--score", 0, OPTION_REAL, AT(score), "X", .help = "least score of a detection (default: 0.5)", .least = 0,
     .most = 1},
    {"--new-score", 0, OPTION_REAL, AT(new_score), "X",
     .help = "least score of an object that appears later (default: 0.7)", .least = 0, .most = 1},
    {"--max-objects", 0, OPTION_INT, AT(max_objects), "N", .help = "objects followed at once (default: 10000)",
     .least = 1,
     .most = 1e6},
    {"--object-memory", 0, OPTION_BYTES, AT(object_memory), "SIZE",
     .help = "most memory for what is remembered of objects; it limits their number"},
    {"--detect-every", 0, OPTION_INT, AT(detect_every), "N",
     .help = "look for new objects on every N-th frame (default: 1)",
     .least = 1, .most = 1e6},
    {"--delay", 0, OPTION_INT, AT(delay), "N",
     .help = "frames a result waits, so that false objects are never shown (default: 15; 0: none)", .least = 0,
         .most = 1000},
    {"--official", 0, OPTION_FLAG, AT(official), NULL, .help = "repeat the official program, errors included"},
    {"--skip-bad", 0, OPTION_FLAG, AT(skip_bad), NULL, .help = "leave pictures of a folder out that cannot be read"},
    {"--no-rotation", 0, OPTION_FLAG, AT(no_rotation), NULL, .help = "take frames as stored, not upright"},
    {"--out", 'o', OPTION_TEXT, AT(out), "DIR", .help = "write tracks.json (COCO video form) into DIR"},
    {"--format", 0, OPTION_CALL, AT(formats), "LIST", .parse = parse_formats,
     .help = "with --out: frames for annotation tools too: coco, png, yolo, labelme, geojson, cvat, voc"},
    {"--labels", 0, OPTION_FLAG, AT(labels), NULL,
     .help = "with --out: a 16-bit label map per frame, DIR/labels/F.png"},
    {"--overlay", 0, OPTION_TEXT, AT(overlay), "FILE", .help = "video with the objects drawn in (.mp4, .mkv, .avi)"},
    {"--no-json", 0, OPTION_FLAG, AT(no_json), NULL, .help = "no lines on standard output"},
    ENGINE_OPTIONS(track_settings),
    ENGINE_CHOICE(track_settings),
    {0}
};

typedef struct tracking {
    const track_settings *s;
    asks           *asks;
    samite_model   *model;
    samite_clip    *clip;
    samite_video   *video;
    track_output    out;
    int64_t         failed;        /* frame whose prompts failed, or -1 */
} tracking;

unsigned track_clip_flags(const track_settings *s)
{
    return (s->no_rotation ? SAMITE_NO_EXIF : 0u) | (s->skip_bad ? SAMITE_SKIP_BAD : 0u);
}

bool track_turns(const track_settings *s)
{
    return s->direction && strcmp(s->direction, "forward") != 0;
}

/* ---- checks ---- */

static bool asked_before(const asks *a, ask_kind below)
{
    for (int i = 0; i < a->count; i++)
        if (a->item[i].kind < below || a->item[i].kind == ASK_LIKE)
            return true;
    return false;
}

static int check_settings(const track_settings *s, samite_error *err)
{
    if (!s->text && !asked_before(&s->asks, ASK_REMOVE))
        return fail(err, SAMITE_USAGE, "nothing to look for: give --text WORDS, --like, --point, --box or --mask");
    if (s->to >= 0 && s->to < s->from)
        return fail(err, SAMITE_USAGE, "--to %d lies before --from %d", s->to, s->from);
    if (s->labels && !s->out)
        return fail(err, SAMITE_USAGE, "--labels goes with --out DIR");
    if (s->formats && !s->out)
        return fail(err, SAMITE_USAGE, "--format goes with --out DIR");
    if (s->formats & FORMAT_OVERLAY)
        return fail(err, SAMITE_USAGE, "--format overlay is for pictures; for a video: --overlay FILE");
    if (s->asks.named >= 0 && s->asks.named == s->asks.count)
        return fail(err, SAMITE_USAGE, "no --point, --box or --mask follows --object %lld", (long long)s->asks.object);
    bool turns = track_turns(s);
    if (s->start >= 0 && !turns)
        return fail(err, SAMITE_USAGE, "--start goes with --direction backward or both");
    if (s->start >= 0 && (s->start < s->from || (s->to >= 0 && s->start > s->to)))
        return fail(err, SAMITE_USAGE, "--start %d lies outside --from .. --to", s->start);
    for (int i = 0; i < s->asks.count; i++) {
        int64_t f = s->asks.item[i].frame;
        if (f < s->from || (s->to >= 0 && f > s->to) || (f - s->from) % s->stride)
            return fail(err, SAMITE_USAGE, "a prompt is for frame %lld, which --from, --to and --stride leave out",
                        (long long)f);
    }
    return SAMITE_OK;
}

/* ---- prompts for everything ---- */

/* --text and --like, which belong to one frame. */
static int look_for(tracking *t, samite_error *err)
{
    samite_prompt p = SAMITE_PROMPT_INIT;
    samite_box *boxes = calloc((size_t)t->asks->count + 1, sizeof *boxes);
    int64_t frame = -1;
    int code = boxes ? SAMITE_OK : fail(err, SAMITE_RESOURCE, "out of memory for boxes");
    for (int i = 0; i < t->asks->count && !code; i++) {
        ask *one = &t->asks->item[i];
        if (one->kind != ASK_LIKE)
            continue;
        if (frame >= 0 && frame != one->frame)
            code = fail(err, SAMITE_USAGE, "--like on frames %lld and %lld: all boxes must be on one frame",
                        (long long)frame,
                        (long long)one->frame);
        frame = one->frame;
        boxes[p.box_count++] = one->box;
        one->done = true;
    }
    p.text = t->s->text;
    p.boxes = boxes;
    if (!code && (p.text || p.box_count))
        code = samite_video_prompt(t->video, &p, frame < 0 ? t->s->from : frame, err);
    free(boxes);
    return code;
}

/* ---- frames ---- */

static int push_frame(tracking *t, samite_pixels *px, int64_t frame, double time, samite_error *err)
{
    samite_video_results *r = NULL, *asked = NULL;
    int code = samite_video_push(t->video, px, frame, time, &r, err);
    if (!code)
        t->failed = (code = asks_apply(t->asks, t->video, frame, px, &asked, err)) ? frame : -1;
    if (!code)
        code = overlay_hold(&t->out, px, frame, time, err);
    if (!code)                 /* a result that did not wait is shown as corrected */
        code = output_results(&t->out, asked && r->count && r->frame[0].frame == frame ? asked : r, err);
    samite_video_results_free(r);
    samite_video_results_free(asked);
    return code ? code : check_interrupt(err);
}

static int flush(tracking *t, samite_error *err)
{
    samite_video_results *r = NULL;
    int code = samite_video_flush(t->video, &r, err);
    if (!code)
        code = output_results(&t->out, r, err);
    samite_video_results_free(r);
    return code;
}

/* Gives out what waits when nothing more can come; a frame whose prompts failed is not finished. */
static void flush_rest(tracking *t)
{
    samite_video_results *r = NULL;
    if (samite_video_flush(t->video, &r, NULL) == SAMITE_OK) {
        int count = r->count;
        if (count && r->frame[count - 1].frame == t->failed)
            r->count--;
        output_results(&t->out, r, NULL);
        r->count = count;
    }
    samite_video_results_free(r);
}

/* Reads on from where the clip is to `last` (-1: the end), and pushes every stride-th frame from `first` on, if
 * asked to.
 * *end: the last frame that was there. */
static int go_forward(tracking *t, int64_t first, int64_t last, bool push, int64_t *end, samite_error *err)
{
    int code = SAMITE_OK;
    for (int got = 1; !code && (last < 0 || *end < last);) {
        samite_pixels px;
        int64_t frame;
        double time;
        if ((got = samite_clip_read(t->clip, -1, &px, &frame, &time, err)) != 1) {
            code = got;
            break;
        }
        *end = frame;
        if (push && frame >= first && (frame - t->s->from) % t->s->stride == 0)
            code = push_frame(t, &px, frame, time, err);
        samite_pixels_free(&px);
        if (!code)
            code = check_interrupt(err);
    }
    return code;
}

static int go_backward(tracking *t, int64_t first, samite_error *err)
{
    int code = samite_video_turn(t->video, 1, err);
    for (int64_t f = first; f >= t->s->from && !code; f--) {
        samite_pixels px;
        double time;
        int64_t found;
        if ((f - t->s->from) % t->s->stride)
            continue;
        int got = samite_clip_read(t->clip, f, &px, &found, &time, err);
        if (got != 1)
            return got ? got : fail(err, SAMITE_INPUT, "frame %lld cannot be read again", (long long)f);
        if (found == f)            /* else it was left out */
            code = push_frame(t, &px, f, time, err);
        samite_pixels_free(&px);
    }
    return code;
}

/* Where a pass backward begins: as told, else at the first prompt for both, else at the end. */
static int64_t start_of(const tracking *t, bool both)
{
    const track_settings *s = t->s;
    int64_t first = -1;
    for (int i = 0; both && i < t->asks->count; i++)
        if (first < 0 || t->asks->item[i].frame < first)
            first = t->asks->item[i].frame;
    return s->start >= 0 ? s->start : both ? first < 0 ? s->from : first : s->to;
}

static int run_passes(tracking *t, samite_error *err)
{
    const char *way = t->s->direction ? t->s->direction : "forward";
    bool both = strcmp(way, "both") == 0, forward = strcmp(way, "forward") == 0;
    int64_t end = -1, start = forward ? t->s->from : start_of(t, both);
    int code = SAMITE_OK;
    if (forward || both)
        code = go_forward(t, start, t->s->to, true, &end, err);
    else
        code = go_forward(t, 0, start, false, &end, err);
    if (!code && end < 0)
        code = fail(err, SAMITE_INPUT, "%s: no frame came: it is empty, or ended within its first frame", t->out.source);
    if (!code && end < t->s->from)
        code = fail(err, SAMITE_INPUT, "%s: no frame %d: it has %lld", t->out.source, t->s->from, (long long)end + 1);
    if (!code && both)
        code = flush(t, err);
    if (!code && !forward)
        code = go_backward(t, both ? start - 1 : end, err);
    return code ? code : flush(t, err);
}

/* ---- the whole ---- */

static samite_video_options video_options(const track_settings *s)
{
    samite_video_options o = SAMITE_VIDEO_OPTIONS_INIT;
    o.score = (float)s->score;
    o.new_score = (float)s->new_score;
    o.max_objects = s->max_objects;
    o.memory_limit = s->object_memory;
    o.detect_every = s->detect_every;
    o.delay = s->delay;
    o.official = s->official;
    o.may_turn = track_turns(s);
    return o;
}

static int open_all(tracking *t, const char *source, samite_error *err)
{
    samite_clip_info info = {.size = sizeof info};
    samite_video_options o = video_options(t->s);
    int code = check_settings(t->s, err);
    if (!code)
        code = samite_clip_open(&t->clip, source, track_clip_flags(t->s), err);
    if (code)
        return code;
    samite_clip_describe(t->clip, &info);
    if (o.may_turn && !info.seekable)
        return fail(err, SAMITE_USAGE, "%s: frames of a pipe or camera come once: only --direction forward works",
                    source);
    code = open_model(&t->model, &t->s->engine, err);
    if (!code)
        code = samite_video_open(&t->video, t->model, &o, err);
    if (!code)
        code = output_open(&t->out, t->s, source, info.rate, err);
    return code ? code : look_for(t, err);
}

static void tell_damage(const tracking *t, const char *source)
{
    samite_clip_info info = {.size = sizeof info};
    samite_clip_describe(t->clip, &info);
    if (info.damage && !t->s->engine.quiet)
        say("%s: %s", source, info.damage);
}

static void tell_speed(const tracking *t, double seconds)
{
    samite_video_status st = {.size = sizeof st};
    size_t n = t->out.frame_count;
    if (t->s->engine.quiet || !n)
        return;
    samite_video_state(t->video, &st);
    say("%zu frames in %.2f s, %.2f per second: %.2f s encoding, %.2f s detecting, %.2f s following; %d objects at the "
        "end", n, seconds, (double)n / seconds, st.encode_seconds, st.detect_seconds,
        st.track_seconds - st.detect_seconds, st.objects);
}

static int track(const track_settings *s, asks *a, const char *source, samite_error *err)
{
    tracking t = {.s = s, .asks = a, .failed = -1};
    int code = open_all(&t, source, err);
    if (!code) {
        double start = seconds_now();
        code = run_passes(&t, err);
        if (code)
            flush_rest(&t);
        progress_end();
        tell_damage(&t, source);
        if (!code)
            tell_speed(&t, seconds_now() - start);
        code = output_close(&t.out, code, err);
    }
    if (!code)
        code = asks_check(a, err);
    progress_end();
    samite_video_free(t.video);
    samite_clip_free(t.clip);
    samite_model_free(t.model);
    return code;
}

static int run(int argc, char **argv)
{
    track_settings s = {.asks = {.object = -1, .named = -1}, .score = 0.5, .new_score = 0.7, .to = -1, .stride = 1,
                        .start = -1, .max_objects = 10000, .detect_every = 1, .delay = 15};
    samite_error err = {0};
    words rest = {0};
    int status;
    if (command_parse(&track_command, &s, argc, argv, &rest, 1, 1, &status)) {
        progress_begin(s.engine.quiet);
        int code = track(&s, &s.asks, rest.item[0], &err);
        status = finish_output(EXIT_OK);
        if (code)
            status = report(&err);
    }
    free(s.asks.item);
    words_free(&rest);
    return status;
}

static const char details[] =
    "VIDEO is a file, a folder of pictures in natural order, - for standard input (MJPEG, Y4M, MPEG-TS),\n"
    "raw:WIDTHxHEIGHT[@RATE]:PATH, or device:FORMAT:NAME such as device:v4l2:/dev/video0. Every frame becomes one\n"
    "line of JSON on standard output, --delay frames after it was read. Frames count from 0.\n"
    "\n"
    "Examples:\n"
    "  samite track clip.mp4 -m sam3.pt --text person --out results --overlay overlay.mp4\n"
    "  samite track frames -m sam3.pt --box 0:100,80,240,300 --point 30:160,120,neg\n"
    "  ffmpeg -i rtsp://camera -f mjpeg - | samite track - -m sam3.pt --text car\n";

const command track_command = {
    "track", "follow objects through a video by words, clicks, boxes or masks",
    "track VIDEO -m MODEL --text WORDS [options]", details, options, run,
};

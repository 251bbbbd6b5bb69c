/* video_ffmpeg.c - video streams through FFmpeg's libraries, one frame at a time. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libavcodec/avcodec.h>
#ifdef HAVE_AVDEVICE
#include <libavdevice/avdevice.h>
#endif
#include <libavformat/avformat.h>
#include <libavutil/display.h>
#include <libavutil/imgutils.h>
#include <libswscale/swscale.h>

#include "io/decoders.h"
#include "io/video_inside.h"

/* Containers that hold pictures themselves, and name no other files or hosts. */
#define FORMATS "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,mpegvideo,m4v,h264,hevc,ivf,obu,av1,mjpeg,flv," \
                "ogg,asf,gif,yuv4mpegpipe,image2pipe,jpeg_pipe,png_pipe,mjpeg_2000,nut,dv,mxf,apng"
#define MOST_BROKEN 100        /* packets in a row */
#define MOST_PADDING 64        /* bytes behind the end of a JPEG picture */
#define LEAST_SHARE 0.95       /* of what the file says it holds; rough declarations are common */

#define BROKEN_OFF "the file breaks off; frames up to there were used"
#define DAMAGED    "some of its data is damaged; frames may be missing or wrong"

typedef struct stream {
    AVFormatContext *format;
    AVCodecContext  *codec;
    AVPacket        *packet;
    AVFrame         *frame;
    struct SwsContext *scale;
    AVStream        *video;
    int              turn;         /* EXIF orientation that stands for the stream's rotation */
    bool             draining;
    int64_t          first;        /* time stamp of frame 0 */
    int64_t         *stamp;        /* of every frame seen */
    int64_t          stamps, room;
    bool             ready;        /* after a seek: `frame` is decoded already */
    bool             jumped;       /* not read from the beginning on: what came says nothing about the whole */
    int64_t          packets;      /* of the video, so far */
    int64_t          bytes;        /* of the file, up to the end of the last packet; -1: not known */
    int64_t          reach;        /* time stamp at which the latest packet ends */
    bool             closed;       /* the last packet ends as pictures of its kind do */
    int              broken;
} stream;

static void be_quiet(void *context, int level, const char *format, va_list args)
{
    (void)context;
    (void)level;
    (void)format;
    (void)args;
}

/* Closes the file; what is known of its frames stays. */
static void let_go(stream *s)
{
    av_frame_free(&s->frame);
    av_packet_free(&s->packet);
    avcodec_free_context(&s->codec);
    avformat_close_input(&s->format);
}

static void stream_close(video_reader *v)
{
    stream *s = v->inside;
    if (!s)
        return;
    sws_freeContext(s->scale);
    let_go(s);
    free(s->stamp);
    free(s);
}

static int refuse(const video_reader *v, const char *what, int code, samite_error *err)
{
    char why[AV_ERROR_MAX_STRING_SIZE] = "";
    av_strerror(code, why, sizeof why);
    if (code == AVERROR(ENOMEM))
        return fail(err, SAMITE_RESOURCE, "%s: not enough memory to read the video", v->path);
    return fail(err, SAMITE_INPUT, "%s: %s: %s", v->path, what, why);
}

/* ---- opening ---- */

static int open_container(video_reader *v, stream *s, const char *url, const char *format, samite_error *err)
{
    AVDictionary *o = NULL;
    const AVInputFormat *device = NULL;
    if (format) {
#ifdef HAVE_AVDEVICE
        avdevice_register_all();
        device = av_find_input_format(format);
#endif
        if (!device)
            return fail(err, SAMITE_USAGE, "%s: this build's FFmpeg knows no device '%s'", v->path, format);
    } else {
        av_dict_set(&o, "protocol_whitelist", "file,pipe", 0);
        av_dict_set(&o, "format_whitelist", FORMATS, 0);
    }
    int code = avformat_open_input(&s->format, url, device, &o);
    av_dict_free(&o);
    if (code < 0)
        return refuse(v, "is no video that can be read", code, err);
    code = avformat_find_stream_info(s->format, NULL);
    return code < 0 ? refuse(v, "holds no readable streams", code, err) : 0;
}

static int open_codec(video_reader *v, stream *s, samite_error *err)
{
    const AVCodec *codec = NULL;
    int at = av_find_best_stream(s->format, AVMEDIA_TYPE_VIDEO, -1, -1, &codec, 0);
    if (at < 0 || !codec)
        return at == AVERROR_DECODER_NOT_FOUND ? refuse(v, "no decoder for its pictures", at, err)
             : fail(err, SAMITE_INPUT, "%s: there are no moving pictures in it", v->path);
    s->video = s->format->streams[at];
    for (unsigned i = 0; i < s->format->nb_streams; i++)
        if ((int)i != at)
            s->format->streams[i]->discard = AVDISCARD_ALL;
    if (!(s->codec = avcodec_alloc_context3(codec)) || !(s->packet = av_packet_alloc()) ||
        !(s->frame = av_frame_alloc()))
        return refuse(v, "", AVERROR(ENOMEM), err);
    int code = avcodec_parameters_to_context(s->codec, s->video->codecpar);
    s->codec->max_pixels = (int64_t)IMAGE_MAX_PIXELS;
    s->codec->pkt_timebase = s->video->time_base;
    if (code >= 0)
        code = avcodec_open2(s->codec, codec, NULL);
    return code < 0 ? refuse(v, "its decoder does not start", code, err) : 0;
}

static int orientation_of(AVStream *video)
{
    size_t size = 0;
    const uint8_t *matrix = av_stream_get_side_data(video, AV_PKT_DATA_DISPLAYMATRIX, &size);
    if (!matrix || size < 9 * sizeof(int32_t))
        return 1;
    int32_t m[9];
    memcpy(m, matrix, sizeof m);
    double angle = av_display_rotation_get(m);
    if (isnan(angle))
        return 1;
    int quarter = ((int)lrint(-angle / 90.0) % 4 + 4) % 4;      /* clockwise turns to be made */
    return quarter == 1 ? 6 : quarter == 2 ? 3 : quarter == 3 ? 8 : 1;
}

static double rate_of(const stream *s)
{
    AVRational r = s->video->avg_frame_rate.num ? s->video->avg_frame_rate : s->video->r_frame_rate;
    double rate = r.den ? (double)r.num / (double)r.den : 0;
    return rate > 0 && rate < 1e5 ? rate : 0;
}

/* ---- frames ---- */

static bool is_format(const stream *s, const char *name)
{
    return strcmp(s->format->iformat->name, name) == 0;
}

/* Does a JPEG picture reach its end marker? */
static bool has_end(const uint8_t *data, int size)
{
    for (int i = size; i >= 2 && i > size - MOST_PADDING; i--)
        if (data[i - 2] == 0xff && data[i - 1] == 0xd9)
            return true;
    return false;
}

/* Notes how far the file was read with this packet of the video. */
static void measure(stream *s, const AVPacket *p)
{
    int64_t stamp = p->pts != AV_NOPTS_VALUE ? p->pts : p->dts;
    s->packets++;
    s->bytes = p->pos >= 0 ? p->pos + p->size : -1;
    s->closed = !is_format(s, "mjpeg") || has_end(p->data, p->size);
    if (stamp != AV_NOPTS_VALUE && stamp + p->duration > s->reach)
        s->reach = stamp + p->duration;
}

/* Is less in the file than it says, by some frames? Frames that are not shown count as there. */
static bool falls_short(const stream *s, double rate)
{
    double unit = av_q2d(s->video->time_base), slack = rate > 0 ? 2.5 / rate : 1;
    if (s->video->nb_frames > s->packets + 1 && (double)s->packets < LEAST_SHARE * (double)s->video->nb_frames)
        return true;
    if (s->format->duration_estimation_method != AVFMT_DURATION_FROM_STREAM || s->format->nb_streams != 1)
        return false;
    double begin = s->video->start_time != AV_NOPTS_VALUE ? (double)s->video->start_time * unit : 0;
    double length = (double)s->format->duration / AV_TIME_BASE, seen = (double)s->reach * unit - begin;
    return seen < length - slack && seen < LEAST_SHARE * length;
}

/* At the end of the file: FFmpeg tells of most kinds of files by nothing that they were cut off. */
static void look_at_end(video_reader *v, const stream *s)
{
    int64_t at = s->format->pb ? avio_tell(s->format->pb) : -1;
    if (s->jumped || v->damage[0])
        return;
    if (is_format(s, "yuv4mpegpipe") && s->bytes >= 0 && at > s->bytes)
        video_note(v, "the last frame is not whole; frames up to there were used");
    else if (!s->closed)
        video_note(v, "the last picture is not whole");
    else if (is_format(s, "mpegts") && at % 188 && at % 192 && at % 204)
        video_note(v, BROKEN_OFF);
    else if (falls_short(s, v->facts.rate))
        video_note(v, "it says it holds more than is there; frames up to the end were used");
}

/* Sends the next packet of the stream to the decoder. 0: go on; 1: the decoder has everything. */
static int feed(video_reader *v, stream *s)
{
    int code = av_read_frame(s->format, s->packet);
    if (code < 0) {
        if (code != AVERROR_EOF)
            video_note(v, BROKEN_OFF);
        look_at_end(v, s);
        avcodec_send_packet(s->codec, NULL);
        s->draining = true;
        return 1;
    }
    if (s->packet->stream_index == s->video->index) {
        if (s->packet->flags & AV_PKT_FLAG_CORRUPT)
            video_note(v, BROKEN_OFF);
        measure(s, s->packet);
        code = avcodec_send_packet(s->codec, s->packet);
        if (code < 0 && code != AVERROR(EAGAIN)) {
            s->broken++;
            video_note(v, DAMAGED);
        }
    }
    av_packet_unref(s->packet);
    return 0;
}

/* 1: s->frame holds a picture; 0: the end; negative: FFmpeg's code. */
static int decode(video_reader *v, stream *s)
{
    for (;;) {
        int code = avcodec_receive_frame(s->codec, s->frame);
        if (code >= 0) {
            if (s->frame->decode_error_flags || (s->frame->flags & AV_FRAME_FLAG_CORRUPT))
                video_note(v, DAMAGED);
            s->broken = 0;
            return 1;
        }
        if (code == AVERROR_EOF)
            return 0;
        if (code == AVERROR(ENOMEM))
            return code;
        if (code != AVERROR(EAGAIN)) {
            video_note(v, DAMAGED);
            if (s->draining || s->broken++ > MOST_BROKEN)
                return 0;
        }
        if (s->draining && code == AVERROR(EAGAIN))
            return 0;
        if (!s->draining)
            feed(v, s);
    }
}

static void set_colours(struct SwsContext *scale, const AVFrame *f)
{
    if (f->colorspace == AVCOL_SPC_UNSPECIFIED || f->colorspace == AVCOL_SPC_RGB)
        return;                    /* FFmpeg's own guess */
    const int *from = sws_getCoefficients(f->colorspace), *to = sws_getCoefficients(SWS_CS_DEFAULT);
    sws_setColorspaceDetails(scale, from, f->color_range == AVCOL_RANGE_JPEG, to, 1, 0, 1 << 16, 1 << 16);
}

static int to_rgb(video_reader *v, stream *s, pixels *out, samite_error *err)
{
    const AVFrame *f = s->frame;
    uint8_t *data[4];
    int line[4];
    if (f->width < 1 || f->height < 1 || (uint64_t)f->width * (uint64_t)f->height > IMAGE_MAX_PIXELS)
        return fail(err, SAMITE_INPUT, "%s: a frame of %d x %d pixels", v->path, f->width, f->height);
    s->scale = sws_getCachedContext(s->scale, f->width, f->height, (enum AVPixelFormat)f->format, f->width, f->height,
                                    AV_PIX_FMT_RGB24, SWS_BICUBIC, NULL, NULL, NULL);
    if (!s->scale)
        return fail(err, SAMITE_INPUT, "%s: its pixel format %d cannot be turned into RGB", v->path, f->format);
    set_colours(s->scale, f);
    size_t row = 3 * (size_t)f->width;
    uint8_t *rgb = malloc(row * (size_t)f->height);
    if (!rgb || av_image_alloc(data, line, f->width, f->height, AV_PIX_FMT_RGB24, 64) < 0) {
        free(rgb);
        return fail(err, SAMITE_RESOURCE, "%s: not enough memory for a frame of %d x %d", v->path, f->width, f->height);
    }
    sws_scale(s->scale, (const uint8_t *const *)f->data, f->linesize, 0, f->height, data, line);
    for (int y = 0; y < f->height; y++)
        memcpy(rgb + (size_t)y * row, data[0] + (size_t)y * (size_t)line[0], row);
    av_freep(&data[0]);
    *out = (pixels){f->width, f->height, rgb, 1, false, false, "video"};
    return 0;
}

/* Remembers the stamp of frame `index`; false: out of memory. */
static bool note_stamp(stream *s, int64_t index, int64_t stamp)
{
    if (index < s->stamps)
        return true;
    if (s->stamps == s->room) {
        int64_t room = s->room ? 2 * s->room : 256;
        int64_t *more = realloc(s->stamp, sizeof *more * (size_t)room);
        if (!more)
            return false;
        s->stamp = more;
        s->room = room;
    }
    s->stamp[s->stamps++] = stamp;
    return true;
}

static double time_of(const video_reader *v, const stream *s, int64_t stamp)
{
    if (stamp != AV_NOPTS_VALUE && s->first != AV_NOPTS_VALUE)
        return (double)(stamp - s->first) * av_q2d(s->video->time_base);
    return v->facts.rate > 0 ? (double)v->next / v->facts.rate : 0;
}

static int stream_next(video_reader *v, video_frame *out, samite_error *err)
{
    stream *s = v->inside;
    int got = s->ready ? 1 : decode(v, s);
    s->ready = false;
    if (got <= 0)
        return got < 0 ? refuse(v, "cannot be decoded", got, err) : 0;
    int64_t stamp = v->next < s->stamps ? s->stamp[v->next] : s->frame->best_effort_timestamp;
    if (v->next == 0)
        s->first = stamp;
    if (!note_stamp(s, v->next, stamp))
        return fail(err, SAMITE_RESOURCE, "%s: not enough memory to list its frames", v->path);
    int code = to_rgb(v, s, &out->picture, err);
    out->time = time_of(v, s, stamp);
    av_frame_unref(s->frame);
    if (code)
        return code;
    out->picture.exif_orientation = v->options.skip_rotation ? 1 : s->turn;
    code = exif_apply(&out->picture, v->path, err);
    return code ? code : 1;
}

/* Goes to frame `index` by its time. false: the file has no good index, or its times are not those of the frames. */
static bool jump(video_reader *v, stream *s, int64_t index)
{
    int64_t wanted = s->stamp[index];
    s->jumped = true;
    if (wanted == AV_NOPTS_VALUE || (index > 0 && s->stamp[index - 1] >= wanted) ||
        av_seek_frame(s->format, s->video->index, wanted, AVSEEK_FLAG_BACKWARD) < 0)
        return false;
    avcodec_flush_buffers(s->codec);
    s->draining = false;
    while (decode(v, s) == 1) {
        int64_t stamp = s->frame->best_effort_timestamp;
        if (stamp == wanted && !(s->frame->flags & AV_FRAME_FLAG_CORRUPT))
            return true;
        av_frame_unref(s->frame);
        if (stamp != AV_NOPTS_VALUE && stamp > wanted)
            return false;
    }
    return false;
}

/* Goes to frame `index` by opening the file once more and counting. */
static int count_up(video_reader *v, stream *s, int64_t index, samite_error *err)
{
    let_go(s);
    s->draining = false;
    int code = open_container(v, s, v->path, NULL, err);
    if (!code)
        code = open_codec(v, s, err);
    for (int64_t i = 0; i <= index && !code; i++) {
        av_frame_unref(s->frame);
        if (decode(v, s) != 1)
            code = fail(err, SAMITE_INPUT, "%s: frame %lld cannot be read again", v->path, (long long)index);
    }
    return code;
}

static int stream_seek(video_reader *v, int64_t index, samite_error *err)
{
    stream *s = v->inside;
    if (index >= s->stamps)
        return fail(err, SAMITE_INPUT, "%s: frame %lld cannot be found again", v->path, (long long)index);
    int code = jump(v, s, index) ? 0 : count_up(v, s, index, err);
    s->ready = !code;
    v->next = index;
    return code;
}

static const video_source stream_source = {stream_next, stream_seek, stream_close};
static const video_source pipe_source = {stream_next, NULL, stream_close};

int video_open_stream(video_reader *v, const char *url, const char *format, samite_error *err)
{
    stream *s = calloc(1, sizeof *s);
    v->inside = s;
    v->source = &stream_source;
    if (!s)
        return fail(err, SAMITE_RESOURCE, "not enough memory to open %s", v->path);
    av_log_set_callback(be_quiet);
    s->first = AV_NOPTS_VALUE;
    s->closed = true;
    int code = open_container(v, s, url, format, err);
    if (!code)
        code = open_codec(v, s, err);
    if (code)
        return code;
    bool can_seek = !format && s->format->pb && (s->format->pb->seekable & AVIO_SEEKABLE_NORMAL);
    v->source = can_seek ? &stream_source : &pipe_source;
    s->turn = orientation_of(s->video);
    v->facts = (video_facts){.frames = s->video->nb_frames > 0 ? s->video->nb_frames : 0, .rate = rate_of(s),
                             .seekable = can_seek, .codec = avcodec_get_name(s->codec->codec_id)};
    return 0;
}

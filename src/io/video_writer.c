/* video_writer.c - frames into a video file: H.264 where there is an encoder, else MJPEG. */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/imgutils.h>
#include <libavutil/opt.h>
#include <libswscale/swscale.h>

#include "base/text.h"
#include "io/video.h"

#define TICKS        90000     /* of the time base, per second */
#define USUAL_RATE   25.0

struct video_writer {
    AVFormatContext *format;
    AVCodecContext  *codec;
    AVStream        *video;
    AVFrame         *frame;
    AVPacket        *packet;
    struct SwsContext *scale;
    char            *path, *temp;
    int              width, height;    /* of the pictures; the frame's are even */
    int64_t          last;             /* stamp of the last frame */
    double           rate;
    bool             begun;
};

static void release(video_writer *w)
{
    if (w->format && w->format->pb)
        avio_closep(&w->format->pb);
    sws_freeContext(w->scale);
    av_frame_free(&w->frame);
    av_packet_free(&w->packet);
    avcodec_free_context(&w->codec);
    avformat_free_context(w->format);
    free(w->path);
    free(w->temp);
    free(w);
}

void video_writer_abort(video_writer *w)
{
    if (!w)
        return;
    if (w->temp)
        unlink(w->temp);
    release(w);
}

static int refuse(const video_writer *w, const char *what, int code, samite_error *err)
{
    char why[AV_ERROR_MAX_STRING_SIZE] = "";
    av_strerror(code, why, sizeof why);
    bool disk = code == AVERROR(ENOSPC) || code == AVERROR(ENOMEM);
    return fail(err, disk ? SAMITE_RESOURCE : SAMITE_INPUT, "%s: %s: %s", w->path, what, why);
}

/* ---- opening ---- */

static int start_codec(video_writer *w, const AVCodec *codec)
{
    bool jpeg = codec->id == AV_CODEC_ID_MJPEG, avi = strcmp(w->format->oformat->name, "avi") == 0;
    AVCodecContext *c = avcodec_alloc_context3(codec);
    if (!c)
        return AVERROR(ENOMEM);
    avcodec_free_context(&w->codec);
    w->codec = c;
    c->width = w->width + w->width % 2;
    c->height = w->height + w->height % 2;
    c->time_base = jpeg || avi ? av_d2q(1 / w->rate, 1000000) : (AVRational){1, TICKS};
    c->max_b_frames = avi ? 0 : -1;        /* AVI has no place for times that are not those of its packets */
    c->framerate = av_d2q(w->rate, 1000000);
    c->pix_fmt = jpeg ? AV_PIX_FMT_YUVJ420P : AV_PIX_FMT_YUV420P;
    c->color_range = jpeg ? AVCOL_RANGE_JPEG : AVCOL_RANGE_MPEG;
    c->gop_size = 50;
    if (jpeg) {
        c->flags |= AV_CODEC_FLAG_QSCALE;
        c->global_quality = 3 * FF_QP2LAMBDA;
    } else {
        c->bit_rate = 0;
        av_opt_set(c->priv_data, "preset", "fast", 0);
        av_opt_set(c->priv_data, "crf", "20", 0);
    }
    if (w->format->oformat->flags & AVFMT_GLOBALHEADER)
        c->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    return avcodec_open2(c, codec, NULL);
}

/* H.264 in software, or MJPEG: encoders of graphics cards need surfaces of their own. */
static int choose_codec(video_writer *w, samite_error *err)
{
    static const char *const names[] = {"libx264", "libopenh264", "mjpeg"};
    int code = AVERROR_ENCODER_NOT_FOUND;
    for (size_t i = 0; i < sizeof names / sizeof *names && code < 0; i++) {
        const AVCodec *codec = avcodec_find_encoder_by_name(names[i]);
        if (codec && avformat_query_codec(w->format->oformat, codec->id, FF_COMPLIANCE_NORMAL) != 0)
            code = start_codec(w, codec);
    }
    return code < 0 ? refuse(w, "no encoder for video starts", code, err) : 0;
}

static int start_file(video_writer *w, samite_error *err)
{
    if (!(w->video = avformat_new_stream(w->format, NULL)))
        return refuse(w, "", AVERROR(ENOMEM), err);
    w->video->time_base = w->codec->time_base;
    w->video->avg_frame_rate = w->codec->framerate;
    int code = avcodec_parameters_from_context(w->video->codecpar, w->codec);
    if (code >= 0)
        code = avio_open(&w->format->pb, w->temp, AVIO_FLAG_WRITE);
    if (code >= 0)
        code = avformat_write_header(w->format, NULL);
    w->begun = code >= 0;
    return code < 0 ? refuse(w, "cannot be written", code, err) : 0;
}

static int make_frame(video_writer *w, samite_error *err)
{
    w->packet = av_packet_alloc();
    w->frame = av_frame_alloc();
    if (!w->packet || !w->frame)
        return refuse(w, "", AVERROR(ENOMEM), err);
    w->frame->format = w->codec->pix_fmt;
    w->frame->width = w->codec->width;
    w->frame->height = w->codec->height;
    w->frame->color_range = w->codec->color_range;
    w->scale = sws_getContext(w->width, w->height, AV_PIX_FMT_RGB24, w->codec->width, w->codec->height,
                              w->codec->pix_fmt,
                              SWS_BICUBIC, NULL, NULL, NULL);
    int code = w->scale ? av_frame_get_buffer(w->frame, 0) : AVERROR(EINVAL);
    return code < 0 ? refuse(w, "frames of this size cannot be encoded", code, err) : 0;
}

int video_writer_open(video_writer **out, const char *path, int width, int height, double rate, samite_error *err)
{
    video_writer *w = calloc(1, sizeof *w);
    *out = NULL;
    if (!w || !(w->path = text_copy(path)) || asprintf(&w->temp, "%s.part-%d", path, (int)getpid()) < 0) {
        if (w)
            free(w->path);
        free(w);
        return fail(err, SAMITE_RESOURCE, "not enough memory to write %s", path);
    }
    w->width = width;
    w->height = height;
    w->rate = rate > 0 ? rate : USUAL_RATE;
    w->last = -1;
    av_log_set_level(AV_LOG_QUIET);
    int code = avformat_alloc_output_context2(&w->format, NULL, NULL, path);
    code = code < 0 ? refuse(w, "its ending says no kind of video (use .mp4, .mkv or .avi)", code, err) : 0;
    if (!code)
        code = choose_codec(w, err);
    if (!code)
        code = make_frame(w, err);
    if (!code)
        code = start_file(w, err);
    if (code)
        video_writer_abort(w);
    else
        *out = w;
    return code;
}

const char *video_writer_codec(const video_writer *w)
{
    return avcodec_get_name(w->codec->codec_id);
}

/* ---- frames ---- */

/* Encodes `frame` (NULL: what is left) and writes what comes out. */
static int encode(video_writer *w, AVFrame *frame, samite_error *err)
{
    int code = avcodec_send_frame(w->codec, frame);
    while (code >= 0) {
        code = avcodec_receive_packet(w->codec, w->packet);
        if (code == AVERROR(EAGAIN) || code == AVERROR_EOF)
            return 0;
        if (code < 0)
            break;
        av_packet_rescale_ts(w->packet, w->codec->time_base, w->video->time_base);
        w->packet->stream_index = w->video->index;
        code = av_interleaved_write_frame(w->format, w->packet);
    }
    return refuse(w, "a frame cannot be written", code, err);
}

int video_writer_add(video_writer *w, const uint8_t *rgb, double time, samite_error *err)
{
    const uint8_t *data[4] = {rgb};
    int line[4] = {3 * w->width};
    int code = av_frame_make_writable(w->frame);
    if (code < 0)
        return refuse(w, "", code, err);
    sws_scale(w->scale, data, line, 0, w->height, w->frame->data, w->frame->linesize);
    double tick = av_q2d(w->codec->time_base), next = w->last < 0 ? 0 : (double)w->last * tick + 1 / w->rate;
    int64_t stamp = (int64_t)llrint((isfinite(time) && time >= 0 ? time : next) / tick);
    w->last = stamp > w->last ? stamp : w->last + 1;
    w->frame->pts = w->last;
    w->frame->quality = w->codec->global_quality;
    return encode(w, w->frame, err);
}

int video_writer_close(video_writer *w, samite_error *err)
{
    int code = encode(w, NULL, err), end = av_write_trailer(w->format);
    if (!code && end < 0)
        code = refuse(w, "cannot be finished", end, err);
    if (w->format->pb && avio_closep(&w->format->pb) < 0 && !code)
        code = fail(err, SAMITE_RESOURCE, "%s: cannot be finished", w->path);
    if (!code && rename(w->temp, w->path) != 0)
        code = fail(err, SAMITE_RESOURCE, "%s: cannot be given its name: %s", w->path, strerror(errno));
    if (code)
        unlink(w->temp);
    release(w);
    return code;
}

/* webp.c - WebP through libwebp: still pictures and the first frame of animations. */
#include <string.h>

#include <webp/decode.h>
#include <webp/demux.h>

#include "io/decoders.h"

static int chunk_orientation(const WebPDemuxer *demux, const char *fourcc, int (*find)(const uint8_t *, size_t))
{
    WebPChunkIterator chunk;
    if (!WebPDemuxGetChunk(demux, fourcc, 1, &chunk))
        return 0;
    int o = find(chunk.chunk.bytes, chunk.chunk.size);
    WebPDemuxReleaseChunkIterator(&chunk);
    return o;
}

static void find_orientation(pixels *out, const image_source *src)
{
    WebPData data = {src->data, src->size};
    WebPDemuxer *demux = WebPDemux(&data);
    if (!demux)
        return;
    int o = chunk_orientation(demux, "EXIF", exif_find_orientation);
    if (!o)
        o = chunk_orientation(demux, "XMP ", xmp_find_orientation);
    if (o)
        out->exif_orientation = o;
    WebPDemuxDelete(demux);
}

/* Frames are RGBA on a canvas; the first one is what a viewer shows before the animation starts. */
static bool decode_first_frame(pixels *out, const image_source *src)
{
    WebPAnimDecoderOptions options;
    WebPData data = {src->data, src->size};
    WebPAnimDecoder *decoder = WebPAnimDecoderOptionsInit(&options) ? WebPAnimDecoderNew(&data, &options) : NULL;
    WebPAnimInfo info;
    uint8_t *rgba = NULL;
    int time;
    bool ok = decoder && WebPAnimDecoderGetInfo(decoder, &info) && info.canvas_width == (uint32_t)out->width &&
              info.canvas_height == (uint32_t)out->height && WebPAnimDecoderGetNext(decoder, &rgba, &time);
    size_t count = (size_t)out->width * (size_t)out->height;
    for (size_t i = 0; ok && i < count; i++)
        memcpy(out->rgb + 3 * i, rgba + 4 * i, 3);
    WebPAnimDecoderDelete(decoder);
    return ok;
}

int decode_webp(pixels *out, const image_source *src, samite_error *err)
{
    WebPBitstreamFeatures f;
    VP8StatusCode status = WebPGetFeatures(src->data, src->size, &f);
    if (status == VP8_STATUS_NOT_ENOUGH_DATA)
        return fail_truncated(src, "WebP", err);
    if (status != VP8_STATUS_OK)
        return fail(err, SAMITE_INPUT, "%s: damaged WebP header: get another copy", src->name);
    int code = pixels_alloc(out, src, (uint64_t)f.width, (uint64_t)f.height, err);
    if (code != SAMITE_OK)
        return code;
    size_t stride = (size_t)out->width * 3;
    bool ok = f.has_animation ? decode_first_frame(out, src)
                              : WebPDecodeRGBInto(src->data, src->size, out->rgb, stride * (size_t)out->height,
                                                  (int)stride) != NULL;
    if (!ok)
        return fail(err, SAMITE_INPUT, "%s: damaged or truncated WebP: get a complete copy", src->name);
    find_orientation(out, src);
    return SAMITE_OK;
}

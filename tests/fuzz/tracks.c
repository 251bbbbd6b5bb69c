/* tracks.c - any bytes as tracks of a small set of videos: read or refused in words, and evaluated. */
#include <stdlib.h>
#include <string.h>

#include "eval/video.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void evaluate(const track_set *g, const track_set *d)
{
    uint32_t all[64], n = d->count < 64 ? (uint32_t)d->count : 64, first = 0;
    for (uint32_t i = 0; i < 64; i++)
        all[i] = i;
    hota h;
    double jf[JF_NUMBERS];
    sequence s = {.truth = g, .results = d, .g = &first, .d = all, .truths = 1, .found = n};
    if (sequence_open(&s, NULL) != SAMITE_OK || hota_sequence(&h, &s, NULL) != SAMITE_OK ||
        jf_sequence(jf, &s, NULL) != SAMITE_OK)
        abort();
    for (int i = 0; i < JF_NUMBERS; i++)
        if (!(jf[i] >= -1 && jf[i] <= 1))
            abort();
    sequence_free(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char truth[] =
        "{\"videos\":[{\"id\":1,\"width\":9,\"height\":7,\"length\":3}],\"categories\":[{\"id\":1}],"
        "\"annotations\":[{\"video_id\":1,\"category_id\":1,\"segmentations\":[[[1,1,6,1,6,6,1,6]],null,"
        "{\"size\":[7,9],\"counts\":[10,5,48]}]}]}";
    track_set g, d, own;
    samite_error err = {0};
    if (track_set_parse(&g, truth, sizeof truth - 1, "gt", &err) != SAMITE_OK)
        abort();
    int code = track_results_parse(&d, &g, (const char *)data, size, "dt", &err);
    if (code == SAMITE_OK)
        evaluate(&g, &d);
    else if (err.code != code || !err.text[0])
        abort();
    track_set_free(&d);
    track_set_free(&g);
    if (track_set_parse(&own, (const char *)data, size, "gt", &err) == SAMITE_OK)
        track_set_free(&own);
    return 0;
}

/* video.c - sequences out of two files of tracks, and the numbers over all of them. */
#include "eval/video.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "eval/coco.h"
#include "eval/evaluation.h"

bool sequence_sees(const sequence *s, bool truth, size_t which, size_t frame)
{
    const track *t = truth ? &s->truth->tracks[s->g[which]] : &s->results->tracks[s->d[which]];
    return t->mask[frame] != NULL;
}

/* All tracks of one side that are seen in a frame, decoded. */
static int decode_side(rle *out, double (*box)[4], const sequence *s, bool truth, size_t frame, samite_error *err)
{
    size_t n = truth ? s->truths : s->found;
    int code = SAMITE_OK;
    for (size_t i = 0; i < n && !code; i++) {
        if (!sequence_sees(s, truth, i, frame))
            continue;
        code = track_mask(&out[i], s->truth, truth ? &s->truth->tracks[s->g[i]] : &s->results->tracks[s->d[i]], frame,
                          err);
        if (!code)
            rle_bbox(box[i], &out[i]);
    }
    return code;
}

static int frame_overlaps(double *iou, const sequence *s, size_t frame, samite_error *err)
{
    size_t n = s->truths + s->found;
    rle *m = calloc(n + 1, sizeof *m);
    double (*box)[4] = calloc(n + 1, sizeof *box);
    int code = m && box ? SAMITE_OK : fail(err, SAMITE_RESOURCE, "not enough memory for %zu masks", n);
    if (!code)
        code = decode_side(m, box, s, true, frame, err);
    if (!code)
        code = decode_side(m + s->truths, box + s->truths, s, false, frame, err);
    for (size_t i = 0; i < s->truths && !code; i++)
        for (size_t j = 0; j < s->found; j++) {
            const rle *d = &m[s->truths + j];
            bool near = m[i].runs && d->runs && coco_box_iou(box[i], box[s->truths + j], false) > 0;
            iou[i * s->found + j] = near ? rle_iou(&m[i], d, false) : 0;
        }
    for (size_t i = 0; m && i < n; i++)
        rle_free(&m[i]);
    free(m);
    free(box);
    return code;
}

int sequence_open(sequence *s, samite_error *err)
{
    size_t frames = s->truth->videos[s->video].frames, each = s->truths * s->found;
    int failed = SAMITE_OK;
    s->iou = calloc(frames + 1, sizeof *s->iou);
    double *all = each <= SIZE_MAX / 16 / (frames + 1) ? calloc(frames * each + 1, sizeof *all) : NULL;
    if (!s->iou || !all) {
        free(all);
        return fail(err, SAMITE_RESOURCE, "not enough memory to compare %zu tracks with %zu objects over %zu frames",
                    s->found, s->truths, frames);
    }
    s->iou[0] = all;
    for (size_t f = 1; f < frames; f++)
        s->iou[f] = all + f * each;
    if (each == 0)
        return SAMITE_OK;
#pragma omp parallel for schedule(dynamic, 4)
    for (size_t f = 0; f < frames; f++) {
        samite_error own = {0};
        int code = frame_overlaps(s->iou[f], s, f, &own);
        if (code) {
#pragma omp critical(samite_sequence_failed)
            failed = failed ? failed : fail(err, code, "%s", own.text);
        }
    }
    return failed;
}

void sequence_free(sequence *s)
{
    if (s->iou)
        free(s->iou[0]);
    free(s->iou);
    s->iou = NULL;
}

/* ---- all sequences ---- */

typedef struct video_sums {
    hota   all;
    double jf[JF_NUMBERS];
    double objects;
    struct sequence_numbers { char name[160]; double hota, jf; bool objects; } *each;
    size_t sequences, room;
} video_sums;

/* Tracks sorted so that those of one video and category lie together, in the order of the file. */
typedef struct listed {
    uint64_t where;
    uint32_t track;
} listed;

static int compare_listed(const void *a, const void *b)
{
    const listed *x = a, *y = b;
    if (x->where != y->where)
        return x->where < y->where ? -1 : 1;
    return (x->track > y->track) - (x->track < y->track);
}

static listed *sort_tracks(const track_set *s)
{
    listed *l = malloc((s->count + 1) * sizeof *l);
    for (size_t i = 0; l && i < s->count; i++)
        l[i] = (listed){(uint64_t)s->tracks[i].video << 32 | (uint32_t)s->tracks[i].category, (uint32_t)i};
    if (l && s->count > 1)
        qsort(l, s->count, sizeof *l, compare_listed);
    return l;
}

/* "5 dog": what a sequence is called. */
static void name_sequence(char *out, size_t room, const sequence *s)
{
    char id[64];
    snprintf(out, room, "%s %s", id_print(id, sizeof id, &s->truth->video_ids.item[s->video]),
             s->truth->categories[s->category]);
}

static int add_sequence(video_sums *v, sequence *s, samite_error *err)
{
    hota one;
    double jf[JF_NUMBERS] = {0};
    int code = sequence_open(s, err);
    if (!code)
        code = hota_sequence(&one, s, err);
    if (!code)
        hota_add(&v->all, &one);
    if (!code && grow(&v->each, v->sequences, &v->room, sizeof *v->each))
        code = fail(err, SAMITE_RESOURCE, "not enough memory for %zu sequences", v->sequences);
    if (!code && s->truths) {
        code = jf_sequence(jf, s, err);
        for (int i = 0; i < JF_NUMBERS && !code; i++)
            v->jf[i] += jf[i] * (double)s->truths;
        v->objects += (double)s->truths;
    }
    if (!code) {
        struct sequence_numbers *n = &v->each[v->sequences++];
        double h[HOTA_NUMBERS][HOTA_ALPHAS];
        hota sum = {0};
        hota_add(&sum, &one);
        hota_numbers(h, &sum);
        name_sequence(n->name, sizeof n->name, s);
        n->hota = mean_as_numpy(h[HOTA_HOTA], HOTA_ALPHAS);
        n->jf = (jf[JF_J] + jf[JF_F]) / 2;
        n->objects = s->truths > 0;
    }
    sequence_free(s);
    return code;
}

static int add_all(video_sums *v, const track_set *truth, const track_set *results, samite_error *err)
{
    listed *g = sort_tracks(truth), *d = sort_tracks(results);
    uint32_t *gl = malloc((truth->count + 1) * sizeof *gl), *dl = malloc((results->count + 1) * sizeof *dl);
    int code =
        g && d && gl && dl ? SAMITE_OK : fail(err, SAMITE_RESOURCE, "not enough memory for %zu tracks", results->count);
    for (size_t i = 0, j = 0; !code && (i < truth->count || j < results->count);) {
        uint64_t where = i < truth->count ? g[i].where : UINT64_MAX;
        if (j < results->count && d[j].where < where)
            where = d[j].where;
        sequence s = {.truth = truth,
                      .results = results,
                      .video = (int32_t)(where >> 32),
                      .category = (int32_t)(uint32_t)where,
                      .g = gl,
                      .d = dl};
        for (; i < truth->count && g[i].where == where; i++)
            gl[s.truths++] = g[i].track;
        for (; j < results->count && d[j].where == where; j++)
            dl[s.found++] = d[j].track;
        code = add_sequence(v, &s, err);
    }
    free(g);
    free(d);
    free(gl);
    free(dl);
    return code;
}

static void put_numbers(findings *f, const video_sums *v)
{
    double n[HOTA_NUMBERS][HOTA_ALPHAS], weight = v->objects > 1 ? v->objects : 1;
    double j = v->jf[JF_J] / weight, border = v->jf[JF_F] / weight;
    char name[32];
    hota_numbers(n, &v->all);
    for (int i = 0; i < HOTA_NUMBERS; i++) {
        double mean = mean_as_numpy(n[i], HOTA_ALPHAS);
        findings_put(f, "video", hota_names[i], mean);
        findings_number(f, "video", hota_names[i], mean);
    }
    findings_put(f, "video", "HOTA(0)", n[HOTA_HOTA][0]);
    findings_put(f, "video", "LocA(0)", n[HOTA_LOCA][0]);
    findings_number(f, "video", "J&F", (j + border) / 2);
    findings_put(f, "video", "J&F", (j + border) / 2);
    for (int i = 0; i < JF_NUMBERS; i++) {
        findings_put(f, "video", jf_names[i], v->jf[i] / weight);
        findings_number(f, "video", jf_names[i], v->jf[i] / weight);
    }
    for (size_t i = 0; i < v->sequences; i++)
        findings_number(f, "video/HOTA", v->each[i].name, v->each[i].hota);
    for (size_t i = 0; i < v->sequences; i++)
        if (v->each[i].objects)
            findings_number(f, "video/J&F", v->each[i].name, v->each[i].jf);
    for (int i = 0; i < HOTA_NUMBERS; i++)
        for (int a = 0; a < HOTA_ALPHAS; a++) {
            snprintf(name, sizeof name, "%s@%.2f", hota_names[i], 0.05 + a * 0.05);
            findings_put(f, "video_thresholds", name, n[i][a]);
        }
}

int evaluate_videos(findings *f, const samite_eval_options *o, samite_error *err)
{
    track_set truth = {0}, results = {0};
    video_sums v = {0};
    int code = track_set_read(&truth, o->gt[0], err);
    if (!code)
        code = track_results_read(&results, &truth, o->dt, err);
    if (!code && results.unknown_categories)
        findings_note(f, "%s: %zu tracks have a category that %s does not have; left out", o->dt,
                      results.unknown_categories, o->gt[0]);
    if (!code && results.empty_masks + truth.empty_masks)
        findings_note(f, "%zu masks are empty; there the object counts as not seen",
                      results.empty_masks + truth.empty_masks);
    if (!code && results.other_frames)
        findings_note(f, "%s: %zu masks are on frames that %s does not have; left out", o->dt, results.other_frames,
                      o->gt[0]);
    if (!code && results.count == 0)
        findings_note(f, "%s has no tracks", o->dt);
    if (!code)
        code = add_all(&v, &truth, &results, err);
    if (!code)
        put_numbers(f, &v);
    free(v.each);
    track_set_free(&results);
    track_set_free(&truth);
    return code;
}

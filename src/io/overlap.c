/* overlap.c - how much masks and boxes cover each other, and greedy suppression by it. */
#include <string.h>

#include "io/mask.h"

uint64_t rle_intersection(const rle *a, const rle *b)
{
    uint64_t common = 0, end_a = 0, end_b = 0, at = 0;
    size_t i = 0, j = 0;
    if (a->width != b->width || a->height != b->height)
        return 0;
    while (i < a->runs && j < b->runs) {
        uint64_t next_a = end_a + a->counts[i], next_b = end_b + b->counts[j];
        uint64_t next = next_a < next_b ? next_a : next_b;
        if (i % 2 && j % 2)
            common += next - at;
        at = next;
        if (next_a == next)
            end_a = next_a, i++;
        if (next_b == next)
            end_b = next_b, j++;
    }
    return common;
}

static double ratio(double common, double area_a, double area_b, bool crowd)
{
    double whole = crowd ? area_a : area_a + area_b - common;
    return common > 0 && whole > 0 ? common / whole : 0;
}

double rle_iou(const rle *a, const rle *b, bool crowd)
{
    return ratio((double)rle_intersection(a, b), (double)rle_area(a), (double)rle_area(b), crowd);
}

static double overlap_1d(double a, double size_a, double b, double size_b)
{
    double start = a > b ? a : b, end = a + size_a < b + size_b ? a + size_a : b + size_b;
    return end > start ? end - start : 0;
}

double box_iou(const double a[4], const double b[4], bool crowd)
{
    double common = overlap_1d(a[0], a[2], b[0], b[2]) * overlap_1d(a[1], a[3], b[1], b[3]);
    return ratio(common, a[2] * a[3], b[2] * b[3], crowd);
}

static bool boxes_touch(const double a[4], const double b[4])
{
    return overlap_1d(a[0], a[2], b[0], b[2]) > 0 && overlap_1d(a[1], a[3], b[1], b[3]) > 0;
}

void rle_nms(uint8_t *keep, const rle *masks, size_t count, double threshold)
{
    memset(keep, 1, count);
    for (size_t i = 0; i < count; i++) {
        double box[4], other[4];
        if (!keep[i])
            continue;
        rle_bbox(box, &masks[i]);
        for (size_t j = i + 1; j < count; j++) {
            if (!keep[j])
                continue;
            rle_bbox(other, &masks[j]);
            if (boxes_touch(box, other) && rle_iou(&masks[i], &masks[j], false) > threshold)
                keep[j] = 0;
        }
    }
}

void box_nms(uint8_t *keep, const double (*boxes)[4], size_t count, double threshold)
{
    memset(keep, 1, count);
    for (size_t i = 0; i < count; i++) {
        for (size_t j = i + 1; keep[i] && j < count; j++) {
            if (keep[j] && box_iou(boxes[i], boxes[j], false) > threshold)
                keep[j] = 0;
        }
    }
}

/* log_page.c - SVG curves without a script, so that the page opens anywhere; it loads itself anew while training runs.
 */
#define _GNU_SOURCE
#include "train/log_page.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/report.h"
#include "io/image.h"

#define WIDE 560
#define TALL 220
#define EDGE 48
#define POINTS 400        /* of a curve; more are averaged */

typedef struct range { double x0, x1, y0, y1; } range;

static range range_of(const series *const *list, int n)
{
    range r = {INFINITY, -INFINITY, INFINITY, -INFINITY};
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < list[i]->count; k++) {
            double x = list[i]->x[k], y = list[i]->y[k];
            r.x0 = fmin(r.x0, x), r.x1 = fmax(r.x1, x);
            r.y0 = fmin(r.y0, y), r.y1 = fmax(r.y1, y);
        }
    }
    if (!(r.x1 > r.x0))
        r.x1 = r.x0 + 1;
    if (!(r.y1 > r.y0))
        r.y1 = r.y0 + (r.y0 != 0 ? fabs(r.y0) : 1);
    return r;
}

/* A polyline through the means of groups of points. */
static void curve(text *t, const series *s, range r, int colour)
{
    int group = (s->count + POINTS - 1) / POINTS;
    text_printf(t, "<polyline class=\"c%d\" points=\"", colour);
    for (int i = 0; i < s->count; i += group) {
        double x = 0, y = 0;
        int n = s->count - i < group ? s->count - i : group;
        for (int k = 0; k < n; k++)
            x += s->x[i + k] / n, y += s->y[i + k] / n;
        text_printf(t, "%.1f,%.1f ", EDGE + (x - r.x0) / (r.x1 - r.x0) * (WIDE - EDGE - 8),
                    TALL - 24 - (y - r.y0) / (r.y1 - r.y0) * (TALL - 40));
    }
    text_printf(t, "\"/>");
}

static void chart(text *t, const char *title, const series *const *list, int n)
{
    if (!n)
        return;
    range r = range_of(list, n);
    text_printf(t, "<figure><figcaption>%s</figcaption><svg viewBox=\"0 0 %d %d\">", title, WIDE, TALL);
    for (int i = 0; i <= 4; i++) {
        double y = TALL - 24 - i * (TALL - 40) / 4.0;
        text_printf(
            t, "<line class=\"g\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"2\" y=\"%.1f\">%.3g</text>",
            EDGE, WIDE - 8, y, y, y + 3, r.y0 + i * (r.y1 - r.y0) / 4);
    }
    text_printf(t, "<text x=\"%d\" y=\"%d\">%.0f</text><text x=\"%d\" y=\"%d\" text-anchor=\"end\">step %.0f</text>",
                EDGE, TALL - 6, r.x0, WIDE - 8, TALL - 6, r.x1);
    for (int i = 0; i < n; i++)
        curve(t, list[i], r, i % 8);
    text_printf(t, "</svg><p>");
    for (int i = 0; i < n; i++) {
        text_printf(t, "<span class=\"c%d\">&#9632;</span> ", i % 8);
        html_escape(t, list[i]->name);
        text_printf(t, " %.4g&ensp;", list[i]->y[list[i]->count - 1]);
    }
    text_printf(t, "</p></figure>\n");
}

static int pick(const series **out, const series *list, int count, int (*wanted)(const char *))
{
    int n = 0;
    for (int i = 0; i < count && n < 8; i++)
        if (list[i].count && wanted(list[i].name))
            out[n++] = &list[i];
    return n;
}

static int is_core(const char *s) { return strcmp(s, "core_loss") == 0; }
static int is_norm(const char *s) { return strcmp(s, "grad_norm") == 0; }
static int is_rate(const char *s) { return starts_with(s, "lr_"); }
static int is_ap(const char *s)
{
    return starts_with(s, "Meters_train/") && (ends_with(s, "_AP") || ends_with(s, "_AP_50") || ends_with(s, "_AP_75"));
}
static int is_f1(const char *s) { return strcmp(s, "ce_f1") == 0 || strcmp(s, "presence_dec_acc") == 0; }
static int is_speed(const char *s) { return strcmp(s, "images_per_s") == 0; }
static bool is_named_loss(const char *s) { return starts_with(s, "loss_") || starts_with(s, "presence_loss"); }
static int is_loss(const char *s) { return !strstr(s, "_aux_") && !strstr(s, "_o2m") && is_named_loss(s); }

static void charts(text *t, const series *list, int count)
{
    static const struct { const char *title; int (*wanted)(const char *); } kinds[] = {
        {"validation", is_ap}, {"loss that is minimised", is_core}, {"its parts (last layer, unweighted)", is_loss},
        {"how well queries and presence are told", is_f1}, {"gradient norm before clipping", is_norm},
        {"learning rates", is_rate}, {"images per second", is_speed}};
    const series *chosen[8];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        chart(t, kinds[i].title, chosen, pick(chosen, list, count, kinds[i].wanted));
}

/* The losses whose names end in exactly this suffix (see losses_by_name). false: there are none. */
static bool layer_chart(text *t, const char *title, const char *suffix, const series *list, int count)
{
    const series *chosen[8];
    int n = 0;
    for (int i = 0; i < count && n < 8; i++) {
        const char *name = list[i].name, *tail = strstr(name, "_aux_");
        tail = tail ? tail : strstr(name, "_o2m");
        if (tail && strcmp(tail, suffix) == 0 && list[i].count && is_named_loss(name))
            chosen[n++] = &list[i];
    }
    chart(t, title, chosen, n);
    return n > 0;
}

/* Folded: the one-to-many half, and every layer before the last. */
static void layer_charts(text *t, const series *list, int count)
{
    char title[64], suffix[32];
    bool more = true;
    text_printf(t, "<details><summary>Losses of the one-to-many half and of the other layers</summary>\n");
    layer_chart(t, "last layer, one-to-many half", "_o2m", list, count);
    for (int i = 0; more; i++) {
        snprintf(title, sizeof title, "layer %d", i + 1);
        snprintf(suffix, sizeof suffix, "_aux_%d", i);
        more = layer_chart(t, title, suffix, list, count);
        snprintf(title, sizeof title, "layer %d, one-to-many half", i + 1);
        snprintf(suffix, sizeof suffix, "_aux_%d_o2m", i);
        more = layer_chart(t, title, suffix, list, count) || more;
    }
    text_printf(t, "</details>\n");
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return natural_compare((*a)->d_name, (*b)->d_name);
}

static int is_overlay(const struct dirent *e)
{
    return ends_with(e->d_name, ".jpg");
}

/* The pictures stand in the page itself, so that it can be sent; one that cannot be read is left out. */
static void overlays(text *t, const char *folder)
{
    struct dirent **list = NULL;
    image_options how = IMAGE_OPTIONS_INIT;
    char *place = path_join(folder, "overlays");
    int n = place ? scandir(place, &list, is_overlay, by_name) : -1;
    if (n > 0)
        text_printf(t, "<h2>Validation pictures, as the last model sees them</h2>\n");
    for (int i = 0; i < n; i++) {
        char *path = path_join(place, list[i]->d_name);
        pixels px;
        if (path && image_read(&px, path, &how, NULL) == SAMITE_OK) {
            if (html_picture(t, &px, NULL) == SAMITE_OK)
                text_printf(t, "\n");
            pixels_free(&px);
        }
        free(path);
        free(list[i]);
    }
    free(list);
    free(place);
}

void log_page(text *out, const char *title, const json_t *facts, const series *list, int count, const char *folder)
{
    const char *name;
    json_t *v;
    text_printf(
        out,
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"60\"><title>");
    html_escape(out, title);
    text_printf(
        out,
        "</title><style>body{font:14px system-ui,sans-serif;margin:24px;max-width:1200px}figure{display:inline-block;"
        "width:%dpx;margin:8px}figcaption{font-weight:600}svg{width:100%%}svg "
        "text{font-size:10px;fill:#666}polyline{fill:none;"
        "stroke-width:1.5}.g{stroke:#ddd}img{max-width:560px;margin:8px}td{padding:2px 16px 2px 0}",
        WIDE);
    static const char *const colours[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd",
                                          "#ff7f0e", "#8c564b", "#17becf", "#7f7f7f"};
    for (int i = 0; i < 8; i++)
        text_printf(out, "polyline.c%d{stroke:%s}span.c%d{color:%s}", i, colours[i], i, colours[i]);
    text_printf(out, "</style><h1>");
    html_escape(out, title);
    text_printf(out, "</h1><table>\n");
    json_object_foreach((json_t *)(uintptr_t)facts, name, v) {
        text_printf(out, "<tr><td>");
        html_escape(out, name);
        text_printf(out, "<td>");
        if (json_is_string(v))
            html_escape(out, json_string_value(v));
        else
            text_printf(out, "%.6g", json_number_value(v));
        text_printf(out, "\n");
    }
    text_printf(out, "</table>\n");
    charts(out, list, count);
    layer_charts(out, list, count);
    overlays(out, folder);
    text_printf(out, "</html>\n");
}

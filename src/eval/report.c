/* report.c - the page around the sections, and the same numbers as CSV and JSON. */
#include "eval/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Evaluation</title>\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<style>\n"
    ":root{color-scheme:light dark;--ink:#222;--paper:#fff;--faint:#e4e4e4;--frame:#fafafa;--wrong:#fbe3d6;"
    "--note:#fff7dd;--bar:#2a78b5;--link:#1a5f96}\n"
    "@media (prefers-color-scheme:dark){:root{--ink:#ddd;--paper:#1b1b1b;--faint:#3a3a3a;--frame:#262626;"
    "--wrong:#5a3423;--note:#40391f;--bar:#4c9bd8;--link:#7fbdec}}\n"
    "body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:1100px;padding:0 1em;color:var(--ink);"
    "background:var(--paper)}\n"
    "h1{font-size:1.6em}h2{margin-top:2em;border-bottom:1px solid var(--faint)}h3{margin:1.5em 0 .5em}\n"
    "a{color:var(--link)}nav{margin-top:.8em}nav a{margin-right:1em}\n"
    ".wide{overflow-x:auto;max-width:100%}.long{max-height:36em;overflow-y:auto}\n"
    "table{border-collapse:collapse}td,th{padding:.15em .8em;text-align:left;vertical-align:top;"
    "border-bottom:1px solid var(--faint)}\n"
    ".about td+td{overflow-wrap:anywhere}\n"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}\n"
    ".track{display:inline-block;width:300px;max-width:40vw;background:var(--faint);vertical-align:middle}\n"
    ".bar{display:block;height:.8em;background:var(--bar)}\n"
    ".groups{display:flex;flex-wrap:wrap;gap:0 3em}\n"
    ".gallery{display:flex;flex-wrap:wrap;gap:14px}.gallery figure{margin:0;width:252px;max-width:100%}\n"
    ".pictures figure{width:340px}.gallery img{max-width:100%;display:block;border:1px solid var(--faint)}"
    "figcaption{font-size:.85em;overflow-wrap:anywhere}\n"
    "svg{background:var(--frame);border:1px solid var(--faint);max-width:100%;height:auto}"
    ".hot{background:var(--wrong)}details{margin:.5em 0}\n"
    ".note{background:var(--note);padding:.4em .8em;margin:.3em 0;overflow-wrap:anywhere}\n"
    "</style></head><body>\n";

void html_escape(text *t, const char *s)
{
    for (; *s; s++) {
        switch (*s) {
        case '&': text_add(t, "&amp;", 5); break;
        case '<': text_add(t, "&lt;", 4); break;
        case '>': text_add(t, "&gt;", 4); break;
        case '"': text_add(t, "&quot;", 6); break;
        case '\'': text_add(t, "&#39;", 5); break;
        default: text_add(t, (unsigned char)*s < 0x20 ? " " : s, 1);
        }
    }
}

void html_category(text *t, const eval_set *truth, int32_t category)
{
    char id[64];
    const char *name = truth->categories[category];
    html_escape(t, name && *name ? name : id_print(id, sizeof id, &truth->category_ids.item[category]));
}

void html_bar(text *t, double part)
{
    text_printf(t, "<td><span class=\"track\"><span class=\"bar\" style=\"width:%.1f%%\"></span></span></td>",
                100 * fmin(fmax(part, 0), 1));
}

int report_open(report **out, const char *folder, samite_error *err)
{
    *out = NULL;
    int code = make_folders(folder, err);
    if (code)
        return code;
    *out = calloc(1, sizeof **out);
    if (!*out)
        return fail(err, SAMITE_RESOURCE, "not enough memory for the report");
    (*out)->folder = folder;
    return SAMITE_OK;
}

void report_free(report *r)
{
    if (r)
        text_free(&r->body);
    free(r);
}

int report_coco(report *r, const char *kind, const coco_result *result, const eval_set *truth, const eval_set *results,
                const samite_eval_options *o, samite_error *err)
{
    report_data d = {kind, strcmp(kind, "segm") == 0, result, truth, results, o};
    text_printf(&r->body, "<h2 id=\"%s\">%s</h2>\n<p>IoU of %s. %zu images, %zu objects, %zu results.</p>\n", kind,
                d.masks ? "Masks" : "Boxes", d.masks ? "masks" : "boxes", result->images, result->objects,
                result->detections);
    report_sizes(&r->body, &d);
    report_bars(&r->body, &d);
    report_curves(&r->body, &d);
    int code = report_confusion(&r->body, &d, err);
    if (!code)
        code = report_galleries(&r->body, &d, err);
    if (!code && r->body.failed)
        code = fail(err, SAMITE_RESOURCE, "not enough memory for the report");
    return code;
}

static void add_setting(text *t, const char *name, const char *value)
{
    text_printf(t, "<tr><td>%s</td><td>", name);
    html_escape(t, value);
    text_printf(t, "</td></tr>\n");
}

/* Which images and categories, where not all. */
static void add_choice(text *t, const samite_eval_options *o)
{
    if (o->limit > 0)
        text_printf(t, "<tr><td>images</td><td>%d, chosen as the official loader does</td></tr>\n", o->limit);
    if (o->image_list)
        add_setting(t, "images", o->image_list);
    if (o->class_count < 1)
        return;
    text_printf(t, "<tr><td>categories</td><td>");
    for (int i = 0; i < o->class_count; i++) {
        text_printf(t, "%s", i ? ", " : "");
        html_escape(t, o->classes[i]);
    }
    text_printf(t, "</td></tr>\n");
}

static void add_settings(text *t, const samite_eval_options *o)
{
    text_printf(t, "<h1>Evaluation</h1>\n<table class=\"about\">\n");
    for (int i = 0; i < o->gt_count; i++)
        add_setting(t, "ground truth", o->gt[i]);
    add_setting(t, "results", o->dt);
    if (o->model)
        add_setting(t, "model", o->model);
    if (o->kind == SAMITE_EVAL_COCO)
        text_printf(t,
                    "<tr><td>rules</td><td>COCO: IoU 0.50:0.05:0.95, at most 100 results per image and "
                    "category%s%s</td></tr>\n",
                    o->positive_only ? ", only categories that the image has" : "",
                    o->compat ? ", pycocotools compatible" : "");
    else if (o->kind == SAMITE_EVAL_CGF1)
        text_printf(t, "<tr><td>rules</td><td>SA-Co: results with a score of at least %g</td></tr>\n", o->threshold);
    else
        text_printf(t, "<tr><td>rules</td><td>HOTA over IoU 0.05:0.05:0.95; J and F as in DAVIS</td></tr>\n");
    add_choice(t, o);
    text_printf(t, "<tr><td>made by</td><td>samite %s</td></tr>\n</table>\n", SAMITE_VERSION);
}

/* The value as text; in COCO's numbers -1 stands for nothing to measure. */
static void add_value(text *t, double value, bool coco)
{
    if (coco && value < 0)
        text_printf(t, "<td class=\"n\" title=\"nothing to measure\">&ndash;</td>");
    else
        text_printf(t, "<td class=\"n\">%.4f</td>", value);
}

/* Groups of numbers side by side. Those of single videos get bars; categories have a section of their own. */
static void add_groups(text *t, const findings *f, bool coco)
{
    const char *group = NULL;
    text_printf(t, "<div class=\"groups\">\n");
    for (size_t i = 0; i < f->metrics; i++) {
        const samite_metric *m = &f->metric[i];
        if (strstr(m->group, "/category"))
            continue;
        if (!group || strcmp(group, m->group) != 0) {
            text_printf(t, "%s<section><h3>", group ? "</table></div></section>\n" : "");
            html_escape(t, m->group);
            text_printf(t, "</h3>\n<div class=\"wide long\"><table>\n");
            group = m->group;
        }
        text_printf(t, "<tr><td>");
        html_escape(t, m->name);
        text_printf(t, "</td>");
        add_value(t, m->value, coco);
        if (strchr(m->group, '/'))
            html_bar(t, m->value);
        text_printf(t, "</tr>\n");
    }
    text_printf(t, "%s</div>\n", group ? "</table></div></section>\n" : "");
}

static void add_metrics(text *t, const findings *f, const samite_eval_options *o)
{
    for (size_t i = 0; i < f->notes; i++) {
        text_printf(t, "<div class=\"note\">");
        html_escape(t, f->note[i]);
        text_printf(t, "</div>\n");
    }
    bool coco = o->kind == SAMITE_EVAL_COCO, boxes = o->iou & SAMITE_IOU_BBOX || !o->iou;
    if (coco)
        text_printf(t, "<nav>%s%s</nav>\n", boxes ? "<a href=\"#bbox\">boxes in detail</a>" : "",
                    o->iou & SAMITE_IOU_SEGM ? "<a href=\"#segm\">masks in detail</a>" : "");
    add_groups(t, f, coco);
}

/* Opens folder/name for writing. */
static int open_file(file_writer *w, const report *r, const char *name, samite_error *err)
{
    char *path = path_join(r->folder, name);
    int code = path ? file_writer_open(w, path, err) : fail(err, SAMITE_RESOURCE, "not enough memory for the report");
    free(path);
    return code;
}

static int write_page(const report *r, const findings *f, const samite_eval_options *o, samite_error *err)
{
    text top = {0};
    file_writer w;
    add_settings(&top, o);
    add_metrics(&top, f, o);
    int code = top.failed ? fail(err, SAMITE_RESOURCE, "not enough memory for the report")
                          : open_file(&w, r, "report.html", err);
    if (!code) {
        file_write(&w, head, sizeof head - 1);
        file_write(&w, top.data, top.size);
        if (r->body.size)
            file_write(&w, r->body.data, r->body.size);
        file_printf(&w, "</body></html>\n");
        code = file_writer_commit(&w, err);
    }
    text_free(&top);
    return code;
}

/* A field in quotes; one that a spreadsheet would take for a formula gets an apostrophe in front. */
static void csv_field(file_writer *w, const char *s)
{
    file_printf(w, "\"%s", *s && strchr("=+-@\t\r", *s) ? "'" : "");
    for (; *s; s++)
        file_printf(w, *s == '"' ? "\"\"" : "%c", *s);
    file_printf(w, "\"");
}

static int write_csv(const report *r, const findings *f, samite_error *err)
{
    file_writer w;
    int code = open_file(&w, r, "metrics.csv", err);
    if (code)
        return code;
    file_printf(&w, "group,name,value\n");
    for (size_t i = 0; i < f->metrics; i++) {
        csv_field(&w, f->metric[i].group);
        file_printf(&w, ",");
        csv_field(&w, f->metric[i].name);
        file_printf(&w, ",%.17g\n", f->metric[i].value);
    }
    return file_writer_commit(&w, err);
}

static int write_json(const report *r, const findings *f, samite_error *err)
{
    file_writer w;
    char *s = json_dumps(f->json, JSON_REAL_PRECISION(17) | JSON_INDENT(1));
    int code =
        s ? open_file(&w, r, "metrics.json", err) : fail(err, SAMITE_RESOURCE, "not enough memory for the report");
    if (!code) {
        file_write(&w, s, strlen(s));
        code = file_writer_commit(&w, err);
    }
    free(s);
    return code;
}

int report_write(report *r, const findings *f, const samite_eval_options *o, samite_error *err)
{
    int code = write_page(r, f, o, err);
    if (!code)
        code = write_csv(r, f, err);
    return code ? code : write_json(r, f, err);
}

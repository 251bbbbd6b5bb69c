/* bench_profile.c - ops of one pass, summed up by kind of layer, and as a timeline. */
#include "bench_profile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"

typedef struct op_time {
    char   stage[16], part[96], op[32];
    double start, seconds, gflops;
    int    calls;
} op_time;

typedef struct op_list {
    op_time *at;
    size_t   count, room;
    bool     full;          /* out of memory */
} op_list;

static op_time *append(op_list *l)
{
    if (l->count == l->room) {
        size_t room = l->room ? 2 * l->room : 1024;
        op_time *more = realloc(l->at, room * sizeof *more);
        if (!more) {
            l->full = true;
            return NULL;
        }
        l->at = more;
        l->room = room;
    }
    return &l->at[l->count++];
}

static void collect(void *user, const samite_op_time *t)
{
    op_time *o = append(user);
    if (!o)
        return;
    *o = (op_time){.start = t->start, .seconds = t->seconds, .gflops = t->gflops, .calls = 1};
    snprintf(o->stage, sizeof o->stage, "%s", t->stage);
    snprintf(o->part, sizeof o->part, "%s", t->part);
    snprintf(o->op, sizeof o->op, "%s", t->op);
}

/* "trunk.block.12" becomes "trunk.block.*", so that layers of a kind are one row. */
static void without_numbers(char *part)
{
    char *to = part;
    bool inside = false;
    for (const char *from = part; *from; from++) {
        bool digit = *from >= '0' && *from <= '9';
        if (!digit || !inside)
            *to++ = digit ? '*' : *from;
        inside = digit;
    }
    *to = 0;
}

static int longest_first(const void *a, const void *b)
{
    const op_time *x = a, *y = b;
    return x->seconds < y->seconds ? 1 : x->seconds > y->seconds ? -1 : 0;
}

static bool sum_up(op_list *sums, const op_list *all)
{
    for (size_t i = 0; i < all->count; i++) {
        op_time one = all->at[i], *row = NULL;
        without_numbers(one.part);
        for (size_t k = 0; k < sums->count && !row; k++)
            if (strcmp(sums->at[k].part, one.part) == 0 && strcmp(sums->at[k].op, one.op) == 0)
                row = &sums->at[k];
        if (row) {
            row->calls++;
            row->seconds += one.seconds;
            row->gflops += one.gflops;
        } else if ((row = append(sums))) {
            *row = one;
        }
    }
    if (!sums->full)
        qsort(sums->at, sums->count, sizeof *sums->at, longest_first);
    return !sums->full;
}

static void print_table(const op_list *sums, double total, double rate)
{
    double shown = 0;
    printf("\n  %-24s %-18s %6s %10s %7s %9s %9s\n", "part", "op", "calls", "seconds", "share", "GFLOP/s", "roofline");
    for (size_t i = 0; i < sums->count; i++) {
        const op_time *o = &sums->at[i];
        if (o->seconds < 0.002 * total)
            break;
        shown += o->seconds;
        double speed = o->seconds > 0 ? o->gflops / o->seconds : 0;
        printf("  %-24s %-18s %6d %10.4f %5.1f %% %9.1f %7.0f %%\n", o->part, o->op, o->calls, o->seconds,
               100 * o->seconds / total, speed, rate > 0 ? 100 * speed / rate : 0);
    }
    printf("  %-24s %-18s %6s %10.4f %5.1f %%\n", "(all smaller ones)", "", "", total - shown,
           100 * (total - shown) / total);
}

/* ---- the timeline ---- */

static const char page_head[] =
    "<!DOCTYPE html><html lang=\"en\"><meta charset=\"utf-8\"><title>samite bench: timeline</title>\n"
    "<style>body{font:14px sans-serif;margin:1em}canvas{width:100%;border:1px solid #ccc;display:block}"
    "#at{min-height:1.4em}#key span{margin-right:1em;white-space:nowrap}</style>\n"
    "<h1>samite bench: timeline</h1><p>Wheel: zoom. Drag: move. Double click: all.</p><p id=\"key\"></p>"
    "<canvas id=\"c\" height=\"160\"></canvas><p id=\"at\"></p>\n<script>\nconst ops=[\n";

static const char page_tail[] =
    "];\nconst c=document.getElementById('c'),g=c.getContext('2d'),at=document.getElementById('at');\n"
    "const end=Math.max(...ops.map(o=>o[3]+o[4])),kinds=[...new Set(ops.map(o=>o[2]))];\n"
    "const color=k=>`hsl(${kinds.indexOf(k)*137.5%360} 60% 55%)`;\nlet from=0,to=end;\n"
    "const sums={};for(const o of ops)sums[o[2]]=(sums[o[2]]||0)+o[4];\n"
    "for(const k of kinds.slice().sort((a,b)=>sums[b]-sums[a])){const s=document.createElement('span');"
    "s.textContent='\\u25a0 '+k+' '+sums[k].toFixed(3)+' s';s.style.color=color(k);"
    "document.getElementById('key').append(s)}\n"
    "const stages=[...new Set(ops.map(o=>o[0]))];\n"
    "function draw(){c.width=c.clientWidth;const w=c.width/(to-from);g.clearRect(0,0,c.width,c.height);"
    "for(const o of ops){const x=(o[3]-from)*w,n=Math.max(o[4]*w,.5);if(x+n<0||x>c.width)continue;"
    "g.fillStyle=color(o[2]);g.fillRect(x,stages.indexOf(o[0])*36+8,n,28)}}\n"
    "const time=e=>from+e.offsetX/c.clientWidth*(to-from);\n"
    "c.onwheel=e=>{e.preventDefault();const t=time(e),f=e.deltaY>0?1.25:.8;from=Math.max(0,t-(t-from)*f);"
    "to=Math.min(end,t+(to-t)*f);draw()};\nc.ondblclick=()=>{from=0;to=end;draw()};\n"
    "c.onmousemove=e=>{if(e.buttons){const d=-e.movementX/c.clientWidth*(to-from);"
    "if(from+d>=0&&to+d<=end){from+=d;to+=d;draw()}return}const t=time(e),row=Math.floor((e.offsetY-4)/36),"
    "o=ops.find(o=>t>=o[3]&&t<=o[3]+o[4]&&stages[row]===o[0]);at.textContent=o?`${o[0]}: ${o[1]} ${o[2]}, "
    "${(o[4]*1e3).toFixed(3)} ms, ${(o[5]/o[4]).toFixed(1)} GFLOP/s`:''};\nonresize=draw;draw();\n</script></html>\n";

static int write_timeline(const op_list *all, const char *path, samite_error *err)
{
    file_writer w;
    int code = file_writer_open(&w, path, err);
    if (code)
        return code;
    file_write(&w, page_head, sizeof page_head - 1);
    for (size_t i = 0; i < all->count; i++) {
        const op_time *o = &all->at[i];
        file_printf(&w, "[\"%s\",\"%s\",\"%s\",%.7f,%.7f,%.6f],\n", o->stage, o->part, o->op, o->start, o->seconds,
                    o->gflops);
    }
    file_write(&w, page_tail, sizeof page_tail - 1);
    return file_writer_commit(&w, err);
}

int bench_profile(samite_model *m, const samite_pixels *pixels, const char *text, double rate, const char *timeline,
                  samite_error *err)
{
    op_list all = {0}, sums = {0};
    double total = 0;
    int code = samite_bench_profile(m, pixels, text, collect, &all, err);
    for (size_t i = 0; i < all.count; i++)
        total += all.at[i].seconds;
    if (!code && (all.full || !sum_up(&sums, &all)))
        code = fail(err, SAMITE_RESOURCE, "out of memory for a profile");
    if (!code && total > 0)
        print_table(&sums, total, rate);
    if (!code && timeline)
        code = write_timeline(&all, timeline, err);
    free(all.at);
    free(sums.at);
    return code;
}

/* ---- against an earlier run ---- */

static double number_at(const json_t *o, const char *stage, const char *key)
{
    return json_number_value(json_object_get(json_object_get(o, stage), key));
}

/* A stage has changed when the ranges from best to slowest of both runs do not touch. */
static void compare_stage(const json_t *now, const json_t *old, const char *stage)
{
    double a = number_at(old, stage, "seconds"), b = number_at(now, stage, "seconds");
    double a_slow = fmax(a, number_at(old, stage, "slowest")), b_slow = fmax(b, number_at(now, stage, "slowest"));
    if (!(a > 0) || !(b > 0))
        return;
    bool once = !json_object_get(json_object_get(now, stage), "slowest");     /* loading is done once */
    const char *verdict = once ? "" : b > a_slow ? "slower" : a > b_slow ? "faster" : "within the noise";
    printf("  %-14s %10.4f %10.4f %8.3f x  %s\n", stage, a, b, a / b, verdict);
}

int bench_compare(const json_t *now, const char *old_path, samite_error *err)
{
    json_error_t why;
    json_t *old = json_load_file(old_path, 0, &why);
    if (!old || !json_is_object(json_object_get(old, "image_encode"))) {
        json_decref(old);
        return fail(err, SAMITE_INPUT, "%s: no document of samite bench --json (%s)", old_path,
                    old ? "it has no image_encode" : why.text);
    }
    static const char *const stages[] = {"load", "image_encode", "text", "ground"};
    printf("\n  %-14s %10s %10s %10s\n", "stage", "before", "now", "speed-up");
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
        compare_stage(now, old, stages[i]);
    json_decref(old);
    return 0;
}

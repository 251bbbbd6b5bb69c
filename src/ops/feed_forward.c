/* feed_forward.c - norms and perceptrons fused with the products that follow: RUN only, otherwise the ops they consist of.
 *
 * Rows are taken CHUNK at a time from the norm to the end, so that what lies between stays in the last-level cache. Norm
 * and the activation before the second product go straight into the form that the product wants.
 */
#include "ops/op.h"

enum { CHUNK = 576 };       /* a window of the trunk */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static bool norm_fits(const norm_w *n, int64_t width)
{
    return !n || (width <= GEMM_NORM_MOST && n->gain && n->shift && tensor_count(&n->gain->t) == width &&
                  tensor_count(&n->shift->t) == width && n->gain->t.data && n->shift->t.data);
}

static bool fuses(const run *r, const tensor *x, const norm_w *n, const linear_w *w)
{
    return run_ok(r) && run_mode_of(r) == RUN && linear_packed(w) && !w->adapter && last_dim(x) == w->in &&
           is_contiguous(x) && norm_fits(n, w->in);
}

static const void *make_rows(const run *r, const linear_w *w, void *made, const norm_w *n, const float *x, int64_t rows)
{
    gemm_source s = {.x = x, .ldx = w->in, .gain = n ? n->gain->t.data : NULL, .shift = n ? n->shift->t.data : NULL,
                     .eps = n ? n->eps : 0};
    const void *in = gemm_rows_make(w->packed, made, &s, rows);
    op_tell_rows(r, w, in, w->in, rows);
    return in;
}

/* ---- norm, product ---- */

static const op_info norm_linear_op = {"norm_linear", NULL, false};

tensor *norm_linear(run *r, tensor *x, const norm_w *n, const linear_w *w)
{
    op_call c = {.op = &norm_linear_op, .in = {x}, .inputs = 1};
    int64_t dim[MAX_AXES];

    if (!fuses(r, x, n, w))
        return linear(r, norm(r, x, n), w);
    if (!op_begin(r, &c))
        return run_bad(r);
    for (int i = 0; i < x->axes; i++)
        dim[i] = i == x->axes - 1 ? w->out : x->dim[i];
    tensor *y = op_output(r, &c, x->axes, dim);
    int64_t rows = tensor_rows(x);
    void *made = op_scratch(r, gemm_rows_bytes(w->packed, least(rows, CHUNK)));
    c.flops = 2.0 * (double)rows * (double)w->in * (double)w->out;
    for (int64_t at = 0; op_computes(r, y) && at < rows; at += CHUNK) {
        int64_t count = least(CHUNK, rows - at);
        const void *in = make_rows(r, w, made, n, x->data + at * w->in, count);
        if (!gemm_run_rows(w->packed, y->data + at * w->out, w->out, in, count, ACT_NONE, NULL))
            return op_engine_failed(r, &c);
    }
    return op_finish(r, &c, y);
}

/* ---- norm, product, activation, product, sum ---- */

static const op_info feed_forward_op = {"feed_forward", NULL, false};

typedef struct ffn { const norm_w *n; const linear_w *up, *down; activation act; } ffn;

/* Some rows; made [up and down], hidden [rows, up->out]: room for them. */
static bool ffn_rows(const run *r, const ffn *f, float *y, const float *x, int64_t rows, void *const *made,
                     float *hidden)
{
    bool later = gemm_act_later(f->down->packed);
    const void *in = make_rows(r, f->up, made[0], f->n, x, rows);

    if (!gemm_run_rows(f->up->packed, hidden, f->up->out, in, rows, later ? ACT_NONE : f->act, NULL))
        return false;
    gemm_source s = {.x = hidden, .ldx = f->up->out, .act = later ? f->act : ACT_NONE};
    in = gemm_rows_make(f->down->packed, made[1], &s, rows);
    op_tell_rows(r, f->down, in, f->down->in, rows);
    return gemm_run_rows(f->down->packed, y, f->down->out, in, rows, ACT_NONE, x);
}

tensor *feed_forward(run *r, tensor *x, const norm_w *n, const linear_w *up, const linear_w *down, activation act)
{
    op_call c = {.op = &feed_forward_op, .in = {x}, .inputs = 1};
    ffn f = {n, up, down, act};

    if (!fuses(r, x, n, up) || !linear_packed(down) || down->adapter || down->in != up->out || down->out != up->in)
        return linear_add(r, linear_act(r, n ? norm(r, x, n) : x, up, act), down, x);
    if (!op_begin(r, &c))
        return run_bad(r);
    tensor *y = op_output_like(r, &c, x);
    int64_t rows = tensor_rows(x), most = least(rows, CHUNK);
    void *made[] = {op_scratch(r, gemm_rows_bytes(up->packed, most)),
                    op_scratch(r, gemm_rows_bytes(down->packed, most))};
    float *hidden = op_scratch_floats(r, most * up->out);
    c.flops = 4.0 * (double)rows * (double)up->in * (double)up->out;
    for (int64_t at = 0; op_computes(r, y) && at < rows; at += CHUNK)
        if (!ffn_rows(r, &f, y->data + at * up->in, x->data + at * up->in, least(CHUNK, rows - at), made, hidden))
            return op_engine_failed(r, &c);
    return op_finish(r, &c, y);
}

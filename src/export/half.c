/* half.c - products in f16, sums and everything delicate in f32. */
#include "export/half.h"

#include <stdlib.h>

typedef enum kind { HALF, FULL, AS_INPUTS } kind;

static kind kind_of(prim op)
{
    switch (op) {
    case P_MATMUL: case P_CONV: case P_CONV_UP2:
        return HALF;
    case P_ADD: case P_SUB: case P_MUL: case P_MAX: case P_MIN: case P_RELU: case P_GELU: case P_MAX_POOL2:
    case P_RESIZE_NEAREST:
    case P_RESIZE_LINEAR:
    case P_RESHAPE:
    case P_TRANSPOSE:
    case P_SLICE:
    case P_CONCAT:
    case P_EXPAND:
    case P_PAD_FRONT:
        return AS_INPUTS;
    default:
        return FULL;
    }
}

static bool is_given(const gvalue *v)
{
    return v->from == FROM_PARAM || v->from == FROM_NUMBERS;
}

static bool inputs_are_half(const graph *g, const bool *plan, const gnode *n)
{
    bool any = false;
    for (int i = 0; i < n->inputs; i++) {
        if (is_given(&g->value[n->in[i]]))
            continue;
        if (!plan[n->in[i]])
            return false;
        any = true;
    }
    return any;
}

bool *half_plan(const graph *g)
{
    bool *plan = calloc((size_t)g->values + 1, sizeof *plan);
    for (int i = 0; plan && i < g->nodes; i++) {
        const gnode *n = &g->node[i];
        kind k = kind_of(n->op);
        plan[n->out] =
            g->value[n->out].type == DT_F32 && (k == HALF || (k == AS_INPUTS && inputs_are_half(g, plan, n)));
    }
    return plan;
}

bool half_node(const bool *plan, const gnode *n)
{
    return plan && plan[n->out];
}

/* assign.c - shortest augmenting paths: one row after another joins the assignment along the cheapest path. */
#include "base/assign.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef struct solver {
    const double *cost;                /* [rows, columns], rows <= columns */
    int32_t       rows, columns;
    double       *row_price, *column_price, *length;   /* length: of the shortest path to each column */
    int32_t      *column_of, *row_of, *before, *open;  /* before: row from which a column was reached */
    uint8_t      *row_done, *column_done;
} solver;

/* Extends paths from `row` until a free column is reached; returns it, or -1 when none can be. */
static int32_t find_free_column(solver *s, int32_t row, double *least)
{
    int32_t open = s->columns, end = -1;
    *least = 0;
    for (int32_t j = 0; j < s->columns; j++) {
        s->open[j] = s->columns - 1 - j;
        s->length[j] = INFINITY;
    }
    memset(s->row_done, 0, (size_t)s->rows);
    memset(s->column_done, 0, (size_t)s->columns);
    while (end < 0) {
        int32_t best = -1;
        double lowest = INFINITY;
        s->row_done[row] = 1;
        for (int32_t k = 0; k < open; k++) {
            int32_t j = s->open[k];
            double through =
                *least + s->cost[(size_t)row * (size_t)s->columns + (size_t)j] - s->row_price[row] - s->column_price[j];
            if (through < s->length[j]) {
                s->length[j] = through;
                s->before[j] = row;
            }
            if (s->length[j] < lowest || (s->length[j] == lowest && s->row_of[j] < 0)) {
                lowest = s->length[j];
                best = k;
            }
        }
        if (best < 0 || lowest == INFINITY)
            return -1;
        *least = lowest;
        int32_t j = s->open[best];
        s->column_done[j] = 1;
        s->open[best] = s->open[--open];
        if (s->row_of[j] < 0)
            end = j;
        else
            row = s->row_of[j];
    }
    return end;
}

static bool add_row(solver *s, int32_t row)
{
    double least;
    int32_t j = find_free_column(s, row, &least);
    if (j < 0)
        return false;
    s->row_price[row] += least;
    for (int32_t i = 0; i < s->rows; i++)
        if (s->row_done[i] && i != row)
            s->row_price[i] += least - s->length[s->column_of[i]];
    for (int32_t k = 0; k < s->columns; k++)
        if (s->column_done[k])
            s->column_price[k] -= least - s->length[k];
    for (int32_t i = -1; i != row;) {
        i = s->before[j];
        s->row_of[j] = i;
        int32_t next = s->column_of[i];
        s->column_of[i] = j;
        j = next;
    }
    return true;
}

static bool solver_open(solver *s, int32_t rows, int32_t columns)
{
    size_t r = (size_t)rows + 1, c = (size_t)columns + 1;
    s->rows = rows;
    s->columns = columns;
    s->row_price = calloc(r, sizeof(double));
    s->column_price = calloc(c, sizeof(double));
    s->length = calloc(c, sizeof(double));
    s->column_of = malloc(r * sizeof(int32_t));
    s->row_of = malloc(c * sizeof(int32_t));
    s->before = malloc(c * sizeof(int32_t));
    s->open = malloc(c * sizeof(int32_t));
    s->row_done = malloc(r);
    s->column_done = malloc(c);
    if (!s->row_price || !s->column_price || !s->length || !s->column_of || !s->row_of || !s->before || !s->open ||
        !s->row_done || !s->column_done)
        return false;
    for (size_t i = 0; i < r; i++)
        s->column_of[i] = -1;
    for (size_t j = 0; j < c; j++)
        s->row_of[j] = s->before[j] = -1;
    return true;
}

static void solver_close(solver *s)
{
    free(s->row_price);
    free(s->column_price);
    free(s->length);
    free(s->column_of);
    free(s->row_of);
    free(s->before);
    free(s->open);
    free(s->row_done);
    free(s->column_done);
}

int assign_least(int32_t *to, const double *cost, int32_t rows, int32_t columns, samite_error *err)
{
    bool turned = columns < rows;
    double *turn = NULL;
    solver s = {.cost = cost};
    bool fine = turned ? solver_open(&s, columns, rows) : solver_open(&s, rows, columns);
    if (fine && turned) {
        turn = malloc(((size_t)rows * (size_t)columns + 1) * sizeof *turn);
        for (size_t i = 0; turn && i < (size_t)rows; i++)
            for (size_t j = 0; j < (size_t)columns; j++)
                turn[j * (size_t)rows + i] = cost[i * (size_t)columns + j];
        s.cost = turn;
        fine = turn != NULL;
    }
    int code = fine ? SAMITE_OK : fail(err, SAMITE_RESOURCE, "not enough memory to assign %d to %d", rows, columns);
    for (int32_t i = 0; i < s.rows && !code; i++)
        if (!add_row(&s, i))
            code = fail(err, SAMITE_FAILED, "no assignment of %d to %d: a cost is not finite", rows, columns);
    for (int32_t i = 0; i < rows && !code; i++)
        to[i] = turned ? s.row_of[i] : s.column_of[i];
    free(turn);
    solver_close(&s);
    return code;
}

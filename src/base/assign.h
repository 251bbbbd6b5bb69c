/* assign.h - best one-to-one assignment (linear sum assignment). */
#ifndef BASE_ASSIGN_H
#define BASE_ASSIGN_H

#include <stdint.h>

#include "base/error.h"

/* cost[rows, columns], finite. to[row] = column, or -1 where there are more rows than columns; the sum of costs is
 * least. Of several best assignments the one that scipy's linear_sum_assignment returns. */
int assign_least(int32_t *to, const double *cost, int32_t rows, int32_t columns, samite_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The values of snippets, of their grammar alone: types and ranges of src/snippet have no part in them.
 */
#ifndef FA_TESTS_SNIPPET_VALUES_H
#define FA_TESTS_SNIPPET_VALUES_H

#include "snippet.h"

#include <math.h>
#include <string.h>

struct snippet {
    fa_expr *expr; /* NULL: there is none */
    fa_buffer buffer[FA_ATTN_BUFFERS];
};

static inline struct snippet snippet_read(const char *text, const char *buffers, bool mask)
{
    const char *names[FA_NAMES];
    struct snippet s = {.expr = NULL};
    int count = fa_buffers_read(buffers, s.buffer, NULL);
    count = fa_buffers_names(s.buffer, count, mask, names);
    fa_expr_parse(text, names, count, true, &s.expr, NULL);
    return s;
}

/* Whole numbers are exact in a long double. As Python has them: `//` and `%` round down, a whole number divided by 0 is 0. */
static inline long double snippet_operate(enum fa_expr_op op, bool real, long double a,
                                          long double b, bool is)
{
    const long double quotient = !real && b == 0 ? 0 : a / b;
    const bool shifts = b >= 0 && b <= 63;
    return op == OP_OR              ? a != 0 || b != 0
           : op == OP_AND           ? a != 0 && b != 0
           : op == OP_NOT           ? a == 0
           : op == OP_EQUAL         ? a == b
           : op == OP_UNEQUAL       ? a != b
           : op == OP_LESS          ? a < b
           : op == OP_LESS_EQUAL    ? a <= b
           : op == OP_GREATER       ? a > b
           : op == OP_GREATER_EQUAL ? a >= b
           : op == OP_BIT_OR        ? (int64_t)a | (int64_t)b
           : op == OP_BIT_AND       ? (int64_t)a & (int64_t)b
           : op == OP_BIT_NOT       ? ~(int64_t)a
           : op == OP_SHIFT_LEFT    ? shifts ? (int64_t)((uint64_t)(int64_t)a << (int)b) : 0
           : op == OP_SHIFT_RIGHT   ? shifts ? (int64_t)a >> (int)b : 0
           : op == OP_ADD           ? a + b
           : op == OP_SUBTRACT      ? a - b
           : op == OP_MULTIPLY      ? a * b
           : op == OP_TRUE_DIV || op == OP_DIVIDE ? a / b
           : op == OP_POWER                       ? pow((double)a, (double)b)
           : op == OP_FLOOR_DIV                   ? floorl(quotient)
           : op == OP_CEIL_DIV                    ? ceill(quotient)
           : op == OP_REMAINDER                   ? !real && b == 0 ? 0 : a - b * floorl(quotient)
                             : op == OP_MIN ? isnan(a) || a < b ? a : b
           : op == OP_MAX                         ? isnan(a) || a > b ? a : b
           : op == OP_NEGATE                      ? -a
           : op == OP_ABS                         ? fabsl(a)
           : op == OP_EXP                         ? exp((double)a)
           : op == OP_LOG                         ? log((double)a)
           : op == OP_TANH                        ? tanh((double)a)
           : op == OP_SQRT                        ? sqrt((double)a)
           : op == OP_FLOOR                       ? floorl(a)
           : op == OP_CHOOSE                      ? is ? a : b
                                                  : a;
}

/* True is 1. element: reads a buffer's element, or number; indices may be outside. */
static inline double snippet_value(const struct snippet *s, double score,
                                   const int64_t place[FA_PLACES],
                                   double (*element)(const void *, int, const int64_t *),
                                   const void *data)
{
    long double is[FA_EXPR_STEPS_MAX];
    bool real[FA_EXPR_STEPS_MAX];
    for (int i = 0; i < s->expr->count; i++) {
        const struct fa_expr_step *step = &s->expr->step[i], *from = step;
        const int a = step->at[0], b = step->op >= OP_NOT && step->op < OP_CHOOSE ? a : step->at[1];
        const enum fa_expr_op op = step->op;
        int64_t index[FA_ATTN_BUFFER_DIMS] = {0};
        int given = 0;
        for (; from->op == OP_INDEX; from = &s->expr->step[from->at[0]]) {
            memmove(index + 1, index, sizeof index - sizeof *index);
            index[0] = (int64_t)is[from->at[1]];
            given++;
        }
        const int which = from->op == OP_NAME ? from->at[0] - FA_NAME_BUFFERS : -1;
        const fa_buffer *buffer = which >= 0 ? &s->buffer[which] : NULL;
        if (buffer != NULL) {
            real[i] = buffer->type->real;
            is[i] = given < buffer->dims ? 0 : element(data, which, index);
        } else if (op == OP_NAME) {
            real[i] = a == FA_NAME_SCORE;
            is[i] = real[i] ? score : (long double)place[a];
        } else if (op == OP_VALUE) {
            real[i] = step->value.kind == FA_EXPR_REAL;
            is[i] = real[i] ? step->value.real : (long double)step->value.integer;
        } else {
            real[i] = op > OP_GREATER_EQUAL && op != OP_NOT && op != OP_INT && op != OP_BIT_NOT &&
                      (real[a] || real[b] || op == OP_POWER || op == OP_DIVIDE ||
                       (op >= OP_EXP && op <= OP_FLOOR) || op == OP_FLOAT);
            const bool chosen = op == OP_CHOOSE && is[step->at[2]] != 0;
            is[i] = snippet_operate(op, real[i], is[a], is[b], chosen);
        }
        if (op == OP_INT && real[a])
            is[i] = isnan(is[i]) ? 0 : fmaxl(fminl(truncl(is[i]), INT32_MAX), INT32_MIN);
        is[i] = real[i] ? (double)is[i] : is[i] + 0; /* there is no other 0 of whole numbers */
    }
    return (double)is[s->expr->count - 1];
}

#endif

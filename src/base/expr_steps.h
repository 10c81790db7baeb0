/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps of a parsed expression, for those who read them: expr.c, and src/snippet.
 *
 * Invariant: a step reads only earlier steps; the last one is the expression.
 */
#ifndef FA_BASE_EXPR_STEPS_H
#define FA_BASE_EXPR_STEPS_H

#include "expr.h"

enum { FA_EXPR_STEPS_MAX = 2 * FA_EXPR_TEXT_MAX + 64 };

enum fa_expr_op {
    OP_VALUE, /* the step's value */
    OP_NAME,  /* the value of the name at[0] */
    /* Of the steps at[0] and at[1]. */
    OP_OR,
    OP_AND,
    OP_EQUAL,
    OP_UNEQUAL,
    OP_LESS,
    OP_LESS_EQUAL,
    OP_GREATER,
    OP_GREATER_EQUAL,
    OP_BIT_OR,
    OP_BIT_AND,
    OP_SHIFT_LEFT,
    OP_SHIFT_RIGHT,
    OP_ADD,
    OP_SUBTRACT,
    OP_MULTIPLY,
    OP_POWER,
    OP_DIVIDE,
    OP_TRUE_DIV,
    OP_FLOOR_DIV,
    OP_REMAINDER,
    OP_MIN,
    OP_MAX,
    OP_CEIL_DIV,
    OP_INDEX, /* at[0][at[1]], which has no value here */
    /* Of the step at[0]. */
    OP_NOT,
    OP_NEGATE,
    OP_BIT_NOT,
    OP_ABS,
    OP_EXP,
    OP_LOG,
    OP_TANH,
    OP_SQRT,
    OP_FLOOR,
    OP_INT,
    OP_FLOAT,
    OP_CHOOSE, /* at[0] if at[2] holds, else at[1] */
    /* Of the parser alone. */
    OP_IN,
    OP_NOT_IN
};

struct fa_expr_step {
    enum fa_expr_op op;
    int at[3];
    fa_expr_value value;
};

struct fa_expr {
    uint64_t uses;
    int count;
    struct fa_expr_step step[];
};

#endif

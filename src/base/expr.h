/* SPDX-License-Identifier: Apache-2.0
 *
 * Expressions of manifests and operations: arithmetic over names, parsed once, evaluated many times.
 *
 * Workload: a few dozen expressions of a manifest, each evaluated for every point of a space.
 * Values: 64-bit integers. A fraction (0.5) is a real number; a text ('half', "half") is equal to itself, may stand in
 * == != and in, and has no other use. `/` truncates and `%` has the sign of the dividend, as in C. A result beyond 64 bits
 * becomes a real number and is compared as one; a division by zero has no value, and neither has what is computed
 * from it, but for 0 and x, 1 or x, and a choice of the other value.
 * Python's operators, weakest first: x if c else y; or; and; not; comparisons (== != < <= > >=, in (a, b), not in (a, b);
 * 1 < x < 9 means 1 < x and x < 9); | & << >>; + -; * / // %; the signs - + ~; **. Then min(), max(), abs(), ceil_div(),
 * exp(), log(), tanh(), sqrt(), floor(), int() and float(). It may come from anywhere: length, nesting and steps are bounded.
 *
 * A parsed expression does not change: threads may share it.
 */
#ifndef FA_BASE_EXPR_H
#define FA_BASE_EXPR_H

#include "fa_types.h"

enum {
    FA_EXPR_TEXT_MAX = 1024, /* bytes of one expression */
    FA_EXPR_NAMES_MAX = 64   /* names one expression may choose from: bits of an uint64_t */
};

/* WORD: a text, by its number of trial.h. */
typedef enum fa_expr_kind {
    FA_EXPR_NONE,
    FA_EXPR_INTEGER,
    FA_EXPR_REAL,
    FA_EXPR_WORD
} fa_expr_kind;

typedef struct fa_expr_value {
    fa_expr_kind kind;
    union {
        int64_t integer;
        double real;
    };
} fa_expr_value;

typedef struct fa_expr fa_expr;

/* Parses `text` over `count` names, at most FA_EXPR_NAMES_MAX. The caller frees *ret_expr. FA_EMANIFEST with a sentence
 * that starts with the fault ("uses the unknown name BLOCK_Q"), to be put behind the place by fa_fail_in(); FA_ENOMEM.
 * `indexes`: x[i] may stand there; where names are numbers it is a fault. */
int fa_expr_parse(const char *text, const char *const *name, int count, bool indexes,
                  fa_expr **ret_expr, fa_diag *diag);
void fa_expr_free(fa_expr **expr);
/* From now on `/` is Python's: a fraction where whole numbers leave a remainder, which otherwise is cut off as in C. */
void fa_expr_divide_truly(fa_expr *expr);

/* Whether expressions use the word themselves ("and", "max"): no name can be written so. */
bool fa_expr_is_word(const char *text);

/* The value where name i has value[i]. */
fa_expr_value fa_expr_evaluate(const fa_expr *expr, const fa_expr_value *value);

/* Of a tunable's value, and back; false: no tunable has such a value. */
fa_expr_value fa_expr_of_value(int32_t value);
bool fa_expr_to_value(fa_expr_value value, int32_t *ret_value);

/* 1: it holds; 0: it does not; -1: it has no value. */
int fa_expr_truth(fa_expr_value value);

/* Why a value is not an integer: "has no value …"; NULL when it is one. */
const char *fa_expr_fault(fa_expr_value value);
/* 0 where it has none. */
double fa_expr_number(fa_expr_value value);

/* ---- the steps of a parsed expression, for those who read them -------------------------------*/
/* Invariant: a step reads only earlier steps; the last one is the expression. */
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
    uint64_t uses; /* bit i: it reads name i */
    int count;     /* of steps: an evaluation takes as many */
    struct fa_expr_step step[];
};

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * From masks to the fields causal and window. See fields.h.
 */
#include "fields.h"

#include "expr.h"
#include "operation.h"
#include "trial.h"

#include <string.h>

enum { Q, K, ONE, PARTS };                     /* of a sum: how often each is in it */
static const int64_t LARGE = (int64_t)1 << 40; /* larger numbers are left alone */

/* Keys that a query sees behind and before its position. */
struct limits {
    int64_t left, right; /* LARGE: to the end */
};

/* The step as a sum of q, k and a number; false: it is none. */
static bool read_sum(const fa_expr *e, int at, int64_t ret[PARTS])
{
    const struct fa_expr_step *s = &e->step[at];
    int64_t b[PARTS] = {0};
    memset(ret, 0, sizeof b);
    if (s->op == OP_NAME) {
        ret[s->at[0]] = 1;
        return true;
    }
    if (s->op == OP_VALUE) {
        ret[ONE] = s->value.integer;
        return s->value.kind == FA_EXPR_INTEGER && s->value.integer < LARGE &&
               s->value.integer > -LARGE;
    }
    const bool negates = s->op == OP_NEGATE, adds = s->op == OP_ADD;
    if (!(negates || adds || s->op == OP_SUBTRACT) || !read_sum(e, s->at[0], ret) ||
        (!negates && !read_sum(e, s->at[1], b)))
        return false;
    for (int i = 0; i < PARTS; i++) {
        ret[i] = negates ? -ret[i] : adds ? ret[i] + b[i] : ret[i] - b[i];
        if (ret[i] >= LARGE || ret[i] <= -LARGE)
            return false;
    }
    return true;
}

/* Narrows the limits by a mask; false: it says something else, too. */
static bool narrow(const fa_expr *e, int at, struct limits *limits)
{
    const struct fa_expr_step *s = &e->step[at];
    int64_t a[PARTS], b[PARTS];
    if (s->op == OP_AND)
        return narrow(e, s->at[0], limits) && narrow(e, s->at[1], limits);
    const bool more = s->op == OP_GREATER || s->op == OP_GREATER_EQUAL;
    const bool equal = s->op == OP_LESS_EQUAL || s->op == OP_GREATER_EQUAL;
    if (!(more || equal || s->op == OP_LESS) || !read_sum(e, s->at[more], a) ||
        !read_sum(e, s->at[!more], b))
        return false;
    /* a <= b, or a <= b - 1: (a - b) is k - q, or q - k, and a number. */
    const int64_t k = a[K] - b[K], most = b[ONE] - a[ONE] - !equal;
    int64_t *limit = k == 1 ? &limits->right : &limits->left;
    *limit = most < *limit ? most : *limit;
    return a[Q] - b[Q] == -k && (k == 1 || k == -1);
}

fa_problem fa_fields_settle(const fa_problem *problem)
{
    static const char *const names[] = {"q", "k"};
    static const char *const fields[] = {"mask", "causal", "window", "window_left", "window_right"};
    const fa_operation *operation = fa_operation_of(problem);
    fa_problem p = *problem;
    fa_expr *e = NULL;
    int32_t *is[5]; /* of attention's both passes */
    if (strcmp(operation->name, "attn_fwd") != 0 && strcmp(operation->name, "attn_bwd") != 0)
        return p;
    for (int i = 0; i < 5; i++)
        is[i] = &p.value[fa_operation_field_index(operation, fields[i])];
    int32_t *mask = is[0], *causal = is[1], *window = is[2], *left = is[3], *right = is[4];
    struct limits l = {*window && *left >= 0 ? *left : LARGE, *causal != FA_CAUSAL_NONE ? 0
                                                              : *window && *right >= 0  ? *right
                                                                                        : LARGE};
    if (*mask == 0 || fa_expr_parse(fa_value_words(*mask, NULL), names, 2, true, &e, NULL) != 0)
        return p;
    if (narrow(e, e->count - 1, &l) && l.left >= 0 && l.right >= 0) {
        *mask = 0;
        *causal = *causal == FA_CAUSAL_NONE && l.right == 0 ? FA_CAUSAL_BOTTOM_RIGHT : *causal;
        *window = l.left < LARGE || (l.right > 0 && l.right < LARGE);
        *left = !*window ? 0 : l.left > INT32_MAX ? -1 : (int32_t)l.left;
        *right = !*window ? 0 : l.right > INT32_MAX ? -1 : (int32_t)l.right;
    }
    fa_expr_free(&e);
    return p;
}

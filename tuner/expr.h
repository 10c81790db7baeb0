/* SPDX-License-Identifier: Apache-2.0
 *
 * The expression engine: integer expressions of manifests, evaluated by an in-memory SQLite.
 *
 * Workload: a few dozen expressions checked when a manifest is loaded, then one query per family
 * and problem over at most FA_SPACE_MAX rows.
 * Invariants: an expression is checked before it ever becomes part of a query. It is one balanced
 * piece of text over a small alphabet (no quotes, comments, dots, semicolons or parameters), reads
 * nothing but the names given, calls nothing but arithmetic, and holds no SELECT of its own. So a
 * query built by putting checked expressions in parentheses does what its builder wrote. The
 * engine writes no file, and every run ends after a bounded number of steps.
 * An engine may be shared by threads: each call locks it.
 *
 * May be used by: tuner. The only file that includes sqlite3.h is expr.c.
 */
#ifndef FA_TUNER_EXPR_H
#define FA_TUNER_EXPR_H

#include "fa_types.h"

enum {
    FA_EXPR_TEXT_MAX = 1024, /* bytes of one expression */
    FA_EXPR_NAMES_MAX = 64,  /* names one expression may choose from: bits of an uint64_t */
    FA_EXPR_COLUMNS_MAX = 160
};

typedef struct fa_expr fa_expr;

int fa_expr_open(fa_expr **ret_engine, fa_diag *diag);
void fa_expr_close(fa_expr **engine);

/* The names that the following checks know: distinct identifiers, ignoring case. They are kept by
 * pointer until the next call. */
int fa_expr_names(fa_expr *engine, const char *const *names, int count, fa_diag *diag);

/* Is `text` one integer expression over the names? *ret_uses has bit i set when it reads name i.
 * FA_EMANIFEST with a sentence that starts with the fault ("uses the unknown name BLOCK_Q"), to
 * be put behind the place by fa_fail_in. */
int fa_expr_check(fa_expr *engine, const char *text, uint64_t *ret_uses, fa_diag *diag);

typedef enum fa_expr_kind {
    FA_EXPR_INTEGER,
    FA_EXPR_NULL, /* a division by zero, most often */
    FA_EXPR_REAL, /* a fraction, or a result beyond 64 bits */
    FA_EXPR_TEXT
} fa_expr_kind;

typedef struct fa_expr_value {
    fa_expr_kind kind;
    int64_t integer; /* when INTEGER */
} fa_expr_value;

/* Why a value is not an integer: "divides by zero", …; NULL when it is one. */
const char *fa_expr_fault(fa_expr_value value);

/* Called for each row; anything but 0 ends the run, which returns it. */
typedef int fa_expr_row(void *context, const fa_expr_value *value, int count);

/* Runs one SELECT without tables, built by the caller from checked expressions. FA_EMANIFEST when
 * it cannot be evaluated (a bounded number of steps included). */
int fa_expr_run(fa_expr *engine, const char *sql, fa_expr_row *row, void *context, fa_diag *diag);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What a manifest becomes: shared by manifest.c (which makes it), space.c (which walks its space) and point.c (which
 * judges a point of it).
 *
 * Invariants: every expression was parsed over the same names: `given`, the tunables, the lets, in this order.
 * A let reads those before it alone. A family that is loaded does not change: threads may share it.
 * May be used by: tuner, engine.
 */
#ifndef FA_TUNER_FAMILY_H
#define FA_TUNER_FAMILY_H

#include "buf.h"
#include "expr.h"
#include "manifest.h"
#include "operation.h"
#include "trial.h"

#include <cJSON.h>

/* What a manifest's expressions may read besides its own tunables and lets: the fields of the
 * operation that have a macro, FETCH_BYTES and MASK_LISTS behind BUFFERS, then the GPU. */
enum { FA_GIVEN_MAX = FA_PROBLEM_VALUES + 8 };

typedef struct fa_given {
    int count;
    const char *name[FA_GIVEN_MAX];
    int64_t value[FA_GIVEN_MAX];
    uint64_t sized; /* bit i: name i is of a field that does not shape the source */
} fa_given;

/* The names, and their values for a problem on a GPU (both or none may be NULL). Of features, those whose bit is in `takes`. */
void fa_given_make(const fa_operation *operation, uint32_t takes, const fa_problem *problem,
                   const fa_gpu *gpu, fa_given *ret_given);

enum {
    FA_MAX_DOMAIN = 64,  /* values of one tunable */
    FA_MAX_REQUIRES = 16 /* entries of "supports" and of "restrictions" */
};

typedef struct fa_domain {
    char name[FA_NAME_MAX];
    int32_t value[FA_MAX_DOMAIN]; /* distinct, in the manifest's order; of trial.h */
    int count;
    bool fractions;  /* kernels read a number with a decimal point */
    fa_expr *preset; /* the default: reads no tunable; NULL: it is the following */
    int32_t preset_value;
} fa_domain;

int fa_domain_index(const fa_domain *domain, int64_t value); /* -1: it is none of its values */

typedef struct fa_let {
    char name[FA_NAME_MAX];
    fa_expr *expr;
    uint64_t reads; /* names, directly or through other lets */
    int depth;      /* how many tunables must have a value before it has one; 0: it reads none */
} fa_let;

typedef struct fa_require {
    fa_expr *expr;
    int depth; /* as a let's */
    char *why;
    fa_status ends; /* where a config ends that does not hold to it */
} fa_require;

typedef struct fa_named_expr {
    char name[FA_NAME_MAX];
    fa_expr *expr;
} fa_named_expr;

/* One launch of a call. */
typedef struct fa_family_launch {
    char entry[FA_NAME_MAX];
    bool cooperative, programmatic;
    fa_expr *block[3], *grid[3];
    fa_named_expr addend[FA_MAX_ADDENDS]; /* of its shared memory */
    int addend_count;
    fa_expr *work[FA_WORKS]; /* NULL: not told */
    fa_expr *when;           /* NULL: always */
} fa_family_launch;

enum {
    FA_FAMILY_EXPRS_MAX = FA_MAX_TUNABLES + FA_MAX_LETS + 2 * FA_MAX_REQUIRES + 4 + FA_SCRATCH_MAX +
                          (FA_LAUNCHES_MAX + 1) * (7 + FA_MAX_ADDENDS + FA_WORKS)
};

struct fa_family {
    fa_expr *expr[FA_FAMILY_EXPRS_MAX]; /* all those below, which are freed with it */
    int expr_count;
    char name[FA_NAME_MAX];
    const fa_operation *operation;
    uint32_t takes; /* bit i: the operation's feature i may differ from its default */
    bool as_is;     /* a single kernel, which may have static shared memory and local memory */
    bool beside;    /* competes with families that have an architecture suffix */
    int tries;      /* configs that a tune tries, the model's first; 0: all */
    fa_given given; /* names alone */
    char arch_suffix[2];
    int32_t sm_min, sm_max;
    fa_domain tunable[FA_MAX_TUNABLES];
    int tunable_count;
    fa_let let[FA_MAX_LETS];
    int let_count;
    uint64_t run_time;    /* names that kernels learn from their launch: they are not rendered */
    bool run_time_memory; /* some launch's shared memory reads such a name */
    fa_require support[FA_MAX_REQUIRES], constraint[FA_MAX_REQUIRES];
    int support_count, constraint_count;
    fa_family_launch launch[FA_LAUNCHES_MAX];
    int launch_count;
    fa_family_launch answer; /* of a single kernel, in the default config; no block: the usual */
    fa_expr *registers; /* NULL: no estimate */
    fa_expr *workspace; /* NULL: none */
    fa_named_expr scratch[FA_SCRATCH_MAX]; /* bytes of a single kernel's arguments that are it */
    int scratch_count;
    fa_expr *counters;  /* NULL: none */
    fa_expr *splits;    /* NULL: 1 */
};

/* ---- a point of a family's space (point.c)  ----------------------------------------------------*/
/* The values that the family's expressions read. */
typedef struct fa_point {
    const fa_family *family;
    const fa_gpu *gpu;
    int index;                /* of the family in its list */
    bool named;               /* somebody has the config: it may run where it does not pay */
    fa_config config, preset; /* as far as it is set; the family's default */
    int rc;                   /* the first failure, with its sentence in diag */
    fa_diag *diag;
    fa_expr_value value[FA_EXPR_NAMES_MAX];
} fa_point;

/* The problem, the GPU, and the lets that read no tunable. */
void fa_point_start(fa_point *ret_point, const fa_family *family, const fa_problem *problem,
                    const fa_gpu *gpu, fa_diag *diag);
/* The value of a tunable, and of the lets that read no later one. Tunables are set in their order. */
void fa_point_set(fa_point *point, int tunable, int32_t value);
/* All tunables, from a config that has every one. */
void fa_point_set_all(fa_point *point, const fa_config *config);

/* Whether the point breaks a constraint that reads `depth` tunables, no less. One without a value may be guarded by
 * another, which is judged with the whole point. Adds what that took to *steps. */
bool fa_point_breaks(const fa_point *point, int depth, int64_t *steps);

/* Judges the point, whose tunables are all set, into the candidate, which is zero. FA_EMANIFEST when an expression that is
 * needed has no value in its range. */
int fa_point_judge(fa_point *point, fa_candidate *candidate);

/* Which families make the problem's space, into [FA_FAMILIES_MAX], and the points of their domains together;
 * FA_ENOTSUP: none does. */
int fa_families_choose(const fa_task *task, bool *ret_serves, int64_t *ret_points, fa_diag *diag);

/* Reads the family of a specification into a zeroed one whose operation is set. On failure the caller frees what there is. */
struct fa_spec_reading;
int fa_family_read(fa_family *family, struct fa_spec_reading *from);
/* The one family of the specification, with an operation that need not be known and must outlive it. */
int fa_families_make(const fa_templates *templates, struct fa_spec_reading *from,
                     const fa_operation *operation, fa_family_list *ret_list);
/* The names that an expression reads that uses these: bits of `given`, the tunables and the lets, those behind lets, too. */
uint64_t fa_family_reads(const fa_family *family, uint64_t uses);
/* Whether the tunable is of "run_time". */
bool fa_family_runs_late(const fa_family *family, int tunable);

#endif

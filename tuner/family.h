/* SPDX-License-Identifier: Apache-2.0
 *
 * What a manifest becomes: shared by manifest.c (which makes it), space.c (which asks it)
 * and space_row.c (which judges the answers).
 *
 * Invariants: every expression was checked by the family's engine against `given`, the tunables
 * and the lets. Lets have no cycle; `order` lists them so that each stands behind those it needs.
 * May be used by: tuner.
 */
#ifndef FA_TUNER_FAMILY_H
#define FA_TUNER_FAMILY_H

#include "expr.h"
#include "given.h"
#include "manifest.h"

#include <cJSON.h>

enum {
    FA_MAX_DOMAIN = 64,   /* values of one tunable */
    FA_MAX_REQUIRES = 16, /* entries of "supports" and of "constraints" */
    FA_MANIFEST_BYTES_MAX = 64 * 1024
};

typedef struct fa_domain {
    char name[FA_NAME_MAX];
    int32_t value[FA_MAX_DOMAIN]; /* distinct, in the manifest's order */
    int count;
    char *preset;  /* the default's expression: reads no tunable */
    bool run_time; /* kernels learn it from their launch: it is not rendered */
} fa_domain;

typedef struct fa_let {
    char name[FA_NAME_MAX];
    char *text;
    uint64_t uses; /* lets it reads directly: bit i is let[i] */
    bool varies;   /* reads a tunable, directly or through other lets */
    bool sized; /* likewise a field that does not shape the source: for the host alone, so that one
                      cubin serves every size */
    bool run_time; /* reads a tunable of "run_time", directly or through other lets */
    int level;     /* 1 + the highest level of those it reads */
} fa_let;

typedef struct fa_require {
    char *text;
    char *why;
    fa_status ends; /* where a config ends that does not hold to it */
} fa_require;

typedef struct fa_named_text {
    char name[FA_NAME_MAX];
    char *text;
} fa_named_text;

/* One launch of a call. */
typedef struct fa_family_launch {
    char entry[FA_NAME_MAX];
    char *threads;
    char *grid[3];
    fa_named_text addend[FA_MAX_ADDENDS]; /* of its shared memory */
    int addend_count;
} fa_family_launch;

struct fa_family {
    char name[FA_NAME_MAX];
    const fa_operation *operation;
    uint32_t takes; /* bit i: the operation's feature i may differ from its default */
    bool beside;    /* competes with families that have an architecture suffix */
    fa_given given; /* names alone */
    char arch_suffix[2];
    int32_t sm_min, sm_max;
    int32_t proved_max; /* sm_max, or beyond it */
    fa_domain tunable[FA_MAX_TUNABLES];
    int tunable_count;
    fa_let let[FA_MAX_LETS];
    int let_count;
    int order[FA_MAX_LETS];
    bool runs_late;       /* some name is of "run_time" */
    bool run_time_memory; /* the first launch's shared memory reads such a name */
    fa_require support[FA_MAX_REQUIRES], constraint[FA_MAX_REQUIRES];
    int support_count, constraint_count;
    fa_family_launch launch[FA_LAUNCHES_MAX];
    int launch_count;
    char *registers; /* NULL: no estimate */
    char *workspace; /* NULL: none */
    char *counters;  /* NULL: none */
    char *splits;    /* NULL: 1 */
    fa_expr *engine;
};

/* 229376 -> "229,376" */
enum { FA_COMMAS_MAX = 32 };
const char *fa_commas(int64_t number, char buffer[FA_COMMAS_MAX]);

/* A family's part of the space while it is being filled. */
typedef struct fa_filling {
    const fa_family *family;
    int family_index;
    const fa_gpu *gpu;
    fa_config preset;        /* the default config */
    fa_candidate *candidate; /* room for `room`, zeroed */
    int count, room;
    bool rows_failed; /* the sentence in diag is already about a row */
    fa_diag *diag;
} fa_filling;

/* Judges one row of the space's query (tunables, lets, constraints, registers, what a call shares, and of each
 * launch threads, grid, addends) into the next candidate: an fa_expr_row, context is an fa_filling. */
int fa_family_take_row(void *context, const fa_expr_value *value, int count);

/* The shortened query for the launches of many configs on many problems. */
typedef struct fa_launch_filling {
    const fa_family *family;
    int problem_count;
    const fa_candidate *const *candidate; /* by point of the query */
    fa_launches *const *launches;         /* of each point, for every problem */
    bool rows_failed;
    fa_diag *diag;
} fa_launch_filling;

/* Takes one row of it (problem, point, what a call shares, and the grid of each launch): an fa_expr_row, context
 * is an fa_launch_filling. */
int fa_family_take_launches(void *context, const fa_expr_value *value, int count);

/* Reads one manifest into a zeroed family whose operation is set; `where` is its file's name. On failure the caller frees
 * what there is. */
int fa_family_read(fa_family *family, const char *where, const cJSON *json, fa_diag *diag);

/* Order, levels and what lets read through others from their `uses`; FA_EMANIFEST names a cycle. */
int fa_family_order_lets(fa_family *family, fa_diag *diag);

/* Marks a tunable as one of "run_time", before the lets are ordered; FA_EMANIFEST without the file's name. */
int fa_family_add_run_time(fa_family *family, const char *name, fa_diag *diag);
/* Whether an expression that reads these names reads such a tunable, directly or through a let. */
bool fa_family_at_run_time(const fa_family *family, uint64_t uses);

#endif

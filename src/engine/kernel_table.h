/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of a tuner by problem and context, and what several of them share.
 *
 * Workload: a lookup for every attention layer of every step, from any thread; decoding asks for a new
 * length at every token, so there may be 100,000 problems that a few hundred cubins serve.
 * Invariants: a kernel is published whole and stays until the table is freed, because callers hold
 * it. A lookup takes no lock and sees the newest kernel of its key; everything else is done by one
 * thread at a time. A context is named by a number that the driver gives out once, never by its
 * address, which a later context may get again.
 */
#ifndef FA_ENGINE_KERNEL_TABLE_H
#define FA_ENGINE_KERNEL_TABLE_H

#include "fa_tune.h"

#include "call.h"
#include "driver.h"
#include "manifest.h"

#include <stdatomic.h>

/* The answer of some kernels, with an empty grid and an empty `why`, and with an empty problem if that is the kernel's. */
struct fa_like {
    struct fa_like *next;
    fa_answer answer;
};

/* A cubin in a context, ready to launch: one serves every problem that it is the answer for. */
typedef struct fa_loaded {
    struct fa_loaded *next;
    uint64_t context;
    int32_t ordinal; /* of the context's device */
    char cubin_key[65], entry[FA_NAME_MAX];
    int32_t smem_bytes;
    fa_module *module;
    fa_call call;              /* but for what the problem decides */
    const fa_family *composed; /* where a call has more than one launch or memory; else NULL */
    fa_stream_memory *memory;  /* of the context, where `composed`; the table owns it */
    struct fa_like *likes;
} fa_loaded;

struct fa_kernel {
    fa_problem asked;   /* the table's key */
    fa_problem problem; /* as it is launched: what texts say that fields say, too, is in these */
    uint64_t context; /* as fa_driver_context_id tells */
    int32_t ordinal;
    fa_call call;
    bool measured;               /* as good as effort measure asks for */
    bool own;                    /* the answer's problem is this one, made not empty */
    const fa_answer *like;       /* the answer, but for grid, why and, if it is its own, problem */
    _Atomic(fa_answer *) answer; /* whole, once somebody has asked for it */
    fa_kernel *before;           /* made before this one */
    char why[];
};

typedef struct fa_kernel_table {
    _Atomic(fa_kernel *) latest; /* published last: all layers of a step ask for it */
    _Atomic(struct fa_kernel_slots *) slots;
    fa_kernel *newest; /* of all, those that another has replaced included */
    fa_loaded *loaded;
    struct fa_context_memory *memories;
} fa_kernel_table;

/* NULL: there is none. From any thread at any time. */
const fa_kernel *fa_kernel_table_find(const fa_kernel_table *table, const fa_problem *problem,
                                      uint64_t context);
/* The cubin of an answer in this context; NULL: it is not loaded there. */
fa_loaded *fa_kernel_table_loaded(const fa_kernel_table *table, uint64_t context,
                                  const fa_answer *answer);
/* Takes a cubin that is loaded for this answer, but for context, names and size, which it fills in. */
void fa_kernel_table_keep(fa_kernel_table *table, uint64_t context, const fa_answer *answer,
                          fa_loaded *loaded);
void fa_loaded_free(fa_loaded **loaded); /* NULL is allowed */
/* The memory of the current context's streams, which all its kernels share. FA_ENOMEM. */
int fa_kernel_table_memory(fa_kernel_table *table, fa_driver *driver, uint64_t context,
                           fa_stream_memory **ret_memory, fa_diag *diag);
/* A kernel of this cubin and answer, to be completed and published; the table owns it. */
int fa_kernel_table_add(fa_kernel_table *table, fa_loaded *loaded, const fa_problem *problem,
                        const fa_answer *answer, fa_kernel **ret_kernel, fa_diag *diag);
/* From now on lookups of its problem and context find this kernel. FA_ENOMEM. */
int fa_kernel_table_publish(fa_kernel_table *table, fa_kernel *kernel, fa_diag *diag);
/* Frees the kernel that was added last, which is not published. */
void fa_kernel_table_drop_newest(fa_kernel_table *table);
/* Frees all kernels and unloads their cubins; the table is then empty. */
void fa_kernel_table_free(fa_kernel_table *table);

/* Whether the kernel was made of this very winner. */
bool fa_kernel_table_is_of(const fa_kernel *kernel, const fa_answer *answer);
/* The kernel's answer, which lives as long as the kernel; NULL: out of memory. Any thread. */
const fa_answer *fa_kernel_table_answer(const fa_kernel *kernel);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels that this process has loaded, by problem and context.
 *
 * Workload: a find for every attention layer of every step, from any thread; one entry of some 250
 * bytes for each distinct problem, of which decoding with growing lengths makes 100,000.
 * Invariants: an entry is published whole and never leaves before the table is freed. A reader takes
 * no lock and looks at a few slots, however many entries there are; writers come one at a time.
 */
#ifndef FA_ENGINE_KERNEL_TABLE_H
#define FA_ENGINE_KERNEL_TABLE_H

#include "fa_tune.h"

#include "driver.h"
#include "hash.h"
#include "map_cache.h"

#include <stdatomic.h>

/* One cubin's function in one context, which serves many problems. */
typedef struct fa_loaded {
    struct fa_loaded *next;
    uint64_t context; /* fa_driver_context_id */
    fa_driver *driver;
    fa_module *module;
    fa_function function;
    fa_map_cache *maps; /* NULL: the kernel takes no tensor maps */
    char cubin_key[FA_HASH_HEX];
    char entry[FA_NAME_MAX];
    int32_t smem_bytes;
} fa_loaded;
void fa_loaded_free(fa_loaded **loaded);

struct fa_kernel {
    fa_problem problem;
    uint64_t context;
    const fa_loaded *loaded;
    const fa_answer *answer;   /* but for the problem, the grid and `why` below */
    char *why;                 /* NULL: as in the answer */
    _Atomic(fa_answer *) told; /* made by the first fa_kernel_answer() */
    const fa_kernel *replaced; /* an older entry of this key */
    uint32_t grid[3];
    int32_t causal_offset;
    bool empty;    /* nothing to compute */
    bool measured; /* as good as effort measure asks for */
};

typedef struct fa_kernel_table fa_kernel_table;
int fa_kernel_table_new(fa_kernel_table **ret_table, fa_diag *diag);
void fa_kernel_table_free(fa_kernel_table **table); /* NULL is allowed; unloads all */
/* Any thread, at any time. NULL: none. */
const fa_kernel *fa_kernel_table_find(const fa_kernel_table *table, const fa_problem *problem,
                                      uint64_t context);
/* What is loaded for an answer; NULL: nothing. Keeping one hands it over. */
fa_loaded *fa_kernel_table_loaded(const fa_kernel_table *table, uint64_t context,
                                  const fa_answer *answer);
void fa_kernel_table_keep(fa_kernel_table *table, fa_loaded *loaded);
/* Publishes a kernel, in the place of what the key had. */
int fa_kernel_table_add(fa_kernel_table *table, const fa_problem *problem, const fa_loaded *loaded,
                        const fa_answer *answer, const fa_kernel **ret_kernel, fa_diag *diag);
/* For tests: bytes that the entries take, and the most slots that a find looks at. */
size_t fa_kernel_table_bytes(const fa_kernel_table *table, size_t *ret_most_slots);

#endif

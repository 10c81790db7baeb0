/* SPDX-License-Identifier: Apache-2.0
 *
 * Open addressing over pointers. A table that is half full is copied into one of twice its size; the
 * old one stays until the end, because a reader may still walk it.
 */
#include "kernel_table.h"

#include "effort.h"
#include "error.h"
#include "problem.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS_FIRST = 1024 };

struct slots {
    struct slots *older;
    size_t count, used; /* a power of two; slots that are taken */
    _Atomic(fa_kernel *) slot[];
};

/* What kernels of one winner share. */
struct shared_answer {
    struct shared_answer *next;
    fa_answer answer;
};

struct fa_kernel_table {
    _Atomic(struct slots *) slots;
    fa_loaded *loaded;
    struct shared_answer *answers;
    size_t bytes;
};

/* ---- keys -----------------------------------------------------------------------------------*/
static size_t hash_of(const fa_problem *problem, uint64_t context)
{
    int count = fa_operation_of(problem)->field_count;
    uint64_t h = context * 0x9e3779b97f4a7c15u;
    for (int i = 0; i < count; i++)
        h = (h ^ (uint32_t)problem->value[i]) * 0xff51afd7ed558ccdu ^ h >> 32;
    return (size_t)(h ^ h >> 29);
}

static bool is_key(const fa_kernel *kernel, const fa_problem *problem, uint64_t context)
{
    return kernel->context == context && fa_problem_equal(&kernel->problem, problem);
}

/* The slot of a key: the entry's own, or the free one where it belongs. */
static _Atomic(fa_kernel *) *slot_of(struct slots *slots, const fa_problem *problem,
                                     uint64_t context, size_t *ret_looked_at)
{
    size_t at = hash_of(problem, context);
    for (size_t looked_at = 1;; looked_at++, at++) {
        _Atomic(fa_kernel *) *slot = &slots->slot[at & (slots->count - 1)];
        const fa_kernel *kernel = atomic_load_explicit(slot, memory_order_acquire);
        if (kernel == NULL || is_key(kernel, problem, context)) {
            if (ret_looked_at != NULL)
                *ret_looked_at = looked_at;
            return slot;
        }
    }
}

const fa_kernel *fa_kernel_table_find(const fa_kernel_table *table, const fa_problem *problem,
                                      uint64_t context)
{
    struct slots *slots = atomic_load_explicit(&table->slots, memory_order_acquire);
    return atomic_load_explicit(slot_of(slots, problem, context, NULL), memory_order_acquire);
}

/* ---- room -----------------------------------------------------------------------------------*/
static struct slots *new_slots(size_t count)
{
    struct slots *slots = calloc(1, sizeof *slots + count * sizeof slots->slot[0]);
    if (slots != NULL)
        slots->count = count;
    return slots;
}

/* Room for one more: half of the slots stay free, so that a find ends soon. */
static int grow(fa_kernel_table *table, fa_diag *diag)
{
    struct slots *slots = atomic_load(&table->slots);
    if (2 * (slots->used + 1) <= slots->count)
        return 0;
    struct slots *larger = new_slots(2 * slots->count);
    if (larger == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a kernel");
    for (size_t i = 0; i < slots->count; i++) {
        fa_kernel *kernel = atomic_load(&slots->slot[i]);
        if (kernel != NULL)
            atomic_store(slot_of(larger, &kernel->problem, kernel->context, NULL), kernel);
    }
    larger->used = slots->used;
    larger->older = slots;
    atomic_store_explicit(&table->slots, larger, memory_order_release);
    return 0;
}

int fa_kernel_table_new(fa_kernel_table **ret_table, fa_diag *diag)
{
    fa_kernel_table *table = calloc(1, sizeof *table);
    struct slots *slots = new_slots(SLOTS_FIRST);
    if (table == NULL || slots == NULL) {
        free(table);
        free(slots);
        return fa_fail(diag, FA_ENOMEM, "out of memory for a tuner");
    }
    atomic_store(&table->slots, slots);
    *ret_table = table;
    return 0;
}

void fa_loaded_free(fa_loaded **loaded)
{
    fa_module_unload(&(*loaded)->module);
    fa_map_cache_free(&(*loaded)->maps);
    free(*loaded);
    *loaded = NULL;
}

static void free_kernel(const fa_kernel *kernel)
{
    while (kernel != NULL) {
        fa_kernel *own = (fa_kernel *)(uintptr_t)kernel;
        kernel = kernel->replaced;
        free(atomic_load(&own->told));
        free(own->why);
        free(own);
    }
}

void fa_kernel_table_free(fa_kernel_table **table)
{
    if (*table == NULL)
        return;
    struct slots *slots = atomic_load(&(*table)->slots);
    for (size_t i = 0; i < slots->count; i++)
        free_kernel(atomic_load(&slots->slot[i]));
    while (slots != NULL) {
        struct slots *older = slots->older;
        free(slots);
        slots = older;
    }
    for (fa_loaded *loaded = (*table)->loaded; loaded != NULL;) {
        fa_loaded *next = loaded->next;
        fa_loaded_free(&loaded);
        loaded = next;
    }
    for (struct shared_answer *shared = (*table)->answers; shared != NULL;) {
        struct shared_answer *next = shared->next;
        free(shared);
        shared = next;
    }
    free(*table);
    *table = NULL;
}

/* ---- what is loaded -------------------------------------------------------------------------*/
fa_loaded *fa_kernel_table_loaded(const fa_kernel_table *table, uint64_t context,
                                  const fa_answer *answer)
{
    fa_loaded *loaded = table->loaded;
    while (loaded != NULL &&
           (loaded->context != context || strcmp(loaded->cubin_key, answer->cubin_key) != 0 ||
            strcmp(loaded->entry, answer->entry) != 0 ||
            loaded->smem_bytes != answer->trial.smem_bytes))
        loaded = loaded->next;
    return loaded;
}

void fa_kernel_table_keep(fa_kernel_table *table, fa_loaded *loaded)
{
    loaded->next = table->loaded;
    table->loaded = loaded;
}

/* ---- answers --------------------------------------------------------------------------------*/
/* Whether two answers tell of one winner: they differ in the problem, the grid and `why` at most. */
static bool same_winner(const fa_answer *a, const fa_answer *b)
{
    return strcmp(a->cubin_key, b->cubin_key) == 0 && strcmp(a->entry, b->entry) == 0 &&
           a->origin == b->origin && a->driver_version == b->driver_version &&
           a->unix_time == b->unix_time && a->from_store == b->from_store &&
           a->from_system == b->from_system && a->trial.median_us == b->trial.median_us &&
           a->trial.predicted_us == b->trial.predicted_us &&
           a->trial.smem_bytes == b->trial.smem_bytes && a->default_us == b->default_us &&
           a->tune_s == b->tune_s && strcmp(a->gpu.uuid, b->gpu.uuid) == 0 &&
           fa_problem_equal(&a->from_problem, &b->from_problem);
}

static const fa_answer *share_answer(fa_kernel_table *table, const fa_answer *answer)
{
    for (const struct shared_answer *shared = table->answers; shared != NULL; shared = shared->next)
        if (same_winner(&shared->answer, answer))
            return &shared->answer;
    struct shared_answer *shared = calloc(1, sizeof *shared);
    if (shared == NULL)
        return NULL;
    shared->answer = *answer;
    shared->next = table->answers;
    table->answers = shared;
    table->bytes += sizeof *shared;
    return &shared->answer;
}

const fa_answer *fa_kernel_answer(const fa_kernel *kernel)
{
    fa_answer *none = NULL;
    if (kernel == NULL)
        return NULL;
    _Atomic(fa_answer *) *told = (_Atomic(fa_answer *) *)(uintptr_t)&kernel->told;
    fa_answer *answer = atomic_load_explicit(told, memory_order_acquire);
    if (answer != NULL || (answer = malloc(sizeof *answer)) == NULL)
        return answer;
    *answer = *kernel->answer;
    answer->problem = kernel->problem;
    memcpy(answer->trial.grid, kernel->grid, sizeof answer->trial.grid);
    if (kernel->why != NULL)
        memcpy(answer->why, kernel->why, strlen(kernel->why) + 1);
    if (atomic_compare_exchange_strong(told, &none, answer))
        return answer;
    free(answer); /* another thread was faster */
    return none;
}

/* ---- adding ---------------------------------------------------------------------------------*/
int fa_kernel_table_add(fa_kernel_table *table, const fa_problem *problem, const fa_loaded *loaded,
                        const fa_answer *answer, const fa_kernel **ret_kernel, fa_diag *diag)
{
    fa_kernel *kernel = calloc(1, sizeof *kernel);
    const fa_answer *shared = share_answer(table, answer);
    bool other_why = shared != NULL && strcmp(shared->why, answer->why) != 0;
    char *why = other_why ? strdup(answer->why) : NULL;
    int rc = kernel == NULL || shared == NULL || (other_why && why == NULL)
                 ? fa_fail(diag, FA_ENOMEM, "out of memory for a kernel")
                 : grow(table, diag);
    if (rc != 0) {
        free(kernel);
        free(why);
        return rc;
    }
    kernel->problem = *problem;
    kernel->context = loaded->context;
    kernel->loaded = loaded;
    kernel->answer = shared;
    kernel->why = why;
    memcpy(kernel->grid, answer->trial.grid, sizeof kernel->grid);
    kernel->measured = fa_answer_satisfies(answer, FA_EFFORT_MEASURE, false, false);
    kernel->causal_offset = fa_problem_causal_offset(problem);
    kernel->empty = problem->batch == 0 || problem->seq_q == 0;
    struct slots *slots = atomic_load(&table->slots);
    _Atomic(fa_kernel *) *slot = slot_of(slots, problem, kernel->context, NULL);
    kernel->replaced = atomic_load(slot);
    slots->used += kernel->replaced == NULL;
    table->bytes += sizeof *kernel + (why != NULL ? strlen(why) + 1 : 0);
    atomic_store_explicit(slot, kernel, memory_order_release);
    *ret_kernel = kernel;
    return 0;
}

size_t fa_kernel_table_bytes(const fa_kernel_table *table, size_t *ret_most_slots)
{
    struct slots *slots = atomic_load(&table->slots);
    size_t bytes = table->bytes;
    *ret_most_slots = 0;
    for (size_t i = 0; i < slots->count; i++) {
        size_t looked_at = 0;
        const fa_kernel *kernel = atomic_load(&slots->slot[i]);
        if (kernel != NULL)
            slot_of(slots, &kernel->problem, kernel->context, &looked_at);
        if (looked_at > *ret_most_slots)
            *ret_most_slots = looked_at;
    }
    for (; slots != NULL; slots = slots->older)
        bytes += slots->count * sizeof slots->slot[0];
    return bytes;
}

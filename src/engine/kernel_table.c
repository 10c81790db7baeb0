/* SPDX-License-Identifier: Apache-2.0
 *
 * An open hash table that only grows: a slot holds a hash and a kernel, the hash written first. When
 * it is half full it is copied into one of twice the size; readers of the old one go on with it, so it
 * stays. A kernel of a key that is there takes over the key's slot.
 *
 * A kernel is small: what the kernels of one cubin have in common lies with the cubin, the answer above
 * all, of which a bucket's problems differ in a few fields.
 */
#include "kernel_table.h"

#include "error.h"
#include "problem.h"
#include "snippet.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS_FIRST = 256 };

struct slot {
    _Atomic(fa_kernel *) kernel;
    uint64_t hash; /* of the kernel's key, which never changes once there is one */
};

struct fa_kernel_slots {
    struct fa_kernel_slots *smaller; /* that it was copied from */
    size_t mask, used;
    struct slot slot[];
};

struct fa_context_memory {
    struct fa_context_memory *next;
    uint64_t context;
    fa_stream_memory *memory;
};

/* ---- lookup ---------------------------------------------------------------------------------*/
static uint64_t fold(uint64_t a, uint64_t b)
{
    __extension__ unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t hash_of(const fa_operation *operation, const fa_problem *problem, uint64_t context)
{
    const int32_t *value = problem->value, *end = value + operation->field_count;
    uint64_t hash = fold((uintptr_t)operation ^ 0x9e3779b97f4a7c15u, context ^ 0xa0761d6478bd642fu);
    for (; end - value >= 4; value += 4) {
        uint64_t pair[2];
        memcpy(pair, value, sizeof pair);
        hash = fold(pair[0] ^ 0xe7037ed1a0b428dbu, pair[1] ^ hash);
    }
    for (; value < end; value++)
        hash = fold(hash ^ 0x8ebc6af09c88c6e3u, (uint32_t)*value ^ 0x589965cc75374cc3u);
    return hash;
}

static bool has_key(const fa_kernel *kernel, const fa_operation *operation,
                    const fa_problem *problem, uint64_t context)
{
    return kernel->context == context && kernel->asked.operation == operation &&
           memcmp(kernel->asked.value, problem->value,
                  (size_t)operation->field_count * sizeof *problem->value) == 0;
}

/* The slot of the key, or the empty one where it would go. */
static const struct slot *probe(const struct fa_kernel_slots *slots, uint64_t hash,
                                const fa_operation *operation, const fa_problem *problem,
                                uint64_t context, const fa_kernel **ret_kernel)
{
    for (size_t i = hash & slots->mask;; i = (i + 1) & slots->mask) {
        const struct slot *slot = &slots->slot[i];
        const fa_kernel *kernel = atomic_load_explicit(&slot->kernel, memory_order_acquire);
        if (kernel == NULL ||
            (slot->hash == hash && has_key(kernel, operation, problem, context))) {
            *ret_kernel = kernel;
            return slot;
        }
    }
}

const fa_kernel *fa_kernel_table_find(const fa_kernel_table *table, const fa_problem *problem,
                                      uint64_t context)
{
    const fa_operation *operation = fa_operation_of(problem);
    const fa_kernel *kernel = atomic_load_explicit(&table->latest, memory_order_acquire);
    if (kernel != NULL && has_key(kernel, operation, problem, context))
        return kernel;
    const struct fa_kernel_slots *slots = atomic_load_explicit(&table->slots, memory_order_acquire);
    kernel = NULL;
    if (slots != NULL)
        probe(slots, hash_of(operation, problem, context), operation, problem, context, &kernel);
    return kernel;
}

/* ---- publishing -----------------------------------------------------------------------------*/
static void put_in_slot(struct fa_kernel_slots *slots, uint64_t hash, fa_kernel *kernel)
{
    const fa_kernel *there = NULL;
    struct slot *slot = (struct slot *)probe(slots, hash, kernel->asked.operation, &kernel->asked,
                                             kernel->context, &there);
    if (there == NULL) {
        slot->hash = hash;
        slots->used++;
    }
    atomic_store_explicit(&slot->kernel, kernel, memory_order_release);
}

/* Slots with room for one more. */
static struct fa_kernel_slots *make_room(fa_kernel_table *table)
{
    struct fa_kernel_slots *old = atomic_load_explicit(&table->slots, memory_order_relaxed);
    if (old != NULL && old->used * 2 <= old->mask)
        return old;
    size_t count = old != NULL ? (old->mask + 1) * 2 : SLOTS_FIRST;
    struct fa_kernel_slots *slots = calloc(1, sizeof *slots + count * sizeof *slots->slot);
    if (slots == NULL)
        return NULL;
    slots->mask = count - 1;
    slots->smaller = old;
    for (size_t i = 0; old != NULL && i <= old->mask; i++) {
        fa_kernel *kernel = atomic_load_explicit(&old->slot[i].kernel, memory_order_relaxed);
        if (kernel != NULL)
            put_in_slot(slots, old->slot[i].hash, kernel);
    }
    atomic_store_explicit(&table->slots, slots, memory_order_release);
    return slots;
}

int fa_kernel_table_publish(fa_kernel_table *table, fa_kernel *kernel, fa_diag *diag)
{
    struct fa_kernel_slots *slots = make_room(table);
    FA_OR_RETURN(fa_have(slots != NULL, "a kernel", diag));
    put_in_slot(slots, hash_of(kernel->asked.operation, &kernel->asked, kernel->context), kernel);
    atomic_store_explicit(&table->latest, kernel, memory_order_release);
    return 0;
}

/* ---- what kernels share ---------------------------------------------------------------------*/
fa_loaded *fa_kernel_table_loaded(const fa_kernel_table *table, uint64_t context,
                                  const fa_answer *answer)
{
    fa_loaded *loaded = table->loaded;
    while (loaded != NULL &&
           (loaded->context != context || loaded->smem_bytes != answer->trial.smem_bytes ||
            strcmp(loaded->cubin_key, answer->cubin_key) != 0 ||
            strcmp(loaded->entry, answer->entry) != 0))
        loaded = loaded->next;
    return loaded;
}

void fa_kernel_table_keep(fa_kernel_table *table, uint64_t context, const fa_answer *answer,
                          fa_loaded *loaded)
{
    loaded->context = context;
    loaded->smem_bytes = answer->trial.smem_bytes;
    memcpy(loaded->cubin_key, answer->cubin_key, sizeof loaded->cubin_key);
    memcpy(loaded->entry, answer->entry, sizeof loaded->entry);
    loaded->next = table->loaded;
    table->loaded = loaded;
}

void fa_loaded_free(fa_loaded **loaded)
{
    if (*loaded == NULL)
        return;
    for (struct fa_like *like = (*loaded)->likes; like != NULL;) {
        struct fa_like *next = like->next;
        free(like);
        like = next;
    }
    fa_module_unload(&(*loaded)->module);
    if ((*loaded)->call.shared != NULL)
        (*loaded)->call.launcher->unload(&(*loaded)->call.shared);
    free(*loaded);
    *loaded = NULL;
}

int fa_kernel_table_memory(fa_kernel_table *table, fa_driver *driver, uint64_t context,
                           fa_stream_memory **ret_memory, fa_diag *diag)
{
    struct fa_context_memory *of = table->memories;
    while (of != NULL && of->context != context)
        of = of->next;
    if (of == NULL) {
        FA_ENDS(fa_free_at) struct fa_context_memory *made = calloc(1, sizeof *made);
        FA_OR_RETURN(fa_have(made != NULL, "a kernel", diag));
        FA_OR_RETURN(fa_stream_memory_create(driver, &made->memory, diag));
        made->context = context;
        made->next = table->memories;
        table->memories = of = made, made = NULL;
    }
    *ret_memory = of->memory;
    return 0;
}

/* The part of an answer that other problems of its bucket have too. */
static const fa_answer *share(fa_loaded *loaded, const fa_answer *answer, bool own)
{
    struct fa_like *made = malloc(sizeof *made);
    if (made == NULL)
        return NULL;
    made->answer = *answer;
    if (own)
        memset(&made->answer.problem, 0, sizeof made->answer.problem);
    memset(made->answer.trial.grid, 0, sizeof made->answer.trial.grid);
    memset(made->answer.why, 0, sizeof made->answer.why);
    /* Bytes between the fields may differ: then it is kept once more. */
    for (const struct fa_like *like = loaded->likes; like != NULL; like = like->next)
        if (memcmp(&like->answer, &made->answer, sizeof like->answer) == 0) {
            free(made);
            return &like->answer;
        }
    made->next = loaded->likes;
    loaded->likes = made;
    return &made->answer;
}

int fa_kernel_table_add(fa_kernel_table *table, fa_loaded *loaded, const fa_problem *problem,
                        const fa_answer *answer, fa_kernel **ret_kernel, fa_diag *diag)
{
    const fa_trial *trial = &answer->trial;
    size_t why = strnlen(answer->why, sizeof answer->why - 1);
    fa_problem exact = fa_problem_exact(problem);
    bool own = fa_problem_equal(&answer->problem, &exact);
    const fa_answer *like = share(loaded, answer, own);
    fa_kernel *kernel = like != NULL ? calloc(1, sizeof *kernel + why + 1) : NULL;
    FA_OR_RETURN(fa_have(kernel != NULL, "a kernel", diag));
    kernel->asked = *problem;
    kernel->problem = fa_fields_settle(problem);
    kernel->asked.operation = kernel->problem.operation = fa_operation_of(problem);
    kernel->context = loaded->context;
    kernel->ordinal = loaded->ordinal;
    kernel->call = loaded->call;
    kernel->call.threads = (uint32_t)trial->threads;
    kernel->call.smem_bytes = (uint32_t)trial->smem_bytes;
    kernel->call.empty = fa_problem_is_empty(problem);
    memcpy(kernel->call.grid, trial->grid, sizeof kernel->call.grid);
    memcpy(kernel->why, answer->why, why);
    kernel->own = own;
    kernel->like = like;
    kernel->before = table->newest;
    table->newest = kernel;
    *ret_kernel = kernel;
    return 0;
}

bool fa_kernel_table_is_of(const fa_kernel *kernel, const fa_answer *answer)
{
    const fa_answer *of = kernel->like;
    bool same_time = !(of->trial.median_us < answer->trial.median_us) &&
                     !(of->trial.median_us > answer->trial.median_us);
    return of->origin == answer->origin && of->unix_time == answer->unix_time && same_time &&
           of->shortlist_only == answer->shortlist_only &&
           of->driver_version == answer->driver_version && of->contents == answer->contents &&
           strcmp(of->cubin_key, answer->cubin_key) == 0 && strcmp(kernel->why, answer->why) == 0;
}

const fa_answer *fa_kernel_table_answer(const fa_kernel *kernel)
{
    fa_kernel *mutable = (fa_kernel *)kernel;
    fa_answer *none = NULL, *answer = atomic_load_explicit(&mutable->answer, memory_order_acquire);
    if (answer != NULL || (answer = malloc(sizeof *answer)) == NULL)
        return answer;
    *answer = *kernel->like;
    if (kernel->own)
        answer->problem = fa_problem_exact(&kernel->problem);
    memcpy(answer->trial.grid, kernel->call.grid, sizeof kernel->call.grid);
    memcpy(answer->why, kernel->why, strlen(kernel->why));
    if (atomic_compare_exchange_strong(&mutable->answer, &none, answer))
        return answer;
    free(answer);
    return none;
}

void fa_kernel_table_drop_newest(fa_kernel_table *table)
{
    fa_kernel *kernel = table->newest;
    table->newest = kernel->before;
    free(atomic_load(&kernel->answer));
    free(kernel->call.composed);
    free(kernel);
}

void fa_kernel_table_free(fa_kernel_table *table)
{
    struct fa_kernel_slots *slots = atomic_load(&table->slots);
    while (slots != NULL) {
        struct fa_kernel_slots *smaller = slots->smaller;
        free(slots);
        slots = smaller;
    }
    while (table->newest != NULL)
        fa_kernel_table_drop_newest(table);
    while (table->loaded != NULL) {
        fa_loaded *loaded = table->loaded;
        table->loaded = loaded->next;
        fa_loaded_free(&loaded);
    }
    while (table->memories != NULL) {
        struct fa_context_memory *next = table->memories->next;
        fa_stream_memory_free(&table->memories->memory);
        free(table->memories);
        table->memories = next;
    }
    atomic_store(&table->slots, NULL);
    atomic_store(&table->latest, NULL);
}

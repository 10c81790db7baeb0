/* SPDX-License-Identifier: Apache-2.0
 *
 * The proof: a candidate's launches, what the operation sees of each, and the verdict.
 *
 * Workload: up to a few hundred candidates; for each some 15 launches, a few small checking kernels
 * after every one, one synchronisation and one small copy.
 */
#include "prover.h"

#include "call.h"
#include "op.h"
#include "prover_base.h"
#include "hash.h"

#include "error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- open and close -------------------------------------------------------------------------*/
static int load_reference(fa_prover *p, const void *cubin, size_t size, fa_diag *diag)
{
    static const char *const entries[] = {"fa_check_fill", "fa_check_largest", "fa_check_output",
                                          "fa_check_around", "fa_check_input"};
    int rc = fa_module_load(p->driver, cubin, size, &p->module, diag);
    for (size_t i = 0; rc == 0 && i < sizeof entries / sizeof *entries; i++)
        rc = fa_module_function(p->module, entries[i], 0, &p->kernel[i], diag);
    return rc == 0 ? 0 : fa_fail_in(diag, rc, "loading the reference kernels");
}

int fa_prover_new(const struct fa_proof_type *type, fa_driver *driver, const fa_bench_setup *setup,
                  fa_prover **ret_prover, fa_diag *diag)
{
    fa_prover *p = calloc(1, sizeof *p);
    if (p == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory");
    p->type = type;
    p->driver = driver;
    p->seed = setup->seed;
    p->data = setup->data;
    p->memory = setup->memory;
    p->flush_bytes = fa_prover_flush_bytes(setup->gpu);
    p->blocks_max = setup->gpu->sm_count > 0 ? (uint32_t)setup->gpu->sm_count * 16 : 1024;
    *ret_prover = p;
    return 0;
}

int fa_prover_begin(fa_prover *p, const fa_bench_setup *setup, fa_diag *diag)
{
    int rc;
    if ((rc = fa_stream_create(p->driver, &p->stream, diag)) != 0 ||
        (rc = fa_event_create(p->driver, &p->start, diag)) != 0 ||
        (rc = fa_event_create(p->driver, &p->stop, diag)) != 0 ||
        (rc = load_reference(p, setup->reference, setup->reference_size, diag)) != 0 ||
        (rc = fa_prover_allocate(p, diag)) != 0)
        return rc;
    return fa_prover_prepare(p, diag);
}

void fa_prover_close(fa_prover **prover)
{
    fa_prover *p = *prover;
    if (p == NULL)
        return;
    *prover = NULL;
    fa_proof_release(p);
    fa_device_free(p->driver, &p->inputs);
    fa_device_free(p->driver, &p->outputs);
    fa_device_free(p->driver, &p->workspace.all);
    fa_device_free(p->driver, &p->counters.all);
    fa_module_unload(&p->module);
    fa_event_destroy(p->driver, &p->start);
    fa_event_destroy(p->driver, &p->stop);
    fa_stream_destroy(p->driver, &p->stream);
    free(p);
}

int fa_prover_open(fa_driver *driver, const fa_bench_setup *setup, fa_prover **ret_prover,
                   fa_diag *diag)
{
    fa_prover *p = NULL;
    int rc = fa_prover_new(fa_op_of(setup->problem)->proof, driver, setup, &p, diag);
    if (rc != 0)
        return rc;
    rc = p->type->take_cases(p, setup->problem, diag);
    if (rc == 0)
        rc = fa_prover_begin(p, setup, diag);
    if (rc != 0)
        fa_prover_close(&p);
    else
        *ret_prover = p;
    return rc;
}

/* ---- workspace and counters ------------------------------------------------------------------*/
enum {
    FENCE_BYTES = FA_PROVER_FENCE, /* in front of the memory, and as many behind it */
    RECYCLED_BYTES = 16384         /* of a workspace are changed between launches */
};

static int reserve(fa_prover *p, struct fa_fenced *memory, const char *name, size_t bytes,
                   fa_diag *diag)
{
    if (bytes <= memory->bytes)
        return 0;
    fa_device_free(p->driver, &memory->all);
    memory->bytes = 0;
    int rc = fa_device_alloc(p->driver, bytes + 2 * FENCE_BYTES, &memory->all, diag);
    if (rc != 0)
        return fa_fail_in(diag, fa_prover_memory_error(p->driver, rc), "allocating %s of %zu bytes",
                          name, bytes);
    memory->at = memory->all + FENCE_BYTES;
    memory->bytes = bytes;
    return 0;
}

int fa_prover_load(fa_prover *p, fa_cubin_entry entry, fa_prover_kernel *kernel, fa_diag *diag)
{
    kernel->workspace_bytes = (kernel->workspace_bytes + 1) & ~(size_t)1; /* of 16-bit poison */
    entry.workspace = kernel->workspace_bytes > 0;
    entry.counters = kernel->counters > 0;
    int rc = reserve(p, &p->workspace, "a workspace", kernel->workspace_bytes, diag);
    if (rc == 0)
        rc = reserve(p, &p->counters, "counters", 4 * kernel->counters, diag);
    if (rc == 0 && kernel->extra != NULL) { /* an earlier entry's: the boxes are the same */
        void *again = NULL;
        rc = p->type->load(p, kernel->module, &entry, &again, diag);
        free(again);
        return rc;
    }
    return rc != 0 ? rc : p->type->load(p, kernel->module, &entry, &kernel->extra, diag);
}

/* Rejects the kernel for this reason unless all 16-bit words from there on have the value. */
static int check_words(fa_prover *p, fa_device_ptr from, size_t bytes, uint16_t value,
                       const char *reason, fa_proof *proof, fa_diag *diag)
{
    if (!proof->passed || bytes == 0)
        return 0;
    uint16_t *word = malloc(bytes);
    if (word == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory");
    int rc = fa_copy_from_device(p->driver, word, from, bytes, diag);
    for (size_t i = 0; rc == 0 && i < bytes / 2 && proof->passed; i++) {
        if (word[i] == value)
            continue;
        proof->passed = false;
        p->damaged = true;
        snprintf(proof->reason, sizeof proof->reason, "%s", reason);
    }
    free(word);
    return rc;
}

/* What lies around the memory must be as it was. */
static int check_fences(fa_prover *p, const struct fa_fenced *memory, size_t bytes,
                        const char *name, fa_proof *proof, fa_diag *diag)
{
    char before[96], behind[96];
    if (bytes == 0)
        return 0;
    snprintf(before, sizeof before, "it wrote in front of its %s of %zu bytes", name, bytes);
    snprintf(behind, sizeof behind, "it wrote past the end of its %s of %zu bytes", name, bytes);
    int rc = check_words(p, memory->all, FENCE_BYTES, FA_CHECK_POISON, before, proof, diag);
    return rc != 0 ? rc
                   : check_words(p, memory->at + bytes, FENCE_BYTES, FA_CHECK_POISON, behind, proof,
                                 diag);
}

static int check_memory(fa_prover *p, const fa_prover_kernel *kernel, fa_proof *proof,
                        fa_diag *diag)
{
    size_t counters = 4 * kernel->counters;
    int rc = check_fences(p, &p->workspace, kernel->workspace_bytes, "workspace", proof, diag);
    if (rc == 0)
        rc = check_fences(p, &p->counters, counters, "counters", proof, diag);
    return rc != 0 ? rc
                   : check_words(p, p->counters.at, counters, 0,
                                 "it left a counter that is not zero", proof, diag);
}

/* ---- launches -------------------------------------------------------------------------------*/
static int poison(fa_prover *p, fa_device_ptr from, fa_device_ptr to, fa_diag *diag)
{
    return from == to ? 0
                      : fa_fill16(p->driver, from, FA_CHECK_POISON, (size_t)(to - from) / 2,
                                  p->stream, diag);
}

/* Poisons the workspace, makes counters zero, and poisons what lies around both. */
static int prepare_memory(fa_prover *p, const fa_prover_kernel *kernel, fa_diag *diag)
{
    const size_t bytes[] = {kernel->workspace_bytes, 4 * kernel->counters};
    const struct fa_fenced *memory[] = {&p->workspace, &p->counters};
    int rc = 0;
    for (int i = 0; rc == 0 && i < 2; i++)
        if (bytes[i] > 0)
            rc = poison(p, memory[i]->all, memory[i]->at + bytes[i] + FENCE_BYTES, diag);
    return rc != 0 || bytes[1] == 0
               ? rc
               : fa_fill8(p->driver, p->counters.at, 0, bytes[1], p->stream, diag);
}

static int run_candidate(fa_prover *p, const fa_prover_kernel *kernel, int index, fa_diag *diag)
{
    void *arguments[FA_PROVER_ARGUMENTS + 2] = {NULL};
    int count = 0;
    if (p->at[index].empty)
        return 0;
    p->splits = kernel->launches[index].splits;
    p->type->arguments(p, index, kernel->extra, arguments);
    while (count < FA_PROVER_ARGUMENTS && arguments[count] != NULL)
        count++;
    if (kernel->workspace_bytes > 0)
        arguments[count++] = &p->workspace.at;
    if (kernel->counters > 0)
        arguments[count] = &p->counters.at;
    return fa_launches_run(p->driver, &kernel->launches[index], kernel->function, arguments,
                           p->stream, diag);
}

/* Makes of the workspace what an allocator hands out that other kernels share: what the last launch left there, with some
 * bytes of every word changed by a neighbour. */
static int recycle(fa_prover *p, const fa_prover_kernel *kernel, int index, fa_diag *diag)
{
    static const size_t changed[] = {4, 1, 2, 8}; /* bytes */
    uint64_t word[RECYCLED_BYTES / 8] = {0};
    size_t bytes = kernel->workspace_bytes < sizeof word ? kernel->workspace_bytes : sizeof word;
    int rc = fa_stream_synchronize(p->driver, p->stream, diag);
    if (rc == 0)
        rc = fa_copy_from_device(p->driver, word, p->workspace.at, bytes, diag);
    for (size_t i = 0; i < sizeof word / sizeof *word; i++) {
        uint64_t draw = fa_random(p->seed + (uint64_t)index, i);
        memcpy(&word[i], &draw, changed[(i + (size_t)index) % 4]);
    }
    return rc != 0 ? rc : fa_copy_to_device(p->driver, p->workspace.at, word, bytes, diag);
}

/* Outputs that are inputs too, or partial, and variables of the module. */
static int restore(fa_prover *p, const fa_prover_kernel *kernel, int index, fa_diag *diag)
{
    if (p->at[index].empty)
        return 0;
    int rc = fa_proof_start_outputs(p, index, false, diag);
    return rc != 0 || p->type->restore == NULL ? rc
                                               : p->type->restore(p, index, kernel->extra, diag);
}

/* The launches on one case, on a workspace of which nothing is known, and the look at its outputs. */
static int try_case(fa_prover *p, const fa_prover_kernel *kernel, int round, int index,
                    fa_diag *diag)
{
    int rc = 0;
    if (kernel->workspace_bytes > 0)
        rc = round > 0
                 ? recycle(p, kernel, index, diag)
                 : poison(p, p->workspace.at, p->workspace.at + kernel->workspace_bytes, diag);
    if (rc == 0)
        rc = restore(p, kernel, index, diag);
    if (rc == 0 && index == 0)
        rc = fa_event_record(p->driver, p->start, p->stream, diag);
    if (rc == 0)
        rc = run_candidate(p, kernel, index, diag);
    if (rc == 0 && index == 0)
        rc = fa_event_record(p->driver, p->stop, p->stream, diag);
    return rc != 0 ? rc : fa_proof_check(p, round, index, diag);
}

/* ---- proof ----------------------------------------------------------------------------------*/
/* Adds one verdict to a proof; the worst error relative to its tolerance is kept, and the first
 * reason. `other`: of the same case's other launch. */
static void add_verdict(fa_proof *proof, const fa_prover *p, int index, int round,
                        const struct fa_verdict *other, const struct fa_verdict *v)
{
    if (index + round == 0 || !(v->error / v->tolerance <= proof->max_error / proof->tolerance)) {
        proof->max_error = v->error;
        proof->tolerance = v->tolerance;
    }
    if (v->passed || proof->reason[0] != 0)
        return;
    char text[160];
    p->type->text(p, index, text, sizeof text);
    proof->passed = false;
    snprintf(proof->reason, sizeof proof->reason, "case %d (%s): %s%s", index, text,
             !other->passed ? ""
             : round == 0   ? "launches differ: right in the second, but in the first "
                            : "launches differ: right in the first, but in the second ",
             v->reason);
}

static void judge(fa_prover *p, fa_proof *ret_proof)
{
    fa_proof proof = {.passed = true};
    for (int i = 0; i < p->count; i++) {
        const struct fa_verdict *first = &p->at[i].verdict[0];
        const struct fa_verdict *second = &p->at[i].verdict[p->at[i].once ? 0 : 1];
        p->damaged = p->damaged || first->damaged || second->damaged;
        add_verdict(&proof, p, i, 0, second, first);
        add_verdict(&proof, p, i, 1, first, second);
    }
    *ret_proof = proof;
}

int fa_prover_prove(fa_prover *p, const fa_prover_kernel *kernel, fa_proof *ret_proof,
                    fa_diag *diag)
{
    int rc = p->damaged ? fa_prover_prepare(p, diag) : 0;
    p->proofs++;
    if (rc == 0)
        rc = prepare_memory(p, kernel, diag);
    for (int round = 0; rc == 0 && round < FA_PROVER_ROUNDS; round++) {
        bool first_again = round > 0 && !p->at[0].once;
        rc = poison(p, round == 0 || first_again ? p->outputs : p->small_outputs, p->outputs_end,
                    diag);
        for (int i = 0; rc == 0 && i < p->count; i++)
            if (round == 0 || !p->at[i].once)
                rc = try_case(p, kernel, round, i, diag);
    }
    if (rc == 0) {
        judge(p, ret_proof);
        rc = check_memory(p, kernel, ret_proof, diag);
    }
    if (rc == 0 && !p->at[0].empty)
        rc = fa_event_elapsed_us(p->driver, p->start, p->stop, &ret_proof->launch_us, diag);
    if (rc != 0 || !ret_proof->passed)
        p->refuted = p->proofs;
    if (rc == 0 && !ret_proof->passed && p->counters.bytes > 0) /* others are timed with them */
        rc = fa_fill8(p->driver, p->counters.at, 0, p->counters.bytes, p->stream, diag);
    if (rc != 0) {
        p->damaged = true;
        return fa_fail_in(diag, rc, "proving a kernel");
    }
    return 0;
}

/* ---- for timing -----------------------------------------------------------------------------*/
fa_stream fa_prover_stream(const fa_prover *p)
{
    return p->stream;
}

bool fa_prover_is_empty(const fa_prover *p)
{
    return p->at[0].empty;
}

int fa_prover_restore(fa_prover *p, const fa_prover_kernel *kernel, fa_diag *diag)
{
    return restore(p, kernel, 0, diag);
}

int fa_prover_launch(fa_prover *p, const fa_prover_kernel *kernel, fa_diag *diag)
{
    return run_candidate(p, kernel, 0, diag);
}

int fa_prover_poison(fa_prover *p, fa_diag *diag)
{
    int rc = p->damaged ? fa_prover_prepare(p, diag) : 0;
    return rc != 0 ? rc : poison(p, p->outputs, p->small_outputs, diag);
}

int fa_prover_check(fa_prover *p, fa_proof *ret_proof, fa_diag *diag)
{
    const struct fa_verdict *verdict = &p->at[0].verdict[0];
    int rc = fa_proof_check(p, 0, 0, diag);
    if (rc != 0)
        return fa_fail_in(diag, rc, "checking a timed kernel");
    fa_proof proof = {.passed = true};
    p->damaged = p->damaged || verdict->damaged;
    add_verdict(&proof, p, 0, 0, verdict, verdict);
    *ret_proof = proof;
    return 0;
}

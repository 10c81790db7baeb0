/* SPDX-License-Identifier: Apache-2.0
 *
 * The proof: a candidate's launches, what the operation sees of each, and the verdict.
 *
 * Workload: up to a few hundred candidates; for each some 15 launches, a few small checking kernels
 * after every one, one synchronisation and one small copy.
 */
#include "prover.h"

#include "call.h"
#include "hash.h"

#include "problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- workspace and counters ------------------------------------------------------------------*/
enum {
    FENCE_BYTES = FA_PROVER_FENCE, /* in front of the memory, and as many behind it */
    RECYCLED_BYTES = 16384         /* of a workspace are changed between launches */
};

static void reserve(fa_bench *b, struct fa_fenced *memory, size_t bytes)
{
    if (b->rc != 0 || bytes <= memory->bytes)
        return;
    fa_device_free(b->driver, &memory->all);
    memory->bytes = 0;
    fa_bench_reserve(b, &memory->all, bytes + 2 * FENCE_BYTES);
    if (b->rc != 0)
        return;
    memory->at = memory->all + FENCE_BYTES;
    memory->bytes = bytes;
}

void fa_prover_load(fa_bench *b, fa_cubin_entry entry, fa_bench_kernel *kernel)
{
    const fa_launcher *launcher = b->type->launcher;
    void *again = NULL; /* of a second entry: it is the same */
    kernel->workspace_bytes = (kernel->workspace_bytes + 1) & ~(size_t)1; /* of 16-bit poison */
    entry.workspace = kernel->workspace_bytes > 0;
    entry.counters = kernel->counters > 0;
    reserve(b, &b->workspace, kernel->workspace_bytes);
    reserve(b, &b->counters, 4 * kernel->counters);
    if (b->rc == 0)
        b->rc = launcher->load(b->driver, kernel->module, &b->at[0].problem, &entry,
                               kernel->shared != NULL ? &again : &kernel->shared, b->diag);
    launcher->unload(&again);
}

/* Whether all 16-bit words from there on have the value. */
static bool are_words(fa_bench *b, fa_device_ptr from, size_t bytes, uint16_t value)
{
    bool same = true;
    uint16_t *word = malloc(bytes + 1);
    if (word == NULL)
        FA_TRY(b, fa_fail(b->diag, FA_ENOMEM, "out of memory"));
    fa_bench_download(b, word, from, bytes);
    for (size_t i = 0; b->rc == 0 && i < bytes / 2 && same; i++)
        same = word[i] == value;
    free(word);
    return same;
}

/* What lies around workspace and counters must be as it was, and counters must be zero again. */
static void check_memory(fa_bench *b, const fa_bench_kernel *kernel, fa_proof *proof)
{
    const struct {
        const struct fa_fenced *memory;
        size_t bytes;
        const char *name;
    } all[] = {{&b->workspace, kernel->workspace_bytes, "workspace"},
               {&b->counters, 4 * kernel->counters, "counters"}};
    if (!proof->passed)
        return;
    for (int i = 0; i < 2 && proof->passed; i++) {
        const fa_device_ptr front = all[i].memory->all, behind = all[i].memory->at + all[i].bytes;
        const size_t fence = all[i].bytes > 0 ? FENCE_BYTES : 0;
        const bool before = are_words(b, front, fence, FA_CHECK_POISON);
        proof->passed = before && are_words(b, behind, fence, FA_CHECK_POISON);
        if (!proof->passed)
            snprintf(proof->reason, sizeof proof->reason, "it wrote %s its %s of %zu bytes",
                     before ? "past the end of" : "in front of", all[i].name, all[i].bytes);
    }
    if (proof->passed && !are_words(b, b->counters.at, all[1].bytes, 0)) {
        proof->passed = false;
        snprintf(proof->reason, sizeof proof->reason, "it left a counter that is not zero");
    }
    b->damaged = b->damaged || !proof->passed;
}

/* ---- launches -------------------------------------------------------------------------------*/
static void poison(fa_bench *b, fa_device_ptr from, fa_device_ptr to)
{
    if (from != to)
        FA_TRY(b, fa_fill16(b->driver, from, FA_CHECK_POISON, (size_t)(to - from) / 2, b->stream,
                            b->diag));
}

void fa_prover_launch(fa_bench *b, const fa_bench_kernel *kernel, int index)
{
    void *arguments[FA_PROVER_ARGUMENTS + 2];
    const fa_launches *launches = b->launches = &kernel->launches[index];
    for (int i = 0; !b->at[index].empty && i < launches->count; i++) {
        int count = b->type->arguments(b, index, i, kernel->shared, arguments);
        if (kernel->workspace_bytes > 0)
            arguments[count++] = &b->workspace.at;
        arguments[count] = &b->counters.at;
        FA_TRY(b, fa_launch_shaped(b->driver, &launches->at[i], kernel->function[i], arguments,
                                   b->stream, b->diag));
    }
}

/* Makes of the workspace what an allocator hands out that other kernels share: what the last launch left there, with some
 * bytes of every word changed by a neighbour. */
static void recycle(fa_bench *b, const fa_bench_kernel *kernel, int index)
{
    static const size_t changed[] = {4, 1, 2, 8}; /* bytes */
    uint64_t word[RECYCLED_BYTES / 8] = {0};
    size_t bytes = kernel->workspace_bytes < sizeof word ? kernel->workspace_bytes : sizeof word;
    fa_bench_synchronize(b);
    fa_bench_download(b, word, b->workspace.at, bytes);
    for (size_t i = 0; i < sizeof word / sizeof *word; i++) {
        uint64_t draw = fa_random(b->seed + (uint64_t)index, i);
        memcpy(&word[i], &draw, changed[(i + (size_t)index) % 4]);
    }
    fa_bench_upload(b, b->workspace.at, word, bytes);
}

/* Outputs that are inputs too, or partial, and variables of the module. */
void fa_prover_restore(fa_bench *b, const fa_bench_kernel *kernel, int index)
{
    if (b->at[index].empty)
        return;
    fa_proof_start_outputs(b, index, false);
    if (b->rc == 0 && b->type->copy_variables != NULL)
        b->type->copy_variables(b, index, kernel->shared, false);
}

void fa_prover_collect(fa_bench *b, const fa_bench_kernel *kernel, int index)
{
    if (b->rc == 0 && !b->at[index].empty && b->type->copy_variables != NULL)
        b->type->copy_variables(b, index, kernel->shared, true);
}

/* The launches on one case, on a workspace of which nothing is known, and the look at its outputs. */
static void try_case(fa_bench *b, const fa_bench_kernel *kernel, int round, int index)
{
    if (kernel->workspace_bytes > 0 && round > 0)
        recycle(b, kernel, index);
    else if (kernel->workspace_bytes > 0)
        poison(b, b->workspace.at, b->workspace.at + kernel->workspace_bytes);
    fa_prover_restore(b, kernel, index);
    if (index == 0)
        FA_TRY(b, fa_event_record(b->driver, b->start[0], b->stream, b->diag));
    fa_prover_launch(b, kernel, index);
    if (index == 0)
        FA_TRY(b, fa_event_record(b->driver, b->stop[0], b->stream, b->diag));
    fa_prover_collect(b, kernel, index);
    fa_proof_check(b, round, index);
}

/* ---- proof ----------------------------------------------------------------------------------*/
/* Adds one verdict to a proof; the worst error relative to its tolerance is kept, and the first
 * reason. `other`: of the same case's other launch. */
static void add_verdict(fa_proof *proof, const fa_bench *p, int index, int round,
                        const struct fa_verdict *other, const struct fa_verdict *v)
{
    if (index + round == 0 || !(v->error / v->tolerance <= proof->max_error / proof->tolerance)) {
        proof->max_error = v->error;
        proof->tolerance = v->tolerance;
    }
    if (v->passed || proof->reason[0] != 0)
        return;
    char key[FA_PROBLEM_KEY_MAX];
    fa_problem_key(&p->at[index].problem, key);
    proof->passed = false;
    snprintf(proof->reason, sizeof proof->reason, "case %d (%.159s): %s%s", index, key,
             !other->passed ? ""
             : round == 0   ? "launches differ: right in the second, but in the first "
                            : "launches differ: right in the first, but in the second ",
             v->reason);
}

/* The hash of all outputs as they are now, with what lies around them. */
static uint64_t bits_of_outputs(fa_bench *b)
{
    uint64_t bits = 0, count = (b->outputs_end - b->outputs) / sizeof bits;
    void *arguments[] = {&b->outputs, &count, &b->result};
    fa_bench_zero(b, b->result, sizeof bits);
    fa_bench_run(b, b->check[FA_BITS], count, arguments);
    fa_bench_synchronize(b);
    fa_bench_download(b, &bits, b->result, sizeof bits);
    return bits;
}

int fa_bench_verify(fa_bench *b, fa_bench_kernel *kernel, fa_proof *ret_proof, fa_diag *diag)
{
    const size_t workspace = kernel->workspace_bytes, counters = 4 * kernel->counters;
    fa_proof proof = {.passed = false};
    uint64_t bits[FA_PROVER_ROUNDS] = {0};
    b->rc = 0;
    b->diag = diag;
    kernel->proved = false;
    if (b->damaged)
        fa_bench_prepare(b);
    b->proofs++;
    if (workspace > 0)
        poison(b, b->workspace.all, b->workspace.at + workspace + FENCE_BYTES);
    if (counters > 0)
        poison(b, b->counters.all, b->counters.at + counters + FENCE_BYTES);
    fa_bench_zero(b, b->counters.at, counters);
    for (int round = 0; round < FA_PROVER_ROUNDS; round++) {
        bool first_again = round > 0 && !b->at[0].once;
        poison(b, round == 0 || first_again ? b->outputs : b->small_outputs, b->outputs_end);
        for (int i = 0; i < b->count; i++)
            if (b->rc == 0 && (round == 0 || !b->at[i].once))
                try_case(b, kernel, round, i);
        bits[round] = bits_of_outputs(b);
    }
    proof.bits = bits[0] == bits[1] ? bits[0] : 0;
    proof.passed = b->rc == 0;
    for (int i = 0; b->rc == 0 && i < b->count; i++) {
        const struct fa_verdict *first = &b->at[i].verdict[0];
        const struct fa_verdict *second = &b->at[i].verdict[b->at[i].once ? 0 : 1];
        b->damaged = b->damaged || first->damaged || second->damaged;
        add_verdict(&proof, b, i, 0, second, first);
        add_verdict(&proof, b, i, 1, first, second);
    }
    if (b->rc == 0)
        check_memory(b, kernel, &proof);
    if (!b->at[0].empty)
        FA_TRY(b, fa_event_elapsed_us(b->driver, b->start[0], b->stop[0], &proof.launch_us, diag));
    if (b->rc != 0 || !proof.passed)
        b->refuted = b->proofs;
    if (!proof.passed && b->counters.bytes > 0) /* others are timed with them */
        fa_bench_zero(b, b->counters.at, b->counters.bytes);
    if (b->rc != 0) {
        b->damaged = true;
        return fa_fail_in(diag, b->rc, "proving a kernel");
    }
    kernel->proved = proof.passed;
    kernel->launch_us = proof.launch_us;
    *ret_proof = proof;
    return 0;
}

void fa_prover_poison(fa_bench *b)
{
    if (b->damaged)
        fa_bench_prepare(b);
    poison(b, b->outputs, b->small_outputs);
}

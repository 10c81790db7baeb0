/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that holds every case of a prover, and the kernels that work on it.
 *
 * Workload: made once per problem; filled anew after a candidate wrote where it must not.
 */
#include "prover_base.h"

#include "error.h"
#include "prover.h"

#include <stdio.h>
#include <stdlib.h>

fa_device_ptr fa_cursor_take(struct fa_cursor *cursor, uint64_t count, uint64_t size)
{
    uint64_t start = cursor->at, bytes;
    if (__builtin_mul_overflow(count, size, &bytes) ||
        __builtin_add_overflow(bytes, 255u, &bytes) ||
        __builtin_add_overflow(start, bytes & ~(uint64_t)255, &cursor->at))
        cursor->overflow = true;
    return start;
}

int fa_prover_run(struct fa_prover *p, fa_function function, uint32_t threads, uint64_t work,
                  void **arguments, fa_diag *diag)
{
    uint64_t blocks = (work + threads - 1) / threads;
    if (blocks == 0)
        return 0;
    uint32_t grid[3] = {blocks < p->blocks_max ? (uint32_t)blocks : p->blocks_max, 1, 1};
    return fa_launch_kernel(p->driver, function, grid, (const uint32_t[]){threads, 1, 1}, 0,
                            p->stream, arguments, diag);
}

/* ---- memory ---------------------------------------------------------------------------------*/
size_t fa_prover_result_at(const struct fa_prover *p, int round, int index)
{
    return (size_t)(round * p->count + index) * p->type->result_bytes;
}

size_t fa_prover_results_size(const struct fa_prover *p)
{
    return fa_prover_result_at(p, FA_PROVER_ROUNDS, 0);
}

/* Addresses of everything, from the bases that the cursors hold. */
static void plan(struct fa_prover *p, struct fa_cursor *inputs, struct fa_cursor *outputs)
{
    for (int i = 0; i < p->count; i++) {
        p->type->plan(p, i, inputs, outputs);
        if (i == 0)
            p->small_outputs = outputs->at;
    }
    p->outputs_end = outputs->at;
    p->results = fa_cursor_take(outputs, fa_prover_results_size(p), 1);
}

int fa_prover_memory_error(const fa_driver *driver, int rc)
{
    enum { CUDA_OUT_OF_MEMORY = 2 };
    return fa_driver_last_result(driver) == CUDA_OUT_OF_MEMORY ? FA_ENOMEM : rc;
}

/* Twice the L2, so that no line of the tensors stays whatever the replacement policy. */
size_t fa_prover_flush_bytes(const fa_gpu *gpu)
{
    size_t least = (size_t)32 << 20;
    size_t twice = gpu->l2_bytes > 0 ? 2 * (size_t)gpu->l2_bytes : 8 * least;
    return twice > least ? twice : least;
}

size_t fa_prover_room(const fa_prover *prover)
{
    return prover->room;
}

/* Holds the tensors of this size and all else to the budget. */
static int keep_to_budget(struct fa_prover *p, size_t tensors, fa_diag *diag)
{
    enum { FENCES = 8 * FA_PROVER_FENCE }; /* of a workspace and of counters */
    char which[96];
    size_t available = 0, total = 0, need = tensors + p->flush_bytes + FENCES;
    int rc = fa_device_memory(p->driver, &available, &total, diag);
    if (rc != 0)
        return rc;
    size_t budget = p->memory > 0 ? p->memory : available / 2;
    if (need > available)
        return fa_fail(
            diag, FA_ENOMEM,
            "proving this problem needs %zu MiB of GPU memory and %zu MiB are free: free "
            "some, or tune a smaller batch",
            need >> 20, available >> 20);
    snprintf(which, sizeof which, p->memory > 0 ? "as asked" : "half of the %zu MiB that are free",
             available >> 20);
    if (need > budget)
        return fa_fail(
            diag, FA_ENOMEM,
            "proving this problem needs %zu MiB of GPU memory and its budget is %zu MiB, "
            "%s: raise \"memory\", or tune a smaller batch",
            (need >> 20) + 1, budget >> 20, which);
    p->room = budget - need;
    return 0;
}

static int allocate(struct fa_prover *p, fa_diag *diag)
{
    struct fa_cursor inputs = {0}, outputs = {0};
    plan(p, &inputs, &outputs);
    if (inputs.overflow || outputs.overflow || inputs.at > SIZE_MAX / 4 ||
        outputs.at > SIZE_MAX / 4)
        return fa_fail(diag, FA_ENOMEM, "the tensors of this problem pass 2^62 bytes");
    int rc = keep_to_budget(p, (size_t)(inputs.at + outputs.at), diag);
    if (rc != 0)
        return rc;
    rc = fa_device_alloc(p->driver, (size_t)inputs.at, &p->inputs, diag);
    if (rc == 0)
        rc = fa_device_alloc(p->driver, (size_t)outputs.at, &p->outputs, diag);
    if (rc != 0)
        return fa_fail_in(diag, fa_prover_memory_error(p->driver, rc),
                          "allocating %llu MiB for tensors",
                          (unsigned long long)(inputs.at + outputs.at) >> 20);
    inputs = (struct fa_cursor){.at = p->inputs};
    outputs = (struct fa_cursor){.at = p->outputs};
    plan(p, &inputs, &outputs);
    p->seen = calloc(1, fa_prover_results_size(p) + 1);
    return p->seen != NULL ? 0 : fa_fail(diag, FA_ENOMEM, "out of memory");
}

int fa_prover_prepare(struct fa_prover *p, fa_diag *diag)
{
    int rc = 0;
    for (int i = 0; rc == 0 && i < p->count; i++)
        rc = p->type->prepare(p, i, diag);
    if (rc == 0)
        rc = fa_stream_synchronize(p->driver, p->stream, diag);
    if (rc == 0)
        p->damaged = false;
    return rc == 0 ? 0 : fa_fail_in(diag, rc, "preparing the reference");
}

/* ---- open and close -------------------------------------------------------------------------*/
static int load_reference(struct fa_prover *p, const void *cubin, size_t size, fa_diag *diag)
{
    int rc = fa_module_load(p->driver, cubin, size, &p->module, diag);
    for (int i = 0; rc == 0 && p->type->entry[i] != NULL; i++)
        rc = fa_module_function(p->module, p->type->entry[i], 0, &p->kernel[i], diag);
    return rc == 0 ? 0 : fa_fail_in(diag, rc, "loading the reference kernels");
}

int fa_prover_new(const struct fa_prover_type *type, fa_driver *driver, const fa_bench_setup *setup,
                  struct fa_prover **ret_prover, fa_diag *diag)
{
    struct fa_prover *p = calloc(1, type->size);
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

int fa_prover_begin(struct fa_prover *p, const fa_bench_setup *setup, fa_diag *diag)
{
    int rc;
    if ((rc = fa_stream_create(p->driver, &p->stream, diag)) != 0 ||
        (rc = fa_event_create(p->driver, &p->start, diag)) != 0 ||
        (rc = fa_event_create(p->driver, &p->stop, diag)) != 0 ||
        (rc = load_reference(p, setup->reference, setup->reference_size, diag)) != 0 ||
        (rc = allocate(p, diag)) != 0)
        return rc;
    return fa_prover_prepare(p, diag);
}

void fa_prover_close(fa_prover **prover)
{
    fa_prover *p = *prover;
    if (p == NULL)
        return;
    *prover = NULL;
    if (p->type->release != NULL)
        p->type->release(p);
    fa_device_free(p->driver, &p->inputs);
    fa_device_free(p->driver, &p->outputs);
    fa_device_free(p->driver, &p->workspace.all);
    fa_device_free(p->driver, &p->counters.all);
    fa_module_unload(&p->module);
    fa_event_destroy(p->driver, &p->start);
    fa_event_destroy(p->driver, &p->stop);
    fa_stream_destroy(p->driver, &p->stream);
    free(p->seen);
    free(p);
}

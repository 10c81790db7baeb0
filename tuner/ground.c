/* SPDX-License-Identifier: Apache-2.0
 *
 * The proving ground itself: the memory that holds every case, inputs, and the reference of each.
 *
 * Workload: opened once per problem; filled anew after a candidate wrote where it must not.
 */
#include "ground.h"

#include "../src/base/error.h"

#include <stdlib.h>

enum {
    FENCE = 32768,           /* 16-bit elements before and behind each output: 64 KiB */
    INPUT_FENCE = 2048,      /* before and behind each input */
    REFERENCE_THREADS = 128, /* attn_ref.cu asks for it */
};

/* ---- memory ---------------------------------------------------------------------------------*/

/* Hands out addresses, 256-byte aligned; first counts from 0, then again from the real base. */
struct cursor {
    uint64_t at;
    bool overflow;
};

static fa_device_ptr take(struct cursor *cursor, uint64_t count, uint64_t size)
{
    uint64_t start = cursor->at, bytes;
    if (__builtin_mul_overflow(count, size, &bytes) ||
        __builtin_add_overflow(bytes, 255u, &bytes) ||
        __builtin_add_overflow(start, bytes & ~(uint64_t)255, &cursor->at))
        cursor->overflow = true;
    return start;
}

/* A tensor with fences; returns the address of its first element. */
static fa_device_ptr take_tensor(struct cursor *cursor, struct ground_case *c, int tensor)
{
    uint64_t fence = tensor == FA_ATTN_O ? FENCE : INPUT_FENCE, span = 0, count;
    uint64_t first = fence + (uint64_t)c->what.tensor[tensor].offset;
    if (!fa_attn_tensor_span(&c->what, tensor, &span) ||
        __builtin_add_overflow(span, first + fence, &count)) {
        cursor->overflow = true;
        return 0;
    }
    count = (count + 127) & ~(uint64_t)127;
    fa_device_ptr base = take(cursor, count, 2);
    c->tensor[tensor] = fa_attn_tensor_region(&c->what, tensor, base, count, first);
    return base + 2 * first;
}

static void take_inputs(struct cursor *cursor, struct ground_case *c)
{
    uint64_t first[FA_ATTN_TENSORS] = {0};
    for (int i = 0; i < FA_ATTN_O; i++)
        first[i] = take_tensor(cursor, c, i);
    c->params = fa_attn_params_of(&c->what, first, 0);
    c->row_ids = c->what.all_rows ? 0 : take(cursor, (uint64_t)c->row_count, sizeof(int64_t));
    uint64_t elements = (uint64_t)c->row_count * (uint64_t)c->what.problem.head_dim;
    c->ref_o = take(cursor, elements, sizeof(float));
    c->lowp_o = take(cursor, elements, sizeof(float));
    c->ref_lse = take(cursor, (uint64_t)c->row_count, sizeof(float));
    c->lowp_lse = take(cursor, (uint64_t)c->row_count, sizeof(float));
}

static void take_outputs(struct cursor *cursor, struct ground_case *c)
{
    c->params.o = (void *)(uintptr_t)take_tensor(cursor, c, FA_ATTN_O);
    if (!c->what.problem.want_lse)
        return;
    uint64_t count;
    if (__builtin_mul_overflow((uint64_t)c->rows, 2u, &count) ||
        __builtin_add_overflow(count, 2 * FENCE, &count)) {
        cursor->overflow = true;
        return;
    }
    fa_device_ptr base = take(cursor, count, 2);
    c->params.lse = (float *)(uintptr_t)(base + 2 * FENCE);
    c->lse = fa_attn_lse_region(&c->what, base, count, FENCE);
}

/* Addresses of everything, from the bases that the cursors hold. Outputs lie together, so that one
 * fill poisons them all, and apart from inputs and references, which a proof never writes. */
static void plan(fa_ground *g, struct cursor *inputs, struct cursor *outputs)
{
    for (int i = 0; i < g->count; i++)
        take_inputs(inputs, &g->at[i]);
    for (int i = 0; i < g->count; i++) {
        take_outputs(outputs, &g->at[i]);
        if (i == 0)
            g->small_outputs = outputs->at;
    }
    g->outputs_end = outputs->at;
    g->results = take(outputs, FA_GROUND_ROUNDS * FA_GROUND_BANDS * (uint64_t)g->count,
                      sizeof(struct fa_attn_compare));
}

int fa_ground_memory_error(const fa_driver *driver, int rc)
{
    enum { CUDA_OUT_OF_MEMORY = 2 };
    return fa_driver_last_result(driver) == CUDA_OUT_OF_MEMORY ? FA_ENOMEM : rc;
}

static int allocate(fa_ground *g, fa_diag *diag)
{
    struct cursor inputs = {0}, outputs = {0};
    size_t available = 0, total = 0;
    plan(g, &inputs, &outputs);
    if (inputs.overflow || outputs.overflow || inputs.at > SIZE_MAX / 4 ||
        outputs.at > SIZE_MAX / 4)
        return fa_fail(diag, FA_ENOMEM, "the tensors of this problem pass 2^62 bytes");
    unsigned long long need = (inputs.at + outputs.at) >> 20;
    int rc = fa_device_memory(g->driver, &available, &total, diag);
    if (rc != 0)
        return rc;
    if (inputs.at + outputs.at > available)
        return fa_fail(diag, FA_ENOMEM,
                       "proving this problem needs %llu MiB of device memory and %zu MiB are free: "
                       "free some, or tune a smaller batch",
                       need, available >> 20);
    rc = fa_device_alloc(g->driver, (size_t)inputs.at, &g->inputs, diag);
    if (rc == 0)
        rc = fa_device_alloc(g->driver, (size_t)outputs.at, &g->outputs, diag);
    if (rc != 0)
        return fa_fail_in(diag, fa_ground_memory_error(g->driver, rc),
                          "allocating %llu MiB of %zu MiB free", need, available >> 20);
    inputs = (struct cursor){.at = g->inputs};
    outputs = (struct cursor){.at = g->outputs};
    plan(g, &inputs, &outputs);
    return 0;
}

/* ---- inputs and references ------------------------------------------------------------------*/

int fa_ground_run(fa_ground *g, fa_function function, uint32_t threads, uint64_t work,
                  void **arguments, fa_diag *diag)
{
    uint64_t blocks = (work + threads - 1) / threads;
    if (blocks == 0)
        return 0;
    uint32_t grid[3] = {blocks < g->blocks_max ? (uint32_t)blocks : g->blocks_max, 1, 1};
    return fa_launch_kernel(g->driver, function, grid, threads, 0, g->stream, arguments, diag);
}

static int fill_input(fa_ground *g, struct ground_case *c, int index, int tensor, fa_diag *diag)
{
    struct fa_attn_region *region = &c->tensor[tensor];
    unsigned short *first = region->base + region->first;
    unsigned long long span = 0;
    uint64_t elements = 0;
    unsigned long long seed = fa_attn_random(g->seed, (uint64_t)(1000 + 4 * index + tensor));
    fa_attn_tensor_span(&c->what, tensor, &elements);
    span = elements;
    void *fill[] = {&first, &span, &seed, &c->what.input_scale[tensor]}, *poison[] = {region};
    int rc = fa_ground_run(g, g->fill, FA_GROUND_THREADS, span, fill, diag);
    if (rc == 0)
        rc = fa_ground_run(g, g->poison_gaps, FA_GROUND_THREADS, region->count, poison, diag);
    return rc;
}

static int compute_reference(fa_ground *g, struct ground_case *c, int index, fa_diag *diag)
{
    uint64_t work = (uint64_t)c->row_count * REFERENCE_THREADS;
    if (c->row_count == 0)
        return 0;
    if (c->row_ids != 0) {
        int64_t ids[FA_ATTN_SAMPLED_ROWS];
        fa_attn_sample_rows(&c->what.problem, fa_attn_random(g->seed, 2000 + (uint64_t)index), ids);
        int rc = fa_copy_to_device(g->driver, c->row_ids, ids, sizeof ids, diag);
        if (rc != 0)
            return rc;
    }
    void *fp32[] = {&c->params, &c->row_ids, &c->row_count, &c->ref_o, &c->ref_lse};
    void *lowp[] = {&c->params, &c->row_ids, &c->row_count, &c->lowp_o, &c->lowp_lse};
    int rc = fa_ground_run(g, g->ref_fp32, REFERENCE_THREADS, work, fp32, diag);
    return rc != 0 ? rc : fa_ground_run(g, g->ref_lowp, REFERENCE_THREADS, work, lowp, diag);
}

int fa_ground_prepare(fa_ground *g, fa_diag *diag)
{
    int rc = 0;
    for (int i = 0; rc == 0 && i < g->count; i++) {
        for (int t = 0; rc == 0 && t < FA_ATTN_O; t++)
            rc = fill_input(g, &g->at[i], i, t, diag);
        if (rc == 0)
            rc = compute_reference(g, &g->at[i], i, diag);
    }
    if (rc == 0)
        rc = fa_stream_synchronize(g->driver, g->stream, diag);
    if (rc == 0)
        g->damaged = false;
    return rc == 0 ? 0 : fa_fail_in(diag, rc, "preparing the reference");
}

/* ---- open and close -------------------------------------------------------------------------*/
static int load_reference(fa_ground *g, const void *cubin, size_t size, fa_diag *diag)
{
    const struct {
        const char *name;
        fa_function *function;
    } entries[] = {{"attn_fill", &g->fill},
                   {"attn_poison_gaps", &g->poison_gaps},
                   {"attn_ref_fp32", &g->ref_fp32},
                   {"attn_ref_lowp", &g->ref_lowp},
                   {"attn_compare", &g->compare},
                   {"attn_check_written", &g->check_written},
                   {"attn_check_gaps", &g->check_gaps}};
    int rc = fa_module_load(g->driver, cubin, size, &g->module, diag);
    for (size_t i = 0; rc == 0 && i < sizeof entries / sizeof *entries; i++)
        rc = fa_module_function(g->module, entries[i].name, 0, entries[i].function, diag);
    return rc == 0 ? 0 : fa_fail_in(diag, rc, "loading the reference kernels");
}

static int take_cases(fa_ground *g, const fa_attn_case *cases, int count, fa_diag *diag)
{
    if (count < 1 || count > FA_BENCH_CASES)
        return fa_fail(diag, FA_EINVAL, "%d cases: use 1 to %d", count, FA_BENCH_CASES);
    g->count = count;
    for (int i = 0; i < count; i++) {
        struct ground_case *c = &g->at[i];
        c->what = cases[i];
        if (!fa_attn_rows(&c->what.problem, &c->rows) ||
            (c->what.all_rows && c->rows > INT32_MAX))
            return fa_fail(diag, FA_ENOMEM, "case %d has too many query rows", i);
        bool all = c->what.all_rows || c->rows == 0;
        c->what.all_rows = all;
        c->row_count = all ? (int)c->rows : FA_ATTN_SAMPLED_ROWS;
        /* Causal rows with few keys have large outputs and large roundings; what these allow
         * would hide everything in rows that average many thousand keys. */
        c->bands = all || c->what.problem.causal == FA_CAUSAL_NONE ? 1 : FA_GROUND_BANDS;
    }
    return 0;
}

int fa_ground_open(fa_driver *driver, const fa_gpu *gpu, const fa_attn_case *cases, int count,
                   const void *reference, size_t reference_size, uint64_t seed,
                   fa_ground **ret_ground, fa_diag *diag)
{
    fa_ground *g = calloc(1, sizeof *g);
    if (g == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory");
    g->driver = driver;
    g->seed = seed;
    g->blocks_max = gpu->sm_count > 0 ? (uint32_t)gpu->sm_count * 16 : 1024;
    int rc = take_cases(g, cases, count, diag);
    if (rc == 0)
        rc = fa_stream_create(driver, &g->stream, diag);
    if (rc == 0)
        rc = load_reference(g, reference, reference_size, diag);
    if (rc == 0)
        rc = allocate(g, diag);
    if (rc == 0)
        rc = fa_ground_prepare(g, diag);
    if (rc != 0) {
        fa_ground_close(&g);
        return rc;
    }
    *ret_ground = g;
    return 0;
}

void fa_ground_close(fa_ground **ground)
{
    fa_ground *g = *ground;
    if (g == NULL)
        return;
    *ground = NULL;
    fa_device_free(g->driver, &g->inputs);
    fa_device_free(g->driver, &g->outputs);
    fa_module_unload(&g->module);
    fa_stream_destroy(g->driver, &g->stream);
    free(g);
}

int fa_ground_maps(fa_ground *g, const void *cubin, size_t size, const char *entry,
                   struct fa_attn_tensor_maps **ret_maps, fa_diag *diag)
{
    struct fa_attn_boxes boxes;
    int rc = fa_attn_boxes_read(cubin, size, entry, &boxes, diag);
    if (rc != 0 || boxes.columns == 0) {
        if (rc == 0)
            *ret_maps = NULL;
        return rc;
    }
    struct fa_attn_tensor_maps *maps =
        aligned_alloc(_Alignof(struct fa_attn_tensor_maps), (size_t)g->count * sizeof *maps);
    if (maps == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory");
    for (int i = 0; rc == 0 && i < g->count; i++) {
        const fa_problem *p = &g->at[i].what.problem;
        rc = fa_attn_maps_encode(g->driver, &boxes, &g->at[i].params, p->head_dim, p->dtype,
                                 &maps[i], diag);
    }
    if (rc != 0) {
        free(maps);
        return rc;
    }
    *ret_maps = maps;
    return 0;
}

fa_device_ptr fa_ground_reference(const fa_ground *g, int index, fa_device_ptr *ret_lse,
                                  int *ret_rows)
{
    *ret_lse = g->at[index].ref_lse;
    *ret_rows = g->at[index].row_count;
    return g->at[index].ref_o;
}

const struct fa_attn_params *fa_ground_params(const fa_ground *g, int index)
{
    return &g->at[index].params;
}

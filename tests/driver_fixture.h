/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver room on the fake driver: a folder for its script and log, and a small attention problem.
 *
 * FA_TEST_FAKE_CUDA names the fake library.
 */
#ifndef FA_TESTS_DRIVER_FIXTURE_H
#define FA_TESTS_DRIVER_FIXTURE_H

#include "device_context.h"
#include "check.h"
#include "fake_cubin.h"

#include "attn_params.h"
#include "driver.h"
#include "hash.h"

#include <unistd.h>

static fa_diag diag;
static char folder[200], script_path[256], log_path[256];
static fa_driver *driver;

static inline bool open_folder(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/fa_driver_XXXXXX", base == NULL ? "/tmp" : base);
    if (getenv("FA_TEST_FAKE_CUDA") == NULL || mkdtemp(folder) == NULL) {
        printf("Bail out! FA_TEST_FAKE_CUDA must name the fake driver\n");
        return false;
    }
    snprintf(script_path, sizeof script_path, "%s/script", folder);
    snprintf(log_path, sizeof log_path, "%s/log", folder);
    return true;
}

static inline void close_folder(void)
{
    fa_driver_close(&driver);
    remove(script_path);
    remove(log_path);
    rmdir(folder);
}

/* Closes the driver of the test before, writes the script, and opens unless told otherwise. */
static inline void use_script(const char *lines)
{
    fa_driver_close(&driver);
    FILE *file = fopen(script_path, "we");
    if (file != NULL) {
        fputs(lines, file);
        fclose(file);
    }
    setenv("FAKE_CUDA_SCRIPT", script_path, 1);
    setenv("FA_TUNE_LIBCUDA", getenv("FA_TEST_FAKE_CUDA"), 1);
}

static inline int start(const char *lines)
{
    use_script(lines);
    int rc = fa_driver_open(&driver, &diag);
    return rc != 0 ? rc : hold_context(driver, 0, &diag);
}

/* ---- a problem on the fake -------------------------------------------------------------------*/

enum { B = 2, HQ = 4, HKV = 2, SQ = 5, SK = 7, D = 16, ROWS = B * HQ * SQ };

static const char *const MARKERS[2] = {
    "family=tested;BLOCK_M=128;BLOCK_N=64;HEAD_DIM=16;DTYPE_BF16=0;CAUSAL=0;ALIGNED=1;",
    "family=tested;BLOCK_M=64;BLOCK_N=64;HEAD_DIM=16;DTYPE_BF16=1;CAUSAL=1;ALIGNED=1;"};

static inline fa_module *load(const char *entry, const char *marker, int sm)
{
    unsigned char bytes[FAKE_CUBIN_MAX];
    fa_module *module = NULL;
    fake_cubin c = {.sm = sm, .entry = entry, .registers = 64, .threads_x = 128, .marker = marker};
    size_t size = fake_cubin_build(&c, bytes);
    fa_module_load(driver, bytes, size, &module, &diag);
    return module;
}

/* Loads a cubin with just this entry and launches it. */
static inline int run(const char *entry, const char *marker, void **arguments)
{
    fa_function function;
    const uint32_t grid[3] = {4, 1, 1};
    fa_module *module = load(entry, marker, 89);
    if (module == NULL)
        return FA_ECUDA;
    int rc = fa_module_function(module, entry, 1024, &function, &diag);
    if (rc == 0)
        rc = fa_launch_kernel(driver, function, grid, (const uint32_t[]){128, 1, 1}, 1024, NULL,
                              arguments, &diag);
    fa_module_unload(&module);
    return rc;
}

struct tensors {
    fa_device_ptr q, k, v, o, lse;
    struct fa_attn_params p;
};

/* Numbers of both types of 16 bits, up to 2 of fp16. */
static inline int fill_random(fa_device_ptr ptr, size_t count, uint64_t seed)
{
    uint16_t x[B * HQ * SK * D];
    for (size_t i = 0; i < count; i++)
        x[i] = (uint16_t)(fa_random(seed, i) & 0xbfff);
    return fa_copy_to_device(driver, ptr, x, count * sizeof *x, &diag);
}

/* O has padded rows. */
static inline int create(int causal_offset, struct tensors *t)
{
    const size_t q = B * HQ * SQ * D, k = B * HKV * SK * D, o = ROWS * (D + 8);
    int rc = 0;
    *t = (struct tensors){0};
    rc |= fa_device_alloc(driver, q * 2, &t->q, &diag);
    rc |= fa_device_alloc(driver, k * 2, &t->k, &diag);
    rc |= fa_device_alloc(driver, k * 2, &t->v, &diag);
    rc |= fa_device_alloc(driver, o * 2, &t->o, &diag);
    rc |= fa_device_alloc(driver, ROWS * 4, &t->lse, &diag);
    rc |= fill_random(t->q, q, 1) | fill_random(t->k, k, 2) | fill_random(t->v, k, 3);
    t->p = (struct fa_attn_params){
        .q = (void *)t->q, .k = (void *)t->k, .v = (void *)t->v, .o = (void *)t->o,
        .lse = (float *)t->lse,
        .q_batch_stride = HQ * SQ * D, .q_head_stride = SQ * D, .q_row_stride = D,
        .k_batch_stride = HKV * SK * D, .k_head_stride = SK * D, .k_row_stride = D,
        .v_batch_stride = HKV * SK * D, .v_head_stride = SK * D, .v_row_stride = D,
        .o_batch_stride = HQ * SQ * (D + 8), .o_head_stride = SQ * (D + 8), .o_row_stride = D + 8,
        .batch = B, .heads_q = HQ, .heads_kv = HKV, .seq_q = SQ, .seq_k = SK,
        .causal_offset = causal_offset, .softmax_scale = 0.25f, .softmax_scale_log2 = 0.36067376f,
    };
    return rc;
}

static inline void destroy(struct tensors *t)
{
    fa_device_ptr *const all[] = {&t->q, &t->k, &t->v, &t->o, &t->lse};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        fa_device_free(driver, all[i]);
}

#endif

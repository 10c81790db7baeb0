/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of test_gpu_attn share: the device and its driver, and the way from a problem to a
 * kernel that is proved there.
 */
#ifndef FA_TESTS_GPU_ATTN_FIXTURE_H
#define FA_TESTS_GPU_ATTN_FIXTURE_H

#include "attn_fixture.h"
#include "check.h"

enum { PROBLEMS = 300, PROBLEMS_SHORT = 20 };

static struct {
    const char *missing; /* why there is no device, for SKIP */
    struct fixture fixture;
    fa_driver *driver;
    fa_gpu gpu;
} world;

static inline uint64_t environment(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL && text[0] != 0 ? strtoull(text, NULL, 10) : otherwise;
}

/* FA_TEST_FAMILY names what is asked for alone. */
static inline bool is_asked_for(const char *name)
{
    const char *only = getenv("FA_TEST_FAMILY");
    return only == NULL || strcmp(only, name) == 0;
}

static inline fa_problem problem_of(fa_dtype dtype, fa_causal causal, int head_dim, int batch,
                                    int heads_q, int heads_kv, int seq_q, int seq_k)
{
    return (fa_problem){.dtype = dtype,
                        .causal = causal,
                        .head_dim = head_dim,
                        .batch = batch,
                        .heads_q = heads_q,
                        .heads_kv = heads_kv,
                        .seq_q = seq_q,
                        .seq_k = seq_k,
                        .want_lse = true};
}

static inline int open_prover(const fa_attn_case *c, const fa_buf *reference, uint64_t seed,
                              fa_bench **ret_prover)
{
    const fa_bench_setup setup = {.gpu = &world.gpu,
                                  .reference = reference->data,
                                  .reference_size = reference->size,
                                  .seed = seed};
    return fixture_prover(world.driver, &setup, c, 1, ret_prover, &diag);
}

/* Proves one loaded cubin on one case. */
static inline int prove(const fa_attn_case *c, const fa_buf *reference, const fa_buf *cubin,
                        const fa_candidate *candidate, uint64_t seed, fa_proof *ret_proof)
{
    fa_bench *prover = NULL;
    fa_module *module = NULL;
    fa_bench_kernel kernel = {.launches = {candidate->launches},
                              .workspace_bytes = (size_t)candidate->launches.workspace_bytes,
                              .counters = (size_t)candidate->launches.counters};
    const int first = fa_launch_is_left_out(kernel.launches[0].at);
    memcpy(kernel.launches[0].at[first].grid, candidate->trial.grid, sizeof candidate->trial.grid);
    int rc = open_prover(c, reference, seed, &prover);
    if (rc == 0)
        rc = fa_module_load(world.driver, cubin->data, cubin->size, &module, &diag);
    for (int i = 0; rc == 0 && i < candidate->launches.count; i++) {
        fa_cubin_entry entry = {
            cubin->data, cubin->size, .launch = i,
            .name = world.fixture.families.family[candidate->family]->launch[i].entry};
        rc = fa_module_function(module, entry.name, candidate->launches.at[i].smem_bytes,
                                &kernel.function[i], &diag);
        if (rc == 0)
            fa_prover_load(prover, entry, &kernel);
        rc = rc == 0 ? prover->rc : rc;
    }
    if (rc == 0)
        rc = fa_bench_verify(prover, &kernel, ret_proof, &diag);
    fa_attn_launcher.unload(&kernel.shared);
    fa_module_unload(&module);
    fa_bench_close(&prover);
    return rc;
}

/* The default config of a family for a problem, compiled, with the grid for that problem. */
static inline int build_default(const char *family, const fa_problem *problem,
                                fa_candidate *ret_candidate, fa_buf *ret_cubin,
                                fa_buf *ret_reference)
{
    int rc =
        fixture_pick(&world.fixture, family, problem, &world.gpu, true, 0, ret_candidate, &diag);
    if (rc == 0)
        rc = fixture_build(&world.fixture, ret_candidate, problem, &world.gpu, ret_cubin, &diag);
    if (rc == 0)
        rc = fixture_reference(&world.fixture, problem, &world.gpu, ret_reference, &diag);
    return rc;
}

#endif

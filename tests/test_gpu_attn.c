/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention kernels on a real device: the reference against double precision on the CPU, then each
 * family on some hundred random problems, proved with the same code that tuning uses.
 *
 * FA_TEST_SEED and FA_TEST_PROBLEMS (per family) repeat or extend the sweep; the seed is printed.
 * Fewer than 20 problems make a short run, for slow tools: large problems are left out too.
 */
#include "device_context.h"
#include "gpu_attn_serving.h"
#include "gpu_attn_sweep.h"

#include <limits.h>

TEST(a_device_and_nvrtc_are_here)
{
    world.missing = "no CUDA device";
    if (getenv("FAKE_CUDA_SCRIPT") != NULL)
        SKIP(world.missing = "the driver is the fake one");
    if (fa_driver_open(&world.driver, &diag) != 0)
        SKIP(world.missing);
    if (fixture_nvrtc(&diag) != 0)
        SKIP(world.missing = "NVRTC is missing");
    CHECK_OK(fa_driver_device(world.driver, 0, &world.gpu, &diag), diag);
    CHECK_OK(hold_context(world.driver, 0, &diag), diag);
    CHECK_OK(fixture_open(&world.fixture, &diag), diag);
    printf("# on %s, sm_%d\n", world.gpu.name, world.gpu.sm);
    world.missing = NULL;
}

/* A test of no one family: FA_TEST_FAMILY=reference asks for these. */
static void unless_left_out(void (*test)(void))
{
    check_state.skipped = world.missing != NULL        ? world.missing
                          : !is_asked_for("reference") ? "one family is asked for"
                                                       : NULL;
    if (check_state.skipped == NULL)
        test();
}

/* ---- the reference --------------------------------------------------------------------------*/
/* The reference of one case against `error_of`, with which *worst and *worst_lse are kept up. */
static void check_reference(const fa_problem *p, const fa_attn_case *c, uint64_t seed,
                            int (*error_of)(const fa_attn_case *, fa_bench *, double *, double *),
                            double *worst, double *worst_lse)
{
    fa_bench *prover = NULL;
    FA_ENDS(fa_buf_free) fa_buf reference = {0};
    double e = NAN, e_lse = NAN;
    CHECK_OK(fixture_reference(&world.fixture, p, &world.gpu, &reference, &diag), diag);
    CHECK_OK(open_prover(c, &reference, seed, &prover), diag);
    CHECK_OK(error_of(c, prover, &e, &e_lse), diag);
    fa_bench_close(&prover);
    printf("# case %d: %.3f %.3f\n", (int)seed, e, e_lse);
    CHECK(e <= 1);
    CHECK(e_lse <= 1);
    *worst = e > *worst ? e : *worst;
    *worst_lse = e_lse > *worst_lse ? e_lse : *worst_lse;
}

TEST_WITHIN(unless_left_out, the_reference_agrees_with_double_precision)
{
    static const int dims[] = {8, 64, 136, 512};
    double worst = 0, worst_lse = 0;
    for (int i = 0; i < 16; i++) {
        fa_dtype dtype = i % 2 == 0 ? FA_FP16 : FA_BF16;
        fa_causal causal = (fa_causal)(i % 3);
        fa_problem p = problem_of(dtype, causal, dims[i / 4], 2, 4, 2, 37 + 11 * (i % 4),
                                  i % 4 == 3 ? 300 : 45);
        p.layout = i % 4 < 2 ? FA_BHSD : FA_BSHD;
        fa_attn_case c = fa_attn_case_padded(&p, i % 2);
        c.input_scale[0] = c.input_scale[1] = i % 4 == 2 ? 50 : 1; /* scores to +-1e4 */
        c.all_rows = true;
        check_reference(&p, &c, (uint64_t)i, reference_error, &worst, &worst_lse);
    }
    printf("# reference: error of O up to %.3f of 2^-18 * sum |w v|, of LSE up to %.3f of its "
           "bound\n",
           worst, worst_lse);
}

TEST_WITHIN(unless_left_out, the_serving_reference_agrees_with_double_precision)
{
    double worst = 0, worst_lse = 0;
    for (int kind = 0; kind < SERVING_KINDS; kind++) {
        fa_problem p = serving_problem(kind);
        fa_attn_case c = fa_attn_case_ragged(&p, kind % 2, (uint64_t)(2 * kind + 1));
        c.all_rows = true;
        check_reference(&p, &c, (uint64_t)kind, serving_error, &worst, &worst_lse);
    }
    printf("# serving reference: error of O up to %.3f of 2^-22 * sum |w v|, of LSE up to %.3f of "
           "its bound\n", worst, worst_lse);
}

/* ---- the sweep ------------------------------------------------------------------------------*/
static bool runs_here(const char *family)
{
    const fa_family *f = is_asked_for(family) ? family_called(family) : NULL;
    return f != NULL &&
           (strcmp(family, "attn_fwd_sm75") == 0 || /* newer ones run it, and are not offered it */
            world.gpu.sm <= f->sm_max);
}

static void sweep_on(const char *family, int lowest, int highest, struct taste taste)
{
    static char why[80];
    if (world.missing != NULL)
        SKIP(world.missing);
    snprintf(why, sizeof why, "the device does not run %s", family);
    if (world.gpu.sm < lowest || world.gpu.sm > highest || !runs_here(family))
        SKIP(why);
    CHECK_INT(sweep_family(family, taste), 0);
}

/* On GPUs of these compute capabilities. */
#define FAMILY_TEST(family, lowest, highest, ...)                        \
    TEST(family##_is_right_on_random_problems)                           \
    {                                                                    \
        sweep_on(#family, lowest, highest, (struct taste){__VA_ARGS__}); \
    }

FAMILY_TEST(attn_fwd_sm80, 80, INT_MAX, .bf16 = true, .unaligned = true)
FAMILY_TEST(attn_fwd_sm90a, 90, 90, .bf16 = true)
FAMILY_TEST(attn_fwd_sm75, 75, INT_MAX, .unaligned = true)
FAMILY_TEST(attn_fwd_splitkv_sm80, 80, INT_MAX, .bf16 = true, .serving = true)
FAMILY_TEST(attn_fwd_prefill_sm80, 80, INT_MAX, .bf16 = true, .unaligned = true, .serving = true)
FAMILY_TEST(attn_fwd_prefill_sm90a, 90, 90, .bf16 = true, .serving = true)
FAMILY_TEST(attn_fwd_splitkv_sm90a, 90, 90, .bf16 = true, .serving = true)
FAMILY_TEST(attn_fwd_latent_sm90a, 90, 90, .bf16 = true, .serving = true)
FAMILY_TEST(attn_fwd_latent_bytes_sm90a, 90, 90, .bf16 = true, .serving = true)
FAMILY_TEST(attn_fwd_latent_few_sm90, 90, 121, .bf16 = true, .serving = true)
FAMILY_TEST(attn_fwd_fp8_sm90a, 90, 90, .bf16 = true, .serving = true)
FAMILY_TEST(attn_fwd_fp8_sm89, 89, INT_MAX, .bf16 = true, .serving = true)

/* ---- single problems ------------------------------------------------------------------------*/
static const char *portable_family(void)
{
    return world.gpu.sm >= 80 ? "attn_fwd_sm80" : "attn_fwd_sm75";
}

static const char *family_for(const fa_problem *problem)
{
    return world.gpu.sm == 90 && !problem->unaligned ? "attn_fwd_sm90a" : portable_family();
}

/* Proves a family's default config on all rows of a case; with `blocks` of them, or as many as the manifest says where it is
 * 0. Where `ret_too_large` is not NULL it is set if the GPU has too little memory. */
static void check_default(const char *family, fa_attn_case *c, uint32_t blocks, bool *ret_too_large)
{
    fa_candidate candidate;
    FA_ENDS(fa_buf_free) fa_buf cubin = {0}, reference = {0};
    fa_proof proof = {0};
    c->all_rows = true;
    int rc = build_default(family, &c->problem, &candidate, &cubin, &reference);
    if (blocks > 0)
        candidate.trial.grid[0] = blocks;
    if (rc == 0)
        rc = prove(c, &reference, &cubin, &candidate, 3, &proof);
    if (ret_too_large != NULL && (*ret_too_large = rc == FA_ENOMEM))
        return;
    CHECK_OK(rc, diag);
    CHECK_TEXT(proof.reason, "");
    CHECK(proof.passed);
}

TEST_WITHIN(unless_left_out, empty_problems_are_right)
{
    static const int shapes[][3] = {{0, 64, 64}, {2, 0, 64}, {2, 64, 0}, {2, 0, 0}};
    for (int causal = 0; causal < 3; causal++) {
        for (int i = 0; i < 4; i++) {
            fa_problem p = problem_of(FA_FP16, (fa_causal)causal, 64, shapes[i][0], 4, 2,
                                      shapes[i][1], shapes[i][2]);
            fa_attn_case c = fa_attn_case_packed(&p);
            check_default(family_for(&p), &c, 0, NULL);
        }
    }
}

/* Four blocks, as on a GPU of four multiprocessors: each takes several tiles, so that whatever its threads hand to
 * one another lies where something lay before. Random problems seldom have so many tiles. */
static void check_few_blocks(const char *family, const fa_problem *problem)
{
    fa_attn_case c = fa_attn_is_dense(problem) ? fa_attn_case_packed(problem)
                                               : fa_attn_case_ragged(problem, 0, 5);
    check_default(family, &c, 4, NULL);
}

TEST(blocks_that_take_several_tiles_are_right)
{
    static const char *dense = "attn_fwd_sm90a", *serving = "attn_fwd_prefill_sm90a";
    if (world.missing != NULL)
        SKIP(world.missing);
    if (world.gpu.sm != 90 || (!runs_here(dense) && !runs_here(serving)))
        SKIP("the device runs no family whose blocks take several tiles");
    for (int causal = 0; runs_here(dense) && causal < 3; causal++) {
        fa_problem p = problem_of(FA_BF16, (fa_causal)causal, 64, 5, 6, 2, 37, 201);
        check_few_blocks(dense, &p);
    }
    for (int kind = 0; runs_here(serving) && kind < SERVING_KINDS; kind++) {
        fa_problem p = serving_problem(kind);
        if (fa_family_supports(family_called(serving), &p, &world.gpu, &diag) == 0)
            check_few_blocks(serving, &p);
    }
}

TEST_WITHIN(unless_left_out, tensors_beyond_2_31_elements_are_addressed_right)
{
    bool skip;
    if (environment("FA_TEST_PROBLEMS", PROBLEMS) < PROBLEMS_SHORT)
        SKIP("a short run");
    for (int kind = 0; kind < 3; kind++) {
        fa_problem p = problem_of(FA_FP16, FA_CAUSAL_NONE, 64, kind == 0 ? 2 : 1, kind == 1 ? 2 : 1,
                                  kind == 1 ? 2 : 1, kind == 2 ? 3 : 130, kind == 2 ? 3 : 190);
        fa_attn_case c = fa_attn_case_packed(&p);
        for (int t = 0; t < FA_ATTN_TENSORS; t++) {
            if (kind == 0) /* the second sequence, head, or third row lies beyond */
                c.tensor[t].stride[0] = ((uint64_t)1 << 31) + 64 * (uint64_t)(t + 1);
            else if (kind == 1)
                c.tensor[t].stride[1] = ((uint64_t)1 << 31) + 64 * (uint64_t)(t + 1);
            else
                c.tensor[t].stride[2] = ((uint64_t)1 << 30) + 64 * (uint64_t)(t + 1);
        }
        check_default(family_for(&p), &c, 0, &skip);
        if (skip)
            SKIP("not enough free device memory: four tensors of 4 GiB");
    }
}

TEST_WITHIN(unless_left_out, a_kernel_that_computes_something_else_is_rejected)
{
    fa_candidate plain, causal;
    FA_ENDS(fa_buf_free) fa_buf cubin = {0}, other = {0}, reference = {0}, unused = {0};
    fa_proof proof = {0};
    fa_problem p = problem_of(FA_FP16, FA_CAUSAL_NONE, 64, 2, 4, 2, 200, 230), q = p;
    fa_attn_case c = fa_attn_case_packed(&p);
    c.all_rows = true;
    q.causal = FA_CAUSAL_TOP_LEFT;
    CHECK_OK(build_default(portable_family(), &p, &plain, &cubin, &reference), diag);
    CHECK_OK(build_default(portable_family(), &q, &causal, &other, &unused), diag);
    CHECK_OK(prove(&c, &reference, &other, &causal, 1, &proof), diag);
    CHECK(!proof.passed);
    CHECK_HAS(proof.reason, " of o is ");
    plain.trial.grid[0]--; /* some rows are never written */
    CHECK_OK(prove(&c, &reference, &cubin, &plain, 1, &proof), diag);
    CHECK(!proof.passed);
    CHECK_HAS(proof.reason, " of o is nan");
    plain.trial.grid[0]++;
    CHECK_OK(prove(&c, &reference, &cubin, &plain, 1, &proof), diag);
    CHECK(proof.passed);
}

/* Scores to +-1e4 over thousands of keys: what each tile adds to a row's error must not add up while
 * its maximum stays, or LSE drifts with the number of tiles. */
TEST(large_scores_over_many_tiles_are_right)
{
    static const char *const families[] = {"attn_fwd_sm75", "attn_fwd_sm80", "attn_fwd_sm90a"};
    if (world.missing != NULL)
        SKIP(world.missing);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        fa_problem p = problem_of(FA_FP16, FA_CAUSAL_NONE, 16, 2, 3, 3, 200, 8192);
        if (!runs_here(families[i]) ||
            (strcmp(families[i], "attn_fwd_sm90a") == 0 && world.gpu.sm != 90))
            continue;
        fa_attn_case c = fa_attn_case_packed(&p);
        c.input_scale[FA_ATTN_Q] = c.input_scale[FA_ATTN_K] = 50;
        c.problem.want_lse = true;
        check_default(families[i], &c, 0, NULL);
    }
}

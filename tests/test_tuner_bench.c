/* SPDX-License-Identifier: Apache-2.0
 *
 * Proving and timing without a GPU: proofs and timing on the fake driver (the file that
 * FA_TEST_FAKE_CUDA names), with cubins compiled by the real NVRTC.
 */
#include "device_context.h"
#include "attn_fixture.h"
#include "check.h"
#include "fa_problem.h"

enum { KINDS = 7, LATE = 6, COUNTERS = 40 };

/* Each fault goes to a config of its own; all but the last one are compiled for other tests, too. */
static const struct {
    int block_m, block_n, stages;
    const char *fault, *reason;
} kinds[KINDS] = {
    {128, 32, 1, NULL, NULL},
    {128, 64, 1, "wrong", " of o is "},
    {128, 32, 2, "nan", "of o is nan"},
    {64, 32, 2, "unwritten", "of o is nan"},
    {64, 64, 2, "overrun", "outside its output o"},
    {128, 64, 2, "flaky", "launches differ"},
    [LATE] = {64, 32, 1, "wrong after=15", NULL}, /* right in all 15 launches of a proof */
};

static struct {
    const char *missing; /* why there is no bench, for SKIP */
    struct fixture fixture;
    fa_driver *driver;
    fa_gpu gpu;
    fa_problem problem;
    fa_bench *bench;
    fa_bench_kernel *kernel[KINDS];
} world;

static const char *write_script(void)
{
    static char path[] = "/tmp/fa-test-bench-XXXXXX";
    int fd = mkstemp(path);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (file == NULL)
        return NULL;
    fprintf(file, "device name=NVIDIA_L4 sm=89 sms=58 smem_block=101376 smem_sm=102400 l2=48M "
                  "bus=192 clock=2040 memclock=6251 memory=22G\n");
    for (int i = 0; i < KINDS; i++)
        if (kinds[i].fault != NULL)
            fprintf(file, "fault BLOCK_M=%d;BLOCK_N=%d;STAGES=%d; %s\n", kinds[i].block_m,
                    kinds[i].block_n, kinds[i].stages, kinds[i].fault);
    fprintf(file, "time BLOCK_M=128;BLOCK_N=32;STAGES=1; 400\n");
    return fclose(file) == 0 ? path : NULL;
}

static int find_config(int kind, fa_candidate *ret_candidate)
{
    FA_ENDS(fa_space_free) fa_space space = {0};
    int rc = fa_space_enumerate(&(fa_task){&world.fixture.families, &world.problem, &world.gpu},
                                &space, &diag);
    bool found = false;
    for (int i = 0; rc == 0 && i < space.count && !found; i++) {
        const fa_candidate *c = &space.candidate[i];
        int32_t m = 0, n = 0, s = 0;
        found = c->trial.status == FA_STATUS_PENDING &&
                fa_config_get(&c->trial.config, "BLOCK_M", &m) && m == kinds[kind].block_m &&
                fa_config_get(&c->trial.config, "BLOCK_N", &n) && n == kinds[kind].block_n &&
                fa_config_get(&c->trial.config, "STAGES", &s) && s == kinds[kind].stages;
        if (found)
            *ret_candidate = *c;
    }
    return rc != 0 ? rc : found ? 0 : fa_fail(&diag, FA_ENOTFOUND, "no such config");
}

static int load_kind(int kind)
{
    fa_candidate candidate;
    fa_bench_candidate load = {.entry = {"attn_fwd"}};
    fa_problem cases[FA_BENCH_CASES];
    FA_ENDS(fa_buf_free) fa_buf cubin = {0};
    int rc = find_config(kind, &candidate);
    if (rc == 0)
        rc = fixture_build(&world.fixture, &candidate, &world.problem, &world.gpu, &cubin, &diag);
    int count = fa_bench_cases(&world.problem, 1, cases);
    for (int i = 0; rc == 0 && i < count; i++) {
        load.launches[i] = candidate.launches;
        load.launches[i].counters = kind == 0 ? 1 : COUNTERS;
        rc = fixture_grid(&world.fixture, &candidate, &cases[i], &world.gpu,
                          load.launches[i].at[0].grid, &diag);
    }
    load.cubin = cubin.data;
    load.size = cubin.size;
    if (rc == 0)
        rc = fa_bench_load(world.bench, &load, &world.kernel[kind], &diag);
    return rc;
}

static int open_with(const fa_problem *problem, const fa_buf *reference, size_t memory,
                     fa_bench **ret_bench)
{
    const fa_bench_setup setup = {&world.gpu,      problem,   reference->data,
                                  reference->size, .seed = 1, .memory = memory};
    return fa_bench_open(world.driver, &setup, ret_bench, &diag);
}

TEST(a_bench_opens_and_loads_candidates)
{
    FA_ENDS(fa_buf_free) fa_buf reference = {0};
    const char *script = write_script();
    world.missing = "no bench: see the first of these tests";
    if (getenv("FA_TEST_FAKE_CUDA") == NULL)
        SKIP(world.missing = "FA_TEST_FAKE_CUDA does not name the fake driver");
    if (fixture_nvrtc(&diag) != 0)
        SKIP(world.missing = "NVRTC is missing");
    CHECK(script != NULL);
    setenv("FAKE_CUDA_SCRIPT", script, 1);
    setenv("FA_TUNE_LIBCUDA", getenv("FA_TEST_FAKE_CUDA"), 1);
    CHECK_OK(fixture_open(&world.fixture, &diag), diag);
    CHECK_OK(fa_driver_open(&world.driver, &diag), diag);
    CHECK_OK(fa_driver_device(world.driver, 0, &world.gpu, &diag), diag);
    CHECK_OK(hold_context(world.driver, 0, &diag), diag);
    world.problem = some_problem();
    CHECK_OK(fixture_reference(&world.fixture, &world.problem, &world.gpu, &reference, &diag),
             diag);
    CHECK_OK(open_with(&world.problem, &reference, 0, &world.bench), diag);
    for (int i = 0; i < KINDS; i++)
        CHECK_OK(load_kind(i), diag);
    world.missing = NULL;
    unlink(script);
}

static void with_the_bench(void (*test)(void))
{
    check_state.skipped = world.missing;
    if (world.missing == NULL)
        test();
}
#define BENCH_TEST(name) TEST_WITHIN(with_the_bench, name)

static void check_proof(int kind, bool *ret_ok)
{
    fa_proof proof = {0};
    *ret_ok = false;
    CHECK_OK(fa_bench_verify(world.bench, world.kernel[kind], &proof, &diag), diag);
    printf("# fake: %s\n", proof.passed ? "passed" : proof.reason);
    if (kinds[kind].reason == NULL) {
        CHECK_TEXT(proof.reason, "");
        CHECK(proof.max_error <= proof.tolerance && proof.tolerance > 0);
    } else {
        CHECK_HAS(proof.reason, kinds[kind].reason);
    }
    CHECK(proof.passed == (kinds[kind].reason == NULL));
    CHECK(world.kernel[kind]->proved == proof.passed);
    *ret_ok = true;
}

BENCH_TEST(each_fault_is_rejected_with_its_own_reason)
{
    for (int i = 0; i < KINDS; i++) {
        bool ok;
        check_proof(i, &ok);
        CHECK(ok);
    }
}

BENCH_TEST(a_good_kernel_passes_after_another_has_overrun_and_leaves_all_counters_zero)
{
    uint32_t last = 1;
    bool ok;
    check_proof(4, &ok);
    CHECK(ok);
    check_proof(0, &ok); /* which has one */
    CHECK(ok);
    fa_bench_download(world.bench, &last, world.bench->counters.at + 4 * (COUNTERS - 1), 4);
    CHECK_INT(last, 0);
}

static float samples[FA_BENCH_SAMPLES_MAX];
static int count; /* of those that probe() took */

static int probe(int kind, int most, double budget_us, double best_us)
{
    return fa_bench_probe(world.bench, world.kernel[kind], &(fa_probe){most, budget_us, best_us},
                          samples, &count, &diag);
}

BENCH_TEST(only_a_proved_kernel_is_timed)
{
    count = 77;
    for (int i = 1; i < LATE; i++) {
        CHECK_FAILS(probe(i, 4, 1e6, 0), FA_EINVAL, "proved");
        fa_bench_kernel *both[] = {world.kernel[0], world.kernel[i]};
        CHECK_INT(fa_bench_race(world.bench, both, 2, 2, samples, &diag), FA_EINVAL);
    }
    CHECK_INT(count, 77);
    CHECK_OK(probe(0, 8, 1e6, 0), diag);
    CHECK_INT(count, 8);
    for (int i = 0; i < count; i++)
        CHECK(samples[i] > 360 && samples[i] < 440);
}

BENCH_TEST(a_probe_stops_at_its_budget_or_without_a_chance_and_a_race_fills_every_round)
{
    CHECK_OK(probe(0, 100, 1, 0), diag);
    CHECK_INT(count, 2);
    CHECK_OK(probe(0, 100, 1, 380), diag);
    CHECK_INT(count, 1); /* the proof's, of a slow one */
    CHECK_OK(probe(0, 8, 1e6, 200), diag);
    CHECK_INT(count, 2); /* of 400 us, where another takes 200 */
    CHECK_OK(probe(0, 8, 1e6, 100), diag);
    CHECK_INT(count, 1); /* the proof's */
    CHECK(samples[0] > 360 && samples[0] < 440);
    CHECK_OK(probe(0, 8, 1e6, 380), diag);
    CHECK_INT(count, 8);
    CHECK_INT(probe(0, FA_BENCH_SAMPLES_MAX + 1, 1, 0), FA_EINVAL);
    memset(samples, 0, sizeof samples);
    fa_bench_kernel *twice[] = {world.kernel[0], world.kernel[0]};
    CHECK_OK(fa_bench_race(world.bench, twice, 2, 30, samples, &diag), diag);
    for (int i = 0; i < 60; i++)
        CHECK(samples[i] > 360 && samples[i] < 440);
    CHECK(samples[60] == 0);
}

BENCH_TEST(a_kernel_that_is_wrong_only_when_timed_loses_its_proof)
{
    CHECK(world.kernel[LATE]->proved);
    CHECK_FAILS(probe(LATE, 4, 1e6, 0), FA_ECORRUPT, "launches differ");
    CHECK(!world.kernel[LATE]->proved);
    CHECK(world.kernel[0]->proved);
}

/* A prover of one sampled causal case of 1,024 tokens, and a right kernel for it. */
static int open_sampled(fa_bench **ret_prover, fa_module **ret_module, fa_bench_kernel *kernel)
{
    fa_problem problem = some_problem();
    problem.batch = problem.heads_q = problem.heads_kv = 1;
    problem.seq_q = problem.seq_k = 1024;
    fa_attn_case sampled = fa_attn_case_packed(&problem);
    FA_ENDS(fa_buf_free) fa_buf reference = {0}, cubin = {0};
    fa_candidate candidate;
    sampled.once = true;
    int rc = fixture_reference(&world.fixture, &problem, &world.gpu, &reference, &diag);
    const fa_bench_setup setup = {&world.gpu, &problem, reference.data, reference.size, .seed = 1};
    if (rc == 0)
        rc = fixture_prover(world.driver, &setup, &sampled, 1, ret_prover, &diag);
    if (rc == 0)
        rc = find_config(0, &candidate);
    if (rc == 0)
        rc = fixture_build(&world.fixture, &candidate, &problem, &world.gpu, &cubin, &diag);
    if (rc == 0)
        kernel->launches[0] = candidate.launches;
    if (rc == 0)
        rc = fixture_grid(&world.fixture, &candidate, &problem, &world.gpu,
                          kernel->launches[0].at[0].grid, &diag);
    if (rc == 0)
        rc = fa_module_load(world.driver, cubin.data, cubin.size, ret_module, &diag);
    if (rc == 0)
        rc = fa_module_function(*ret_module, "attn_fwd", candidate.trial.smem_bytes,
                                &kernel->function[0], &diag);
    return rc;
}

/* The first rows of a causal problem hardly average anything, so that their outputs, and what the
 * data type costs there, are tens of times those of the last rows. */
BENCH_TEST(late_rows_of_a_causal_problem_are_not_held_to_what_its_first_rows_cost)
{
    enum { ROWS = 1024, HEAD_DIM = 64, HALVES = ROWS * HEAD_DIM };
    static uint16_t o[HALVES];
    fa_bench *sampled = NULL;
    fa_module *module = NULL;
    fa_bench_kernel kernel = {0};
    fa_proof right;
    CHECK_OK(open_sampled(&sampled, &module, &kernel), diag);
    CHECK_OK(fa_bench_verify(sampled, &kernel, &right, &diag), diag);
    CHECK_TEXT(right.reason, "");
    const struct fa_verdict *is = &sampled->at[0].verdict[0];
    fa_device_ptr at = sampled->at[0].of[FA_ATTN_O].first;
    /* As of a large output: its reference, in which a kernel wrote, is made anew. */
    sampled->at[0].of[FA_ATTN_O].late = true;
    fa_bench_zero(sampled, sampled->at[0].of[FA_ATTN_O].wanted, 4096);
    fa_proof_check(sampled, 0, 0);
    CHECK(sampled->rc == 0 && is->passed && is->damaged);
    CHECK_OK(fa_copy_from_device(world.driver, o, at, sizeof o, &diag), diag);
    /* The last quarter loses 4 units in the last place of fp16, about 0.3% of each output:
     * less than what rounding costs the first rows. */
    for (int i = HALVES / 4 * 3; i < HALVES; i++)
        o[i] = (o[i] & 0x7fff) > 4 ? (uint16_t)(o[i] - 4) : o[i];
    CHECK_OK(fa_copy_to_device(world.driver, at, o, sizeof o, &diag), diag);
    fa_proof_check(sampled, 0, 0);
    CHECK(sampled->rc == 0 && !is->passed && is->damaged);
    CHECK_HAS(is->reason, " of o is ");
    CHECK(is->error < 6e-4); /* the first rows are allowed as much */
    fa_module_unload(&module);
    fa_bench_close(&sampled);
}

BENCH_TEST(tensors_and_workspaces_are_held_to_a_budget)
{
    enum { MIB = 1 << 20 };
    FA_ENDS(fa_buf_free) fa_buf reference = {0};
    fa_bench *bench = NULL;
    fa_device_ptr others = 0;
    size_t available = 0, total = 0, need = 0;
    fa_bench_candidate candidate = {.launches[0].count = 1};
    CHECK_OK(fixture_reference(&world.fixture, &world.problem, &world.gpu, &reference, &diag),
             diag);
    CHECK_FAILS(open_with(&world.problem, &reference, MIB, &bench), FA_ENOMEM,
                " MiB of GPU memory and its budget is 1 MiB, as asked: raise \"memory\"");
    CHECK(sscanf(diag.text, "proving this problem needs %zu MiB", &need) == 1 && need > 1);
    CHECK_OK(open_with(&world.problem, &reference, (need + 8) * MIB, &bench), diag);
    candidate.launches[0].workspace_bytes = MIB;
    CHECK_OK(fa_bench_admit(bench, &candidate, &diag), diag);
    candidate.launches[1] = (fa_launches){.count = 1, .workspace_bytes = 9 * MIB};
    CHECK_FAILS(fa_bench_admit(bench, &candidate, &diag), FA_ENOMEM,
                "a workspace of 9 MiB, and 8 MiB are left of the tune's budget");
    fa_bench_close(&bench);
    CHECK_OK(fa_device_memory(world.driver, &available, &total, &diag), diag);
    CHECK_OK(fa_device_alloc(world.driver, available - 3 * need / 2 * MIB, &others, &diag), diag);
    CHECK_FAILS(open_with(&world.problem, &reference, 0, &bench), FA_ENOMEM, "half of the");
    CHECK_OK(open_with(&world.problem, &reference, need * MIB, &bench),
             diag); /* more than half, as asked */
    fa_bench_close(&bench);
    fa_device_free(world.driver, &others);
}

/* A mask of documents shows and hides whole tiles of what is timed; other cases are drawn at random. */
BENCH_TEST(integers_of_a_mask_that_is_timed_stand_in_runs)
{
    enum { LENGTH = 5000 };
    fa_problem problem = some_problem();
    FA_ENDS(fa_buf_free) fa_buf reference = {0};
    fa_bench *bench = NULL;
    int changes = 0;
    problem.seq_k = LENGTH;
    problem.seq_q = 3;
    CHECK_OK(fa_set_field(&problem, "buffers", "doc:i32[:,:]", &diag), diag);
    CHECK_OK(fa_set_field(&problem, "mask", "doc[b][q] == doc[b][k]", &diag), diag);
    CHECK_OK(fixture_reference(&world.fixture, &problem, &world.gpu, &reference, &diag), diag);
    CHECK_OK(open_with(&problem, &reference, 0, &bench), diag);
    const int last = bench->at[0].tensors.count - 1;
    const int32_t *doc = (const void *)bench->at[0].of[last].host;
    for (int i = 1; i < LENGTH; i++)
        changes += doc[i] != doc[i - 1];
    CHECK(changes > 2 && changes <= LENGTH / 384 && bench->at[1].of[last].host == NULL);
    fa_bench_close(&bench);
}

BENCH_TEST(the_bench_is_closed)
{
    for (int i = 0; i < KINDS; i++)
        fa_bench_unload(world.bench, &world.kernel[i]);
    fa_bench_close(&world.bench);
    fa_bench_close(&world.bench);
    CHECK(world.bench == NULL && world.kernel[0] == NULL);
    drop_context(world.driver, 0);
    fa_driver_close(&world.driver);
    fixture_close(&world.fixture);
}

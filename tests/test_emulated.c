/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention families on random problems without a GPU: each rendered template is made into a library for the CPU
 * (emulate.py), and the prover proves it on the fake driver as it would on a card.
 *
 * FA_TEST_SEED, FA_TEST_PROBLEMS (per family) and FA_TEST_FAMILY repeat or extend it.
 */
#include "fake_cubin.h"
#include "gpu_attn_sweep.h"

enum { EMULATED_PROBLEMS = 4, LONGEST = 203 };

static struct {
    char folder[64];
    fa_buf reference; /* of some problem: its marker is written over */
    int kernels;
} here;

/* A part of a template's text that is written over; NULL: none. */
struct change {
    const char *from, *to;
};

static const char *path_in(const char *name, char ret[128])
{
    snprintf(ret, 128, "%s/%s", here.folder, name);
    return ret;
}

static bool write_text(const char *name, const char *text)
{
    char path[128];
    FILE *file = fopen(path_in(name, path), "w");
    bool written = file != NULL && fputs(text, file) >= 0;
    return file != NULL && fclose(file) == 0 && written;
}

static void the_fake_driver_and_the_compilers_are_there(void)
{
    char script[128];
    fa_problem widest = {.head_dim = 512,
                         .batch = 1,
                         .heads_q = 1,
                         .heads_kv = 1,
                         .seq_q = 1,
                         .seq_k = 1,
                         .varlen = 1,
                         .lengths_k = FA_LENGTHS_SEQUSED,
                         .page = 65536,
                         .window = 1,
                         .head_dim_v = 512,
                         .batch_invariant = 1};
    world.missing = "no proof: see the first of these tests";
    if (getenv("FA_TEST_FAKE_CUDA") == NULL || getenv("FA_TEST_SOURCE") == NULL)
        SKIP(world.missing = "FA_TEST_FAKE_CUDA or FA_TEST_SOURCE does not say where things are");
    if (fixture_nvrtc(&world.nvrtc, &diag) != 0)
        SKIP(world.missing = "NVRTC is missing");
    snprintf(here.folder, sizeof here.folder, "/tmp/fa-test-emulated-XXXXXX");
    CHECK(mkdtemp(here.folder) != NULL);
    CHECK(write_text("script", "device name=NVIDIA_H200 sm=90 sms=132 smem_block=232448 "
                               "smem_sm=233472 l2=50M bus=6144 clock=1980 memclock=3201 "
                               "memory=140G\n"));
    setenv("FAKE_CUDA_SCRIPT", path_in("script", script), 1);
    setenv("FA_TUNE_LIBCUDA", getenv("FA_TEST_FAKE_CUDA"), 1);
    CHECK_OK(fixture_open(&world.fixture, &diag), diag);
    CHECK_OK(fa_driver_open(&world.driver, &diag), diag);
    CHECK_OK(fa_driver_device(world.driver, 0, &world.gpu, &diag), diag);
    CHECK_OK(fa_driver_retain_context(world.driver, 0, &diag), diag);
    CHECK_OK(
        fixture_reference(&world.fixture, world.nvrtc, &widest, &world.gpu, &here.reference, &diag),
        diag);
    world.missing = NULL;
}

/* What the fake driver reads of a module. */
static void marker_of(const fa_problem *p, char *ret, size_t size)
{
    snprintf(
        ret, size,
        "HEAD_DIM=%d;PAGE_SIZE=%d;HEAD_DIM_V=%d;DTYPE_BF16=%d;CAUSAL=%d;LENGTHS_K=%d;KV_FP8=%d;"
        "VARLEN_Q=%d;WINDOW=%d;SOFTCAP=%d;SINKS=%d;",
        p->head_dim, p->page, p->head_dim_v, p->dtype, p->causal != 0, p->lengths_k, p->kv_dtype,
        p->varlen, p->window, p->softcap, p->sinks);
}

/* The reference as if it had been compiled for the problem: the fake driver computes by the marker alone. */
static bool retarget_reference(const fa_problem *p)
{
    static const char start[] = "fa_tune_config=";
    char marker[512];
    char *at = memmem(here.reference.data, here.reference.size, start, sizeof start - 1);
    static size_t room;
    if (at == NULL)
        return false;
    at += sizeof start - 1;
    if (room == 0)
        room = strlen(at);
    marker_of(p, marker, sizeof marker);
    if (strlen(marker) > room)
        return false;
    memset(at, 0, room);
    memcpy(at, marker, strlen(marker));
    return true;
}

/* Everywhere; false: the text has no such part. */
static bool apply(const struct change *change, fa_buf *text)
{
    fa_buf result = {0};
    const char *at = text->data, *found;
    bool any = false;
    for (; (found = strstr(at, change->from)) != NULL; any = true) {
        fa_buf_append(&result, at, (size_t)(found - at));
        fa_buf_text(&result, change->to);
        at = found + strlen(change->from);
    }
    fa_buf_text(&result, at);
    fa_buf_free(text);
    *text = result;
    return any && !result.failed;
}

/* Renders a candidate and makes a library of it; the cubin names that. */
static int emulate(const fa_candidate *candidate, const fa_problem *p, const struct change *change,
                   fa_buf *ret_cubin)
{
    static unsigned char bytes[FAKE_CUBIN_MAX];
    char command[1024], marker[1024], library[128], name[32], source_path[128];
    fa_buf source = {0};
    int rc = fa_render(world.fixture.templates, &world.fixture.families, candidate, p, &world.gpu,
                       &source, &diag);
    if (rc == 0 && change != NULL && !apply(change, &source))
        rc = fa_fail(&diag, FA_ENOTFOUND, "the template does not say %s", change->from);
    if (rc != 0)
        return rc;
    snprintf(name, sizeof name, "kernel-%d.so", here.kernels++);
    bool written = write_text("kernel.cu", source.data);
    bool dense = strstr(source.data, "attn_serving_params.h") == NULL;
    fa_buf_free(&source);
    snprintf(command, sizeof command, "python3 '%s/tests/emulate.py' '%s' '%s'",
             getenv("FA_TEST_SOURCE"), path_in("kernel.cu", source_path), path_in(name, library));
    if (!written || system(command) != 0)
        return fa_fail(&diag, FA_EIO, "no library could be made of %s", source_path);
    int at = snprintf(marker, sizeof marker, "family=x;emulated=%s;", library);
    marker_of(p, marker + at, sizeof marker - (size_t)at);
    unsigned parameters =
        dense ? sizeof(struct fa_attn_params) : sizeof(struct fa_attn_serving_params);
    fake_cubin cubin = {.sm = 90,
                        .entry = "attn_fwd",
                        .registers = 40,
                        .marker = marker,
                        .threads_x = (unsigned)candidate->trial.threads,
                        .threads_y = 1,
                        .threads_z = 1,
                        .parameters = parameters,
                        .sizes = {parameters}};
    size_t size = fake_cubin_build(&cubin, bytes);
    fa_buf_append(ret_cubin, bytes, size);
    return ret_cubin->failed ? FA_ENOMEM : 0;
}

enum { SIZES = 3 }; /* of one library */

/* Another case that the same source serves: other sequences, as many or more or fewer. */
static fa_attn_case resized(const fa_attn_case *what, struct dice *dice)
{
    fa_problem p = what->problem;
    p.seq_q = random_length(dice);
    p.seq_k = random_length(dice);
    p.batch = 1 + (int)below(dice, 3);
    fa_attn_case c = fa_attn_case_ragged(&p, (int)below(dice, 3), below(dice, 1 << 20));
    c.all_rows = true;
    return c;
}

/* Emulates and proves what the job is about; with dice then other sizes of it, as far as its config is for them. */
static int prove_job_here(struct job *job, const struct change *change, struct dice *dice,
                          uint64_t seed, fa_proof *ret_proof)
{
    int rc = fixture_pick(&world.fixture, sweep.family, &job->what.problem, &world.gpu, false,
                          job->pick, &job->candidate, &diag);
    if (rc == 0)
        rc = emulate(&job->candidate, &job->what.problem, change, &job->cubin);
    if (rc == 0 && !retarget_reference(&job->what.problem))
        rc = fa_fail(&diag, FA_ECORRUPT, "the reference has no marker of that length");
    if (rc == 0)
        rc = prove(&job->what, &here.reference, &job->cubin, &job->candidate, seed, ret_proof);
    for (int i = 1; dice != NULL && i < SIZES && rc == 0 && ret_proof->passed; i++) {
        fa_candidate other;
        fa_attn_case what = resized(&job->what, dice);
        if (fa_space_one(&world.fixture.families, &job->candidate.trial.config, &what.problem,
                         &world.gpu, &other, NULL) != 0 ||
            other.trial.status != FA_STATUS_PENDING)
            continue; /* the config is not for that size */
        job->what = what;
        rc = prove(&what, &here.reference, &job->cubin, &other, seed, ret_proof);
    }
    fa_buf_free(&job->cubin);
    return rc;
}

/* How many of some random problems the family does not compute rightly. */
static int prove_some(const char *family, struct taste taste)
{
    uint64_t seed = environment("FA_TEST_SEED", 20261122);
    int count = (int)environment("FA_TEST_PROBLEMS", EMULATED_PROBLEMS), failed = 0;
    struct dice dice = {.seed = seed};
    double start = fixture_ms();
    sweep.family = family;
    sweep.longest = LONGEST;
    for (int i = 0; i < count && !fa_driver_context_lost(world.driver); i++) {
        struct job job = {0};
        fa_proof proof = {0};
        job.what = taste.serving ? random_serving_case(&dice) : random_case(&dice, taste);
        job.pick = below(&dice, 1 << 30);
        int rc = prove_job_here(&job, NULL, &dice, seed + (uint64_t)i, &proof);
        if (rc != 0 || !proof.passed)
            say_failure(i, &job, rc != 0 ? diag.text : proof.reason);
        failed += rc != 0 || !proof.passed;
    }
    printf("# %s: seed %llu, %d problems, %d wrong, %.1f s\n", family, (unsigned long long)seed,
           count, failed, (fixture_ms() - start) / 1e3);
    return failed;
}

static bool is_left_out(const char *family)
{
    const char *only = getenv("FA_TEST_FAMILY");
    if (world.missing == NULL && only != NULL && strcmp(only, family) != 0)
        printf("# FA_TEST_FAMILY is %s\n", only);
    return world.missing != NULL || (only != NULL && strcmp(only, family) != 0);
}

static void attn_fwd_sm80_is_right(void)
{
    if (is_left_out("attn_fwd_sm80"))
        SKIP("left out");
    CHECK_INT(prove_some("attn_fwd_sm80", (struct taste){true, true, false}), 0);
}

static void attn_fwd_splitkv_sm80_is_right(void)
{
    if (is_left_out("attn_fwd_splitkv_sm80"))
        SKIP("left out");
    CHECK_INT(prove_some("attn_fwd_splitkv_sm80", (struct taste){.bf16 = true, .serving = true}),
              0);
}

static void attn_fwd_prefill_sm80_is_right(void)
{
    if (is_left_out("attn_fwd_prefill_sm80"))
        SKIP("left out");
    CHECK_INT(prove_some("attn_fwd_prefill_sm80",
                         (struct taste){.bf16 = true, .unaligned = true, .serving = true}),
              0);
}

/* Heads beyond 256, whose output's columns two warps share: configs of both families, of chips with little shared
 * memory and with much. */
static void heads_wider_than_256_are_right(void)
{
    static const struct {
        const char *family, *gpu;
        fa_problem problem;
    } rows[] = {
        {"attn_fwd_prefill_sm80",
         "L4",
         {.head_dim = 512, .seq_q = 37, .causal = FA_CAUSAL_BOTTOM_RIGHT}},
        {"attn_fwd_prefill_sm80",
         "H200",
         {.head_dim = 512,
          .seq_q = 70,
          .dtype = FA_BF16,
          .varlen = 1,
          .page = 24,
          .lengths_k = FA_LENGTHS_CU_SEQLENS,
          .window = 1,
          .window_left = 60,
          .kv_dtype = FA_KV_FP8}},
        {"attn_fwd_prefill_sm80",
         "A100 80GB",
         {.head_dim = 40,
          .head_dim_v = 488,
          .seq_q = 3,
          .lengths_k = FA_LENGTHS_SEQUSED,
          .sinks = 1,
          .unaligned = 1,
          .batch_invariant = 1}},
        {"attn_fwd_splitkv_sm80",
         "L4",
         {.head_dim = 512,
          .seq_q = 1,
          .dtype = FA_BF16,
          .page = 16,
          .lengths_k = FA_LENGTHS_SEQUSED,
          .sinks = 1}},
        {"attn_fwd_splitkv_sm80",
         "H200",
         {.head_dim = 512,
          .head_dim_v = 72,
          .seq_q = 16,
          .causal = FA_CAUSAL_BOTTOM_RIGHT,
          .lengths_k = FA_LENGTHS_SEQUSED,
          .softcap = 1}},
        {"attn_fwd_splitkv_sm80",
         "A100 80GB",
         {.head_dim = 320,
          .head_dim_v = 512,
          .seq_q = 3,
          .page = 64,
          .window = 1,
          .window_left = 60,
          .lengths_k = FA_LENGTHS_SEQUSED,
          .kv_dtype = FA_KV_FP8,
          .batch_invariant = 1}},
    };
    uint64_t seed = environment("FA_TEST_SEED", 20261122);
    struct dice dice = {.seed = seed};
    fa_gpu here_gpu = world.gpu;
    int wrong = 0;
    if (is_left_out("wide"))
        SKIP("left out");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct job job = {.pick = below(&dice, 1 << 30)};
        fa_proof proof = {0};
        fa_problem p = rows[i].problem;
        p.batch = p.heads_kv = 2, p.heads_q = 4, p.seq_k = 150, p.want_lse = 1;
        CHECK_OK(fa_catalogue_find(rows[i].gpu, &world.gpu, &diag), diag);
        sweep.family = rows[i].family;
        job.what = fa_attn_case_ragged(&p, (int)below(&dice, 3), seed + i);
        job.what.all_rows = true;
        int rc = prove_job_here(&job, NULL, NULL, seed, &proof);
        if (rc != 0 || !proof.passed)
            say_failure((int)i, &job, rc != 0 ? diag.text : proof.reason);
        wrong += rc != 0 || !proof.passed;
    }
    world.gpu = here_gpu;
    CHECK_INT(wrong, 0);
}

/* The last test: a kernel that touches what it must not ends the context. */
static void faults_that_a_gpu_may_hide_are_found(void)
{
    static const struct {
        struct change change;
        const char *reason; /* NULL: the launch ends the context */
    } rows[] = {
        {{"exists && (!kRagged || its_key < end)", "exists"}, "NaN"},
        {{"key + (int)lane % 4 * 2", "key"}, "error of"},
        {{"cp_async_wait<kStages - 2>();", "cp_async_wait<kStages - 1>();"}, NULL},
    };
    if (is_left_out("faults"))
        SKIP("left out");
    fa_problem p = problem_of(FA_FP16, FA_CAUSAL_BOTTOM_RIGHT, 64, 2, 4, 2, 37, 203);
    p.lengths_k = FA_LENGTHS_SEQUSED;
    sweep.family = "attn_fwd_splitkv_sm80";
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct job job = {.what = fa_attn_case_ragged(&p, 1, 2)};
        fa_proof proof = {0};
        job.what.all_rows = true;
        int rc = prove_job_here(&job, &rows[i].change, NULL, 1, &proof);
        CHECK(rc != 0 || !proof.passed);
        CHECK_INT(fa_driver_context_lost(world.driver), rows[i].reason == NULL);
        if (rows[i].reason != NULL)
            CHECK_HAS(proof.reason, rows[i].reason);
    }
}

int main(void)
{
    char command[128];
    TEST(the_fake_driver_and_the_compilers_are_there);
    TEST(attn_fwd_sm80_is_right);
    TEST(attn_fwd_splitkv_sm80_is_right);
    TEST(attn_fwd_prefill_sm80_is_right);
    TEST(heads_wider_than_256_are_right);
    TEST(faults_that_a_gpu_may_hide_are_found);
    fa_buf_free(&here.reference);
    snprintf(command, sizeof command, "rm -rf '%s'", here.folder);
    if (here.folder[0] != 0 && system(command) != 0)
        printf("# %s stays\n", here.folder);
    return check_done();
}

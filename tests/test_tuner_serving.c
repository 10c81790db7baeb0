/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention as serving engines call it, proved without a GPU: sequences, pages and lists of a case, and proofs on
 * the fake driver with the reference that NVRTC compiles.
 */
#include "device_context.h"
#include "attn_fixture.h"
#include "check.h"
#include "fake_cubin.h"

#include "attn_launch.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

static fa_diag diag;

static const fa_problem plain = {.head_dim = 64, .batch = 3, .heads_q = 4, .heads_kv = 2,
                                 .seq_q = 1, .seq_k = 300, .want_lse = 1};

/* What engines ask for, each thing at least once. */
static fa_problem asked(int which)
{
    fa_problem p = plain;
    p.layout = FA_BSHD;
    p.causal = which == 2 ? FA_CAUSAL_NONE : FA_CAUSAL_BOTTOM_RIGHT;
    p.lengths_k = which == 1 ? FA_LENGTHS_CU_SEQLENS : FA_LENGTHS_SEQUSED;
    p.mean_k = 200;
    if (which == 1) {
        p.varlen = 1;
        p.seq_q = 40;
        p.mean_q = 20;
        p.softcap = 1;
    }
    if (which == 2) {
        p.page = 16;
        p.sinks = 1;
        p.window = 1;
        p.window_left = 100;
        p.window_right = -1;
    }
    if (which == 3) {
        p.page = 64;
        p.kv_dtype = FA_KV_FP8;
        p.layout = FA_BHSD;
    }
    return p;
}

enum { ASKED = 4 };

/* ---- cases ----------------------------------------------------------------------------------*/
static void sequences_keep_to_the_problem_and_to_its_mean(void)
{
    fa_problem p = plain;
    p.batch = 400;
    p.lengths_k = FA_LENGTHS_SEQUSED;
    p.page = 16;
    p.mean_k = 100;
    fa_attn_case cases[FA_BENCH_CASES];
    fa_attn_cases(&p, 7, cases);
    int64_t sum = 0;
    bool within = true;
    for (int32_t b = 0; b < p.batch; b++) {
        int32_t keys = fa_attn_length_k(&cases[0], b);
        within = within && keys >= 0 && keys <= p.seq_k;
        sum += keys;
    }
    CHECK(within);
    CHECK_INT(fa_attn_length_k(&cases[0], 0), 300);
    CHECK(sum > 85 * 400 && sum < 115 * 400);
    CHECK_INT(cases[0].total_k, sum);
    p.mean_k = 0;
    fa_attn_cases(&p, 7, cases);
    CHECK_INT(fa_attn_length_k(&cases[0], 399), 300);
    CHECK_INT(cases[0].num_pages, 400 * 19 + 3);
}

static void a_block_table_names_pages_of_its_sequence_alone_but_for_shared_ones(void)
{
    fa_problem p = asked(2);
    p.batch = 9;
    fa_attn_case c = fa_attn_case_ragged(&p, 1, 3);
    fa_attn_lists lists = fa_attn_lists_plan(&c);
    int32_t *words = calloc(lists.words, sizeof *words), seen[400] = {0}, shared = 0, empty = 0;
    bool right = c.num_pages < 400;
    CHECK_OK(fa_attn_lists_fill(&c, &lists, words, &diag), diag);
    for (int32_t b = 0; b < p.batch; b++) {
        int32_t keys = fa_attn_length_k(&c, b);
        empty += keys == 0;
        right = right && words[lists.seqused_k + (size_t)b] == keys;
        for (int32_t i = 0; i < lists.table_stride; i++) {
            int32_t page = words[lists.block_table + (size_t)(b * lists.table_stride + i)];
            bool named = page >= 0 && page < c.num_pages;
            right = right && named == (i * p.page < keys);
            if (!named)
                continue;
            shared += seen[page]++ > 0;
            right = right && words[lists.used + (size_t)page] ==
                                 (keys - i * p.page < p.page ? keys - i * p.page : p.page);
        }
    }
    int32_t unused = 0;
    for (int32_t page = 0; page < c.num_pages; page++) {
        unused += seen[page] == 0;
        right = right && (seen[page] > 0 || words[lists.used + (size_t)page] == 0);
    }
    free(words);
    CHECK(right);
    CHECK(shared > 0 && unused >= 3 && empty > 0);
}

/* ---- proofs ---------------------------------------------------------------------------------*/
static struct {
    const char *missing;
    struct fixture fixture;
    fa_nvrtc *nvrtc;
    fa_driver *driver;
    fa_gpu gpu;
} world;

static void the_fake_driver_and_the_compiler_are_there(void)
{
    static char path[] = "/tmp/fa-test-serving-XXXXXX";
    int fd = mkstemp(path);
    static const char script[] =
        "device name=NVIDIA_L4 sm=89 sms=58 smem_block=101376 smem_sm=102400 l2=48M bus=192 "
        "clock=2040 memclock=6251 memory=22G\n"
        "fault BLOCK_N=2; wrong\nfault BLOCK_N=3; unwritten\nfault BLOCK_N=4; nan\n"
        "fault BLOCK_N=5; spoil\nfault BLOCK_N=6; overrun\n";
    world.missing = "no proof: see the first of these tests";
    if (getenv("FA_TEST_FAKE_CUDA") == NULL)
        SKIP(world.missing = "FA_TEST_FAKE_CUDA does not name the fake driver");
    if (fixture_nvrtc(&world.nvrtc, &diag) != 0)
        SKIP(world.missing = "NVRTC is missing");
    CHECK(fd >= 0 && write(fd, script, sizeof script - 1) == (ssize_t)sizeof script - 1);
    close(fd);
    setenv("FAKE_CUDA_SCRIPT", path, 1);
    setenv("FA_TUNE_LIBCUDA", getenv("FA_TEST_FAKE_CUDA"), 1);
    CHECK_OK(fixture_open(&world.fixture, &diag), diag);
    CHECK_OK(fa_driver_open(&world.driver, &diag), diag);
    CHECK_OK(fa_driver_device(world.driver, 0, &world.gpu, &diag), diag);
    CHECK_OK(hold_context(world.driver, 0, &diag), diag);
    unlink(path);
    world.missing = NULL;
}

/* A kernel that the fake driver computes; block_n tells which fault it has. */
static size_t candidate_of(const fa_problem *p, int block_n, unsigned char bytes[FAKE_CUBIN_MAX])
{
    char marker[300];
    snprintf(marker, sizeof marker,
             "family=x;BLOCK_N=%d;HEAD_DIM=%d;PAGE_SIZE=%d;HEAD_DIM_V=0;DTYPE_BF16=%d;CAUSAL=%d;"
             "LENGTHS_K=%d;KV_FP8=%d;VARLEN_Q=%d;WINDOW=%d;SOFTCAP=%d;SINKS=%d;",
             block_n, p->head_dim, p->page, p->dtype, p->causal != 0, p->lengths_k, p->kv_dtype,
             p->varlen, p->window, p->softcap, p->sinks);
    fake_cubin cubin = {.sm = 89, .entry = "attn_fwd", .registers = 40, .threads_x = 128,
                        .threads_y = 1, .threads_z = 1, .marker = marker,
                        .parameters = sizeof(struct fa_attn_serving_params),
                        .sizes = {sizeof(struct fa_attn_serving_params)}};
    return fake_cubin_build(&cubin, bytes);
}

static int prove(fa_bench *bench, const fa_problem *p, int block_n, fa_proof *ret_proof)
{
    unsigned char bytes[FAKE_CUBIN_MAX];
    fa_bench_candidate load = {.cubin = bytes, .entry = {"attn_fwd"}};
    fa_bench_kernel *kernel = NULL;
    load.size = candidate_of(p, block_n, bytes);
    for (int i = 0; i < FA_BENCH_CASES; i++)
        load.launches[i] =
            (fa_launches){.count = 1,
                          .splits = 1,
                          .workspace_bytes = 512,
                          .at = {{.threads = 128, .block = {128, 1, 1}, .grid = {1, 1, 1}}}};
    int rc = fa_bench_load(bench, &load, &kernel, &diag);
    if (rc == 0)
        rc = fa_bench_verify(bench, kernel, ret_proof, &diag);
    fa_bench_unload(bench, &kernel);
    return rc;
}

static void proofs_know_right_kernels_from_wrong_ones(void)
{
    static const char *const reasons[] = {"",
                                          " of o is ",
                                          "of o is nan",
                                          "of o is nan",
                                          "it wrote to its input q",
                                          "outside its output o"};
    if (world.missing != NULL)
        SKIP(world.missing);
    for (int which = 0; which < ASKED; which++) {
        fa_problem p = asked(which);
        fa_buf reference = {0};
        fa_bench *bench = NULL;
        CHECK_OK(fixture_reference(&world.fixture, world.nvrtc, &p, &world.gpu, &reference, &diag),
                 diag);
        const fa_bench_setup setup = {&world.gpu, &p, reference.data, reference.size, .seed = 1};
        CHECK_OK(fa_bench_open(world.driver, &setup, &bench, &diag), diag);
        fa_buf_free(&reference);
        for (int kind = 0; kind < 6 && (kind == 0 || which == 2); kind++) {
            fa_proof proof = {0};
            CHECK_OK(prove(bench, &p, kind + 1, &proof), diag);
            printf("# %d.%d: %s\n", which, kind, proof.reason);
            CHECK_INT(proof.passed, kind == 0);
            CHECK_HAS(proof.reason, reasons[kind]);
        }
        fa_bench_close(&bench);
    }
}

/* Copies are of 16 bytes: eight elements of fp16, sixteen of fp8. */
static void strides_of_fp8_keys_are_held_to_sixteen_bytes(void)
{
    fa_problem p = asked(3);
    fa_call call = {.empty = false};
    for (int tensor = 0; tensor < 2; tensor++) {
        fa_attn_args args = {.size = sizeof args, .q = (void *)0x1000, .k = (void *)0x2000,
                             .v = (void *)0x3000, .o = (void *)0x4000};
        int64_t *stride = tensor == 0 ? args.k_stride : args.v_stride;
        stride[0] = 64 * 2 * 72;
        stride[1] = 64 * 72;
        stride[2] = 72;
        CHECK_INT(fa_attn_launcher.launch(&call, &p, &args, NULL, &diag), FA_EALIGN);
        CHECK_HAS(diag.text, "16 of fp8");
    }
}

/* ---- numbers that a launch hands over --------------------------------------------------------*/
/* In fp32 as a kernel takes it, beside the softcap itself; below its range a kernel relies on it to be less. */
static void a_softcaps_numbers_are_those_of_its_polynomial(void)
{
    static const float caps[] = {1, 30, 50, 1000};
    for (size_t i = 0; i < sizeof caps / sizeof *caps; i++) {
        struct fa_attn_serving_params p = {.dense = {.softmax_scale = 0.125f}};
        float per_score = 0.125f / caps[i];
        fa_attn_softcap_take(caps[i], &p);
        CHECK(p.softcap == caps[i]);
        for (int step = -4000; step <= 420; step++) {
            float x = (float)step / 1000 / per_score, y = x * x + p.cap_shift;
            double polynomial = (double)(x * p.cap_slope * (y * y + p.cap_rest));
            double right = log2(exp(1)) * (double)caps[i] * tanh((double)(x * per_score));
            if (step >= -420)
                CHECK(fabs(polynomial - right) <= 9e-6 * fabs(right));
            else
                CHECK(polynomial < right);
        }
    }
}

int main(void)
{
    TEST(a_softcaps_numbers_are_those_of_its_polynomial);
    TEST(strides_of_fp8_keys_are_held_to_sixteen_bytes);
    TEST(sequences_keep_to_the_problem_and_to_its_mean);
    TEST(a_block_table_names_pages_of_its_sequence_alone_but_for_shared_ones);
    TEST(the_fake_driver_and_the_compiler_are_there);
    TEST(proofs_know_right_kernels_from_wrong_ones);
    return check_done();
}

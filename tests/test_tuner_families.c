/* SPDX-License-Identifier: Apache-2.0
 *
 * The built-in families, for real: for an SM of every generation (sm_8x, sm_12x) that a family claims and NVRTC knows, its default
 * config is compiled for one head dimension, the next ones on the next SMs, and, on one SM after another in turn, one drawn at random
 * from the surviving space or the defaults for what engines ask for; what ptxas made is held against the budget and against that SM's limits. (The
 * template itself asserts that its shared memory ends at the budget's byte.) With FA_TEST_SLOW=1 all of it is compiled on every
 * SM, and every head dimension. Which one comes first is drawn as well; the seed is printed.
 */
#include "check.h"

#include "attn_fixture.h"
#include "cubin.h"
#include "family.h"
#include "model.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/random.h>

enum { MAX_JOBS = 512, THREADS = 2 };

struct job {
    int sm;
    fa_problem problem;
    fa_gpu gpu;
    fa_candidate candidate;
    char wrong[600]; /* "" when all holds */
};

static struct {
    struct fixture fixture;
    fa_nvrtc *nvrtc;
    struct job job[MAX_JOBS];
    int count;
    atomic_int next;
} all;

static uint64_t state;

static uint32_t draw(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

/* An SM of that architecture; how many there are does not matter to a compiler. */
static bool gpu_of(int sm, fa_gpu *gpu)
{
    *gpu = (fa_gpu){.sm = sm,
                    .sm_count = 64,
                    .l2_bytes = 32 << 20,
                    .memory_bus_bits = 256,
                    .clock_mhz = 1800,
                    .bandwidth_gbs = 500,
                    .tensor_tflops = 100,
                    .ordinal = -1};
    snprintf(gpu->name, sizeof gpu->name, "sm_%d", sm);
    return fa_catalogue_limits(sm, gpu) == 0;
}

static bool add(const fa_candidate *candidate, const fa_problem *problem, const fa_gpu *gpu)
{
    if (all.count == MAX_JOBS)
        return false;
    all.job[all.count++] =
        (struct job){.sm = gpu->sm, .problem = *problem, .gpu = *gpu, .candidate = *candidate};
    return true;
}

/* The default of each family that serves this problem there, and if wanted a random survivor. */
static bool add_configs(const fa_problem *problem, const fa_gpu *gpu, bool random)
{
    fa_space space;
    fa_diag diag;
    if (fa_space_enumerate(&(fa_task){&all.fixture.families, problem, gpu}, &space, &diag) != 0) {
        printf("# %s: %s\n", gpu->name, diag.text);
        return false;
    }
    bool ok = space.survivors > 0;
    int chosen = ok && random ? (int)draw((uint32_t)space.survivors) : -1, seen = 0, defaults = 0;
    for (int i = 0; i < space.count && ok; i++) {
        const fa_candidate *c = &space.candidate[i];
        if (c->is_default) {
            defaults++;
            if (c->trial.status != FA_STATUS_PENDING) {
                printf("# %s, head_dim %d: the default of %s does not fit: %s\n", gpu->name,
                       problem->head_dim, c->trial.config.family, c->trial.reason);
                ok = false;
            }
        }
        if (c->trial.status != FA_STATUS_PENDING)
            continue;
        if (ok && (c->is_default || seen == chosen))
            ok = add(c, problem, gpu);
        seen++;
    }
    fa_space_free(&space);
    return ok && defaults > 0;
}

static void check_job(struct job *job)
{
    fa_buf source = {0}, cubin = {0};
    fa_cubin_info info = {0};
    fa_diag diag = {{0}};
    const fa_trial *trial = &job->candidate.trial;
    const fa_family *family = all.fixture.families.family[job->candidate.family];
    char config[FA_CONFIG_TEXT_MAX], what[200] = "";
    int rc = fa_render(all.fixture.templates,
                       &(fa_task){&all.fixture.families, &job->problem, &job->gpu}, &job->candidate,
                       &source, &diag);
    if (rc == 0)
        rc = fixture_compile(&all.fixture, all.nvrtc, &source, family, &job->gpu, &cubin, &diag);
    if (rc == 0)
        rc = fa_cubin_read(cubin.data, cubin.size, family->launch[0].entry, &info, &diag);
    struct fa_attn_boxes boxes;
    bool serving;
    if (rc == 0)
        rc = fa_attn_boxes_read(
            &(fa_cubin_entry){cubin.data, cubin.size, .name = family->launch[0].entry}, &boxes,
            &serving, &diag);
    if (rc != 0)
        snprintf(what, sizeof what, "%.180s", diag.text);
    else if (info.sm != job->sm)
        snprintf(what, sizeof what, "its cubin is for sm_%d", info.sm);
    else if (info.static_smem_bytes != 0)
        snprintf(what, sizeof what, "%d B of static shared memory", info.static_smem_bytes);
    else if (!(trial->smem_bytes <= job->gpu.smem_per_block))
        snprintf(what, sizeof what, "%d B of shared memory, %d fit", trial->smem_bytes,
                 job->gpu.smem_per_block);
    else if (info.max_threads != 0 && info.max_threads != trial->threads)
        snprintf(what, sizeof what, "launch bounds %d, %d threads", info.max_threads,
                 trial->threads);
    else if (fa_model_occupancy(&job->gpu, trial->threads, info.registers, trial->smem_bytes) < 1)
        snprintf(what, sizeof what, "%d registers x %d threads fit no SM", info.registers,
                 trial->threads);
    else if (job->candidate.is_default && info.stack_bytes != 0)
        snprintf(what, sizeof what, "the default spills %d B", info.stack_bytes);
    if (what[0] != 0) {
        fa_config_text(&trial->config, config);
        snprintf(job->wrong, sizeof job->wrong, "%s sm_%d head_dim %d %s: %.180s: %.300s",
                 trial->config.family, job->sm, job->problem.head_dim,
                 job->problem.dtype == FA_BF16 ? "bf16" : "fp16", what, config);
    }
    fa_buf_free(&source);
    fa_buf_free(&cubin);
}

static void *work(void *context)
{
    (void)context;
    for (int i; (i = atomic_fetch_add(&all.next, 1)) < all.count;)
        check_job(&all.job[i]);
    return NULL;
}

/* What serving engines ask for, another mixture on every SM. */
static fa_problem serving_problem(int i)
{
    static const int32_t head_dims[] = {128, 64, 256, 192, 96, 512}, queries[] = {1, 16, 200};
    return (fa_problem){.dtype = (fa_dtype)draw(2),
                        .causal = (fa_causal)(i % 2),
                        .head_dim = head_dims[i % 6],
                        .batch = 4,
                        .heads_q = 16,
                        .heads_kv = 4,
                        .seq_q = queries[i % 3],
                        .seq_k = 4096,
                        .varlen = i / 2 % 2,
                        .lengths_k = i % 4 == 3 ? FA_LENGTHS_CU_SEQLENS : FA_LENGTHS_SEQUSED,
                        .page = i % 4 == 3 ? 0 : 8 << i % 4,
                        .window = i / 3 % 2,
                        .window_left = 1023,
                        .softcap = i / 4 % 2,
                        .sinks = i % 3 == 0,
                        .kv_dtype = i % 6 == 4 || (i + i / 6) % 2 == 0 ? FA_KV_SAME : FA_KV_FP8};
}

/* Those of which a product is known; of each generation one, drawn, unless all are wanted. Returns how many these are. */
static int choose_sms(int *sms, int count, bool every)
{
    int known = 0, chosen = 0;
    fa_gpu gpu;
    for (int i = 0; i < count; i++)
        if (gpu_of(sms[i], &gpu))
            sms[known++] = sms[i];
    for (int i = 0, end; i < known && !every; i = end) {
        for (end = i + 1; end < known && sms[end] / 10 == sms[i] / 10;)
            end++;
        sms[chosen++] = sms[i + (int)draw((uint32_t)(end - i))];
    }
    return every ? known : chosen;
}

static void every_family_compiles_within_its_budget(void)
{
    enum { HEAD_DIMS = 6 };
    static const int head_dims[HEAD_DIMS] = {32, 64, 96, 128, 192, 256};
    int sms[64], wrong = 0;
    pthread_t thread[THREADS];
    fa_diag diag;
    if (getrandom(&state, sizeof state, 0) != sizeof state)
        state = 1;
    printf("# seed %llu\n", (unsigned long long)state);
    CHECK_OK(fixture_open(&all.fixture, &diag), diag);
    if (fixture_nvrtc(&all.nvrtc, &diag) != 0)
        SKIP("no NVRTC");
    bool slow = getenv("FA_TEST_SLOW") != NULL;
    int count = choose_sms(sms, fa_nvrtc_architectures(all.nvrtc, sms, 64), slow);
    size_t at = draw(HEAD_DIMS);
    for (int s = 0; s < count; s++) {
        fa_gpu gpu;
        bool random = slow || (at + (size_t)s) % 2 == 0; /* beside its default; else what engines ask for */
        CHECK(gpu_of(sms[s], &gpu));
        size_t first = slow ? 0 : (at + (size_t)s) % HEAD_DIMS;
        for (size_t d = first; d < HEAD_DIMS; d += slow ? 1 : HEAD_DIMS) {
            fa_problem problem = {.dtype = sms[s] == 75 ? FA_FP16 : (fa_dtype)draw(2),
                                  .causal = (fa_causal)draw(3),
                                  .head_dim = head_dims[d],
                                  .batch = 2,
                                  .heads_q = 8,
                                  .heads_kv = 8,
                                  .seq_q = 1024,
                                  .seq_k = 1024};
            CHECK(add_configs(&problem, &gpu, random));
        }
        fa_problem serving = serving_problem(s);
        if (gpu.sm >= 80 && (slow || !random))
            CHECK(add_configs(&serving, &gpu, false));
    }
    for (int t = 0; t < THREADS; t++)
        CHECK_INT(pthread_create(&thread[t], NULL, work, NULL), 0);
    for (int t = 0; t < THREADS; t++)
        pthread_join(thread[t], NULL);
    for (int i = 0; i < all.count; i++) {
        if (all.job[i].wrong[0] != 0)
            printf("# %s\n", all.job[i].wrong);
        wrong += all.job[i].wrong[0] != 0;
    }
    printf("# %d configs compiled for %d SMs\n", all.count, count);
    CHECK(count >= 6 && all.count >= 10);
    CHECK_INT(wrong, 0);
    fa_nvrtc_close(&all.nvrtc);
    fixture_close(&all.fixture);
}

int main(void)
{
    TEST(every_family_compiles_within_its_budget);
    return check_done();
}

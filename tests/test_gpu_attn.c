/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention kernels on a real device: the reference against double precision on the CPU, then each
 * family on some hundred random problems, proved with the same code that tuning uses.
 *
 * FA_TEST_SEED and FA_TEST_PROBLEMS (per family) repeat or extend the sweep; the seed is printed.
 * Fewer than 20 problems make a short run, for slow tools: large problems are left out too.
 */
#include "attn_fixture.h"
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { PROBLEMS = 300, PROBLEMS_SHORT = 20 };
enum { THREADS_MAX = 64, REFERENCES_MAX = 32 * 4, STACK_BYTES = 16 << 20 };

static fa_diag diag;

static struct {
    const char *missing; /* why there is no device, for SKIP */
    struct fixture fixture;
    fa_nvrtc *nvrtc;
    fa_driver *driver;
    fa_gpu gpu;
} world;

/* ---- small helpers --------------------------------------------------------------------------*/
static uint64_t environment(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL && text[0] != 0 ? strtoull(text, NULL, 10) : otherwise;
}

static bool short_run(void)
{
    return environment("FA_TEST_PROBLEMS", PROBLEMS) < PROBLEMS_SHORT;
}

/* A stream of random numbers. */
struct dice {
    uint64_t seed, thrown;
};

static uint64_t below(struct dice *dice, uint64_t n)
{
    return fa_attn_random(dice->seed, ++dice->thrown) % n;
}

static double value_of(fa_dtype dtype, uint16_t bits)
{
    int exponent = dtype == FA_BF16 ? bits >> 7 & 255 : bits >> 10 & 31;
    int fraction = dtype == FA_BF16 ? bits & 127 : bits & 1023;
    int width = dtype == FA_BF16 ? 7 : 10, bias = dtype == FA_BF16 ? 127 : 15;
    double x = exponent == 0 ? ldexp(fraction, 1 - bias - width)
                             : ldexp(fraction + (1 << width), exponent - bias - width);
    return bits & 0x8000 ? -x : x;
}

static fa_problem problem_of(fa_dtype dtype, fa_causal causal, int head_dim, int batch,
                             int heads_q, int heads_kv, int seq_q, int seq_k)
{
    return (fa_problem){.dtype = dtype, .causal = causal, .head_dim = head_dim, .batch = batch,
                        .heads_q = heads_q, .heads_kv = heads_kv, .seq_q = seq_q, .seq_k = seq_k,
                        .want_lse = true};
}

static int open_ground(const fa_attn_case *c, const fa_buf *reference, uint64_t seed,
                       fa_ground **ret_ground)
{
    return fa_ground_open(world.driver, &world.gpu, c, 1, reference->data, reference->size, seed,
                          ret_ground, &diag);
}

/* Proves one loaded cubin on one case. */
static int prove(const fa_attn_case *c, const fa_buf *reference, const fa_buf *cubin,
                 const fa_trial *trial, uint64_t seed, fa_proof *ret_proof)
{
    fa_ground *ground = NULL;
    fa_module *module = NULL;
    fa_ground_kernel kernel = {.threads = (uint32_t)trial->threads,
                               .smem_bytes = (uint32_t)trial->smem_bytes};
    memcpy(kernel.grid[0], trial->grid, sizeof trial->grid);
    int rc = open_ground(c, reference, seed, &ground);
    if (rc == 0)
        rc = fa_module_load(world.driver, cubin->data, cubin->size, &module, &diag);
    if (rc == 0)
        rc = fa_module_function(module, "attn_fwd", trial->smem_bytes, &kernel.function, &diag);
    if (rc == 0)
        rc = fa_ground_maps(ground, cubin->data, cubin->size, "attn_fwd", &kernel.maps, &diag);
    if (rc == 0)
        rc = fa_ground_prove(ground, &kernel, ret_proof, &diag);
    fa_module_unload(&module);
    free(kernel.maps);
    fa_ground_close(&ground);
    return rc;
}

/* The default config of a family for a problem, compiled, with the grid for that problem. */
static int build_default(const char *family, const fa_problem *problem, fa_candidate *ret_candidate,
                         fa_buf *ret_cubin, fa_buf *ret_reference)
{
    int rc = fixture_pick(&world.fixture, family, problem, &world.gpu, true, 0, ret_candidate,
                          &diag);
    if (rc == 0)
        rc = fixture_build(&world.fixture, world.nvrtc, ret_candidate, problem, &world.gpu,
                           ret_cubin, &diag);
    if (rc == 0)
        rc = fixture_reference(&world.fixture, world.nvrtc, problem, &world.gpu, ret_reference,
                               &diag);
    return rc;
}

static void a_device_and_nvrtc_are_here(void)
{
    world.missing = "no CUDA device";
    if (getenv("FAKE_CUDA_SCRIPT") != NULL)
        SKIP(world.missing = "the driver is the fake one");
    if (fa_driver_open(&world.driver, &diag) != 0)
        SKIP(world.missing);
    if (fixture_nvrtc(&world.nvrtc, &diag) != 0)
        SKIP(world.missing = "NVRTC is missing");
    CHECK_OK(fa_driver_device(world.driver, 0, &world.gpu, &diag), diag);
    CHECK_OK(fa_driver_retain_context(world.driver, 0, &diag), diag);
    CHECK_OK(fixture_open(&world.fixture, &diag), diag);
    printf("# on %s, sm_%d\n", world.gpu.name, world.gpu.sm);
    world.missing = NULL;
}

/* ---- the reference --------------------------------------------------------------------------*/
struct host_tensor {
    uint16_t *bits;
    fa_attn_tensor at;
    fa_dtype dtype;
};

static double element(const struct host_tensor *t, int64_t b, int64_t h, int64_t s, int d)
{
    return value_of(t->dtype, t->bits[b * t->at.batch_stride + h * t->at.head_stride +
                                      s * t->at.row_stride + d]);
}

static int fetch_tensor(const fa_attn_case *c, int tensor, const void *device,
                        struct host_tensor *ret)
{
    uint64_t span = 0;
    fa_attn_tensor_span(c, tensor, &span);
    ret->bits = malloc(span * 2 + 1);
    ret->at = c->tensor[tensor];
    ret->dtype = c->problem.dtype;
    return fa_copy_from_device(world.driver, ret->bits, (fa_device_ptr)(uintptr_t)device, span * 2,
                               &diag);
}

/* One row in double: o[head_dim], the sum of |weight * v| of each element, LSE. */
static void attend(const fa_attn_case *c, const struct host_tensor t[3], int64_t row, double *o,
                   double *scale, double *lse)
{
    const fa_problem *p = &c->problem;
    int64_t s = row % p->seq_q, h = row / p->seq_q % p->heads_q, b = row / p->seq_q / p->heads_q;
    int64_t kv = h / (p->heads_q / p->heads_kv), visible = p->seq_k;
    static double score[4096];
    double largest = -INFINITY, total = 0;
    if (p->causal != FA_CAUSAL_NONE && s + fa_problem_causal_offset(p) + 1 < visible)
        visible = s + fa_problem_causal_offset(p) + 1;
    memset(o, 0, sizeof(double) * (size_t)p->head_dim);
    memset(scale, 0, sizeof(double) * (size_t)p->head_dim);
    for (int64_t j = 0; j < visible; j++) {
        double dot = 0;
        for (int d = 0; d < p->head_dim; d++)
            dot += element(&t[0], b, h, s, d) * element(&t[1], b, kv, j, d);
        score[j] = dot * (double)c->softmax_scale;
        largest = score[j] > largest ? score[j] : largest;
    }
    for (int64_t j = 0; j < visible; j++)
        total += score[j] = exp(score[j] - largest);
    for (int64_t j = 0; j < visible; j++) {
        for (int d = 0; d < p->head_dim; d++) {
            double part = score[j] / total * element(&t[2], b, kv, j, d);
            o[d] += part;
            scale[d] += fabs(part);
        }
    }
    *lse = visible > 0 ? largest + log(total) : -INFINITY;
}

/* Largest error of the reference, relative to what its file promises (2^-18 of the sum of
 * |weight * v|; LSE 2^-20 and 2^-24 of its magnitude, twice that allowed). */
static int reference_error(const fa_attn_case *c, const fa_ground *ground, double *ret_o,
                           double *ret_lse)
{
    const struct fa_attn_params *p = fa_ground_params(ground, 0);
    const void *const device[3] = {p->q, p->k, p->v};
    struct host_tensor t[3] = {0};
    fa_device_ptr lse_at = 0;
    int rows = 0, rc = 0, dim = c->problem.head_dim;
    fa_device_ptr o_at = fa_ground_reference(ground, 0, &lse_at, &rows);
    float *o = malloc((size_t)rows * (size_t)dim * 4), *lse = malloc((size_t)rows * 4);
    double want[256], scale[256], want_lse;
    for (int i = 0; rc == 0 && i < 3; i++)
        rc = fetch_tensor(c, i, device[i], &t[i]);
    if (rc == 0)
        rc = fa_copy_from_device(world.driver, o, o_at, (size_t)rows * (size_t)dim * 4, &diag);
    if (rc == 0)
        rc = fa_copy_from_device(world.driver, lse, lse_at, (size_t)rows * 4, &diag);
    *ret_o = *ret_lse = 0;
    for (int64_t i = 0; rc == 0 && i < rows; i++) {
        attend(c, t, i, want, scale, &want_lse);
        for (int d = 0; d < dim; d++) {
            double e = fabs((double)o[i * dim + d] - want[d]) / (0x1p-18 * scale[d] + 1e-30);
            *ret_o = e <= *ret_o ? *ret_o : e; /* NaN goes through */
        }
        if (isinf(want_lse) && (double)lse[i] == want_lse)
            continue;
        double e = fabs((double)lse[i] - want_lse) / (0x1p-19 + 0x1p-23 * fabs(want_lse));
        *ret_lse = e <= *ret_lse ? *ret_lse : e;
    }
    for (int i = 0; i < 3; i++)
        free(t[i].bits);
    free(o);
    free(lse);
    return rc;
}

static void the_reference_agrees_with_double_precision(void)
{
    static const int dims[] = {8, 64, 136, 256};
    double worst = 0, worst_lse = 0;
    if (world.missing != NULL)
        SKIP(world.missing);
    for (int i = 0; i < 16; i++) {
        fa_dtype dtype = i % 2 == 0 ? FA_FP16 : FA_BF16;
        fa_causal causal = (fa_causal)(i % 3);
        fa_problem p = problem_of(dtype, causal, dims[i / 4], 2, 4, 2, 37 + 11 * (i % 4),
                                  i % 4 == 3 ? 300 : 45);
        p.layout = i % 4 < 2 ? FA_BHSD : FA_BSHD;
        fa_attn_case c = fa_attn_case_padded(&p, i % 2);
        c.input_scale[0] = c.input_scale[1] = i % 4 == 2 ? 50 : 1; /* scores to +-1e4 */
        c.all_rows = true;
        fa_ground *ground = NULL;
        fa_buf reference = {0};
        double e = NAN, e_lse = NAN;
        CHECK_OK(fixture_reference(&world.fixture, world.nvrtc, &p, &world.gpu, &reference, &diag),
                 diag);
        CHECK_OK(open_ground(&c, &reference, (uint64_t)i, &ground), diag);
        CHECK_OK(reference_error(&c, ground, &e, &e_lse), diag);
        fa_ground_close(&ground);
        fa_buf_free(&reference);
        CHECK(e <= 1);
        CHECK(e_lse <= 1);
        worst = e > worst ? e : worst;
        worst_lse = e_lse > worst_lse ? e_lse : worst_lse;
    }
    printf("# reference: error of O up to %.3f of 2^-18 * sum |w v|, of LSE up to %.3f of its "
           "bound\n", worst, worst_lse);
}

/* ---- the sweep ------------------------------------------------------------------------------*/
struct job {
    fa_attn_case what;
    uint64_t pick;
    int reference; /* index into sweep.reference */
    fa_candidate candidate;
    fa_buf cubin;
    int rc;
    fa_diag diag;
};

static struct {
    const char *family;
    struct job *job;
    int count;
    struct {
        fa_problem problem;
        fa_buf cubin;
        int rc;
    } reference[REFERENCES_MAX];
    int references;
    atomic_int next;
} sweep;

static int random_length(struct dice *dice)
{
    static const int lengths[] = {0,   1,   2,   3,   15,  16,  17,  31,  64,  65,  127,  128,
                                  129, 203, 239, 255, 256, 257, 384, 513, 799, 1023, 1024};
    return lengths[below(dice, sizeof lengths / sizeof *lengths)];
}

/* What a family takes. */
struct taste {
    bool bf16, unaligned;
};

static fa_attn_case random_case(struct dice *dice, struct taste taste)
{
    static const int common[] = {32, 64, 96, 128, 192, 256};
    static const int groups[] = {1, 1, 2, 3, 4, 7};
    int dim = below(dice, 2) == 0 ? common[below(dice, 6)] : 8 + 8 * (int)below(dice, 32);
    int kv = 1 + (int)below(dice, 3), batch = below(dice, 40) == 0 ? 0 : 1 + (int)below(dice, 3);
    fa_problem p = problem_of(taste.bf16 && below(dice, 2) == 0 ? FA_BF16 : FA_FP16,
                              (fa_causal)below(dice, 3), dim, batch,
                              kv * groups[below(dice, 6)], kv, random_length(dice),
                              random_length(dice));
    if (below(dice, 4) == 0 && p.seq_q <= 513 && p.seq_k <= 513)
        p.batch *= 12; /* several tiles a block where blocks persist */
    p.layout = (fa_layout)below(dice, 2);
    p.want_lse = below(dice, 4) != 0;
    p.unaligned = below(dice, 3) == 0 && taste.unaligned;
    fa_attn_case c = fa_attn_case_padded(&p, (int)below(dice, 3));
    if (below(dice, 8) == 0) {
        c.input_scale[0] = c.input_scale[1] = 50; /* scores to +-1e4 */
        c.problem.want_lse = true;
    }
    if (below(dice, 8) == 0)
        c.softmax_scale *= 0.25f + (float)below(dice, 8) / 4;
    if (below(dice, 16) == 0)
        c.tensor[FA_ATTN_K].batch_stride = c.tensor[FA_ATTN_V].batch_stride = 0; /* shared */
    c.all_rows = true;
    return c;
}

static bool same_reference(const fa_problem *a, const fa_problem *b)
{
    return a->dtype == b->dtype && a->head_dim == b->head_dim &&
           (a->causal == FA_CAUSAL_NONE) == (b->causal == FA_CAUSAL_NONE);
}

static int reference_for(const fa_problem *problem)
{
    for (int i = 0; i < sweep.references; i++)
        if (same_reference(&sweep.reference[i].problem, problem))
            return i;
    sweep.reference[sweep.references].problem = *problem;
    return sweep.references++;
}

static void compile_job(struct fixture *fixture, struct job *job)
{
    const fa_problem *p = &job->what.problem;
    job->rc = fixture_pick(fixture, sweep.family, p, &world.gpu, false, job->pick, &job->candidate,
                           &job->diag);
    if (job->rc == 0)
        job->rc = fixture_build(fixture, world.nvrtc, &job->candidate, p, &world.gpu, &job->cubin,
                                &job->diag);
}

static void *compile_worker(void *unused)
{
    struct fixture fixture;
    fa_diag problem;
    (void)unused;
    if (fixture_open(&fixture, &problem) != 0)
        return NULL;
    for (int i; (i = atomic_fetch_add(&sweep.next, 1)) < sweep.references + sweep.count;) {
        if (i < sweep.references)
            sweep.reference[i].rc =
                fixture_reference(&fixture, world.nvrtc, &sweep.reference[i].problem, &world.gpu,
                                  &sweep.reference[i].cubin, &problem);
        else
            compile_job(&fixture, &sweep.job[i - sweep.references]);
    }
    fixture_close(&fixture);
    return NULL;
}

/* Compiles every job on all cores; false when no thread could be made. */
static bool compile_all(void)
{
    pthread_t thread[THREADS_MAX];
    pthread_attr_t attributes;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int started = 0;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    atomic_store(&sweep.next, 0);
    while (started < cores && started < THREADS_MAX &&
           pthread_create(&thread[started], &attributes, compile_worker, NULL) == 0)
        started++;
    for (int i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    pthread_attr_destroy(&attributes);
    return started > 0 && atomic_load(&sweep.next) >= sweep.references + sweep.count;
}

static void say_failure(int index, const struct job *job, const char *why)
{
    char config[FA_CONFIG_TEXT_MAX], key[FA_PROBLEM_KEY_MAX];
    fa_config_text(&job->candidate.trial.config, config);
    fa_problem_key(&job->what.problem, key);
    printf("# problem %d: %s %s: %s: %s\n", index, sweep.family, config, key, why);
}

/* True when proved; false when it was wrong or could not be proved. Adds to the worst ratio. */
static bool prove_job(int index, struct job *job, uint64_t seed, double *worst)
{
    fa_proof proof = {0};
    int rc = job->rc;
    if (rc != 0) {
        say_failure(index, job, job->diag.text);
        return false;
    }
    rc = prove(&job->what, &sweep.reference[job->reference].cubin, &job->cubin,
               &job->candidate.trial, seed + (uint64_t)index, &proof);
    if (rc != 0 || !proof.passed) {
        say_failure(index, job, rc != 0 ? diag.text : proof.reason);
        return false;
    }
    double ratio = proof.max_error / proof.tolerance;
    *worst = ratio > *worst ? ratio : *worst;
    return true;
}

static void make_jobs(const char *family, struct taste taste, int count, uint64_t seed)
{
    struct dice dice = {.seed = seed};
    sweep.family = family;
    sweep.count = count;
    sweep.references = 0;
    sweep.job = calloc((size_t)count, sizeof *sweep.job);
    for (int i = 0; sweep.job != NULL && i < count; i++) {
        struct job *job = &sweep.job[i];
        job->what = random_case(&dice, taste);
        job->pick = below(&dice, 1 << 30);
        job->rc = FA_ECANCELED; /* until a thread has taken it */
        job->reference = reference_for(&job->what.problem);
    }
}

static void free_jobs(void)
{
    for (int i = 0; i < sweep.count; i++)
        fa_buf_free(&sweep.job[i].cubin);
    for (int i = 0; i < sweep.references; i++)
        fa_buf_free(&sweep.reference[i].cubin);
    free(sweep.job);
    memset(&sweep, 0, sizeof sweep);
}

/* Proves a family on `count` random problems, every row of each compared; returns how many failed,
 * -1 when nothing could be compiled. */
static int sweep_family(const char *family, struct taste taste)
{
    uint64_t seed = environment("FA_TEST_SEED", (uint64_t)time(NULL));
    int count = (int)environment("FA_TEST_PROBLEMS", PROBLEMS), proved = 0, failed = 0;
    double worst = 0, start = fixture_ms();
    make_jobs(family, taste, count, seed);
    if (sweep.job == NULL || !compile_all()) {
        free_jobs();
        return -1;
    }
    double compiled = fixture_ms();
    for (int i = 0; i < count; i++) {
        bool ok = prove_job(i, &sweep.job[i], seed, &worst);
        proved += ok;
        failed += !ok;
        if (!ok && fa_driver_context_lost(world.driver))
            break; /* the rest of the process is lost too */
    }
    printf("# %s: seed %llu (FA_TEST_SEED): %d of %d problems proved, worst error %.3f of its "
           "tolerance; compiled in %.1f s, proved in %.1f s\n", family, (unsigned long long)seed,
           proved, count, worst, (compiled - start) / 1e3, (fixture_ms() - compiled) / 1e3);
    free_jobs();
    return failed;
}

/* FA_TEST_FAMILY names one family to be swept alone. */
static bool runs_here(const char *family)
{
    const char *only = getenv("FA_TEST_FAMILY");
    if (only != NULL && strcmp(only, family) != 0)
        return false;
    for (int i = 0; i < world.fixture.families.count; i++)
        if (strcmp(fa_family_name(world.fixture.families.family[i]), family) == 0)
            return world.gpu.sm <= fa_family_proved_max(world.fixture.families.family[i]);
    return false;
}

static void attn_fwd_sm80_is_right_on_random_problems(void)
{
    if (world.missing != NULL)
        SKIP(world.missing);
    if (world.gpu.sm < 80 || !runs_here("attn_fwd_sm80"))
        SKIP("the device does not run attn_fwd_sm80");
    CHECK_INT(sweep_family("attn_fwd_sm80", (struct taste){true, true}), 0);
}

static void attn_fwd_sm90a_is_right_on_random_problems(void)
{
    if (world.missing != NULL)
        SKIP(world.missing);
    if (world.gpu.sm != 90 || !runs_here("attn_fwd_sm90a"))
        SKIP("the device does not run attn_fwd_sm90a");
    CHECK_INT(sweep_family("attn_fwd_sm90a", (struct taste){true, false}), 0);
}

static void attn_fwd_sm75_is_right_on_random_problems(void)
{
    if (world.missing != NULL)
        SKIP(world.missing);
    if (world.gpu.sm < 75 || !runs_here("attn_fwd_sm75"))
        SKIP("the device does not run attn_fwd_sm75");
    CHECK_INT(sweep_family("attn_fwd_sm75", (struct taste){false, true}), 0);
}

/* ---- single problems ------------------------------------------------------------------------*/
static const char *portable_family(void)
{
    return world.gpu.sm >= 80 ? "attn_fwd_sm80" : "attn_fwd_sm75";
}

static const char *family_for(const fa_problem *problem)
{
    return world.gpu.sm == 90 && !problem->unaligned ? "attn_fwd_sm90a" : portable_family();
}

/* Proves the default config on a case. */
static void prove_default(const fa_attn_case *c, fa_proof *ret_proof, int *ret_rc)
{
    fa_candidate candidate;
    fa_buf cubin = {0}, reference = {0};
    *ret_rc = build_default(family_for(&c->problem), &c->problem, &candidate, &cubin, &reference);
    if (*ret_rc == 0)
        *ret_rc = prove(c, &reference, &cubin, &candidate.trial, 3, ret_proof);
    fa_buf_free(&cubin);
    fa_buf_free(&reference);
}

static void empty_problems_are_right(void)
{
    static const int shapes[][3] = {{0, 64, 64}, {2, 0, 64}, {2, 64, 0}, {2, 0, 0}};
    if (world.missing != NULL)
        SKIP(world.missing);
    for (int causal = 0; causal < 3; causal++) {
        for (int i = 0; i < 4; i++) {
            fa_problem p = problem_of(FA_FP16, (fa_causal)causal, 64, shapes[i][0], 4, 2,
                                      shapes[i][1], shapes[i][2]);
            fa_attn_case c = fa_attn_case_packed(&p);
            fa_proof proof = {0};
            int rc;
            c.all_rows = true;
            prove_default(&c, &proof, &rc);
            CHECK_OK(rc, diag);
            CHECK_TEXT(proof.reason, "");
            CHECK(proof.passed);
        }
    }
}

static void check_large(const fa_attn_case *c, bool *ret_skip)
{
    fa_proof proof = {0};
    int rc;
    uint64_t span = 0;
    *ret_skip = false;
    CHECK(fa_attn_tensor_span(c, FA_ATTN_K, &span) && span > (uint64_t)1 << 31);
    prove_default(c, &proof, &rc);
    if (rc == FA_ENOMEM) {
        *ret_skip = true;
        return;
    }
    CHECK_OK(rc, diag);
    CHECK_TEXT(proof.reason, "");
    CHECK(proof.passed);
}

static void tensors_beyond_2_31_elements_are_addressed_right(void)
{
    bool skip;
    if (world.missing != NULL)
        SKIP(world.missing);
    if (short_run())
        SKIP("a short run");
    for (int kind = 0; kind < 3; kind++) {
        fa_problem p = problem_of(FA_FP16, FA_CAUSAL_NONE, 64, kind == 0 ? 2 : 1,
                                  kind == 1 ? 2 : 1, kind == 1 ? 2 : 1, kind == 2 ? 3 : 130,
                                  kind == 2 ? 3 : 190);
        fa_attn_case c = fa_attn_case_packed(&p);
        for (int t = 0; t < FA_ATTN_TENSORS; t++) {
            if (kind == 0) /* the second sequence, head, or third row lies beyond */
                c.tensor[t].batch_stride = ((int64_t)1 << 31) + 64 * (t + 1);
            else if (kind == 1)
                c.tensor[t].head_stride = ((int64_t)1 << 31) + 64 * (t + 1);
            else
                c.tensor[t].row_stride = ((int64_t)1 << 30) + 64 * (t + 1);
        }
        c.all_rows = true;
        check_large(&c, &skip);
        if (skip)
            SKIP("not enough free device memory: four tensors of 4 GiB");
    }
}

static void a_kernel_that_computes_something_else_is_rejected(void)
{
    fa_candidate plain, causal;
    fa_buf cubin = {0}, other = {0}, reference = {0}, unused = {0};
    fa_proof proof = {0};
    fa_problem p = problem_of(FA_FP16, FA_CAUSAL_NONE, 64, 2, 4, 2, 200, 230), q = p;
    fa_attn_case c = fa_attn_case_packed(&p);
    if (world.missing != NULL)
        SKIP(world.missing);
    c.all_rows = true;
    q.causal = FA_CAUSAL_TOP_LEFT;
    CHECK_OK(build_default(portable_family(), &p, &plain, &cubin, &reference), diag);
    CHECK_OK(build_default(portable_family(), &q, &causal, &other, &unused), diag);
    CHECK_OK(prove(&c, &reference, &other, &causal.trial, 1, &proof), diag);
    CHECK(!proof.passed);
    CHECK_HAS(proof.reason, "error of O");
    plain.trial.grid[0]--; /* some rows are never written */
    CHECK_OK(prove(&c, &reference, &cubin, &plain.trial, 1, &proof), diag);
    CHECK(!proof.passed);
    CHECK_HAS(proof.reason, "unwritten");
    plain.trial.grid[0]++;
    CHECK_OK(prove(&c, &reference, &cubin, &plain.trial, 1, &proof), diag);
    CHECK(proof.passed);
    fa_buf_free(&cubin);
    fa_buf_free(&other);
    fa_buf_free(&reference);
    fa_buf_free(&unused);
}

/* ---- the bench ------------------------------------------------------------------------------*/

/* Loads a family's default into a bench. */
static int load_default(fa_bench *bench, const fa_candidate *candidate, const fa_buf *cubin,
                        const fa_problem *problem, fa_bench_kernel **ret_kernel)
{
    fa_problem cases[FA_BENCH_CASES];
    fa_bench_candidate load = {.entry = "attn_fwd", .cubin = cubin->data, .size = cubin->size,
                               .threads = candidate->trial.threads,
                               .smem_bytes = candidate->trial.smem_bytes};
    int count = fa_bench_cases(problem, 1, cases), rc = 0;
    for (int i = 0; rc == 0 && i < count; i++)
        rc = fixture_grid(&world.fixture, candidate, &cases[i], &world.gpu, load.grid[i], &diag);
    return rc != 0 ? rc : fa_bench_load(bench, &load, ret_kernel, &diag);
}

static void bench_one(const fa_problem *problem, bool *ret_skip)
{
    fa_candidate candidate;
    fa_buf cubin = {0}, reference = {0};
    fa_bench *bench = NULL;
    fa_bench_kernel *kernel = NULL;
    fa_proof proof = {0};
    float samples[30];
    double median, low, high, at[6];
    int count = 0;
    *ret_skip = false;
    CHECK_OK(build_default(family_for(problem), problem, &candidate, &cubin, &reference), diag);
    at[0] = fixture_ms();
    int rc = fa_bench_open(world.driver, &world.gpu, problem, reference.data, reference.size, 1,
                           &bench, &diag);
    if (rc == FA_ENOMEM) {
        *ret_skip = true;
        return;
    }
    CHECK_OK(rc, diag);
    at[1] = fixture_ms();
    CHECK_OK(load_default(bench, &candidate, &cubin, problem, &kernel), diag);
    CHECK_OK(fa_bench_verify(bench, kernel, &proof, &diag), diag);
    CHECK_TEXT(proof.reason, "");
    at[2] = fixture_ms();
    CHECK_OK(fa_bench_verify(bench, kernel, &proof, &diag), diag);
    at[3] = fixture_ms();
    CHECK_OK(fa_bench_probe(bench, kernel, 10, 1e5, samples, &count, &diag), diag);
    at[4] = fixture_ms();
    fa_bench_kernel *twice[] = {kernel, kernel};
    CHECK_OK(fa_bench_race(bench, twice, 2, 15, samples, &diag), diag);
    at[5] = fixture_ms();
    CHECK_INT(fa_samples_summary(samples, 15, &median, &low, &high), 0);
    printf("# b%d h%d s%dx%d d%d: open %.1f ms, load+first verify %.2f, verify %.2f, probe of %d "
           "%.2f, race of 2 x 15 %.2f; %.1f us (%.1f..%.1f), %.0f TFLOP/s, error %.2g of %.2g\n",
           problem->batch, problem->heads_q, problem->seq_q, problem->seq_k, problem->head_dim,
           at[1] - at[0], at[2] - at[1], at[3] - at[2], count, at[4] - at[3], at[5] - at[4],
           median, low, high, fa_problem_flops(problem) / median / 1e6, proof.max_error,
           proof.tolerance);
    fa_bench_unload(bench, &kernel);
    fa_bench_close(&bench);
    fa_buf_free(&cubin);
    fa_buf_free(&reference);
}

static void a_bench_proves_and_times_the_default_config(void)
{
    bool skip;
    if (world.missing != NULL)
        SKIP(world.missing);
    fa_problem problems[] = {problem_of(FA_FP16, FA_CAUSAL_NONE, 64, 4, 8, 8, 512, 512),
                             problem_of(FA_FP16, FA_CAUSAL_BOTTOM_RIGHT, 128, 1, 32, 8, 2048, 2048),
                             problem_of(FA_FP16, FA_CAUSAL_NONE, 64, 1, 1, 1, 1, 1),
                             problem_of(FA_FP16, FA_CAUSAL_NONE, 128, 1, 16, 16, 16384, 16384)};
    problems[1].unaligned = true;
    if (short_run())
        SKIP("a short run");
    size_t count = sizeof problems / sizeof *problems;
    for (size_t i = 0; i < count; i++) {
        bench_one(&problems[i], &skip);
        if (skip)
            SKIP("not enough free device memory");
        if (check_state.failed)
            return;
    }
}

int main(void)
{
    TEST(a_device_and_nvrtc_are_here);
    TEST(the_reference_agrees_with_double_precision);
    TEST(empty_problems_are_right);
    TEST(a_kernel_that_computes_something_else_is_rejected);
    TEST(a_bench_proves_and_times_the_default_config);
    TEST(attn_fwd_sm80_is_right_on_random_problems);
    TEST(attn_fwd_sm90a_is_right_on_random_problems);
    TEST(attn_fwd_sm75_is_right_on_random_problems);
    TEST(tensors_beyond_2_31_elements_are_addressed_right);
    return check_done();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * A family on random problems: they are drawn from a seed, compiled on all cores at once, then
 * proved one by one.
 */
#ifndef FA_TESTS_GPU_ATTN_SWEEP_H
#define FA_TESTS_GPU_ATTN_SWEEP_H

#include "gpu_attn_fixture.h"

#include <pthread.h>
#include <stdatomic.h>

enum { THREADS_MAX = 64, REFERENCES_MAX = 1024, STACK_BYTES = 16 << 20 };

/* A stream of random numbers. */
struct dice {
    uint64_t seed, thrown;
};

static inline uint64_t below(struct dice *dice, uint64_t n)
{
    return fa_random(dice->seed, ++dice->thrown) % n;
}

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
    int longest; /* of all sequences; 0: what a GPU does in no time */
} sweep;

static inline int random_length(struct dice *dice)
{
    static const int lengths[] = {0,   1,   2,   3,   15,  16,  17,  31,  64,  65,   127, 128,
                                  129, 203, 239, 255, 256, 257, 384, 513, 799, 1023, 1024};
    int length = lengths[below(dice, sizeof lengths / sizeof *lengths)];
    return sweep.longest > 0 && length > sweep.longest ? length % sweep.longest : length;
}

/* What a family takes. */
struct taste {
    bool bf16, unaligned, serving;
};

static inline fa_attn_case random_case(struct dice *dice, struct taste taste)
{
    static const int common[] = {32, 64, 96, 128, 192, 256};
    static const int groups[] = {1, 1, 2, 3, 4, 7};
    int dim = below(dice, 2) == 0 ? common[below(dice, 6)] : 8 + 8 * (int)below(dice, 32);
    int kv = 1 + (int)below(dice, 3), batch = below(dice, 40) == 0 ? 0 : 1 + (int)below(dice, 3);
    fa_problem p = problem_of(taste.bf16 && below(dice, 2) == 0 ? FA_BF16 : FA_FP16,
                              (fa_causal)below(dice, 3), dim, batch, kv * groups[below(dice, 6)],
                              kv, random_length(dice), random_length(dice));
    if (below(dice, 4) == 0 && p.seq_q <= 513 && p.seq_k <= 513 && sweep.longest == 0)
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
        c.tensor[FA_ATTN_K].stride[0] = c.tensor[FA_ATTN_V].stride[0] = 0; /* shared */
    c.all_rows = true;
    return c;
}

static inline const fa_family *family_called(const char *name)
{
    for (int i = 0; i < world.fixture.families.count; i++)
        if (strcmp(world.fixture.families.family[i]->name, name) == 0)
            return world.fixture.families.family[i];
    return NULL;
}

/* Any mixture of what serving engines ask for; few references, since each mixture has one of its own. */
static inline fa_problem random_serving(struct dice *dice)
{
    static const int dims[] = {64, 128, 256, 112, 80, 40, 512, 576}, groups[] = {1, 2, 4, 5, 8, 16};
    static const int pages[] = {0, 16, 64, 48, 256, 1, 8, 24}, queries[] = {1, 1, 1, 2, 4, 16};
    static const int dims_v[] = {32, 64, 96, 128, 256, 16, 320, 512};
    int kv = 1 + (int)below(dice, 3), few = below(dice, 3) != 0;
    fa_problem p =
        problem_of((fa_dtype)below(dice, 2), (fa_causal)below(dice, 2), dims[below(dice, 8)],
                   1 + (int)below(dice, 5), kv * groups[below(dice, 6)], kv,
                   few ? queries[below(dice, 6)] : random_length(dice), random_length(dice));
    p.seq_k *= below(dice, 4) == 0 && sweep.longest == 0 ? 5 : 1;
    p.varlen = below(dice, 3) == 0;
    p.page = pages[below(dice, 8)];
    p.lengths_k = (fa_lengths)below(dice, 3);
    p.window = below(dice, 3) == 0;
    p.window_left = p.window ? (int)below(dice, 3) * 100 - 1 : 0;
    p.window_right = p.window ? (int)below(dice, 3) * 8 - 1 : 0;
    p.softcap = below(dice, 5) == 0;
    p.sinks = below(dice, 4) == 0;
    p.kv_dtype = below(dice, 4) == 0 ? FA_KV_FP8 : FA_KV_SAME;
    if (strstr(sweep.family, "fp8") != NULL || (p.kv_dtype == FA_KV_FP8 && below(dice, 2) == 0))
        p.kv_dtype = p.q_dtype = FA_KV_FP8;
    p.batch_invariant = below(dice, 6) == 0;
    if (p.head_dim == 256 && below(dice, 3) == 0)
        p.head_dim = 192, p.head_dim_v = 128;
    else if (below(dice, 4) == 0)
        p.head_dim_v = dims_v[below(dice, 8)];
    if (p.head_dim > 512 && p.head_dim_v == 0)
        p.head_dim_v = 512;
    p.v_in_k = p.head_dim_v > 0 && p.head_dim_v <= p.head_dim && below(dice, 2) == 0;
    p.unaligned = below(dice, 5) == 0;
    if (strstr(sweep.family, "latent") != NULL && p.kv_dtype == FA_KV_FP8) {
        p.kv_dtype = below(dice, 3) == 0 ? FA_KV_FP8 : FA_KV_FP8_DS_MLA, p.dtype = FA_BF16;
        p.head_dim = 576, p.head_dim_v = 512, p.v_in_k = true;
    }
    return p;
}

static inline fa_attn_case random_serving_case(struct dice *dice)
{
    fa_diag why;
    fa_problem p = random_serving(dice);
    while (fa_problem_check(&p, &why) != 0 ||
           fa_family_supports(family_called(sweep.family), &p, &world.gpu, &why) != 0)
        p = random_serving(dice);
    p.layout = (fa_layout)below(dice, 2);
    p.want_lse = below(dice, 4) != 0;
    fa_attn_case c = fa_attn_case_ragged(&p, (int)below(dice, 3), below(dice, 1 << 20));
    c.all_rows = true;
    return c;
}

static inline bool same_reference(const fa_problem *a, const fa_problem *b)
{
    if (!fa_attn_is_dense(a) || !fa_attn_is_dense(b)) {
        const int32_t mine[] = {a->varlen,        (int)a->lengths_k,  a->page,
                                a->window,        a->softcap,         a->sinks,
                                (int)a->kv_dtype, a->batch_invariant, a->head_dim_v,
                                a->v_in_k,        (int)a->q_dtype};
        const int32_t other[] = {b->varlen,        (int)b->lengths_k,  b->page,
                                 b->window,        b->softcap,         b->sinks,
                                 (int)b->kv_dtype, b->batch_invariant, b->head_dim_v,
                                 b->v_in_k,        (int)b->q_dtype};
        if (memcmp(mine, other, sizeof mine) != 0)
            return false;
    }
    return a->dtype == b->dtype && a->head_dim == b->head_dim &&
           (a->causal == FA_CAUSAL_NONE) == (b->causal == FA_CAUSAL_NONE);
}

static inline int reference_for(const fa_problem *problem)
{
    for (int i = 0; i < sweep.references; i++)
        if (same_reference(&sweep.reference[i].problem, problem))
            return i;
    sweep.reference[sweep.references].problem = *problem;
    return sweep.references++;
}

static inline void compile_job(struct fixture *fixture, struct job *job)
{
    const fa_problem *p = &job->what.problem;
    job->rc = fixture_pick(fixture, sweep.family, p, &world.gpu, false, job->pick, &job->candidate,
                           &job->diag);
    if (job->rc == 0)
        job->rc = fixture_build(fixture, &job->candidate, p, &world.gpu, &job->cubin, &job->diag);
}

static inline void *compile_worker(void *unused)
{
    struct fixture fixture;
    fa_diag problem;
    (void)unused;
    if (fixture_open(&fixture, &problem) != 0)
        return NULL;
    for (int i; (i = atomic_fetch_add(&sweep.next, 1)) < sweep.references + sweep.count;) {
        if (i < sweep.references)
            sweep.reference[i].rc =
                fixture_reference(&fixture, &sweep.reference[i].problem, &world.gpu,
                                  &sweep.reference[i].cubin, &problem);
        else
            compile_job(&fixture, &sweep.job[i - sweep.references]);
    }
    fixture_close(&fixture);
    return NULL;
}

/* Compiles every job on all cores; false when no thread could be made. */
static inline bool compile_all(void)
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

static inline void say_failure(int index, const struct job *job, const char *why)
{
    char config[FA_CONFIG_TEXT_MAX], key[FA_PROBLEM_KEY_MAX];
    fa_config_text(&job->candidate.trial.config, config);
    fa_problem_key(&job->what.problem, key);
    printf("# problem %d: %s %s: %s: %s\n", index, sweep.family, config, key, why);
}

/* True when proved; false when it was wrong or could not be proved. Adds to the worst ratio. */
static inline bool prove_job(int index, struct job *job, uint64_t seed, double *worst)
{
    fa_proof proof = {0};
    int rc = job->rc;
    if (rc != 0) {
        say_failure(index, job, job->diag.text);
        return false;
    }
    rc = prove(&job->what, &sweep.reference[job->reference].cubin, &job->cubin, &job->candidate,
               seed + (uint64_t)index, &proof);
    if (rc != 0 || !proof.passed) {
        say_failure(index, job, rc != 0 ? diag.text : proof.reason);
        return false;
    }
    double ratio = proof.max_error / proof.tolerance;
    *worst = ratio > *worst ? ratio : *worst;
    return true;
}

static inline void make_jobs(const char *family, struct taste taste, int count, uint64_t seed)
{
    struct dice dice = {.seed = seed};
    count = count < REFERENCES_MAX ? count : REFERENCES_MAX;
    sweep.family = family;
    sweep.count = count;
    sweep.references = 0;
    sweep.job = calloc((size_t)count, sizeof *sweep.job);
    for (int i = 0; sweep.job != NULL && i < count; i++) {
        struct job *job = &sweep.job[i];
        job->what = taste.serving ? random_serving_case(&dice) : random_case(&dice, taste);
        job->pick = below(&dice, 1 << 30);
        job->rc = FA_ECANCELED; /* until a thread has taken it */
        job->reference = reference_for(&job->what.problem);
    }
}

static inline void free_jobs(void)
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
static inline int sweep_family(const char *family, struct taste taste)
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
    count = sweep.count;
    for (int i = 0; i < count; i++) {
        if (getenv("FA_TEST_NAMES") != NULL)
            say_failure(i, &sweep.job[i], "proved next");
        bool ok = prove_job(i, &sweep.job[i], seed, &worst);
        proved += ok;
        failed += !ok;
        if (!ok && fa_driver_context_lost(world.driver))
            break; /* the rest of the process is lost too */
    }
    printf("# %s: seed %llu (FA_TEST_SEED): %d of %d problems proved, worst error %.3f of its "
           "tolerance; compiled in %.1f s, proved in %.1f s\n",
           family, (unsigned long long)seed, proved, count, worst, (compiled - start) / 1e3,
           (fixture_ms() - compiled) / 1e3);
    free_jobs();
    return failed;
}

#endif

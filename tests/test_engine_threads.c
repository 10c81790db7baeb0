/* SPDX-License-Identifier: Apache-2.0
 *
 * 32 threads on one session, and sessions of their own beside it, doing everything at once: kernels that are
 * there and kernels that are not, launches, lists, words on winners. Each gets the answer that one alone would. The
 * point is what a thread sanitizer says: `./dev test --tsan test_engine_threads`.
 */
#include "engine_fixture.h"
#include "session.h"
#include "threads.h"

#include <stdatomic.h>

enum { THREADS = 32, ROUNDS = 40, BUCKETS = 4 };

struct worker {
    engine_fixture *fixture;
    int number, rc;
    fa_diag diag;
};

static fa_problem problem_of(int i)
{
    fa_problem problem = small_problem;
    problem.seq_q = problem.seq_k = 64 << (i % BUCKETS);
    return problem;
}

/* How many were timed; -1: they cannot be listed. */
static int count_winners(fa_tuner *tuner, fa_diag *diag)
{
    FA_ENDS(fa_free_at) fa_answer *answer = NULL;
    size_t count = 0;
    int timed = fa_list_winners(tuner, &answer, &count, NULL, diag) == 0 ? 0 : -1;
    for (size_t i = 0; i < count; i++)
        timed += answer[i].trial.median_us > 0;
    return timed;
}

static int get_kernel(fa_tuner *tuner, int i, fa_diag *diag)
{
    const fa_kernel *kernel;
    fa_problem problem = problem_of(i);
    int rc = fa_get_best_kernel(tuner, &problem, FA_EFFORT_CACHED, &kernel, diag);
    if (rc != 0)
        return rc;
    const fa_answer *answer = fa_kernel_answer(kernel);
    return answer == NULL || answer->problem.seq_q != problem.seq_q ||
           answer->origin != FA_ORIGIN_MEASURED;
}

/* Lengths between the buckets' points are new to the table, and are of stored winners all the same. */
static int get_new_kernel(fa_tuner *tuner, int i, fa_diag *diag)
{
    const fa_kernel *kernel;
    fa_problem problem = problem_of(0);
    problem.seq_q = problem.seq_k = 125 + i % 7;
    return fa_get_best_kernel(tuner, &problem, FA_EFFORT_CACHED, &kernel, diag);
}

static int own_session(const engine_fixture *f, int i, fa_diag *diag)
{
    fa_options options = fixture_options(f);
    fa_tuner *tuner = NULL;
    int rc = fa_open(&options, &tuner, diag);
    if (rc == 0)
        rc = get_kernel(tuner, i, diag);
    fa_close(&tuner);
    return rc;
}

static void *work(void *context)
{
    struct worker *w = context;
    engine_fixture *f = w->fixture;
    w->rc = hold_context(f->driver, 0, &w->diag);
    for (int i = w->number; w->rc == 0 && i < w->number + ROUNDS; i++) {
        w->rc = get_kernel(f->tuner, i, &w->diag);
        if (w->rc == 0 && i % 5 == 0)
            w->rc = get_new_kernel(f->tuner, i, &w->diag);
        if (w->rc == 0 && i % 8 == 0)
            w->rc = count_winners(f->tuner, &w->diag) != BUCKETS;
        if (w->rc == 0 && i % 16 == 0)
            w->rc = own_session(f, i, &w->diag);
    }
    drop_context(f->driver, 0);
    return NULL;
}

ENGINE_TEST(thirty_two_threads_get_what_one_alone_would)
{
    struct worker worker[THREADS];
    fa_diag diag;
    CHECK(fixture_open(&f, ""));
    for (int i = 0; i < BUCKETS; i++) {
        fa_answer answer = {.size = sizeof answer};
        CHECK_OK(tune_for(&f, NULL, problem_of(i), FA_EFFORT_MEASURE, &answer, &diag), diag);
    }
    for (int i = 0; i < THREADS; i++)
        worker[i] = (struct worker){.fixture = &f, .number = i};
    CHECK_INT(run_threads(work, worker, sizeof *worker, THREADS), 0);
    for (int i = 0; i < THREADS; i++)
        CHECK_OK(worker[i].rc, worker[i].diag);
}

/* ---- beside a tune --------------------------------------------------------------------------*/
struct tuning {
    engine_fixture *fixture;
    fa_problem problem;
    const char *gpu;         /* that is not here, or NULL */
    struct tuning **running; /* whose workers run; NULL: it is not asked */
    _Atomic int stage;       /* 1: workers are busy; 2: it is over */
    const fa_kernel *kernel;
    int rc, overlaps;
    fa_diag diag;
};

static int note_stage(void *context, const fa_progress *progress)
{
    struct tuning *t = context, *nobody = NULL,
                  **running = t->running != NULL ? t->running : &nobody;
    if (progress->stage == FA_STAGE_TUNE && progress->failed > 0)
        atomic_store(&t->stage, 1);
    if (progress->stage == FA_STAGE_TUNE) {
        t->overlaps += *running != NULL && *running != t;
        *running = t;
    } else if (progress->stage == FA_STAGE_DONE && *running == t) {
        *running = NULL;
    }
    return 0;
}

static void *tune(void *context)
{
    struct tuning *t = context;
    fa_request request = {.size = sizeof request,
                          .problem = t->problem,
                          .gpu = t->gpu,
                          .effort = t->gpu != NULL ? FA_EFFORT_PREDICT : FA_EFFORT_MEASURE,
                          .progress = note_stage,
                          .context = t};
    fa_answer answer = {.size = sizeof answer};
    t->rc = fa_tune(t->fixture->tuner, &request, &answer, &t->diag);
    atomic_store(&t->stage, 2);
    return NULL;
}

/* Two configs of the tune hang until their time is over, so that it takes seconds. */
ENGINE_TEST(what_is_stored_is_found_while_another_thread_tunes)
{
    struct tuning t = {.fixture = &f, .problem = problem_of(1)};
    fa_problem stored = problem_of(0);
    const fa_kernel *kernel = NULL;
    pthread_t thread;
    fa_diag diag;
    CHECK(fixture_open(&f, ""));
    CHECK_OK(fa_get_best_kernel(f.tuner, &stored, FA_EFFORT_MEASURE, &kernel, &diag), diag);
    CHECK(fixture_restart(&f, "fault BLOCK_M=64;BLOCK_N=32 hang"));
    CHECK_INT(pthread_create(&thread, NULL, tune, &t), 0);
    while (atomic_load(&t.stage) == 0)
        usleep(1000);
    int rc = fa_get_best_kernel(f.tuner, &stored, FA_EFFORT_CACHED, &kernel, &diag);
    int count = count_winners(f.tuner, NULL);
    CHECK_INT(atomic_load(&t.stage), 1); /* the tune is still under way */
    CHECK_OK(rc, diag);
    CHECK_INT(count, 1);
    pthread_join(thread, NULL);
    CHECK_OK(t.rc, t.diag);
}

/* ---- callbacks, and tunes side by side --------------------------------------------------------*/
struct user {
    fa_tuner *tuner;
    int calls[FA_STAGE_DONE + 1], listed, busy;
};

static int use_the_tuner(void *context, const fa_progress *progress)
{
    struct user *u = context;
    fa_request request = {
        .size = sizeof request, .problem = problem_of(2), .effort = FA_EFFORT_MEASURE};
    fa_answer answer = {.size = sizeof answer};
    u->calls[progress->stage]++;
    u->listed += count_winners(u->tuner, NULL) >= 0;
    u->busy += fa_tune(u->tuner, &request, &answer, NULL) == FA_EBUSY;
    return u->calls[FA_STAGE_WAIT] == 5 || progress->stage == FA_STAGE_TUNE;
}

/* One that waited for itself would never return. */
ENGINE_TEST(callbacks_of_a_tune_may_look_up_and_are_refused_a_tune)
{
    struct tuning t = {.fixture = &f, .problem = problem_of(1)};
    pthread_t thread;
    fa_diag diag;
    CHECK(fixture_open(&f, "fault BLOCK_M=64;BLOCK_N=32 hang"));
    struct user u = {.tuner = f.tuner}, waits = u;
    fa_request request = {.size = sizeof request,
                          .problem = t.problem,
                          .effort = FA_EFFORT_MEASURE,
                          .progress = use_the_tuner,
                          .context = &u};
    fa_answer answer = {.size = sizeof answer};
    CHECK_INT(fa_tune(f.tuner, &request, &answer, &diag), FA_ECANCELED);
    CHECK_INT(u.calls[FA_STAGE_TUNE], 1);
    CHECK_INT(u.listed, 1);
    CHECK_INT(u.busy, 1);
    request.context = &waits;
    CHECK_INT(pthread_create(&thread, NULL, tune, &t), 0);
    while (atomic_load(&t.stage) == 0)
        usleep(1000);
    int rc = fa_tune(f.tuner, &request, &answer, &diag);
    pthread_join(thread, NULL);
    CHECK_INT(rc, FA_ECANCELED);
    CHECK_INT(waits.calls[FA_STAGE_WAIT], 5);
    CHECK_INT(waits.listed, 5);
    CHECK_INT(waits.busy, 5);
    CHECK_OK(t.rc, t.diag);
}

/* Each tune takes all cores: several at once would start so many times as many compilers. */
ENGINE_TEST(tunes_of_one_tuner_run_one_after_another)
{
    struct tuning *running = NULL, absent[BUCKETS];
    CHECK(fixture_open(&f, NULL));
    fa_close(&f.tuner);
    CHECK_INT(unlink(f.store), 0); /* nothing is compiled yet */
    CHECK(fixture_session(&f, NULL) == 0);
    for (int i = 0; i < BUCKETS; i++)
        absent[i] = (struct tuning){
            .fixture = &f, .problem = problem_of(i), .gpu = "L4", .running = &running};
    CHECK_INT(run_threads(tune, absent, sizeof *absent, BUCKETS), 0);
    for (int i = 0; i < BUCKETS; i++) {
        CHECK_OK(absent[i].rc, absent[i].diag);
        CHECK_INT(absent[i].overlaps, 0);
    }
}

static void *get(void *context)
{
    struct tuning *t = context;
    t->rc = hold_context(t->fixture->driver, 0, &t->diag);
    if (t->rc == 0)
        t->rc = fa_get_best_kernel(t->fixture->tuner, &t->problem, FA_EFFORT_MEASURE, &t->kernel,
                                   &t->diag);
    drop_context(t->fixture->driver, 0);
    return NULL;
}

/* Four problems, each asked for by three threads at once: four tunes, one after another. */
ENGINE_TEST(threads_that_ask_for_one_problem_at_once_get_one_kernel)
{
    enum { ASKERS = 3 * BUCKETS };
    struct tuning asker[ASKERS];
    CHECK(fixture_open(&f, ""));
    for (int i = 0; i < ASKERS; i++)
        asker[i] = (struct tuning){.fixture = &f, .problem = problem_of(i)};
    CHECK_INT(run_threads(get, asker, sizeof *asker, ASKERS), 0);
    for (int i = 0; i < ASKERS; i++) {
        CHECK_OK(asker[i].rc, asker[i].diag);
        CHECK(asker[i].kernel == asker[i % BUCKETS].kernel);
    }
    CHECK_INT(count_winners(f.tuner, NULL), BUCKETS);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The proof under another driver, against the fake one, when it comes to no verdict: what is said,
 * what is kept, and when the next ask tries again.
 */
#include "engine_fixture.h"

#include "session.h"
#include "store.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum { TRIAL_MS = 1500 };

static const char count_winners[] = "SELECT count(*) FROM winner WHERE origin = 'measured'";
static const char count_marks[] = "SELECT count(*) FROM verification";

/* A winner of driver 13000, and nothing else that is measured. */
static bool open_tuned(engine_fixture *f)
{
    fa_answer answer = {.size = sizeof answer};
    return fixture_open(f, "driver 13000\ntime * 90\ntime BLOCK_M=64;BLOCK_N=32;STAGES=2 30") &&
           tune_for(f, NULL, small_problem, FA_EFFORT_MEASURE, &answer, NULL) == 0;
}

/* Another script from now on, in a session with little patience. */
static bool open_under(engine_fixture *f, const char *script)
{
    fa_options options = fixture_options(f);
    options.trial_timeout_ms = TRIAL_MS;
    if (!fixture_restart(f, script))
        return false;
    fa_close(&f->tuner);
    return fa_open(&options, &f->tuner, NULL) == 0;
}

static int ask(engine_fixture *f, fa_effort effort, const fa_kernel **ret_kernel, fa_diag *diag)
{
    *diag = (fa_diag){{0}};
    return fa_get_best_kernel(f->tuner, &small_problem, effort, ret_kernel, diag);
}

/* ---- the world's fault ----------------------------------------------------------------------*/
static atomic_bool killing;

/* Launches of candidates so far. */
static int launches(const engine_fixture *f)
{
    return fixture_logged(f, "launch attn_fwd ");
}

/* Each time that a candidate has been launched. */
static void *keep_killing(void *context)
{
    const engine_fixture *f = context;
    for (int seen = launches(f); atomic_load(&killing); usleep(20000)) {
        int now = launches(f);
        if (now > seen)
            kill_worker("measure");
        seen = now;
    }
    return NULL;
}

/* Nothing is held against the winner, and the next ask proves it. */
static void check_forgiven(engine_fixture *f)
{
    const fa_kernel *kernel;
    CHECK_INT(fixture_number(f, count_winners), 1);
    CHECK_INT(fixture_number(f, count_marks), 0);
    CHECK(open_under(f, "driver 13010"));
    CHECK_OK(ask(f, FA_EFFORT_CACHED, &kernel, &diag), diag);
    CHECK_INT(fa_kernel_answer(kernel)->driver_version, 13010);
    CHECK_INT(fa_kernel_answer(kernel)->origin, FA_ORIGIN_MEASURED);
}

TEST(what_is_no_fault_of_the_kernel_is_told_and_not_held_against_it)
{
    static const struct {
        const char *fault;
        int rc;
        const char *says;
    } rows[] = {{"fault BLOCK_M=64; ecc", FA_ECUDA, "ECC_UNCORRECTABLE"},
                {"fault BLOCK_M=64; out_of_memory", FA_ENOMEM, "OUT_OF_MEMORY"}};
    engine_fixture f;
    const fa_kernel *kernel;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char script[100];
        CHECK(open_tuned(&f));
        snprintf(script, sizeof script, "driver 13010\n%s", rows[i].fault);
        CHECK(open_under(&f, script));
        CHECK_INT(ask(&f, FA_EFFORT_CACHED, &kernel, &diag), rows[i].rc);
        CHECK_HAS(diag.text, "must be once more under 13010");
        CHECK_HAS(diag.text, rows[i].says);
        check_forgiven(&f);
        fixture_close(&f);
    }
}

ENGINE_TEST(a_worker_that_is_killed_from_outside_is_no_verdict)
{
    const fa_kernel *kernel;
    pthread_t thread;
    CHECK(open_tuned(&f));
    /* It would take for ever, and is not given the time. */
    CHECK(open_under(&f, "driver 13010\nfault BLOCK_M=64; hang"));
    atomic_store(&killing, true);
    CHECK_INT(pthread_create(&thread, NULL, keep_killing, &f), 0);
    CHECK_INT(ask(&f, FA_EFFORT_CACHED, &kernel, &diag), FA_EWORKER);
    atomic_store(&killing, false);
    pthread_join(thread, NULL);
    CHECK_HAS(diag.text, "killed by signal 9 (Killed), 4 times");
    check_forgiven(&f);
}

TEST(a_fault_of_its_own_is_a_verdict)
{
    static const char *const faults[] = {"crash", "illegal_address", "launch_failure"};
    engine_fixture f;
    const fa_kernel *kernel;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        char script[100];
        CHECK(open_tuned(&f));
        snprintf(script, sizeof script, "driver 13010\nfault BLOCK_M=64; %s", faults[i]);
        CHECK(open_under(&f, script));
        CHECK_INT(ask(&f, FA_EFFORT_CACHED, &kernel, &diag), FA_ENOTFOUND);
        CHECK_INT(fixture_number(&f, count_winners), 0);
        CHECK_INT(fixture_number(&f, "SELECT passed FROM verification"), 0);
        fixture_close(&f);
    }
}

/* ---- no time left ---------------------------------------------------------------------------*/
static const char hangs[] = "driver 13010\ntime * 60\nfault BLOCK_M=64;BLOCK_N=32;STAGES=2 hang";

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Answered with nothing launched, and so at once. */
static void check_passed_over(engine_fixture *f)
{
    const fa_kernel *kernel;
    int before = launches(f);
    CHECK_FAILS(ask(f, FA_EFFORT_CACHED, &kernel, &diag), FA_ENOTFOUND,
                "it failed its proof under driver 13010");
    CHECK_HAS(diag.text, "did not answer within 1500 ms");
    CHECK_INT(launches(f), before);
    CHECK_INT(fixture_number(f, count_winners), 1);
}

ENGINE_TEST(a_winner_whose_time_runs_out_is_passed_over_by_its_session_and_proved_by_the_next)
{
    const fa_kernel *kernel;
    CHECK(open_tuned(&f));
    CHECK(open_under(&f, hangs));
    CHECK_FAILS(ask(&f, FA_EFFORT_CACHED, &kernel, &diag), FA_ENOTFOUND,
                "did not answer within 1500 ms");
    check_passed_over(&f);
    CHECK_INT(fixture_number(&f, count_marks), 0);
    CHECK(open_under(&f, "driver 13010")); /* it was the GPU that was busy */
    CHECK_OK(ask(&f, FA_EFFORT_CACHED, &kernel, &diag), diag);
    CHECK_INT(fa_kernel_answer(kernel)->driver_version, 13010);
    CHECK_INT(fixture_number(&f, "SELECT passed FROM verification"), 1);
}

ENGINE_TEST(one_that_hangs_gives_way_to_what_a_tune_finds)
{
    const fa_kernel *kernel;
    CHECK(open_tuned(&f));
    CHECK(open_under(&f, hangs));
    CHECK_INT(ask(&f, FA_EFFORT_CACHED, &kernel, &diag), FA_ENOTFOUND);
    CHECK_OK(ask(&f, FA_EFFORT_MEASURE, &kernel, &diag), diag);
    char text[FA_CONFIG_TEXT_MAX];
    fa_config_text(&fa_kernel_answer(kernel)->trial.config, text);
    CHECK(strstr(text, "\"BLOCK_M\":64,\"BLOCK_N\":32,\"STAGES\":2") == NULL);
    CHECK_INT(fa_kernel_answer(kernel)->driver_version, 13010);
}

/* What cannot be kept is remembered by the process. */
ENGINE_TEST(a_read_only_store_waits_for_a_hang_once)
{
    const fa_kernel *kernel;
    CHECK(open_tuned(&f));
    CHECK(open_under(&f, hangs));
    fa_store_close(&f.tuner->store);
    CHECK_OK(fa_store_open(f.store, FA_STORE_READ_ONLY, NULL, &f.tuner->store, NULL, &diag), diag);
    CHECK_INT(ask(&f, FA_EFFORT_CACHED, &kernel, &diag), FA_ENOTFOUND);
    check_passed_over(&f);
    CHECK_INT(fixture_number(&f, count_marks), 0);
}

/* ---- a GPU that is busy ---------------------------------------------------------------------*/
ENGINE_TEST(a_cached_lookup_waits_for_a_busy_gpu_a_while_and_once)
{
    const fa_kernel *kernel;
    fa_lock *gpu_lock = NULL;
    fa_gpu gpu;
    CHECK(open_tuned(&f));
    CHECK(open_under(&f, "driver 13010"));
    CHECK_OK(fa_gpu_find(NULL, 0, &gpu, &diag), diag);
    CHECK_OK(fa_store_lock(f.tuner->store, gpu.uuid, false, &gpu_lock, &diag), diag);
    int before = launches(&f);
    double began = seconds();
    CHECK_INT(ask(&f, FA_EFFORT_CACHED, &kernel, &diag), FA_ENOTFOUND);
    CHECK(seconds() - began >= 5);
    CHECK_HAS(diag.text, "is measuring on this GPU");
    began = seconds();
    CHECK_INT(ask(&f, FA_EFFORT_CACHED, &kernel, &diag), FA_ENOTFOUND);
    CHECK(seconds() - began < 5);
    CHECK_INT(launches(&f), before);
    CHECK_INT(fixture_number(&f, count_marks), 0);
    fa_lock_release(&gpu_lock);
    CHECK_OK(ask(&f, FA_EFFORT_CACHED, &kernel, &diag), diag);
    CHECK_INT(fa_kernel_answer(kernel)->driver_version, 13010);
}

static void *let_go(void *context)
{
    sleep(2);
    fa_lock_release(context);
    return NULL;
}

ENGINE_TEST(a_proof_is_made_as_soon_as_its_turn_comes)
{
    const fa_kernel *kernel;
    fa_lock *lock = NULL;
    pthread_t thread;
    fa_gpu gpu;
    CHECK(open_tuned(&f));
    CHECK(open_under(&f, "driver 13010"));
    CHECK_OK(fa_gpu_find(NULL, 0, &gpu, &diag), diag);
    CHECK_OK(fa_store_lock(f.tuner->store, gpu.uuid, false, &lock, &diag), diag);
    CHECK_INT(pthread_create(&thread, NULL, let_go, &lock), 0);
    int rc = ask(&f, FA_EFFORT_CACHED, &kernel, &diag);
    pthread_join(thread, NULL);
    CHECK_OK(rc, diag);
    CHECK_INT(fa_kernel_answer(kernel)->driver_version, 13010);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Trust against the fake driver: which winner answers, and what is launched for lengths between
 * buckets.
 */
#include "engine_fixture.h"

#include "problem.h"

static fa_problem of_length(int32_t seq)
{
    fa_problem problem = small_problem;
    problem.seq_q = problem.seq_k = seq;
    return problem;
}

/* ---- lengths between buckets ----------------------------------------------------------------*/
/* An element that the launch did not reach, or wrote beyond the end, is seen. */
static bool launches_whole(engine_fixture *f, const fa_kernel *kernel, const fa_problem *p,
                           fa_diag *diag)
{
    size_t count = (size_t)p->batch * (size_t)p->heads_q * (size_t)p->seq_q * (size_t)p->head_dim;
    size_t fence = 4096, size = (count + fence) * 2;
    fa_device_ptr tensor[4] = {0};
    fa_attn_args args;
    bool ok = fixture_tensors(f, size, tensor, &args, diag) == 0 &&
              fa_fill8(f->driver, tensor[3], 0xff, size, NULL, diag) == 0 &&
              fa_launch(kernel, &args, NULL, diag) == 0 &&
              fixture_output(f, tensor[3], size, count, diag);
    fixture_free_tensors(f, tensor);
    return ok;
}

ENGINE_TEST(a_length_between_buckets_is_launched_with_its_own_grid)
{
    static const int32_t lengths[] = {125, 129, 135};
    const fa_kernel *kernel;
    CHECK(fixture_open(&f, "time * 90\ntime BLOCK_M=64; 30"));
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_MEASURE, &kernel, &diag), diag);
    uint32_t blocks = fa_kernel_answer(kernel)->trial.grid[0];
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        fa_problem problem = of_length(lengths[i]);
        CHECK_OK(fa_get_best_kernel(f.tuner, &problem, FA_EFFORT_CACHED, &kernel, &diag), diag);
        const fa_answer *answer = fa_kernel_answer(kernel);
        CHECK_INT(answer->origin, FA_ORIGIN_NEAREST);
        CHECK_INT(answer->problem.seq_q, lengths[i]);
        CHECK_INT(answer->from_problem.seq_q, 128);
        CHECK_INT(answer->trial.grid[0], blocks / 2 * (uint32_t)((lengths[i] + 63) / 64));
        CHECK(launches_whole(&f, kernel, &problem, &diag));
        /* Its bucket was measured: there is nothing to tune. */
        CHECK_OK(fa_get_best_kernel(f.tuner, &problem, FA_EFFORT_MEASURE, &kernel, &diag), diag);
        CHECK(fa_kernel_answer(kernel)->from_store);
    }
}

ENGINE_TEST(an_exact_winner_is_kept_beside_its_bucket_and_preferred)
{
    const fa_kernel *kernel;
    fa_answer answer = {.size = sizeof answer};
    fa_request request = {.size = sizeof request, .problem = of_length(135),
                          .effort = FA_EFFORT_MEASURE, .exact = true};
    CHECK(fixture_open(&f, ""));
    CHECK_OK(tune_for(&f, NULL, small_problem, FA_EFFORT_MEASURE, &answer, &diag), diag);
    request.effort = FA_EFFORT_CACHED;
    CHECK_OK(fa_tune(f.tuner, &request, &answer, &diag), diag);
    CHECK_INT(answer.origin, FA_ORIGIN_NEAREST); /* better than nothing, and said so */
    request.effort = FA_EFFORT_MEASURE;
    CHECK_OK(fa_tune(f.tuner, &request, &answer, &diag), diag);
    CHECK_INT(answer.origin, FA_ORIGIN_MEASURED);
    CHECK_INT(answer.from_problem.seq_q, 135);
    CHECK(!answer.from_store);
    CHECK_OK(fa_get_best_kernel(f.tuner, &request.problem, FA_EFFORT_CACHED, &kernel, &diag), diag);
    CHECK_INT(fa_kernel_answer(kernel)->origin, FA_ORIGIN_MEASURED);
    fa_problem neighbour = of_length(134);
    CHECK_OK(fa_get_best_kernel(f.tuner, &neighbour, FA_EFFORT_CACHED, &kernel, &diag), diag);
    CHECK_INT(fa_kernel_answer(kernel)->from_problem.seq_q, 128);
}

/* 129 rows are two tiles of 128 or three of 64: with many heads for each SM, of which device 1 has two,
 * the tile that is a little slower at 128 leaves less of its rows empty. */
ENGINE_TEST(another_config_of_the_bucket_answers_where_its_tiles_fit_better)
{
    const fa_kernel *kernel;
    fa_answer at_bucket = {.size = sizeof at_bucket}, answer = {.size = sizeof answer};
    fa_problem bucket = small_problem, problem;
    int32_t rows = 0;
    bucket.heads_q = bucket.heads_kv = 16;
    problem = bucket;
    problem.seq_q = problem.seq_k = 129;
    CHECK(fixture_open(&f, "device name=NVIDIA_L40S sms=2 bus=384 clock=2520\n"
                            "time * 90\ntime BLOCK_M=128; 30\ntime BLOCK_M=64; 31"));
    CHECK(fixture_use_device(&f, 1));
    fa_request request = {.size = sizeof request, .problem = bucket, .ordinal = 1,
                          .effort = FA_EFFORT_MEASURE};
    CHECK_OK(fa_tune(f.tuner, &request, &at_bucket, &diag), diag);
    CHECK(fa_config_get(&at_bucket.trial.config, "BLOCK_M", &rows) && rows == 128);
    request.problem = problem;
    CHECK_OK(fa_tune(f.tuner, &request, &answer, &diag), diag);
    CHECK(fa_config_get(&answer.trial.config, "BLOCK_M", &rows) && rows == 64);
    CHECK_INT(answer.origin, FA_ORIGIN_NEAREST);
    CHECK_INT(answer.from_problem.seq_q, 128);
    CHECK_INT(answer.trial.grid[0] * answer.trial.grid[1] * answer.trial.grid[2], 16 * 3);
    CHECK_HAS(answer.why, "another config won");
    CHECK(strcmp(answer.cubin_key, at_bucket.cubin_key) != 0);
    CHECK_OK(fa_get_best_kernel(f.tuner, &problem, FA_EFFORT_CACHED, &kernel, &diag), diag);
    CHECK_TEXT(fa_kernel_answer(kernel)->cubin_key, answer.cubin_key);
    CHECK(launches_whole(&f, kernel, &problem, &diag));
    /* The bucket's own lengths keep its winner. */
    CHECK_OK(fa_get_best_kernel(f.tuner, &bucket, FA_EFFORT_CACHED, &kernel, &diag), diag);
    CHECK_TEXT(fa_kernel_answer(kernel)->cubin_key, at_bucket.cubin_key);
}

/* What was only probed, or in another race, was timed at another clock: it promises nothing. */
ENGINE_TEST(a_config_that_was_not_in_the_winners_race_is_no_alternative)
{
    fa_answer answer = {.size = sizeof answer};
    int32_t rows = 0;
    CHECK(fixture_open(&f, "device name=NVIDIA_L40S sms=2 bus=384 clock=2520\n"
                           "time * 90\ntime BLOCK_M=128; 30\ntime BLOCK_M=64; 31"));
    CHECK(fixture_use_device(&f, 1));
    fa_request request = small_request(NULL, FA_EFFORT_MEASURE);
    request.ordinal = 1;
    request.problem.heads_q = request.problem.heads_kv = 16;
    CHECK_OK(fa_tune(f.tuner, &request, &answer, &diag), diag);
    request.problem.seq_q = request.problem.seq_k = 129;
    CHECK_OK(fa_tune(f.tuner, &request, &answer, &diag), diag);
    CHECK(fa_config_get(&answer.trial.config, "BLOCK_M", &rows) && rows == 64);
    static const char *const otherwise_timed[] = {"raced = 0", "raced = 1, seed = seed + 1"};
    for (int i = 0; i < 2; i++) {
        char sql[256];
        snprintf(sql, sizeof sql,
                 "UPDATE trial SET %s, median_us = 10, low_us = 10 "
                 "WHERE status = 'measured' AND config LIKE '%%\"BLOCK_M\":64,%%'",
                 otherwise_timed[i]);
        CHECK(fixture_sql(&f, sql));
        CHECK_OK(fa_tune(f.tuner, &request, &answer, &diag), diag);
        CHECK_INT(answer.from_problem.seq_q, 128);
        CHECK(fa_config_get(&answer.trial.config, "BLOCK_M", &rows) && rows == 128);
    }
}

/* ---- the order of trust ---------------------------------------------------------------------*/
ENGINE_TEST(another_length_is_not_this_one_measured)
{
    const fa_kernel *kernel;
    fa_answer answer = {.size = sizeof answer};
    fa_problem near = of_length(192), query = small_problem;
    query.seq_q = 1;
    CHECK(fixture_open(&f, ""));
    CHECK_OK(tune_for(&f, NULL, small_problem, FA_EFFORT_MEASURE, &answer, &diag), diag);
    CHECK_INT(fa_get_best_kernel(f.tuner, &near, FA_EFFORT_CACHED, &kernel, &diag), FA_ENOTFOUND);
    CHECK_INT(fa_get_best_kernel(f.tuner, &query, FA_EFFORT_CACHED, &kernel, &diag), FA_ENOTFOUND);
    CHECK_OK(fa_get_best_kernel(f.tuner, &near, FA_EFFORT_MEASURE, &kernel, &diag), diag);
    CHECK_INT(fa_kernel_answer(kernel)->origin, FA_ORIGIN_MEASURED);
    CHECK(!fa_kernel_answer(kernel)->shortlist_only);
}

ENGINE_TEST(of_the_loaded_kernels_the_nearest_that_is_right_serves_and_no_store_is_read)
{
    const fa_kernel *kernel = NULL, *again;
    fa_problem longer = of_length(512), asked = of_length(640), unlike[3];
    asked.batch = 3;
    for (int i = 0; i < 3; i++)
        unlike[i] = asked;
    unlike[0].head_dim = 128;
    unlike[1].causal = FA_CAUSAL_BOTTOM_RIGHT;
    unlike[2].heads_q = 4;
    CHECK(fixture_open(&f, ""));
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_MEASURE, &kernel, &diag), diag);
    CHECK_OK(fa_get_best_kernel(f.tuner, &longer, FA_EFFORT_MEASURE, &kernel, &diag), diag);
    CHECK_INT(unlink(f.store), 0);
    CHECK_INT(fa_get_best_kernel(f.tuner, &asked, FA_EFFORT_CACHED, &kernel, &diag), FA_ENOTFOUND);
    CHECK_OK(fa_get_near_kernel(f.tuner, &asked, &kernel, &diag), diag);
    CHECK_INT(fa_kernel_answer(kernel)->origin, FA_ORIGIN_NEAREST);
    CHECK_INT(fa_kernel_answer(kernel)->from_problem.seq_q, 512);
    CHECK(launches_whole(&f, kernel, &asked, &diag));
    CHECK_OK(fa_get_near_kernel(f.tuner, &asked, &again, &diag), diag);
    CHECK(again == kernel);
    /* The bucket's own length, of which another one was loaded. */
    asked = of_length(130);
    CHECK_OK(fa_get_near_kernel(f.tuner, &asked, &kernel, &diag), diag);
    CHECK_INT(fa_kernel_answer(kernel)->from_problem.seq_q, 128);
    CHECK(launches_whole(&f, kernel, &asked, &diag));
    for (int i = 0; i < 3; i++) {
        CHECK_INT(fa_get_near_kernel(f.tuner, &unlike[i], &kernel, &diag), FA_ENOTFOUND);
        CHECK(strstr(diag.text, "loaded") != NULL);
    }
}

static const char two_devices[] = "device name=NVIDIA_L40S sms=142 bus=384 clock=2520";

ENGINE_TEST(another_gpus_winner_is_proved_here_before_it_is_launched)
{
    const fa_kernel *kernel;
    fa_answer first = {.size = sizeof first};
    CHECK(fixture_open(&f, two_devices));
    CHECK_OK(tune_for(&f, NULL, small_problem, FA_EFFORT_MEASURE, &first, &diag), diag);
    CHECK(fixture_use_device(&f, 1));
    CHECK_INT(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_CACHED, &kernel, &diag),
              FA_ENOTFOUND);
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_PREDICT, &kernel, &diag), diag);
    const fa_answer *answer = fa_kernel_answer(kernel);
    CHECK_INT(answer->origin, FA_ORIGIN_PREDICTED); /* nobody has timed it on this one */
    CHECK_INT(answer->proved, 1);
    CHECK(answer->driver_version > 0 && answer->trial.median_us == 0);
    CHECK(fa_config_equal(&answer->trial.config, &first.trial.config));
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_CACHED, &kernel, &diag), diag);
}

ENGINE_TEST(another_gpus_winner_that_fails_its_proof_here_gives_way_to_the_model)
{
    const fa_kernel *kernel;
    fa_answer first = {.size = sizeof first};
    CHECK(fixture_open(&f, two_devices));
    CHECK(fixture_restart(&f, "device name=NVIDIA_L40S sms=142 bus=384 clock=2520\n"
                              "time * 90\ntime BLOCK_M=64;BLOCK_N=32;STAGES=2 30"));
    CHECK_OK(tune_for(&f, NULL, small_problem, FA_EFFORT_MEASURE, &first, &diag), diag);
    CHECK(fixture_restart(&f, "device name=NVIDIA_L40S sms=142 bus=384 clock=2520\n"
                              "fault BLOCK_M=64;BLOCK_N=32;STAGES=2 wrong"));
    CHECK(fixture_use_device(&f, 1));
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_PREDICT, &kernel, &diag), diag);
    CHECK_INT(fa_kernel_answer(kernel)->origin, FA_ORIGIN_PREDICTED);
    CHECK(!fa_config_equal(&fa_kernel_answer(kernel)->trial.config, &first.trial.config));
}

/* The RTX 5090 was tuned last, and its winner fits, too. */
ENGINE_TEST(the_nearest_gpu_is_of_the_same_major_architecture)
{
    const fa_kernel *kernel;
    fa_answer answer[3] = {{.size = sizeof *answer}, {.size = sizeof *answer}};
    CHECK(fixture_open(&f, "device name=NVIDIA_A10 sm=86 sms=72 bus=384 clock=1695\n"
                           "device name=NVIDIA_RTX_5090 sm=120 sms=170 bus=512 clock=2407"));
    for (int32_t ordinal = 1; ordinal <= 2; ordinal++) {
        fa_request request = {.size = sizeof request,
                              .problem = small_problem,
                              .ordinal = ordinal,
                              .effort = FA_EFFORT_MEASURE,
                              .strategy = "random",
                              .evaluations = 1 + 2 * ordinal}; /* nothing else compiles for these */
        answer[ordinal].size = sizeof *answer;
        CHECK_OK(fa_tune(f.tuner, &request, &answer[ordinal], &diag), diag);
        CHECK_INT(answer[ordinal].origin, FA_ORIGIN_MEASURED);
    }
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_PREDICT, &kernel, &diag), diag);
    CHECK(fa_config_equal(&fa_kernel_answer(kernel)->trial.config, &answer[1].trial.config));
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels in the caller's context: hits, launches and their refusals, and what other boards are served.
 */
#include "engine_fixture.h"

#include <malloc.h>

ENGINE_TEST(a_hit_returns_the_same_kernel_without_a_new_tune)
{
    const fa_kernel *first, *second;
    CHECK(fixture_open(&f, ""));
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_MEASURE, &first, &diag), diag);
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_MEASURE, &second, &diag), diag);
    CHECK(first == second);
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_CACHED, &second, &diag), diag);
    CHECK(first == second);
    CHECK_INT(fa_kernel_answer(first)->origin, FA_ORIGIN_MEASURED);
}

/* A device reset, or the last owner's release: the driver makes the next context at the same address. */
ENGINE_TEST(a_context_made_anew_gets_kernels_of_its_own)
{
    const fa_kernel *first, *second, *third;
    fa_device_ptr tensor = 0;
    CHECK(fixture_open(&f, ""));
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_PREDICT, &first, &diag), diag);
    void *context = current_context(f.driver);
    drop_context(f.driver, 0);
    CHECK_OK(hold_context(f.driver, 0, &diag), diag);
    CHECK(current_context(f.driver) == context);
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_PREDICT, &second, &diag), diag);
    CHECK(second != first);
    CHECK_OK(fa_device_alloc(f.driver, 4 << 16, &tensor, &diag), diag);
    fa_attn_args args = {.size = sizeof(fa_attn_args), .q = (void *)tensor, .k = (void *)(tensor + (1 << 16)),
                         .v = (void *)(tensor + (2 << 16)), .o = (void *)(tensor + (3 << 16))};
    CHECK_OK(fa_launch(second, &args, NULL, &diag), diag);
    CHECK_INT(fa_launch(first, &args, NULL, &diag), FA_ECUDA);
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_PREDICT, &third, &diag), diag);
    CHECK(third == second);
    fa_device_free(f.driver, &tensor);
}

/* Decoding asks for a new length at every token. */
ENGINE_TEST(lengths_of_one_bucket_share_a_cubin_and_the_answer)
{
    enum { FIRST = 994, LENGTHS = 56, WARM = 8 }; /* the bucket of 1024 keys */
    const fa_kernel *kernel[LENGTHS];
    size_t before = 0;
    CHECK(fixture_open(&f, ""));
    for (int i = 0; i < LENGTHS; i++) {
        fa_problem problem = small_problem;
        problem.seq_k = FIRST + i;
        before = i == WARM ? mallinfo2().uordblks : before;
        CHECK_OK(fa_get_best_kernel(f.tuner, &problem, FA_EFFORT_PREDICT, &kernel[i], &diag), diag);
    }
    CHECK(mallinfo2().uordblks <= before + (LENGTHS - WARM) * 1000);
    for (int i = 0; i < LENGTHS; i++) {
        const fa_answer *answer = fa_kernel_answer(kernel[i]);
        CHECK_INT(answer->problem.seq_k, FIRST + i);
        CHECK_INT(answer->origin, FA_ORIGIN_PREDICTED);
        CHECK_HAS(answer->why, "predicted");
        CHECK(answer->trial.grid[0] > 0 && answer->proved > 0);
        CHECK(fa_kernel_answer(kernel[i]) == answer);
        CHECK(i == 0 || strcmp(answer->cubin_key, fa_kernel_answer(kernel[0])->cubin_key) == 0);
    }
    char mine[40];
    snprintf(mine, sizeof mine, "pid=%d load ", (int)getpid());
    CHECK_INT(fixture_logged(&f, mine), 1);
}

ENGINE_TEST(bad_launches_are_refused_before_the_driver_sees_them)
{
    const fa_kernel *kernel;
    CHECK(fixture_open(&f, ""));
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_PREDICT, &kernel, &diag), diag);
    fa_attn_args good = {
        .size = sizeof(fa_attn_args), .q = (void *)0x1000, .k = (void *)0x2000, .v = (void *)0x3000, .o = (void *)0x4000};
    fa_attn_args args = good;
    args.q = NULL;
    CHECK_INT(fa_launch(kernel, &args, NULL, &diag), FA_EINVAL);
    args = good;
    args.k = (void *)0x2002;
    CHECK_FAILS(fa_launch(kernel, &args, NULL, &diag), FA_EALIGN, "unaligned");
    args = good;
    args.v_stride[0] = 8192, args.v_stride[1] = 4100, args.v_stride[2] = 65;
    CHECK_INT(fa_launch(kernel, &args, NULL, &diag), FA_EALIGN);
    static const int64_t beyond[] = {INT64_MAX, INT64_MIN, (int64_t)1 << 48,
                                     -((int64_t)1 << 48) - 8};
    for (int i = 0; i < 48; i++) {
        args = good;
        int64_t *strides[] = {args.q_stride, args.k_stride, args.v_stride, args.o_stride};
        strides[i / 12][i / 4 % 3] = beyond[i % 4];
        CHECK_FAILS(fa_launch(kernel, &args, NULL, &diag), FA_EINVAL, "2^48");
    }
    args = good;
    args.softmax_scale = (float)NAN;
    CHECK_INT(fa_launch(kernel, &args, NULL, &diag), FA_EINVAL);
    CHECK_INT(fa_launch(NULL, &good, NULL, &diag), FA_EINVAL);
}

ENGINE_TEST(an_empty_problem_launches_nothing_and_succeeds)
{
    const fa_kernel *kernel;
    fa_problem empty = small_problem;
    empty.batch = 0;
    CHECK(fixture_open(&f, ""));
    CHECK_OK(fa_get_best_kernel(f.tuner, &empty, FA_EFFORT_PREDICT, &kernel, &diag), diag);
    CHECK_OK(fa_launch(kernel, &(fa_attn_args){.size = sizeof(fa_attn_args)}, NULL, &diag), diag);
}

ENGINE_TEST(a_thread_without_a_context_gets_a_sentence)
{
    const fa_kernel *kernel;
    CHECK(fixture_open(&f, ""));
    drop_context(f.driver, 0);
    CHECK_FAILS(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_MEASURE, &kernel, &diag),
                FA_ENODEVICE, "context");
    CHECK_INT(hold_context(f.driver, 0, NULL), 0);
}

ENGINE_TEST(another_board_of_the_same_silicon_is_said_so)
{
    fa_request request = small_request(NULL, FA_EFFORT_MEASURE);
    fa_answer answer = {.size = sizeof answer};
    CHECK(fixture_open(&f, a_device));
    CHECK_OK(fa_tune(f.tuner, &request, &answer, &diag), diag);
    request.ordinal = 1;
    CHECK_OK(fa_tune(f.tuner, &request, &answer, &diag), diag);
    CHECK(answer.from_store);
    CHECK_INT(answer.origin, FA_ORIGIN_MEASURED_SAME_SILICON);
}

ENGINE_TEST(another_silicon_is_never_served_this_ones_winner)
{
    fa_request request = small_request(NULL, FA_EFFORT_MEASURE);
    fa_answer answer = {.size = sizeof answer};
    CHECK(fixture_open(&f, "device name=NVIDIA_L40S sms=142 bus=384"));
    CHECK_OK(fa_tune(f.tuner, &request, &answer, &diag), diag);
    request.ordinal = 1;
    request.effort = FA_EFFORT_CACHED;
    CHECK_INT(fa_tune(f.tuner, &request, &answer, &diag), FA_ENOTFOUND);
}

ENGINE_TEST(hostile_options_and_requests_are_refused)
{
    fa_tuner *tuner = NULL;
    fa_answer answer = {.size = sizeof answer};
    CHECK(fixture_open(&f, NULL));
    fa_options options = {.size = 1};
    CHECK_INT(fa_open(&options, &tuner, &diag), FA_EINVAL);
    CHECK_INT(fa_open(NULL, NULL, &diag), FA_EINVAL);
    fa_request request = {.size = 3};
    CHECK_INT(fa_tune(f.tuner, &request, &answer, &diag), FA_EINVAL);
    request = (fa_request){.size = sizeof request, .problem = small_problem, .gpu = "L5"};
    CHECK_FAILS(fa_tune(f.tuner, &request, &answer, &diag), FA_ENOTFOUND, "L5");
    request.gpu = "V100";
    CHECK_INT(fa_tune(f.tuner, &request, &answer, &diag), FA_ENOTSUP);
    request.gpu = NULL;
    request.effort = FA_EFFORT_MEASURE;
    CHECK_INT(fa_tune(f.tuner, &request, &answer, &diag), FA_ENODEVICE);
    request.gpu = "L4";
    request.problem.head_dim = 7;
    CHECK_INT(fa_tune(f.tuner, &request, &answer, &diag), FA_EINVAL);
}

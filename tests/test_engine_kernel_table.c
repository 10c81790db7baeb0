/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of kernels alone: many problems, newer kernels of a key, and lookups beside insertions.
 */
#include "check.h"

#include "kernel_table.h"

#include <malloc.h>
#include <pthread.h>

enum { CONTEXT = 7, MANY = 100000 };

static fa_problem problem_of(int length)
{
    return (fa_problem){
        .head_dim = 64, .batch = 1, .heads_q = 8, .heads_kv = 8, .seq_q = 1, .seq_k = length};
}

/* As a lookup makes it: of the problem's bucket, with a grid of its own. */
static fa_answer answer_of(const fa_problem *problem)
{
    fa_answer answer = {.problem = *problem,
                        .origin = FA_ORIGIN_NEAREST,
                        .entry = "attn_fwd",
                        .cubin_key = "key",
                        .why = "measured on this GPU"};
    answer.from_problem = problem_of(65536);
    answer.trial.grid[0] = (uint32_t)problem->seq_k;
    return answer;
}

static int insert(fa_kernel_table *table, int length, uint64_t context, fa_kernel **ret_kernel)
{
    fa_problem problem = problem_of(length);
    fa_answer answer = answer_of(&problem);
    fa_loaded *loaded = fa_kernel_table_loaded(table, context, &answer);
    if (loaded == NULL) {
        loaded = calloc(1, sizeof *loaded);
        if (loaded == NULL)
            return FA_ENOMEM;
        fa_kernel_table_keep(table, context, &answer, loaded);
    }
    int rc = fa_kernel_table_add(table, loaded, &problem, &answer, ret_kernel, &diag);
    return rc != 0 ? rc : fa_kernel_table_publish(table, *ret_kernel, &diag);
}

TEST(a_hundred_thousand_problems_are_found_and_small)
{
    fa_kernel_table table = {0};
    fa_kernel *kernel;
    size_t before = mallinfo2().uordblks, whole = mallinfo2().hblkhd;
    int wrong = 0;
    fa_problem absent = problem_of(MANY + 1);
    CHECK(fa_kernel_table_find(&table, &absent, CONTEXT) == NULL);
    for (int i = 1; i <= MANY; i++)
        CHECK_OK(insert(&table, i, CONTEXT, &kernel), diag);
    CHECK(mallinfo2().uordblks - before + mallinfo2().hblkhd - whole < 600 * (size_t)MANY);
    for (int i = 1; i <= MANY; i++) {
        fa_problem problem = problem_of(i);
        const fa_kernel *found = fa_kernel_table_find(&table, &problem, CONTEXT);
        wrong += found == NULL || found->problem.seq_k != i || found->call.grid[0] != (uint32_t)i;
        problem.operation = fa_operation_of(&problem);
        wrong += fa_kernel_table_find(&table, &problem, CONTEXT) != found;
        wrong += fa_kernel_table_find(&table, &problem, CONTEXT + 1) != NULL;
    }
    CHECK_INT(wrong, 0);
    CHECK(fa_kernel_table_find(&table, &absent, CONTEXT) == NULL);
    fa_kernel_table_free(&table);
    CHECK(fa_kernel_table_find(&table, &absent, CONTEXT) == NULL);
}

TEST(the_newest_kernel_of_a_key_is_found_and_the_older_stays)
{
    fa_kernel_table table = {0};
    fa_kernel *first, *other, *second;
    fa_problem problem = problem_of(100);
    CHECK_OK(insert(&table, 100, CONTEXT, &first), diag);
    CHECK_OK(insert(&table, 100, CONTEXT + 1, &other), diag);
    CHECK_OK(insert(&table, 100, CONTEXT, &second), diag);
    CHECK(fa_kernel_table_find(&table, &problem, CONTEXT) == second);
    CHECK(fa_kernel_table_find(&table, &problem, CONTEXT + 1) == other);
    CHECK_INT(fa_kernel_table_answer(first)->problem.seq_k, 100);
    fa_kernel_table_free(&table);
}

TEST(kernels_that_are_not_published_leave_nothing)
{
    enum { TIMES = 1000 };
    fa_kernel_table table = {0};
    fa_kernel *first, *kernel;
    fa_problem problem = problem_of(9);
    fa_answer answer = answer_of(&problem);
    CHECK_OK(insert(&table, 9, CONTEXT, &first), diag);
    fa_loaded *loaded = fa_kernel_table_loaded(&table, CONTEXT, &answer);
    size_t before = mallinfo2().uordblks;
    for (int i = 0; i < TIMES; i++) {
        CHECK_OK(fa_kernel_table_add(&table, loaded, &problem, &answer, &kernel, &diag), diag);
        fa_kernel_table_drop_newest(&table);
    }
    CHECK(mallinfo2().uordblks - before < sizeof *kernel * TIMES / 2);
    CHECK(fa_kernel_table_find(&table, &problem, CONTEXT) == first);
    fa_kernel_table_free(&table);
}

TEST(an_answer_is_the_kernels_own_in_every_field)
{
    fa_kernel_table table = {0};
    fa_kernel *kernel, *empty;
    CHECK_OK(insert(&table, 100, CONTEXT, &kernel), diag);
    CHECK_OK(insert(&table, 0, CONTEXT, &empty), diag);
    const fa_answer *answer = fa_kernel_table_answer(kernel);
    CHECK_INT(answer->problem.seq_k, 100);
    CHECK_INT(answer->from_problem.seq_k, 65536);
    CHECK_INT(answer->trial.grid[0], 100);
    CHECK_TEXT(answer->why, "measured on this GPU");
    CHECK_TEXT(answer->cubin_key, "key");
    CHECK_INT(fa_kernel_table_answer(empty)->problem.seq_k, 0); /* as the lookup had it */
    fa_kernel_table_free(&table);
}

static void *find_often(void *context)
{
    const fa_kernel_table *table = context;
    size_t wrong = 0;
    for (int round = 0; round < 20; round++) {
        for (int i = 1; i <= 5000; i++) {
            fa_problem problem = problem_of(i);
            const fa_kernel *found = fa_kernel_table_find(table, &problem, CONTEXT);
            wrong +=
                found != NULL &&
                (found->problem.seq_k != i ||
                 (i % 100 == 0 && fa_kernel_table_answer(found)->trial.grid[0] != (uint32_t)i));
        }
    }
    return (void *)wrong;
}

TEST(lookups_beside_insertions_see_whole_kernels)
{
    fa_kernel_table table = {0};
    pthread_t thread[2];
    for (int i = 0; i < 2; i++)
        CHECK_INT(pthread_create(&thread[i], NULL, find_often, &table), 0);
    for (int i = 1; i <= 5000; i++) {
        fa_kernel *kernel;
        CHECK_OK(insert(&table, i, CONTEXT, &kernel), diag);
    }
    for (int i = 0; i < 2; i++) {
        void *wrong = NULL;
        pthread_join(thread[i], &wrong);
        CHECK(wrong == NULL);
    }
    fa_kernel_table_free(&table);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of loaded kernels: many problems, few slots looked at, little memory.
 */
#include "check.h"

#include "effort.h"
#include "kernel_table.h"

enum { MANY = 100000 };

static fa_problem growing(int length)
{
    return (fa_problem){
        .head_dim = 128, .batch = 8, .heads_q = 32, .heads_kv = 8, .seq_q = 1, .seq_k = length};
}

static fa_answer answer_for(const fa_problem *problem)
{
    fa_answer answer = {
        .problem = *problem,
        .origin = FA_ORIGIN_NEAREST,
        .driver_version = 13000,
        .from_problem = {
            .head_dim = 128, .batch = 8, .heads_q = 32, .heads_kv = 8, .seq_q = 1, .seq_k = 4096}};
    snprintf(answer.cubin_key, sizeof answer.cubin_key, "%064d", 7);
    snprintf(answer.why, sizeof answer.why, "measured on this GPU for S %d", problem->seq_k % 3);
    answer.trial.grid[0] = (uint32_t)problem->seq_k;
    return answer;
}

static void a_hundred_thousand_problems_are_found_in_a_few_slots_and_300_bytes_each(void)
{
    fa_kernel_table *table = NULL;
    fa_diag diag;
    const fa_kernel *kernel;
    size_t most = 0;
    fa_loaded *loaded = calloc(1, sizeof *loaded);
    CHECK_OK(fa_kernel_table_new(&table, &diag), diag);
    loaded->context = 5;
    fa_kernel_table_keep(table, loaded);
    for (int i = 1; i <= MANY; i++) {
        fa_problem problem = growing(i);
        fa_answer answer = answer_for(&problem);
        CHECK_OK(fa_kernel_table_add(table, &problem, loaded, &answer, &kernel, &diag), diag);
    }
    for (int i = 1; i <= MANY; i++) {
        fa_problem problem = growing(i);
        kernel = fa_kernel_table_find(table, &problem, 5);
        CHECK(kernel != NULL && kernel->problem.seq_k == i);
        CHECK(fa_kernel_table_find(table, &problem, 6) == NULL);
    }
    CHECK(fa_kernel_table_bytes(table, &most) < (size_t)MANY * 400);
    printf("# %zu bytes each, %zu slots at most\n", fa_kernel_table_bytes(table, &most) / MANY,
           most);
    CHECK(most < 64);
    fa_kernel_table_free(&table);
}

static void each_kernel_tells_its_own_problem_grid_and_reason(void)
{
    fa_kernel_table *table = NULL;
    fa_diag diag;
    const fa_kernel *kernel[4];
    fa_loaded *loaded = calloc(1, sizeof *loaded);
    CHECK_OK(fa_kernel_table_new(&table, &diag), diag);
    loaded->context = 5;
    fa_kernel_table_keep(table, loaded);
    for (int i = 0; i < 4; i++) {
        fa_problem problem = growing(100 + i);
        fa_answer answer = answer_for(&problem);
        CHECK_OK(fa_kernel_table_add(table, &problem, loaded, &answer, &kernel[i], &diag), diag);
    }
    for (int i = 0; i < 4; i++) {
        const fa_answer *told = fa_kernel_answer(kernel[i]);
        fa_answer wanted = answer_for(&told->problem);
        CHECK_INT(told->problem.seq_k, 100 + i);
        CHECK_INT(told->trial.grid[0], 100 + i);
        CHECK_TEXT(told->why, wanted.why);
        CHECK_TEXT(told->cubin_key, wanted.cubin_key);
        CHECK(fa_kernel_answer(kernel[i]) == told);
    }
    fa_kernel_table_free(&table);
}

static void a_better_kernel_takes_the_place_of_its_key(void)
{
    fa_kernel_table *table = NULL;
    fa_diag diag;
    const fa_kernel *old, *new;
    fa_problem problem = growing(77);
    fa_answer answer = answer_for(&problem);
    fa_loaded *loaded = calloc(1, sizeof *loaded);
    CHECK_OK(fa_kernel_table_new(&table, &diag), diag);
    loaded->context = 5;
    fa_kernel_table_keep(table, loaded);
    answer.origin = FA_ORIGIN_PREDICTED;
    CHECK_OK(fa_kernel_table_add(table, &problem, loaded, &answer, &old, &diag), diag);
    answer.origin = FA_ORIGIN_MEASURED;
    CHECK_OK(fa_kernel_table_add(table, &problem, loaded, &answer, &new, &diag), diag);
    CHECK(fa_kernel_table_find(table, &problem, 5) == new);
    CHECK_INT(fa_kernel_answer(new)->origin, FA_ORIGIN_MEASURED);
    CHECK_INT(fa_kernel_answer(old)->origin,
              FA_ORIGIN_PREDICTED); /* the caller may still have it */
    fa_kernel_table_free(&table);
}

int main(void)
{
    TEST(a_hundred_thousand_problems_are_found_in_a_few_slots_and_300_bytes_each);
    TEST(each_kernel_tells_its_own_problem_grid_and_reason);
    TEST(a_better_kernel_takes_the_place_of_its_key);
    return check_done();
}

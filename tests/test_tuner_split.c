/* SPDX-License-Identifier: Apache-2.0
 *
 * The families for serving, the one that splits keys and the one for many queries, without a GPU: which problems they
 * take, what their launches depend on, and that the cost model knows when each pays.
 */
#include "family.h"
#include "tuner_fixture.h"

#include "catalogue.h"
#include "model.h"
#include "problem.h"

#define FAMILY "attn_fwd_splitkv_sm80"
#define PREFILL "attn_fwd_prefill_sm80"
#define HOPPER_PREFILL "attn_fwd_prefill_sm90a"

static fa_templates *templates;
static fa_family_list families;

static const fa_problem decode = {.dtype = FA_BF16,
                                  .head_dim = 128,
                                  .batch = 8,
                                  .heads_q = 32,
                                  .heads_kv = 8,
                                  .seq_q = 1,
                                  .seq_k = 8192};

static const fa_family *family_called(const char *name)
{
    for (int i = 0; i < families.count; i++)
        if (strcmp(families.family[i]->name, name) == 0)
            return families.family[i];
    return NULL;
}

static const fa_family *split_family(void)
{
    return family_called(FAMILY);
}

/* The family's survivors in a problem's space, the first in the model's order first. 0 on failure. */
static int survivors(const fa_problem *problem, const char *gpu_name, fa_space *ret_space,
                     int *order, int room)
{
    fa_diag diag = {{0}};
    fa_gpu gpu;
    int count = 0;
    *ret_space = (fa_space){0};
    if (fa_catalogue_find(gpu_name, &gpu, &diag) != 0 ||
        fa_space_enumerate(&(fa_task){&families, problem, &gpu}, ret_space, &diag) != 0) {
        printf("# %s\n", diag.text);
        return 0;
    }
    for (int i = 0; i < ret_space->count && count < room; i++) {
        fa_candidate *c = &ret_space->candidate[i];
        if (c->trial.status != FA_STATUS_PENDING)
            continue;
        fa_model_predict(c, problem, &gpu, &c->trial);
        order[count++] = i;
    }
    fa_model_rank(ret_space, order, count);
    return count;
}

enum { ROOM = 4096 };
static int order[ROOM];

static const char *first_choice(const fa_problem *problem, const char *gpu)
{
    static char name[FA_NAME_MAX];
    fa_space space;
    int count = survivors(problem, gpu, &space, order, ROOM);
    snprintf(name, sizeof name, "%s",
             count > 0 ? space.candidate[order[0]].trial.config.family : "");
    fa_space_free(&space);
    return name;
}

static void few_queries_and_many_keys_are_split_on_every_gpu_from_ampere_on(void)
{
    static const char *const gpus[] = {"A100 80GB", "L4", "H200", "B200", "RTX 5090"};
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++)
        CHECK_TEXT(first_choice(&decode, gpus[i]), FAMILY);
}

static void long_dense_queries_are_left_to_other_families(void)
{
    fa_problem problem = decode;
    fa_diag diag = {{0}};
    fa_gpu gpu;
    problem.seq_q = problem.seq_k = 4096;
    CHECK_OK(fa_catalogue_find("H200", &gpu, &diag), diag);
    CHECK_INT(fa_family_supports(split_family(), &problem, &gpu, &diag), FA_ENOTSUP);
    CHECK_HAS(diag.text, "it is for few queries");
    problem.varlen = 1, problem.lengths_k = FA_LENGTHS_CU_SEQLENS;
    CHECK_OK(fa_family_supports(split_family(), &problem, &gpu, &diag), diag);
}

#define ONE_QUERY(dim, ...) \
    {.head_dim = dim, .batch = 1, .heads_q = 1, .heads_kv = 1, .seq_q = 1, .seq_k = 64, __VA_ARGS__}

/* And then taken by the family for many queries, batch-invariant ones too. */
static void what_it_cannot_take_is_refused_with_the_reason(void)
{
    static const struct {
        fa_problem problem;
        const char *why;
    } refused[] = {
        {ONE_QUERY(64, .page = 8), "pages must hold a multiple of 16 keys"},
        {ONE_QUERY(64, .unaligned = 1), "copies are of 16 bytes"},
        {ONE_QUERY(96, .head_dim_v = 64), "head dims of the same kind"},
        {ONE_QUERY(96, .kv_dtype = FA_KV_FP8), "fp8 keys"},
    };
    fa_gpu gpu;
    fa_diag diag = {{0}};
    CHECK_OK(fa_catalogue_find("H200", &gpu, &diag), diag);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        fa_problem problem = refused[i].problem;
        CHECK_INT(fa_family_supports(split_family(), &problem, &gpu, &diag), FA_ENOTSUP);
        CHECK_HAS(diag.text, refused[i].why);
        problem.varlen = 1, problem.lengths_k = FA_LENGTHS_CU_SEQLENS; /* no more a dense one */
        CHECK_TEXT(first_choice(&problem, "H200"), PREFILL);
        problem.batch_invariant = 1;
        CHECK_TEXT(first_choice(&problem, "L4"), PREFILL);
    }
}

/* Sequences of 2,000 on average, of 8,192 at most. */
static fa_problem prefill(void)
{
    fa_problem problem = decode;
    problem.seq_q = 8192, problem.causal = FA_CAUSAL_BOTTOM_RIGHT, problem.varlen = 1;
    problem.lengths_k = FA_LENGTHS_CU_SEQLENS, problem.mean_q = problem.mean_k = 2000;
    return problem;
}

static void many_queries_go_to_the_family_for_them_on_every_gpu_from_ampere_on(void)
{
    static const char *const gpus[] = {"A100 80GB", "L4", "H200", "B200", "RTX 5090"};
    fa_problem problem = prefill();
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++)
        CHECK_TEXT(first_choice(&problem, gpus[i]), strcmp(gpus[i], "H200") == 0 ? HOPPER_PREFILL : PREFILL);
    problem.kv_dtype = FA_KV_FP8;
    CHECK_TEXT(first_choice(&problem, "H200"), HOPPER_PREFILL);
    problem.softcap = 1; /* whose polynomial's numbers the host computes, and a tile's scale is on the device */
    CHECK_TEXT(first_choice(&problem, "H200"), PREFILL);
}

/* What the family for many queries would take for a problem, by the model; 0: nothing. */
static double prefill_us(const fa_problem *problem)
{
    fa_space space;
    double us = 0;
    int count = survivors(problem, "H200", &space, order, ROOM);
    for (int i = 0; i < count && us <= 0; i++)
        if (strcmp(space.candidate[order[i]].trial.config.family, PREFILL) == 0)
            us = space.candidate[order[i]].trial.predicted_us;
    fa_space_free(&space);
    return us;
}

static void the_model_knows_mean_lengths_and_windows(void)
{
    fa_problem whole = prefill(), mean = whole, window = whole;
    whole.mean_q = whole.mean_k = 0;
    window.mean_q = window.mean_k = 0, window.window = 1, window.window_left = 511;
    double full_us = prefill_us(&whole), window_us = prefill_us(&window);
    CHECK(prefill_us(&mean) < full_us / 8); /* (2000 / 8192) squared is a seventeenth */
    CHECK(window_us > 0 && window_us < full_us / 4);
    window.causal = FA_CAUSAL_NONE, window.window_right = 512;
    CHECK(prefill_us(&window) > 1.3 * window_us && prefill_us(&window) < full_us / 2);
}

/* Whatever the batch: the order in which a sequence's keys are added up, and how they are cut. */
static void batch_invariant_configs_differ_in_nothing_that_bits_depend_on(void)
{
    static const char *const names[] = {"BLOCK_M", "BLOCK_N", "GROUPS"};
    int32_t seen[3] = {0}, parts = 0;
    for (int32_t batch = 1; batch <= 256; batch *= 16) {
        fa_problem problem = decode;
        fa_space space;
        problem.batch = batch, problem.lengths_k = FA_LENGTHS_SEQUSED, problem.batch_invariant = 1;
        int count = survivors(&problem, "H200", &space, order, ROOM);
        CHECK(count > 0);
        for (int i = 0; i < count; i++) {
            const fa_trial *trial = &space.candidate[order[i]].trial;
            CHECK_TEXT(trial->config.family, FAMILY);
            for (int n = 0; n < 3; n++) {
                int32_t value = 0;
                CHECK(fa_config_get(&trial->config, names[n], &value));
                CHECK(seen[n] == 0 || seen[n] == value);
                seen[n] = value;
            }
            CHECK(parts == 0 || (int32_t)trial->grid[1] == parts);
            parts = (int32_t)trial->grid[1];
        }
        fa_space_free(&space);
    }
}

/* 11 shares no factor with what is walked: each GPU, head dimension and so on comes as often. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { EACH = 11 };
#else
enum { EACH = 1 };
#endif

/* Of both families, with every head dimension's tile, and for each number of packed rows that a manifest tells apart. */
static void the_default_fits_wherever_the_family_serves(void)
{
    static const char *const gpus[] = {"A100 80GB", "L4", "H200"};
    static const int32_t head_dims[] = {32, 64, 96, 128, 192, 256, 512};
    static const int32_t queries[] = {1, 8, 16, 50, 500};
    fa_diag diag = {{0}};
    fa_gpu gpu;
    for (int i = 0; i < 3 * 7 * 5 * 4; i += EACH) {
        fa_problem problem = decode;
        fa_space space;
        problem.head_dim = head_dims[i / 3 % 7], problem.seq_q = queries[i / 21 % 5];
        problem.page = i / 210 ? 8 : 16, problem.lengths_k = FA_LENGTHS_SEQUSED;
        problem.batch_invariant = i / 105 % 2;
        int count = survivors(&problem, gpus[i % 3], &space, order, ROOM), fits = 0, serve = 0;
        CHECK_OK(fa_catalogue_find(gpus[i % 3], &gpu, &diag), diag);
        for (int j = 0; j < families.count; j++)
            serve += fa_family_supports(families.family[j], &problem, &gpu, NULL) == 0;
        for (int j = 0; j < count; j++)
            fits += space.candidate[order[j]].is_default;
        if (fits != serve)
            printf("# %s, head_dim %d, seq_q %d, page %d\n", gpus[i % 3], problem.head_dim,
                   problem.seq_q, problem.page);
        fa_space_free(&space);
        CHECK(serve > 0);
        CHECK_INT(fits, serve);
    }
}

/* One winner serves all lengths of its bucket: no requirement may come between two of them. */
static void lengths_of_one_bucket_have_the_same_space(void)
{
    static const int32_t ends[][2] = {{31, 33}, {62, 67}, {124, 135}, {248, 271}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        int count[2];
        for (int end = 0; end < 2; end++) {
            fa_problem problem = decode;
            fa_space space;
            problem.varlen = 1, problem.lengths_k = FA_LENGTHS_CU_SEQLENS, problem.heads_q = 8;
            problem.seq_q = ends[i][end];
            count[end] = survivors(&problem, "H200", &space, order, ROOM);
            fa_space_free(&space);
        }
        CHECK_INT(fa_length_bucket(ends[i][0]), fa_length_bucket(ends[i][1]));
        CHECK_INT(count[0], count[1]);
    }
}

int main(void)
{
    fa_diag diag = {{0}};
    if (fa_templates_open(NULL, &templates, &diag) != 0 ||
        fa_families_load(templates, NULL, &families, &diag) != 0 || split_family() == NULL) {
        printf("Bail out! %s\n", diag.text);
        return 1;
    }
    TEST(few_queries_and_many_keys_are_split_on_every_gpu_from_ampere_on);
    TEST(long_dense_queries_are_left_to_other_families);
    TEST(what_it_cannot_take_is_refused_with_the_reason);
    TEST(many_queries_go_to_the_family_for_them_on_every_gpu_from_ampere_on);
    TEST(the_model_knows_mean_lengths_and_windows);
    TEST(batch_invariant_configs_differ_in_nothing_that_bits_depend_on);
    TEST(lengths_of_one_bucket_have_the_same_space);
    TEST(the_default_fits_wherever_the_family_serves);
    fa_families_free(&families);
    fa_templates_close(&templates);
    return check_done();
}

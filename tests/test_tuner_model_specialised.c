/* SPDX-License-Identifier: Apache-2.0
 *
 * The cost model of warp-specialised kernels, on the built-in Hopper family: what measurements on an
 * H200 found must rank and be predicted so, and predictions move the right way.
 */
#include "tuner_fixture.h"

#include "catalogue.h"
#include "model.h"
#include "problem.h"

#define FAMILY "attn_fwd_sm90a"

static tuner_fixture built_in;

typedef struct tile {
    int32_t m, n, stages, q_stages, turns, persistent, blocks;
} tile;

static fa_problem square(int32_t batch, int32_t heads, int32_t length, int32_t head_dim, int causal)
{
    return (fa_problem){.causal = causal ? FA_CAUSAL_BOTTOM_RIGHT : FA_CAUSAL_NONE,
                        .head_dim = head_dim,
                        .batch = batch,
                        .heads_q = heads,
                        .heads_kv = heads,
                        .seq_q = length,
                        .seq_k = length};
}

static fa_config config_of(tile t)
{
    return (fa_config){.family = FAMILY,
                       .count = 7,
                       .tunable = {{"BLOCK_M", t.m},
                                   {"BLOCK_N", t.n},
                                   {"STAGES", t.stages},
                                   {"Q_STAGES", t.q_stages},
                                   {"PINGPONG", t.turns},
                                   {"PERSISTENT", t.persistent},
                                   {"MIN_BLOCKS", t.blocks}}};
}

/* NaN, which passes no comparison, when the manifest does not allow the tile. */
static double predict(tile t, const fa_problem *problem, const fa_gpu *gpu)
{
    fa_config config = config_of(t);
    static fa_candidate candidate;
    fa_diag diag = {{0}};
    if (fa_space_one(&(fa_task){&built_in.families, problem, gpu}, &config, &candidate, &diag) !=
            0 ||
        candidate.trial.status != FA_STATUS_PENDING)
        return NAN;
    fa_trial trial = {0};
    fa_model_predict(&candidate, problem, gpu, &trial);
    return trial.predicted_us;
}

/* Microseconds on an H200, median of 7 launches or more with a flushed L2. */
static const struct measured {
    int32_t batch, heads, length, head_dim, causal;
    tile t;
    double us;
} measured[] = {
    {4, 8, 512, 64, 0, {64, 128, 2, 1, 0, 0, 2}, 12.0},
    {32, 32, 512, 64, 0, {256, 64, 3, 2, 1, 1, 1}, 146.0},
    {32, 32, 512, 64, 1, {192, 128, 2, 2, 1, 1, 1}, 140.6},
    {8, 32, 2048, 64, 1, {256, 64, 3, 2, 1, 1, 1}, 281.5},
    {1, 32, 16384, 64, 0, {192, 128, 2, 2, 1, 1, 1}, 4058.7},
    {32, 16, 512, 128, 0, {128, 128, 2, 2, 1, 1, 1}, 122.2},
    {16, 16, 1024, 128, 1, {192, 64, 3, 2, 0, 1, 1}, 154.6},
    {4, 8, 4096, 128, 1, {192, 64, 2, 1, 1, 0, 1}, 207.9},
    {4, 16, 4096, 128, 1, {192, 80, 2, 1, 1, 0, 1}, 440.4},
    {2, 16, 8192, 128, 0, {192, 80, 2, 2, 1, 1, 1}, 1557.7},
    {32, 8, 512, 256, 0, {128, 64, 2, 1, 0, 1, 1}, 117.8},
    {4, 8, 4096, 256, 1, {128, 64, 2, 1, 1, 1, 1}, 378.9},
    {1, 8, 16384, 256, 0, {128, 64, 2, 1, 1, 1, 1}, 3138.8},
};

static void predictions_are_within_a_quarter_of_what_was_measured(void)
{
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++) {
        const struct measured *m = &measured[i];
        fa_problem problem = square(m->batch, m->heads, m->length, m->head_dim, m->causal);
        double ratio = predict(m->t, &problem, &gpu_h200) / m->us;
        CHECK(ratio > 0.8 && ratio < 1.25);
    }
}

/* The space of the problem, its survivors ranked. Returns their count; 0 on failure. */
static int rank_space(const fa_problem *problem, const fa_gpu *gpu, fa_space *ret_space,
                      int **ret_order)
{
    fa_diag diag = {{0}};
    int count = 0;
    *ret_order = NULL;
    *ret_space = (fa_space){0};
    if (fa_space_enumerate(&(fa_task){&built_in.families, problem, gpu}, ret_space, &diag) != 0)
        return 0;
    int *order = calloc((size_t)ret_space->count + 1, sizeof *order);
    for (int i = 0; order != NULL && i < ret_space->count; i++) {
        fa_candidate *candidate = &ret_space->candidate[i];
        if (candidate->trial.status != FA_STATUS_PENDING)
            continue;
        fa_model_predict(candidate, problem, gpu, &candidate->trial);
        order[count++] = i;
    }
    fa_model_rank(ret_space, order, count);
    *ret_order = order;
    return count;
}

/* A winner is the best of what was raced, or within 0.2% of it: of the problems with 32 heads in all
 * the whole space was, of the others the 2 to 7 configs that looked best. */
static void the_measured_winner_is_among_the_first_eight(void)
{
    static const struct {
        int32_t batch, heads, length, head_dim, causal;
        tile winner;
    } problems[] = {
        {4, 8, 512, 64, 0, {64, 128, 2, 1, 0, 0, 2}},
        {32, 32, 512, 64, 0, {256, 64, 3, 2, 1, 1, 1}},
        {16, 32, 1024, 64, 1, {256, 64, 3, 2, 0, 1, 1}},
        {2, 32, 8192, 64, 0, {192, 128, 2, 2, 1, 1, 1}},
        {32, 16, 512, 128, 0, {128, 128, 2, 2, 1, 1, 1}},
        {16, 16, 1024, 128, 1, {128, 128, 2, 2, 1, 1, 1}},
        {4, 16, 4096, 128, 0, {192, 80, 2, 2, 1, 1, 1}},
        {8, 16, 2048, 128, 1, {128, 128, 2, 2, 1, 1, 1}},
        {4, 8, 4096, 128, 1, {192, 64, 2, 2, 1, 1, 1}},
        {32, 8, 512, 256, 0, {128, 64, 2, 1, 1, 1, 1}},
        {4, 8, 4096, 256, 1, {128, 64, 2, 1, 0, 1, 1}},
        {1, 8, 16384, 256, 0, {128, 64, 2, 1, 1, 1, 1}},
    };
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        fa_problem problem = square(problems[i].batch, problems[i].heads, problems[i].length,
                                    problems[i].head_dim, problems[i].causal);
        fa_config winner = config_of(problems[i].winner);
        fa_space space;
        int *order = NULL, count = rank_space(&problem, &gpu_h200, &space, &order), at = 0;
        CHECK(count > 30);
        while (at < count && !fa_config_equal(&space.candidate[order[at]].trial.config, &winner))
            at++;
        CHECK(at < 8);
        free(order);
        fa_space_free(&space);
    }
}

/* Lets are any 32-bit number: the model reads some by name, of kernels that are specialised and of others. */
static void any_numbers_have_finite_predictions(void)
{
    static const char *const names[] = {
        "MIN_BLOCKS", "STAGES",  "PERSISTENT", "Q_STAGES",      "PINGPONG",     "D_TILE",
        "BLOCK_M",    "BLOCK_N", "WARPS",      "CONSUMER_REGS", "WARPS_PER_SM", "L2_SECTION_KB"};
    static const int32_t values[] = {INT32_MIN, -1, 0, 1, 4194304, INT32_MAX};
    static const int32_t lengths[] = {0, 1, 1023, INT32_MAX};
    fa_gpu unknown = {.sm = 90,
                      .sm_count = 1,
                      .smem_per_block = 65536,
                      .smem_per_sm = 65536,
                      .regs_per_sm = 65536,
                      .threads_per_sm = 1024,
                      .blocks_per_sm = 8};
    const fa_gpu *const gpus[] = {&gpu_h200, &unknown};
    for (size_t name = 0; name < sizeof names / sizeof *names; name++) {
        for (int value = 0; value < 6; value++) {
            for (int length = 0; length < 16; length++) {
                for (int shape = 0; shape < 24; shape++) {
                    fa_candidate c = {.trial = {.threads = shape % 3 * 512}, .let_count = 2};
                    c.trial.grid[0] = shape % 3 == 0 ? 0 : 1u << (shape % 3 * 15);
                    c.let[0] = (fa_tunable){"CONSUMER_REGS", 240};
                    c.let[0].name[0] = shape < 12 ? 'C' : 'x';
                    snprintf(c.let[1].name, sizeof c.let[1].name, "%s", names[name]);
                    c.let[1].value = values[value];
                    fa_problem problem = square(1, 1, lengths[length % 4], 64, shape / 3 % 2);
                    problem.seq_k = lengths[length / 4];
                    fa_trial trial = {0};
                    fa_model_predict(&c, &problem, gpus[shape / 6 % 2], &trial);
                    CHECK(isfinite(trial.predicted_us) && trial.predicted_us >= 0);
                }
            }
        }
    }
}

/* What an H200 could run of a problem, with its predictions: where they stand in the space, and how many. */
static void predict_all(const fa_problem *problem, fa_space *ret_space, int ret_order[FA_SPACE_MAX],
                        int *ret_count)
{
    fa_gpu gpu;
    fa_diag diag;
    int count = 0;
    CHECK_OK(fa_catalogue_find("H200", &gpu, &diag), diag);
    CHECK_OK(fa_space_enumerate(&(fa_task){&built_in.families, problem, &gpu}, ret_space, &diag),
             diag);
    for (int i = 0; i < ret_space->count; i++) {
        fa_candidate *candidate = &ret_space->candidate[i];
        if (candidate->trial.status != FA_STATUS_PENDING)
            continue;
        fa_model_predict(candidate, problem, &gpu, &candidate->trial);
        ret_order[count++] = i;
    }
    CHECK(count > 30);
    *ret_count = count;
}

/* A compile takes the longer the more keys a step has; the last to end decides when all is done. */
static void what_compiles_longest_is_compiled_first(void)
{
    fa_space space = {0};
    fa_problem problem = square(32, 32, 512, 64, 0);
    int order[FA_SPACE_MAX], count = 0;
    predict_all(&problem, &space, order, &count);
    fa_model_largest_first(&space, order, count);
    CHECK_INT(fa_model_tunable(&space.candidate[order[0]], "BLOCK_N", 0), 256);
    for (int i = 1; i < count; i++) {
        const fa_candidate *a = &space.candidate[order[i - 1]], *b = &space.candidate[order[i]];
        int32_t keys = fa_model_tunable(a, "BLOCK_N", 0), next = fa_model_tunable(b, "BLOCK_N", 0);
        CHECK(keys > next || (keys == next && a->trial.predicted_us <= b->trial.predicted_us));
    }
    fa_space_free(&space);
}

int main(void)
{
    fa_diag diag = {{0}};
    if (fixture_built_in(&built_in, &diag) != 0) {
        printf("Bail out! %s\n", diag.text);
        return 1;
    }
    TEST(predictions_are_within_a_quarter_of_what_was_measured);
    TEST(the_measured_winner_is_among_the_first_eight);
    TEST(any_numbers_have_finite_predictions);
    TEST(what_compiles_longest_is_compiled_first);
    fixture_free(&built_in);
    return check_done();
}

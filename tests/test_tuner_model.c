/* SPDX-License-Identifier: Apache-2.0
 *
 * The cost model: occupancy against hand calculations, and predictions that move the right way.
 */
#include "tuner_fixture.h"

#include "model.h"
#include "problem.h"

static fa_candidate candidate_of(int32_t m, int32_t n, int32_t stages, int32_t warps, int32_t head)
{
    fa_candidate c = {
        .trial = {.threads = warps * 32, .smem_bytes = m * head * 2 + stages * 4 * n * head},
        .estimated_registers = m / 16 / warps * (head / 2 + n / 2 + 8) + 32,
        .let_count = 1};
    const fa_config config = {.family = "f",
                              .count = 5,
                              .tunable = {{"BLOCK_M", m},
                                          {"BLOCK_N", n},
                                          {"STAGES", stages},
                                          {"WARPS", warps},
                                          {"Q_IN_REGS", 0}}};
    c.trial.config = config;
    snprintf(c.let[0].name, sizeof c.let[0].name, "D_TILE");
    c.let[0].value = head;
    return c;
}

static double predict(const fa_candidate *candidate, const fa_problem *problem, const fa_gpu *gpu)
{
    fa_trial trial = {0};
    fa_model_predict(candidate, problem, gpu, &trial);
    return trial.predicted_us;
}

static fa_problem square(int32_t batch, int32_t heads, int32_t length, int32_t head_dim,
                         fa_causal causal)
{
    return (fa_problem){.causal = causal,
                        .head_dim = head_dim,
                        .batch = batch,
                        .heads_q = heads,
                        .heads_kv = heads,
                        .seq_q = length,
                        .seq_k = length};
}

/* 2 (smem + 1,024) <= 102,400 on sm_89; Turing reserves nothing. Of 16,384 registers a scheduler has, a warp of 168 takes
 * 5,376: three of them, so twelve per SM. Warps get registers in units of 256. */
TEST(occupancy_is_what_shared_memory_threads_blocks_and_registers_allow)
{
    static const struct {
        const fa_gpu *gpu;
        int32_t threads, registers, smem, blocks;
    } rows[] = {{&gpu_l4, 128, 32, 50176, 2},    {&gpu_l4, 128, 32, 50177, 1},
                {&gpu_l4, 128, 32, 101376, 1},   {&gpu_l4, 128, 32, 101377, 0},
                {&gpu_h200, 128, 32, 115712, 2}, {&gpu_h200, 128, 32, 115713, 1},
                {&gpu_t4, 128, 32, 32768, 2},    {&gpu_t4, 128, 32, 65536, 1},
                {&gpu_l4, 32, 16, 0, 24},        {&gpu_l4, 1024, 16, 0, 1},
                {&gpu_t4, 128, 16, 0, 8},        {&gpu_t4, 32, 16, 0, 16},
                {&gpu_a100, 33, 16, 0, 32},      {&gpu_a100, 1025, 16, 0, 0},
                {&gpu_h200, 128, 168, 0, 3},     {&gpu_h200, 128, 169, 0, 2},
                {&gpu_h200, 128, 128, 0, 4},     {&gpu_h200, 128, 129, 0, 3},
                {&gpu_h200, 384, 168, 0, 1},     {&gpu_h200, 384, 169, 0, 0},
                {&gpu_h200, 128, 255, 0, 2},     {&gpu_h200, 128, 256, 0, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        CHECK_INT(fa_model_occupancy(rows[i].gpu, rows[i].threads, rows[i].registers, rows[i].smem),
                  rows[i].blocks);
}

/* No prediction claims more than the tensor cores or the memory can give. */
TEST(a_prediction_never_beats_the_hardware)
{
    static const fa_gpu *const gpus[] = {&gpu_t4, &gpu_a100, &gpu_l4, &gpu_h200};
    for (size_t g = 0; g < sizeof gpus / sizeof *gpus; g++) {
        for (int32_t m = 64; m <= 256; m *= 2) {
            fa_candidate c = candidate_of(m, 32, 1, m / 32, 64);
            fa_problem problem = square(16, 16, 2048, 64, FA_CAUSAL_NONE);
            double us = predict(&c, &problem, gpus[g]);
            CHECK(us * gpus[g]->tensor_tflops * 1e6 > fa_problem_work(&problem, "flops"));
            fa_problem decode = square(16, 16, 65536, 64, FA_CAUSAL_NONE);
            decode.seq_q = 1;
            double bytes = 2.0 * 16 * 16 * 65536 * 64 * 2;
            CHECK(predict(&c, &decode, gpus[g]) * gpus[g]->bandwidth_gbs * 1e3 >= bytes);
        }
    }
}

/* 1,000 causal rows of 32 heads fit 132 SMs at once; with 128 rows a block, an SM that gets rows
 * 1,000 and 500 has a third more to do than the mean. Measured on an H200: 64 rows win. */
TEST(a_causal_wave_lasts_as_long_as_its_fullest_sm)
{
    fa_problem causal = square(2, 16, 1000, 128, FA_CAUSAL_BOTTOM_RIGHT);
    fa_problem plain = square(2, 16, 1000, 128, FA_CAUSAL_NONE);
    fa_candidate small = candidate_of(64, 64, 3, 4, 128), large = candidate_of(128, 64, 2, 4, 128);
    CHECK(predict(&small, &causal, &gpu_h200) < predict(&large, &causal, &gpu_h200));
    CHECK(predict(&small, &plain, &gpu_h200) > predict(&large, &plain, &gpu_h200));
}

/* The same order whatever order the indices come in; equal predictions by text; misfits last. */
TEST(ranking_is_deterministic)
{
    enum { COUNT = 24 };
    static fa_candidate list[COUNT];
    static const int32_t blocks_n[] = {32, 64, 96, 128};
    for (int i = 0; i < COUNT; i++) {
        list[i] = candidate_of(64 << i % 2, blocks_n[i / 2 % 4], 1 + i / 8, 4, 64);
        fa_model_predict(&list[i], &problem_512, &gpu_h200, &list[i].trial);
    }
    list[5].trial.predicted_us = 0;
    list[7].trial.predicted_us = list[9].trial.predicted_us = list[11].trial.predicted_us = 1.5;
    fa_space space = {.candidate = list, .count = COUNT};
    int first[COUNT], order[COUNT];
    for (int i = 0; i < COUNT; i++)
        first[i] = i;
    fa_model_rank(&space, first, COUNT);
    unsigned seed = 12345;
    for (int round = 0; round < 50; round++) {
        memcpy(order, first, sizeof order);
        for (int i = COUNT - 1; i > 0; i--) {
            seed = seed * 1103515245u + 12345u;
            int j = (int)(seed >> 8) % (i + 1), swap = order[i];
            order[i] = order[j];
            order[j] = swap;
        }
        fa_model_rank(&space, order, COUNT);
        CHECK(memcmp(order, first, sizeof order) == 0);
    }
    CHECK_INT(first[COUNT - 1], 5);
    CHECK(list[first[0]].trial.predicted_us == 1.5 && list[first[2]].trial.predicted_us == 1.5);
    char a[FA_CONFIG_TEXT_MAX], b[FA_CONFIG_TEXT_MAX];
    fa_config_text(&list[first[0]].trial.config, a);
    fa_config_text(&list[first[1]].trial.config, b);
    CHECK(strcmp(a, b) < 0);
    for (int i = 4; i < COUNT - 1; i++)
        CHECK(list[first[i - 1]].trial.predicted_us <= list[first[i]].trial.predicted_us);
}

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

static double roofline(const fa_candidate *candidate, const fa_gpu *gpu, int32_t *ret_blocks)
{
    fa_problem problem = square(1, 1, 64, 64, FA_CAUSAL_NONE);
    fa_trial trial = candidate->trial;
    fa_roofline_predict(candidate, &problem, gpu, &trial);
    *ret_blocks = trial.blocks_per_sm;
    return trial.predicted_us;
}

TEST(a_launch_takes_as_long_as_its_fullest_sm)
{
    fa_candidate c = {.trial = {.threads = 128, .smem_bytes = 40000}, .estimated_registers = 32};
    fa_launch_shape *launch = &c.launches.at[0];
    double per_clock = 16.0 * gpu_h200.clock_mhz;
    int32_t sms = gpu_h200.sm_count, blocks;
    c.launches.count = 1;
    *launch = (fa_launch_shape){.threads = 128, .smem_bytes = 40000, .grid = {(uint32_t)sms, 1, 1}};
    CHECK(roofline(&c, &gpu_h200, &blocks) == 0); /* nobody said what it does */
    CHECK_INT(blocks, 5);
    launch->work[FA_WORK_EXPONENTIALS] = 1e9;
    double one = roofline(&c, &gpu_h200, &blocks), launched = one - 1e9 / sms / per_clock;
    CHECK(launched > 0 && launched < 10);
    launch->grid[0]++; /* the same work, of which an SM has two blocks */
    double two = roofline(&c, &gpu_h200, &blocks);
    CHECK(is_near(two, launched + 2e9 / (sms + 1) / per_clock));
    launch->grid[0] = 0;
    CHECK(is_near(roofline(&c, &gpu_h200, &blocks), launched));
}

/* Products of the manifest's numbers may overflow, and 0 steps of endless work are no number at all. */
TEST(work_beyond_numbers_predicts_nothing)
{
    fa_candidate c = {.trial = {.threads = 128, .smem_bytes = 40000}, .estimated_registers = 32};
    fa_launch_shape launch = {.threads = 128, .smem_bytes = 40000, .grid = {1000, 1, 1}};
    int32_t blocks;
    for (int i = FA_WORK_STEPS + 1; i < FA_WORKS; i++)
        for (int nan = 0; nan < 2; nan++) {
            c.launches = (fa_launches){.count = 1, .at = {launch}};
            c.launches.at[0].work[i == FA_WORK_BYTES ? FA_WORK_OPERATIONS : FA_WORK_BYTES] = 1e6;
            CHECK(roofline(&c, &gpu_h200, &blocks) > 0);
            c.launches.at[0].work[i] = nan ? (double)NAN : (double)INFINITY;
            double us = roofline(&c, &gpu_h200, &blocks);
            CHECK(isfinite(us) && us >= 0);
        }
}

/* Lets are any 32-bit number: the model reads some by name, of kernels that are specialised and of others. */
TEST(any_numbers_have_finite_predictions)
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
                    fa_problem problem =
                        square(1, 1, lengths[length % 4], 64, (fa_causal)(shape / 3 % 2));
                    problem.seq_k = lengths[length / 4];
                    fa_trial trial = {0};
                    fa_model_predict(&c, &problem, gpus[shape / 6 % 2], &trial);
                    CHECK(isfinite(trial.predicted_us) && trial.predicted_us >= 0);
                }
            }
        }
    }
}

/* What every built-in family promises: a default that fits every GPU in its range, every head. */
TEST(built_in_defaults_fit_everywhere)
{
    static const fa_gpu *const gpus[] = {&gpu_t4, &gpu_a100, &gpu_l4, &gpu_h200};
    tuner_fixture f;
    fa_diag diag = {{0}};
    CHECK_OK(fixture_built_in(&f, &diag), diag);
    for (int32_t at = 0; at < 4 * 32; at++) {
        fa_problem problem = problem_512;
        problem.head_dim = at / 4 * 8 + 8;
        problem.causal = at / 4 % 2 ? FA_CAUSAL_BOTTOM_RIGHT : FA_CAUSAL_NONE;
        const fa_task task = {&f.families, &problem, gpus[at % 4]};
        fa_space space = {0};
        CHECK_OK(fa_space_enumerate(&task, &space, &diag), diag);
        CHECK(space.default_index >= 0);
        for (int i = 0; i < space.count; i++)
            if (space.candidate[i].is_default)
                CHECK_TEXT(space.candidate[i].trial.reason, "");
        fa_space_free(&space);
    }
    fixture_free(&f);
}

/* And with every head dimension's tile of serving families, for each number of packed rows that a manifest tells apart. */
TEST(defaults_for_serving_fit_wherever_their_family_serves)
{
    static const fa_gpu *const gpus[] = {&gpu_a100, &gpu_l4, &gpu_h200};
    static const int32_t head_dims[] = {32, 64, 96, 128, 192, 256, 512};
    static const int32_t queries[] = {1, 8, 16, 50, 500};
    tuner_fixture f;
    fa_diag diag = {{0}};
    CHECK_OK(fixture_built_in(&f, &diag), diag);
    for (int i = 0; i < 3 * 7 * 5 * 4; i++) {
        fa_problem p = {.dtype = FA_BF16, .batch = 8, .heads_q = 32, .heads_kv = 8, .seq_k = 8192};
        int serve = 0;
        p.head_dim = head_dims[i / 3 % 7], p.seq_q = queries[i / 21 % 5];
        p.page = i / 210 ? 8 : 16, p.lengths_k = FA_LENGTHS_SEQUSED,
        p.batch_invariant = i / 105 % 2;
        const fa_task task = {&f.families, &p, gpus[i % 3]};
        for (int j = 0; j < f.families.count; j++) {
            fa_candidate one;
            if (fa_family_supports(f.families.family[j], &p, gpus[i % 3], NULL) != 0)
                continue;
            CHECK_OK(fa_space_default(&task, j, &one, &diag), diag);
            CHECK_TEXT(one.trial.reason, "");
            serve++;
        }
        CHECK(serve > 0);
    }
    fixture_free(&f);
}

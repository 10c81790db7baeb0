/* SPDX-License-Identifier: Apache-2.0
 *
 * The space: its order, the gates in their order, the budget to the byte, the default.
 */
#include "tuner_fixture.h"

#include "points.h"
#include "problem.h"

static tuner_fixture f;
static fa_space space;
static fa_diag diag;
static fa_task task;

static void end(void)
{
    fa_space_free(&space);
    fixture_free(&f);
}

/* The built-in families, or with `parts` that one, for a problem of 512 on an L4. */
static int start(const manifest_parts *parts)
{
    end();
    int rc = parts != NULL ? fixture_load(&f, parts, &diag) : fixture_built_in(&f, &diag);
    task = (fa_task){&f.families, &problem_512, &gpu_l4};
    return rc;
}

static int enumerate(const manifest_parts *parts)
{
    int rc = start(parts);
    return rc == 0 ? fa_space_enumerate(&task, &space, &diag) : rc;
}

static bool enumeration_fails(const manifest_parts *parts, int code, const char *one,
                              const char *two)
{
    int rc = enumerate(parts);
    bool ok = rc == code && strstr(diag.text, one) != NULL && strstr(diag.text, two) != NULL &&
              space.candidate == NULL;
    if (!ok)
        printf("# rc %d: \"%s\" should hold \"%s\" and \"%s\"\n", rc, diag.text, one, two);
    return ok;
}

/* An empty one, whose status is nobody's expectation, where the space lacks it. */
static const fa_candidate *find(int32_t block_m, int32_t block_n)
{
    static const fa_candidate none = {.trial = {.status = -1}};
    for (int i = 0; i < space.count; i++) {
        const fa_tunable *t = space.candidate[i].trial.config.tunable;
        if (t[0].value == block_m && t[1].value == block_n)
            return &space.candidate[i];
    }
    return &none;
}

/* The config with these blocks, of the small family with these parts. */
static fa_candidate candidate_of(const manifest_parts *parts, int block_m, int block_n)
{
    int rc = enumerate(parts);
    if (rc != 0)
        printf("# %s\n", diag.text);
    return rc == 0 ? *find(block_m, block_n) : (fa_candidate){0};
}

/* Whether it ends so, for that reason. */
static bool ends_as(const manifest_parts *parts, int block_m, int block_n, fa_status status,
                    const char *reason)
{
    fa_trial trial = candidate_of(parts, block_m, block_n).trial;
    bool right = trial.status == status && strcmp(trial.reason, reason) == 0;
    if (!right)
        printf("# %d: \"%s\" should be %d: \"%s\"\n", trial.status, trial.reason, status, reason);
    return right;
}

static void a_survivor_carries_its_launch_and_its_addends(void)
{
    fa_candidate c = candidate_of(&(manifest_parts){0}, 128, 32);
    CHECK_INT(c.trial.status, FA_STATUS_PENDING);
    CHECK_INT(c.trial.threads, 128);
    CHECK_INT(c.trial.grid[0], 4 * 8 * 4);
    CHECK_INT(c.trial.grid[1], 1);
    CHECK_INT(c.trial.grid[2], 1);
    CHECK_INT(c.addend_count, 2);
    CHECK_TEXT(c.addend[0].name, "q");
    CHECK_INT(c.addend[0].bytes, 128 * 128);
    CHECK_TEXT(c.addend[1].name, "kv");
    CHECK_INT(c.addend[1].bytes, 2 * 32 * 128);
    CHECK_INT(c.trial.smem_bytes, 128 * 128 + 2 * 32 * 128);
    CHECK_INT(c.estimated_registers, 32 + 16 + 24);
    CHECK_INT(c.let_count, 1);
    CHECK_TEXT(c.let[0].name, "ROW");
    CHECK_INT(c.let[0].value, 128);
}

static void a_config_ends_at_the_first_gate_that_it_does_not_pass(void)
{
    manifest_parts parts = {
        .constraints =
            "[{\"require\": \"BLOCK_M > 64\", \"is\": \"does-not-pay\", \"why\": \"taste\"},"
            "{\"require\": \"BLOCK_N > 64\", \"is\": \"registers\", \"why\": \"full\"},"
            "{\"require\": \"BLOCK_M + BLOCK_N < 256\", \"why\": \"never\"}]"};
    CHECK(ends_as(&(manifest_parts){0}, 64, 128, FA_STATUS_CONSTRAINT, "keys fit the rows"));
    CHECK(ends_as(&parts, 64, 128, FA_STATUS_DOES_NOT_PAY, "taste"));
    CHECK(ends_as(&parts, 64, 64, FA_STATUS_REGISTERS, "full"));
    CHECK(ends_as(&parts, 128, 128, FA_STATUS_CONSTRAINT, "never"));
    parts.constraints = "[{\"require\": \"0\", \"is\": \"does-not-pay\", \"why\": \"taste\"}]";
    parts.memory = "{\"all\": \"BLOCK_M * BLOCK_N * 1024\"}"; /* its numbers come first */
    CHECK(ends_as(&parts, 64, 64, FA_STATUS_BUDGET,
                  "needs 4,194,304 B = all 4,194,304; L4 allows 101,376"));
}

/* An expression may rely on the constraints: what they refuse is not evaluated further. */
static void a_refused_config_may_divide_by_zero(void)
{
    manifest_parts parts = {.lets = "{\"ROW\": \"HEAD_DIM * 2\", \"TILES\": \"BLOCK_M / BLOCK_N\"}",
                            .threads = "\"128 / TILES\"",
                            .constraints =
                                "[{\"require\": \"TILES > 0\", \"why\": \"at least one\"}]"};
    CHECK_OK(enumerate(&parts), diag);
    CHECK_INT(space.survivors, 5);
    parts.constraints = "[]";
    CHECK(enumeration_fails(&parts, FA_EMANIFEST, "block x has no value",
                            "{\"BLOCK_M\":64,\"BLOCK_N\":128}"));
}

/* 101,376 bytes fit an L4, one more does not; and the sentence adds up. */
static void the_budget_holds_to_the_byte(void)
{
    const manifest_parts parts = {
        .memory = "{\"q\": 32768, \"k\": \"BLOCK_N * 1000\", \"none\": 0,"
                  " \"v\": \"101376 - 32768 - BLOCK_N * 1000 + (0 if BLOCK_M == 64 else 1)\"}",
        .tunables = "{\"BLOCK_M\": [64, 128], \"BLOCK_N\": [32]}",
        .preset = "{\"BLOCK_M\": 64, \"BLOCK_N\": 32}"};
    CHECK(ends_as(&parts, 64, 32, FA_STATUS_PENDING, ""));
    CHECK_INT(candidate_of(&parts, 64, 32).trial.smem_bytes, 101376);
    CHECK(ends_as(&parts, 128, 32, FA_STATUS_BUDGET,
                  "needs 101,377 B = q 32,768 + k 32,000 + v 36,609; L4 allows 101,376"));
    char memory[2000] = "{";
    for (int i = 0; i < 12; i++) /* of a dozen long names it still ends in the limit */
        snprintf(memory + strlen(memory), 80,
                 "%s\"a_name_of_thirty_one_letters_%02d\": \"1099511627776\"", i == 0 ? "" : ",",
                 i);
    strcat(memory, "}");
    fa_trial trial = candidate_of(&(manifest_parts){.memory = memory}, 64, 32).trial;
    CHECK_INT(trial.status, FA_STATUS_BUDGET);
    CHECK_INT(trial.smem_bytes, INT32_MAX);
    CHECK_HAS(trial.reason, "needs 13,194,139,533,312 B = a_name");
    CHECK_HAS(trial.reason, "; L4 allows 101,376");
}

static void hopeless_registers_are_refused_with_numbers(void)
{
    const manifest_parts parts = {.registers = "\"192 + BLOCK_N - 1 if BLOCK_M == 64"
                                               " else 128 + BLOCK_N / 64\"",
                                  .threads = "\"128 if BLOCK_M == 64 else 512\"",
                                  .constraints = "[]"};
    CHECK(ends_as(&parts, 64, 64, FA_STATUS_PENDING, "")); /* 255 */
    CHECK(ends_as(&parts, 64, 128, FA_STATUS_REGISTERS,
                  "needs about 319 registers per thread: at most 255"));
    CHECK(ends_as(&parts, 128, 32, FA_STATUS_PENDING, "")); /* 512 * 128 = 65,536 */
    CHECK(ends_as(&parts, 128, 64, FA_STATUS_REGISTERS,
                  "needs about 512 threads x 129 registers = 66,048: a block has at most 65,536"));
}

static void impossible_launches_are_constraints(void)
{
    const manifest_parts parts = {.threads = "\"1025 if BLOCK_N == 32 else 1024\"",
                                  .registers = "0",
                                  .grid = "[1, 65535, \"65535 + BLOCK_M / 128\"]",
                                  .constraints = "[]"};
    CHECK(
        ends_as(&parts, 64, 32, FA_STATUS_CONSTRAINT, "1,025 threads: a block has at most 1,024"));
    CHECK(ends_as(&parts, 64, 64, FA_STATUS_PENDING, ""));
    CHECK_INT(candidate_of(&parts, 64, 64).trial.grid[2], 65535);
    CHECK(ends_as(&parts, 128, 64, FA_STATUS_CONSTRAINT, "the grid's z is 65,536: at most 65,535"));
}

static void results_that_are_not_integers_are_errors_with_a_sentence(void)
{
    CHECK(enumeration_fails(&(manifest_parts){.threads = "\"128 / (BLOCK_M - 64)\""}, FA_EMANIFEST,
                            "block x has no value", "divides by zero"));
    CHECK(enumeration_fails(&(manifest_parts){.memory = "{\"q\": \"9223372036854775807 +"
                                                        " BLOCK_M\"}"},
                            FA_EMANIFEST, "shared_memory q is beyond 64 bits", ""));
    CHECK(enumeration_fails(&(manifest_parts){.memory = "{\"q\": \"0 - BLOCK_M\"}"}, FA_EMANIFEST,
                            "shared_memory q is -64: must be 0 to", ""));
    CHECK(enumeration_fails(
        &(manifest_parts){.lets = "{\"ROW\": \"4294967296\"}", .memory = "{\"q\": 1}"},
        FA_EMANIFEST, "defines ROW is 4,294,967,296", ""));
    CHECK(enumeration_fails(&(manifest_parts){.threads = "0"}, FA_EMANIFEST, "block x is 0", ""));
    CHECK(enumeration_fails(&(manifest_parts){.grid = "[\"BLOCK_M - 65\", 1, 1]"}, FA_EMANIFEST,
                            "grid x is -1", ""));
    CHECK(enumeration_fails(&(manifest_parts){.threads = "\"abs(-9223372036854775807 - 1) +"
                                                         " BLOCK_M\""},
                            FA_EMANIFEST, "beyond 64 bits", "small.json"));
}

static void a_default_outside_the_domains_is_refused(void)
{
    CHECK(enumeration_fails(&(manifest_parts){.preset = "{\"BLOCK_M\": 64, \"BLOCK_N\": 48}"},
                            FA_EMANIFEST, "default BLOCK_N is 48", "not in its domain"));
    CHECK(enumeration_fails(&(manifest_parts){.preset = "{\"BLOCK_M\": \"1 / (SM - 89)\","
                                                        "\"BLOCK_N\": 64}"},
                            FA_EMANIFEST, "default BLOCK_M has no value", ""));
}

static void what_no_family_serves_is_not_supported_with_each_reason(void)
{
    CHECK(enumeration_fails(&(manifest_parts){.sm = "{\"min\": 75, \"max\": 86}"}, FA_ENOTSUP,
                            "small needs a GPU of sm_75 to sm_86; L4 is sm_89",
                            "no kernel family"));
    CHECK(enumeration_fails(&(manifest_parts){.supports = "[{\"require\": \"1\", \"why\": \"a\"},"
                                                          "{\"require\": \"SEQ_Q > 512\","
                                                          "\"why\": \"long ones only\"}]"},
                            FA_ENOTSUP, "small: long ones only", ""));
    CHECK(enumeration_fails(&(manifest_parts){.supports = "[{\"require\": \"1 / 0\","
                                                          "\"why\": \"a\"}]"},
                            FA_EMANIFEST, "supports[0] has no value", "small.json"));
}

static void a_default_that_does_not_fit_is_no_default_to_fall_back_on(void)
{
    CHECK_OK(enumerate(&(manifest_parts){.memory = "{\"q\": \"BLOCK_N * 2000\"}"}), diag);
    CHECK_INT(find(64, 64)->trial.status, FA_STATUS_BUDGET);
    CHECK(find(64, 64)->is_default);
    CHECK_INT(space.default_index, -1);
    CHECK_INT(space.survivors, 2);
}

/* What every built-in family promises: a default that fits every GPU in its range, every head. */
static void built_in_defaults_fit_everywhere(void)
{
    static const fa_gpu *const gpus[] = {&gpu_t4, &gpu_a100, &gpu_l4, &gpu_h200};
    CHECK_OK(start(NULL), diag);
    for (int32_t at = 0; at < 4 * 32; at++) {
        fa_problem problem = problem_512;
        problem.head_dim = at / 4 * 8 + 8;
        problem.causal = at / 4 % 2 ? FA_CAUSAL_BOTTOM_RIGHT : FA_CAUSAL_NONE;
        task = (fa_task){&f.families, &problem, gpus[at % 4]};
        fa_space_free(&space);
        CHECK_OK(fa_space_enumerate(&task, &space, &diag), diag);
        CHECK(space.default_index >= 0);
        for (int i = 0; i < space.count; i++)
            if (space.candidate[i].is_default)
                CHECK_TEXT(space.candidate[i].trial.reason, "");
    }
}

/* And with every head dimension's tile of serving families, for each number of packed rows that a manifest tells apart. */
static void defaults_for_serving_fit_wherever_their_family_serves(void)
{
    static const fa_gpu *const gpus[] = {&gpu_a100, &gpu_l4, &gpu_h200};
    static const int32_t head_dims[] = {32, 64, 96, 128, 192, 256, 512};
    static const int32_t queries[] = {1, 8, 16, 50, 500};
    CHECK_OK(start(NULL), diag);
    for (int i = 0; i < 3 * 7 * 5 * 4; i++) {
        fa_problem p = {.dtype = FA_BF16, .batch = 8, .heads_q = 32, .heads_kv = 8, .seq_k = 8192};
        int serve = 0;
        p.head_dim = head_dims[i / 3 % 7], p.seq_q = queries[i / 21 % 5];
        p.page = i / 210 ? 8 : 16, p.lengths_k = FA_LENGTHS_SEQUSED,
        p.batch_invariant = i / 105 % 2;
        task = (fa_task){&f.families, &p, gpus[i % 3]};
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
}

/* The number of a key or row inside the last tile, up to 256 beyond the end, must fit 32 bits. */
static void built_in_families_refuse_sequences_whose_last_tile_passes_32_bits(void)
{
    enum { LONGEST = INT32_MAX - 256 };
    static const fa_gpu *const gpus[] = {&gpu_t4, &gpu_l4, &gpu_h200};
    CHECK_OK(start(NULL), diag);
    for (size_t i = 0; i < 6; i++) {
        fa_problem problem = problem_512;
        int32_t *seq = i % 2 == 0 ? &problem.seq_k : &problem.seq_q;
        task = (fa_task){&f.families, &problem, gpus[i / 2]};
        *seq = LONGEST;
        fa_space_free(&space);
        CHECK_OK(fa_space_enumerate(&task, &space, &diag), diag);
        *seq = LONGEST + 1;
        fa_space_free(&space);
        CHECK_INT(fa_space_enumerate(&task, &space, &diag), FA_ENOTSUP);
        CHECK_HAS(diag.text, "at most 2,147,483,391");
    }
}

static void an_empty_problem_still_has_a_space(void)
{
    fa_problem empty = problem_512;
    empty.seq_q = 0;
    empty.batch = 0;
    CHECK_OK(start(&(manifest_parts){0}), diag);
    task.problem = &empty;
    CHECK_OK(fa_space_enumerate(&task, &space, &diag), diag);
    CHECK_INT(space.survivors, 5);
    CHECK_INT(space.candidate[0].trial.grid[0], 0);
}

/* A space beyond what is kept leaves out what breaks a constraint, and is not walked beneath it. */
static void of_a_large_space_what_holds_to_the_constraints_is_kept_or_counted(void)
{
    static const char decades[] = "[0,1,2,3,4,5,6,7,8,9]";
    static const char preset[] = "{\"BLOCK_M\": 64, \"BLOCK_N\": 64, \"T0\": 7, \"T1\": 7,"
                                 "\"T2\": 7, \"T3\": 7, \"T4\": 7, \"T5\": 7}";
    char tunables[1000] = "{\"BLOCK_M\": [64, 128], \"BLOCK_N\": [32, 64]";
    for (int i = 0; i < 6; i++)
        snprintf(tunables + strlen(tunables), 100, ", \"T%d\": %s", i, decades);
    strcat(tunables, "}");
    manifest_parts parts = {
        .tunables = tunables,
        .preset = preset,
        .lets = "{\"ROW\": \"HEAD_DIM * 2\", \"SUM\": \"T0 + T1 + T2\"}",
        .constraints =
            "[{\"require\": \"T0 != 6\", \"why\": \"d\"},{\"require\": \"SUM == 21\", \"why\": \"a\"},"
            "{\"require\": \"T3 <= T4 <= T5\", \"why\": \"b\"},"
            "{\"require\": \"100 / (T0 - 6) > 99\", \"why\": \"c\"}]"};
    int32_t t0 = 0, t5 = 0;
    CHECK_OK(enumerate(&parts), diag);
    for (int i = 0; i < space.count; i++) {
        const fa_config *config = &space.candidate[i].trial.config;
        int32_t value = 0;
        t0 += fa_config_get(config, "T0", &value) && value != 7;
        t5 += fa_config_get(config, "T5", &value) && value == 9;
    }
    /* T0 = 7 alone gives 100; T1 + T2 = 14 in 5 ways; 220 triples are in order, of which 55 end in 9. */
    CHECK_INT(space.count, 4 * 5 * 220);
    CHECK_INT(space.left_out, 4000000 - 4 * 5 * 220);
    CHECK_INT(t0, 0);
    CHECK_INT(t5, 4 * 5 * 55);
    CHECK(space.survivors > 0 && space.default_index >= 0);
    parts.constraints = "[{\"require\": \"SUM == 21\", \"why\": \"a\"}]";
    CHECK_OK(enumerate(&parts), diag);
    CHECK_INT(space.held, 112000); /* 28 of 1000 triples */
    CHECK(!space.about && space.candidate == NULL && space.count == 0);
}

/* 10^9 points, and a constraint that is known only with the last tunable: of many steps, of which few are taken. */
static void a_space_that_takes_too_long_is_estimated_or_stopped(void)
{
    char tunables[3000] = "{\"BLOCK_M\": [64, 128], \"BLOCK_N\": [32, 64]";
    char preset[300] = "{\"BLOCK_M\": 64, \"BLOCK_N\": 64";
    char sum[1000] = "T8 % 7 if T8 < 10 else 1";
    for (int i = 0; i < 60; i++)
        strcat(sum, "+(T8%7)");
    for (int i = 0; i < 9; i++) {
        char one[100];
        snprintf(one, sizeof one, ", \"T%d\": [0,1,2,3,4,5,6,7,8,9]", i);
        strcat(tunables, one);
        snprintf(one, sizeof one, ", \"T%d\": 0", i);
        strcat(preset, one);
    }
    strcat(tunables, "}");
    strcat(preset, "}");
    char constraints[1200];
    manifest_parts parts = {.tunables = tunables, .preset = preset, .constraints = constraints};
    snprintf(constraints, sizeof constraints, "[{\"require\": \"(%s) < 0\", \"why\": \"x\"}]", sum);
    CHECK(enumeration_fails(&parts, FA_EMANIFEST, "too long to walk", "small.json"));
    /* 0 and 7, of ten values */
    snprintf(constraints, sizeof constraints, "[{\"require\": \"(%s) == 0\", \"why\": \"x\"}]",
             sum);
    CHECK_OK(enumerate(&parts), diag);
    CHECK(space.about && space.count == 0);
    CHECK(space.held > 780000000 && space.held < 820000000);
}

static const manifest_parts walked = {
    .tunables = "{\"BLOCK_M\": [64, 128], \"BLOCK_N\": [32, 64, 128], \"DEPTH\": [1, 2, 4]}",
    .preset = "{\"BLOCK_M\": 64, \"BLOCK_N\": 64, \"DEPTH\": 2}",
    .constraints = "[{\"require\": \"BLOCK_N < BLOCK_M * DEPTH\", \"why\": \"a\"}]"};

/* Whatever the enumeration has for a config, and no more configs than it has. */
static void a_space_of_points_is_the_enumerated_one(void)
{
    fa_points *points = NULL;
    CHECK_OK(enumerate(&walked), diag);
    CHECK_OK(fa_points_open(&task, &points, &diag), diag);
    const fa_search_space *walk = fa_points_space(points);
    CHECK_INT(walk->dims, 3);
    CHECK_INT(walk->twos(walk->context, 0, 1), 7); /* BLOCK_M 128 */
    int exist = 0, same = 0;
    for (int32_t i = 0; i < 18; i++)
        exist += walk->valid(walk->context, (int32_t[]){i / 9, i / 3 % 3, i % 3});
    for (int i = 0; i < space.count; i++) {
        const fa_candidate *is = &space.candidate[i];
        int32_t at[FA_SEARCH_DIMS_MAX];
        fa_candidate found;
        CHECK_INT(fa_points_find(points, &is->trial.config, at),
                  is->trial.status == FA_STATUS_PENDING);
        if (is->trial.status != FA_STATUS_PENDING)
            continue;
        fa_points_candidate(points, at, &found);
        same += fa_config_equal(&found.trial.config, &is->trial.config) &&
                found.is_default == is->is_default &&
                found.trial.smem_bytes == is->trial.smem_bytes &&
                found.let_count == is->let_count &&
                memcmp(found.trial.grid, is->trial.grid, sizeof found.trial.grid) == 0;
    }
    fa_config preset = {.count = 0};
    CHECK(fa_points_default(points, 0, &preset));
    CHECK(fa_config_equal(&preset, &space.candidate[space.default_index].trial.config));
    CHECK(!fa_points_default(points, 1, &preset));
    preset.tunable[0].value = 63;
    CHECK(!fa_points_find(points, &preset, (int32_t[FA_SEARCH_DIMS_MAX]){0}));
    CHECK_INT(exist, space.survivors);
    CHECK_INT(same, space.survivors);
    fa_points_close(&points);
}

int main(void)
{
    TEST(a_survivor_carries_its_launch_and_its_addends);
    TEST(a_config_ends_at_the_first_gate_that_it_does_not_pass);
    TEST(a_refused_config_may_divide_by_zero);
    TEST(the_budget_holds_to_the_byte);
    TEST(hopeless_registers_are_refused_with_numbers);
    TEST(impossible_launches_are_constraints);
    TEST(results_that_are_not_integers_are_errors_with_a_sentence);
    TEST(a_default_outside_the_domains_is_refused);
    TEST(what_no_family_serves_is_not_supported_with_each_reason);
    TEST(a_default_that_does_not_fit_is_no_default_to_fall_back_on);
    TEST(built_in_defaults_fit_everywhere);
    TEST(defaults_for_serving_fit_wherever_their_family_serves);
    TEST(built_in_families_refuse_sequences_whose_last_tile_passes_32_bits);
    TEST(an_empty_problem_still_has_a_space);
    TEST(of_a_large_space_what_holds_to_the_constraints_is_kept_or_counted);
    TEST(a_space_that_takes_too_long_is_estimated_or_stopped);
    TEST(a_space_of_points_is_the_enumerated_one);
    end();
    return check_done();
}

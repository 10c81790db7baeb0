/* SPDX-License-Identifier: Apache-2.0
 *
 * Proving and timing as far as they need no device: statistics against values worked out by hand,
 * the cases against what they claim to cover, and the rule that a result passes by.
 */
#include "attn_fixture.h"
#include "check.h"

#include "op.h"
#include "spec.h"
#include "tensors.h"

/* ---- statistics -----------------------------------------------------------------------------*/
TEST(the_median_and_its_interval_are_the_order_statistics_of_the_binomial)
{
    /* Ranks of the 95% interval from the binomial distribution with p = 1/2: n = 6: 1 and 6;
     * n = 10: 2 and 9; n = 20: 6 and 15; n = 50: 18 and 33; n = 100: 40 and 61. */
    static const struct {
        int count, low, high;
    } known[] = {{6, 1, 6}, {8, 1, 8}, {9, 2, 8}, {10, 2, 9}, {20, 6, 15}, {50, 18, 33},
                 {100, 40, 61}};
    float samples[100];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        int n = known[i].count;
        double median, low, high;
        for (int j = 0; j < n; j++) /* ranks 1..n, from the last down */
            samples[j] = (float)(n - j);
        CHECK_INT(fa_samples_summary(samples, n, &median, &low, &high), 0);
        CHECK(median == (n + 1) / 2.0);
        CHECK_INT(low, known[i].low);
        CHECK_INT(high, known[i].high);
    }
}

TEST(fewer_than_six_samples_have_their_range_as_interval)
{
    const float samples[] = {3.0f, 1.0f, 5.0f, 2.0f, 9.0f};
    double median, low, high;
    CHECK_INT(fa_samples_summary(samples, 5, &median, &low, &high), 0);
    CHECK(median == 3 && low == 1 && high == 9);
    CHECK_INT(fa_samples_summary(samples, 2, &median, &low, &high), 0);
    CHECK(median == 2 && low == 1 && high == 3);
    CHECK_INT(fa_samples_summary(samples, 1, &median, &low, &high), 0);
    CHECK(median == 3 && low == 3 && high == 3);
}

TEST(samples_that_are_no_times_are_refused)
{
    const float bad[] = {NAN, INFINITY, 0.0f, -1.0f};
    double median = 7, low = 7, high = 7;
    for (int i = 0; i < 4; i++) {
        float samples[] = {1, 2, bad[i], 3, 4, 5, 6};
        CHECK_INT(fa_samples_summary(samples, 7, &median, &low, &high), FA_EINVAL);
    }
    CHECK_INT(fa_samples_summary(bad, 0, &median, &low, &high), FA_EINVAL);
    CHECK(median == 7 && low == 7 && high == 7);
}

/* Three kernels of 100, 101 and 102 us; in the third of five rounds the clock falls by a fifth, when
 * the fastest has yet to be launched and the others have been. */
TEST(what_a_round_does_to_all_does_not_decide_a_race)
{
    float race[3 * 5] = {100, 100, 120,    120,    120,    /* */
                         101, 101, 101,    121.2f, 121.2f, /* */
                         102, 102, 102,    122.4f, 122.4f};
    double median[3], low, high;
    for (int i = 0; i < 3; i++)
        CHECK_INT(fa_samples_summary(race + (ptrdiff_t)i * 5, 5, &median[i], &low, &high), 0);
    CHECK(median[0] > median[2]); /* as they are, the fastest comes last */
    fa_race_level(race, 3, 5);
    for (int i = 0; i < 3; i++)
        CHECK_INT(fa_samples_summary(race + (ptrdiff_t)i * 5, 5, &median[i], &low, &high), 0);
    CHECK(median[0] < median[1] && median[1] < median[2]);
    /* The rounds' geometric means are 101.0, 101.0, 107.3, 121.2 and 121.2: 107.3 is the level. */
    CHECK(median[0] > 106 && median[0] < 107);
    CHECK(median[2] / median[0] > 1.019 && median[2] / median[0] < 1.021);
}

/* ---- the rule of any operation ----------------------------------------------------------------*/
TEST(an_infinite_reference_is_met_by_the_same_infinity_alone)
{
    const fa_tensor_list list = {.ulps = 2, .absolute = 0.5};
    static const struct {
        double got, wanted;
        bool met;
    } known[] = {{INFINITY, INFINITY, true},  {-INFINITY, -INFINITY, true},
                 {-INFINITY, INFINITY, false}, {65504, INFINITY, false},
                 {0, -INFINITY, false},        {NAN, INFINITY, false},
                 {INFINITY, 1, false},         {NAN, NAN, false},
                 {1.5, 1, true},               {1.51, 1, false}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const fa_tolerance tolerance = fa_tensors_tolerance(&list, FA_ELEMENT_FP16);
        double allowed = NAN,
               error = fa_tolerance_error(&tolerance, 0, known[i].got, known[i].wanted,
                                          fabs(known[i].wanted), &allowed);
        CHECK_INT(error <= allowed, known[i].met);
    }
}

/* By the default of a specification, 42 ulps, of numbers about 1. */
TEST(the_default_tolerance_is_one_that_wrong_results_of_small_types_do_not_pass)
{
    static const struct {
        fa_element element;
        double passes, fails;
    } of[] = {{FA_ELEMENT_FP32, 1 + 9e-6, 1 + 1.1e-5},
              {FA_ELEMENT_FP16, 1.005, 1.007},
              {FA_ELEMENT_BF16, 1.04, 1.06},
              {FA_ELEMENT_FP8_E4M3, 1.125, 1.25},
              {FA_ELEMENT_FP8_E5M2, 1.25, 1.5},
              {FA_ELEMENT_COMPLEX64, 1 + 9e-6, 1 + 1.1e-5},
              {FA_ELEMENT_INT32, 1, 2},
              {FA_ELEMENT_BOOL, 1, 0}};
    const fa_tensor_list list = {.ulps = 42, .of_largest = 42, .absolute = 1e-30};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const fa_tolerance tolerance = fa_tensors_tolerance(&list, of[i].element);
        double allowed;
        CHECK(fa_tolerance_error(&tolerance, 1, of[i].passes, 1, 1, &allowed) <= allowed);
        CHECK(!(fa_tolerance_error(&tolerance, 1, of[i].fails, 1, 1, &allowed) <= allowed));
        CHECK(!(fa_tolerance_error(&tolerance, 1, NAN, 1, 1, &allowed) <= allowed));
    }
}

TEST(masks_count_from_the_last_key_unless_they_are_top_left)
{
    fa_problem p = some_problem();
    p.seq_q = 3;
    p.seq_k = 10;
    p.causal = FA_CAUSAL_NONE;
    CHECK_INT(fa_attn_causal_offset(&p), 7);
    p.causal = FA_CAUSAL_BOTTOM_RIGHT;
    CHECK_INT(fa_attn_causal_offset(&p), 7);
    p.causal = FA_CAUSAL_TOP_LEFT;
    CHECK_INT(fa_attn_causal_offset(&p), 0);
}

/* ---- cases ----------------------------------------------------------------------------------*/
TEST(cases_depend_on_problem_and_seed_alone)
{
    fa_problem problem = some_problem(), a[FA_BENCH_CASES], b[FA_BENCH_CASES];
    bool differs = false;
    CHECK_INT(fa_bench_cases(&problem, 5, a), FA_BENCH_CASES);
    CHECK_INT(fa_bench_cases(&problem, 5, b), FA_BENCH_CASES);
    for (int i = 0; i < FA_BENCH_CASES; i++)
        CHECK(fa_problem_equal(&a[i], &b[i]));
    fa_bench_cases(&problem, 6, b);
    CHECK(fa_problem_equal(&a[0], &b[0]));
    for (int i = 1; i < FA_BENCH_CASES; i++)
        differs = differs || !fa_problem_equal(&a[i], &b[i]);
    CHECK(differs);
}

TEST(cases_keep_the_cubin_and_cover_what_they_claim)
{
    fa_problem problem = some_problem();
    for (int kind = 0; kind < 4; kind++) {
        fa_attn_case cases[FA_BENCH_CASES];
        bool no_key_rows = false, one_key = false, one_query = false, no_key = false, gqa = false;
        bool layouts[2] = {false, false}, lse[2] = {false, false}, large = false, padded = false;
        problem.unaligned = kind % 2 == 1;
        problem.dtype = kind < 2 ? FA_FP16 : FA_BF16;
        fa_attn_cases(&problem, (uint64_t)kind, cases);
        CHECK(fa_problem_equal(&cases[0].problem, &problem));
        CHECK(cases[0].once);
        for (int i = 0; i < FA_BENCH_CASES; i++) {
            const fa_problem *p = &cases[i].problem;
            CHECK_OK(fa_problem_check(p, &diag), diag);
            CHECK(p->dtype == problem.dtype && p->causal == problem.causal &&
                  p->head_dim == problem.head_dim && p->unaligned == problem.unaligned);
            for (int t = 0; t < FA_ATTN_TENSORS; t++) {
                const fa_attn_tensor *x = &cases[i].tensor[t];
                bool aligned = (x->offset | x->stride[0] | x->stride[1] | x->stride[2]) % 8 == 0;
                CHECK(aligned == !problem.unaligned);
            }
            if (i == 0)
                continue;
            no_key_rows = no_key_rows || p->seq_q > p->seq_k;
            one_key = one_key || p->seq_k == 1;
            one_query = one_query || p->seq_q == 1;
            no_key = no_key || p->seq_k == 0;
            gqa = gqa || p->heads_q > p->heads_kv;
            large = large || cases[i].input_scale[FA_ATTN_Q] *
                                     cases[i].input_scale[FA_ATTN_K] >= 2000;
            padded = padded || cases[i].tensor[FA_ATTN_O].stride[2] % (unsigned)p->head_dim != 0;
            layouts[p->layout] = lse[p->want_lse] = true;
            CHECK(cases[i].all_rows && !cases[i].once);
        }
        CHECK(no_key_rows && one_key && one_query && no_key && gqa && large && padded);
        CHECK(layouts[0] && layouts[1] && lse[0] && lse[1]);
    }
}

/* The places of a tensor's elements by three loops, and as strides nest in any order. */
TEST(elements_lie_apart_and_nest_by_their_strides)
{
    static const uint64_t extent[] = {3, 2, 5, 7};
    static const uint64_t strides[][4] = {
        {70, 35, 7, 1}, {90, 45, 9, 1}, {80, 8, 16, 1}, {0, 8, 16, 1}};
    static const int levels[] = {4, 4, 4, 3};
    const fa_tensor tensor = {.element = FA_ELEMENT_FP16};
    for (size_t i = 0; i < sizeof strides / sizeof *strides; i++) {
        struct fa_proof_tensor of = {.count = 0};
        CHECK(fa_proof_lay(&tensor, extent, strides[i], 3, &of));
        uint64_t last = 0;
        for (int d = 0; d < 4; d++)
            last += (extent[d] - 1) * strides[i][d];
        CHECK_INT(of.place.first, 2048 + 3);
        CHECK(of.place.units >= of.place.first + last + 1 + 2048);
        CHECK_INT(of.place.levels, levels[i]);
        for (int l = 1; l < of.place.levels; l++)
            CHECK(strides[i][of.place.order[l]] < strides[i][of.place.order[l - 1]]);
    }
}

TEST(sizes_beyond_64_bits_are_noticed)
{
    fa_problem problem = some_problem();
    problem.batch = problem.seq_q = problem.seq_k = INT32_MAX;
    problem.heads_q = problem.heads_kv = 65535;
    problem.head_dim = 256;
    const uint64_t extent[] = {INT32_MAX, 65535, INT32_MAX, 256};
    const fa_tensor tensor = {.element = FA_ELEMENT_FP16};
    struct fa_proof_tensor of = {.count = 0};
    fa_attn_case cases[FA_BENCH_CASES];
    CHECK(!fa_proof_lay(&tensor, extent, (const uint64_t[]){(uint64_t)1 << 56, 1 << 30, 256, 1}, 0,
                        &of));
    fa_attn_cases(&problem, 1, cases);
    CHECK(!cases[0].all_rows);
}

TEST(sampled_rows_are_rows_and_hold_the_ends)
{
    enum { HEADS = 8 };
    int64_t rows[FA_PROVER_ROWS];
    for (int64_t seq = 1; seq < 3000; seq = seq * 3 + 1) {
        bool first = false, last = false;
        int64_t before = 0;
        fa_attn_sample_rows(HEADS, seq, 9, rows);
        for (int i = 0; i < FA_PROVER_ROWS; i++) {
            CHECK(rows[i] >= 0 && rows[i] < HEADS * seq);
            first = first || rows[i] == 0;
            last = last || rows[i] == HEADS * seq - 1;
            CHECK(rows[i] % seq >= before); /* in order of the keys that they see */
            before = rows[i] % seq;
        }
        CHECK(first && last);
    }
}

/* ---- the rule -------------------------------------------------------------------------------*/
TEST(a_tolerance_is_twice_the_plain_error_and_a_little_for_large_scores)
{
    fa_problem problem = some_problem();
    fa_attn_case c = fa_attn_case_packed(&problem);
    double o, lse, more, more_lse;
    fa_attn_tolerances(&c, 1e-3, 8, &o, &lse);
    CHECK(o > 2e-3 && o < 2.1e-3 && lse > 1e-5 && lse < 1e-4);
    fa_attn_tolerances(&c, 1e-3, 1e4, &more, &more_lse);
    CHECK(more > o + 1e-3 && more_lse > 1e-2);
}

/* Behind a softcap LSE is small; the scores that were rounded were not. */
TEST(roundings_in_front_of_a_softcap_are_allowed_for)
{
    fa_problem problem = some_problem();
    double o, lse;
    problem.softcap = 1, problem.want_lse = 1;
    fa_attn_case c = fa_attn_case_packed(&problem);
    fa_attn_tolerances(&c, 1e-3, 5, &o, &lse); /* scores of some units */
    CHECK(lse < 2e-4);
    c.input_scale[FA_ATTN_Q] = c.input_scale[FA_ATTN_K] = 50;
    fa_attn_tolerances(&c, 1e-3, 5, &o, &lse);
    CHECK(lse > 2e-4);
    c.problem.softcap = 0;
    fa_attn_tolerances(&c, 1e-3, 5, &o, &lse);
    CHECK(lse < 2e-4);
}

/* A window's sides stay away without a window, heads stay grouped, and the host makes the tensors in milliseconds. */
TEST(ragged_cases_of_an_operation_are_problems_like_it_and_small)
{
    static const char text[] =
        "{\"operation\": \"attn_bwd\", \"head_dim\": 128, \"batch\": 2, \"heads_q\": 12,"
        " \"heads_kv\": 3, \"seq_q\": 40, \"seq_k\": 700}";
    FA_ENDS(fa_json_end) cJSON *json = cJSON_Parse(text);
    fa_problem problem = {.head_dim = 0}, at[FA_BENCH_CASES];
    int rc = fa_problem_from_json(json, true, NULL, &problem, &diag);
    CHECK_OK(rc, diag);
    const fa_operation *operation = fa_operation_of(&problem);
    int heads = fa_operation_field_index(operation, "heads_q");
    int groups = fa_operation_field_index(operation, "heads_kv");
    int queries = fa_operation_field_index(operation, "seq_q");
    for (uint64_t seed = 0; seed < 100; seed++) {
        CHECK_INT(fa_generic_cases(&problem, seed, at), FA_BENCH_CASES);
        for (int i = 0; i < FA_BENCH_CASES; i++) {
            fa_tensor_list list;
            uint64_t elements = 0;
            CHECK_INT(at[i].value[heads], 4 * at[i].value[groups]);
            CHECK_OK(fa_tensors_read(&at[i], &list, &diag), diag);
            for (int t = 0; t < list.count; t++)
                elements += list.at[t].elements;
            CHECK((i == 0 || elements <= 1 << 20) && (i % 2 == 0 || at[i].value[queries] <= 40));
            fa_tensors_free(&list);
        }
    }
}

TEST(an_argument_of_a_feature_is_there_with_the_feature_alone)
{
    fa_tensor_list list;
    fa_tensor_values values = {.address = {0}};
    unsigned char params[FA_PARAMS_MAX];
    size_t size[2];
    for (int with = 0; with < 2; with++) {
        fa_problem problem = {.head_dim = 0};
        cJSON *json = cJSON_Parse("{\"operation\": \"attn_bwd\", \"seq_q\": 512}");
        cJSON_AddBoolToObject(json, "d_lse", with);
        int rc = fa_problem_from_json(json, false, NULL, &problem, &diag);
        cJSON_Delete(json);
        CHECK_OK(rc, diag);
        CHECK_OK(fa_tensors_read(&problem, &list, &diag), diag);
        size[with] = fa_tensors_params(&problem, &list, &values, params);
        fa_tensors_free(&list);
    }
    CHECK_INT((int)(size[1] - size[0]), (int)(3 * sizeof(uint64_t)));
}

TEST(a_number_that_is_computed_has_all_its_64_bits)
{
    static const char specification[] =
        "{\"kernel\": \"set\", \"sizes\": {\"n\": 100000001}, \"tune\": {}, \"block\": 1, "
        "\"grid\": 1, \"arguments\": [{\"name\": \"y\", \"type\": \"f32\", \"shape\": [1], "
        "\"is\": \"out\"}, {\"name\": \"m\", \"type\": \"i64\", \"value\": \"n * n\"}]}";
    const fa_operation *operation = NULL;
    fa_tensor_list list = {.count = 0};
    fa_tensor_values values = {.address = {0}};
    CHECK_OK(fa_spec_make("sent", specification,
                          "__global__ void set(float *y, long long m) { y[0] = m; }", &operation,
                          &diag),
             diag);
    const fa_problem problem = fa_problem_some(operation);
    CHECK_OK(fa_tensors_read(&problem, &list, &diag), diag);
    fa_tensors_scalars(&problem, &list, true, &values);
    CHECK(values.scalar[0].int64 == INT64_C(10000000200000001));
    fa_tensors_free(&list);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention as serving engines call it: sequences, pages and lists of a case, and numbers that a launch hands over.
 */
#include "attn_fixture.h"
#include "check.h"

static const fa_problem pages = {.head_dim = 64,
                                 .batch = 9,
                                 .heads_q = 4,
                                 .heads_kv = 2,
                                 .seq_q = 1,
                                 .seq_k = 300,
                                 .lengths_k = FA_LENGTHS_SEQUSED,
                                 .mean_k = 200,
                                 .layout = FA_BSHD,
                                 .page = 16,
                                 .sinks = 1,
                                 .window = 1,
                                 .window_left = 100,
                                 .window_right = -1};

TEST(sequences_keep_to_the_problem_and_to_its_mean)
{
    fa_problem p = pages;
    p.batch = 400;
    p.mean_k = 100;
    fa_attn_case cases[FA_BENCH_CASES];
    fa_attn_cases(&p, 7, cases);
    int64_t sum = 0;
    bool within = true;
    for (int32_t b = 0; b < p.batch; b++) {
        int32_t keys = fa_attn_length_k(&cases[0], b);
        within = within && keys >= 0 && keys <= p.seq_k;
        sum += keys;
    }
    CHECK(within);
    CHECK_INT(fa_attn_length_k(&cases[0], 0), 300);
    CHECK(sum > 85 * 400 && sum < 115 * 400);
    CHECK_INT(cases[0].total_k, sum);
    p.mean_k = 0;
    fa_attn_cases(&p, 7, cases);
    CHECK_INT(fa_attn_length_k(&cases[0], 399), 300);
    CHECK_INT(cases[0].num_pages, 400 * 19 + 3);
    static const char *const texts[] = {"score * log(q + 1)", "score + logits[h]"};
    for (int text = 0, before = 0; text < 2; text++) {
        CHECK_OK(fa_value_of_line(texts[text], &p.score, &diag), diag);
        fa_attn_cases(&p, 7, cases);
        for (int i = 1; i < FA_BENCH_CASES; i++)
            before += cases[i].problem.seq_q > cases[i].problem.seq_k && cases[i].problem.seq_k > 0;
        CHECK_INT(before > 0, text); /* queries before the first key have no logarithm */
    }
}

TEST(a_block_table_names_pages_of_its_sequence_alone_but_for_shared_ones)
{
    const fa_problem p = pages;
    fa_attn_case c = fa_attn_case_ragged(&p, 1, 3);
    fa_attn_lists lists = fa_attn_lists_plan(&c);
    int32_t *words = calloc(lists.words, sizeof *words), seen[400] = {0}, shared = 0, empty = 0;
    bool right = c.num_pages < 400;
    CHECK_OK(fa_attn_lists_fill(&c, &lists, words, &diag), diag);
    for (int32_t b = 0; b < p.batch; b++) {
        int32_t keys = fa_attn_length_k(&c, b);
        empty += keys == 0;
        right = right && words[lists.seqused_k + (size_t)b] == keys;
        for (int32_t i = 0; i < lists.table_stride; i++) {
            int32_t page = words[lists.block_table + (size_t)(b * lists.table_stride + i)];
            bool named = page >= 0 && page < c.num_pages;
            right = right && named == (i * p.page < keys);
            if (!named)
                continue;
            shared += seen[page]++ > 0;
            right = right && words[lists.used + (size_t)page] ==
                                 (keys - i * p.page < p.page ? keys - i * p.page : p.page);
        }
    }
    int32_t unused = 0;
    for (int32_t page = 0; page < c.num_pages; page++) {
        unused += seen[page] == 0;
        right = right && (seen[page] > 0 || words[lists.used + (size_t)page] == 0);
    }
    free(words);
    CHECK(right);
    CHECK(shared > 0 && unused >= 3 && empty > 0);
}

/* Copies are of 16 bytes: eight elements of fp16, sixteen of fp8. */
TEST(strides_of_fp8_keys_are_held_to_sixteen_bytes)
{
    fa_problem p = pages;
    p.page = 64;
    p.kv_dtype = FA_KV_FP8;
    p.layout = FA_BHSD;
    fa_call call = {.empty = false};
    for (int tensor = 0; tensor < 2; tensor++) {
        fa_attn_args args = {.size = sizeof args, .q = (void *)0x1000, .k = (void *)0x2000,
                             .v = (void *)0x3000, .o = (void *)0x4000};
        int64_t *stride = tensor == 0 ? args.k_stride : args.v_stride;
        stride[0] = 64 * 2 * 72;
        stride[1] = 64 * 72;
        stride[2] = 72;
        CHECK_FAILS(fa_attn_launcher.launch(&call, &p, &args, NULL, &diag), FA_EALIGN, "16 of fp8");
    }
}

/* ---- numbers that a launch hands over --------------------------------------------------------*/
/* In fp32 as a kernel takes it, beside the softcap itself; below its range a kernel relies on it to be less. */
TEST(a_softcaps_numbers_are_those_of_its_polynomial)
{
    static const float caps[] = {1, 30, 50, 1000};
    for (size_t i = 0; i < sizeof caps / sizeof *caps; i++) {
        struct fa_attn_serving_params p = {.dense = {.softmax_scale = 0.125f}};
        float per_score = 0.125f / caps[i];
        fa_attn_softcap_take(caps[i], &p);
        CHECK(p.softcap == caps[i]);
        for (int step = -4000; step <= 420; step++) {
            float x = (float)step / 1000 / per_score, y = x * x + p.cap_shift;
            double polynomial = (double)(x * p.cap_slope * (y * y + p.cap_rest));
            double right = log2(exp(1)) * (double)caps[i] * tanh((double)(x * per_score));
            if (step >= -420)
                CHECK(fabs(polynomial - right) <= 9e-6 * fabs(right));
            else
                CHECK(polynomial < right);
        }
    }
}

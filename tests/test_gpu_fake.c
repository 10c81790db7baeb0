/* SPDX-License-Identifier: Apache-2.0
 *
 * What the fake driver computes, against a computation of this file's own, and what loses its context: other tests rely
 * on both.
 */
#include "driver_fixture.h"
#include "fake_cuda_numbers.h"

#include <math.h>

static float element(const uint16_t *x, int64_t i, int bf16)
{
    return bf16 ? bf16_value(x[i]) : half_value(x[i]);
}

/* Straight from the definition, one element at a time. */
static double attention_element(const uint16_t *q, const uint16_t *k, const uint16_t *v, int bf16,
                                int visible, int d, double *ret_lse)
{
    double weights = 0, sum = 0;
    for (int j = 0; j < visible; j++) {
        double score = 0;
        for (int e = 0; e < D; e++)
            score += (double)element(q, e, bf16) * (double)element(k, j * D + e, bf16);
        double w = exp(0.25 * score);
        weights += w;
        sum += w * (double)element(v, j * D + d, bf16);
    }
    *ret_lse = log(weights);
    return visible == 0 ? 0 : sum / weights;
}

static void check_attention(int bf16, int causal_offset)
{
    static uint16_t q[B * HQ * SQ * D], k[B * HKV * SK * D], v[B * HKV * SK * D], o[ROWS * (D + 8)];
    static float lse[ROWS];
    struct tensors t;
    CHECK_OK(create(causal_offset, &t), diag);
    void *arguments[] = {&t.p};
    CHECK_OK(run("attn_fwd", MARKERS[bf16], arguments), diag);
    CHECK_OK(fa_copy_from_device(driver, q, t.q, sizeof q, &diag), diag);
    CHECK_OK(fa_copy_from_device(driver, k, t.k, sizeof k, &diag), diag);
    CHECK_OK(fa_copy_from_device(driver, v, t.v, sizeof v, &diag), diag);
    CHECK_OK(fa_copy_from_device(driver, o, t.o, sizeof o, &diag), diag);
    CHECK_OK(fa_copy_from_device(driver, lse, t.lse, sizeof lse, &diag), diag);
    for (int i = 0; i < ROWS; i++) {
        int s = i % SQ, h = i / SQ % HQ, b = i / SQ / HQ, kv = (b * HKV + h / (HQ / HKV)) * SK * D;
        int visible = !bf16 ? SK : s + causal_offset + 1;
        visible = visible > SK ? SK : visible < 0 ? 0 : visible;
        for (int d = 0; d < D; d++) {
            double wanted_lse, wanted = attention_element(q + i * D, k + kv, v + kv, bf16, visible,
                                                          d, &wanted_lse);
            CHECK(fabs((double)element(o, i * (D + 8) + d, bf16) - wanted) <=
                  (bf16 ? 4e-3 : 5e-4) * fmax(1, fabs(wanted)));
            CHECK(visible == 0 ? lse[i] == -INFINITY : fabs((double)lse[i] - wanted_lse) < 1e-5);
        }
    }
    destroy(&t);
}

static void the_fake_computes_attention(void)
{
    CHECK_OK(start(""), diag);
    for (int offset = -3; offset <= SK - SQ && !check_state.failed; offset++) {
        check_attention(0, offset);
        check_attention(1, offset); /* causal, with rows that see nothing */
    }
}

static void numbers_convert_as_the_hardware_does(void)
{
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        uint16_t h = (uint16_t)bits;
        float f = half_value(h), b = bf16_value(h);
        CHECK(isnan(f) || half_bits(f) == h);
        CHECK(isnan(b) || bf16_bits(b) == h);
    }
    CHECK_INT(half_bits(65519.0f), 0x7bff);
    CHECK_INT(half_bits(65520.0f), 0x7c00);
    CHECK_INT(half_bits(-1e10f), 0xfc00);
    CHECK_INT(half_bits(1.00048828125f), 0x3c00); /* half way: to even */
    CHECK_INT(half_bits(1.00146484375f), 0x3c02);
    CHECK_INT(half_bits(2.98023223876953125e-8f), 0x0000); /* half the smallest: to even */
    CHECK_INT(half_bits(2.9802326e-8f), 0x0001);
    CHECK_INT(half_bits(NAN), 0x7fff);
    CHECK_INT(bf16_bits(1.00390625f), 0x3f80);
    CHECK_INT(bf16_bits(1.01171875f), 0x3f82);
}

static void an_illegal_address_loses_the_context(void)
{
    struct tensors t;
    size_t free_bytes, total;
    CHECK_OK(start("fault BLOCK_M=128 illegal_address\n"), diag);
    CHECK_OK(create(0, &t), diag);
    void *arguments[] = {&t.p};
    run("attn_fwd", MARKERS[0], arguments);
    CHECK_INT(fa_stream_synchronize(driver, NULL, &diag), FA_ECUDA);
    CHECK(fa_driver_context_lost(driver));
    CHECK_INT(fa_driver_last_result(driver), 700);
    CHECK_INT(fa_stream_synchronize(driver, NULL, &diag), FA_ECUDA);
    CHECK_HAS(diag.text, "CUDA_ERROR_ILLEGAL_ADDRESS (700)");
    CHECK_INT(fa_device_memory(driver, &free_bytes, &total, &diag), FA_ECUDA);
}

static void a_kernel_that_reads_outside_its_tensors_is_caught(void)
{
    struct tensors t;
    CHECK_OK(start(""), diag);
    CHECK_OK(create(0, &t), diag);
    t.p.k_row_stride = D + 8; /* runs past the end of K */
    void *arguments[] = {&t.p};
    CHECK_OK(run("attn_fwd", MARKERS[0], arguments) == 0 ? 0 : fa_driver_last_result(driver) - 700,
             diag);
    CHECK_INT(fa_stream_synchronize(driver, NULL, &diag), FA_ECUDA);
    CHECK(fa_driver_context_lost(driver));
}

int main(void)
{
    if (!open_folder())
        return 1;
    TEST(numbers_convert_as_the_hardware_does);
    TEST(the_fake_computes_attention);
    TEST(an_illegal_address_loses_the_context);
    TEST(a_kernel_that_reads_outside_its_tensors_is_caught);
    close_folder();
    return check_done();
}

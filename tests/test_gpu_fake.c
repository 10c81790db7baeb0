/* SPDX-License-Identifier: Apache-2.0
 *
 * What the fake driver computes, against a computation of this file's own, and how it fails and keeps
 * time as its script says: other tests rely on it.
 */
#include "driver_fixture.h"
#include "fake_cuda_numbers.h"

#include <signal.h>
#include <sys/wait.h>

/* ---- tests: in children, before this process has opened anything -----------------------------*/

static int child_status(const char *lines, bool alarmed)
{
    use_script(lines);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        struct tensors t;
        fa_event event;
        void *arguments[] = {&t.p};
        if (start(lines) != 0 || create(MARKERS[0], 0, &t) != 0)
            _exit(1);
        if (run("attn_fwd", MARKERS[0], arguments) != 0)
            _exit(2);
        if (alarmed)
            alarm(1);
        if (fa_event_create(driver, &event, &diag) != 0 ||
            fa_event_record(driver, event, NULL, &diag) != 0)
            _exit(3);
        double us;
        _exit(fa_event_elapsed_us(driver, event, event, &us, &diag) == 0 ? 0 : 4);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return status;
}

static void a_crashing_kernel_ends_its_own_process(void)
{
    int status = child_status("fault family=tested crash\n", false);
    CHECK(WIFSIGNALED(status));
    CHECK_INT(WTERMSIG(status), SIGSEGV);
    status = child_status("fault family=other crash\n", false);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void a_hanging_kernel_never_synchronises(void)
{
    int status = child_status("fault BLOCK_M=128 hang\n", true);
    CHECK(WIFSIGNALED(status));
    CHECK_INT(WTERMSIG(status), SIGALRM);
}

/* ---- tests: what it computes ----------------------------------------------------------------*/

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
    CHECK_OK(create(MARKERS[bf16], causal_offset, &t), diag);
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

static void a_right_output_passes_every_check(void)
{
    for (int bf16 = 0; bf16 < 2; bf16++) {
        struct fa_attn_compare r;
        CHECK_OK(launch_and_judge("", MARKERS[bf16], &r), diag);
        CHECK(r.max_error > 0 && r.max_error <= 2 * r.max_error_lowp + 1e-4f);
        CHECK(r.max_error_lse < 1e-5f && r.max_magnitude_lse > 0.1f);
        CHECK_INT(r.nonfinite, 0);
        CHECK_INT(r.unwritten, 0);
        CHECK_INT(r.guard_damaged, 0);
    }
}

static void every_scripted_damage_shows_in_its_check(void)
{
    struct fa_attn_compare r;
    CHECK_OK(launch_and_judge("fault * wrong\n", MARKERS[0], &r), diag);
    CHECK(r.max_error > 0.9f);
    CHECK_OK(launch_and_judge("fault * nan\n", MARKERS[1], &r), diag);
    CHECK_INT(r.nonfinite, 2); /* seen by the comparison and by the scan */
    CHECK_OK(launch_and_judge("fault * unwritten\n", MARKERS[0], &r), diag);
    CHECK_INT(r.unwritten, D + 1);
    CHECK_OK(launch_and_judge("fault * overrun\n", MARKERS[0], &r), diag);
    CHECK_INT(r.guard_damaged, 2);
    CHECK_OK(launch_and_judge("fault family=other wrong\n", MARKERS[0], &r), diag);
    CHECK(r.max_error < 0.01f);
}

static void a_scripted_launch_failure_leaves_the_context_usable(void)
{
    struct fa_attn_compare r;
    CHECK_INT(launch_and_judge("fault BLOCK_M=128 launch_failure\n", MARKERS[0], &r), FA_ECUDA);
    CHECK_INT(fa_driver_last_result(driver), 701);
    CHECK(!fa_driver_context_lost(driver));
    CHECK_INT(launch_and_judge("fault BLOCK_M=128 out_of_memory\n", MARKERS[0], &r), FA_ECUDA);
    CHECK_INT(fa_driver_last_result(driver), 2);
    CHECK(!fa_driver_context_lost(driver));
    CHECK_OK(fa_stream_synchronize(driver, NULL, &diag), diag);
}

static void an_illegal_address_loses_the_context(void)
{
    struct fa_attn_compare r;
    size_t free_bytes, total;
    CHECK_INT(launch_and_judge("fault BLOCK_M=128 illegal_address\n", MARKERS[0], &r), FA_ECUDA);
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
    CHECK_OK(create(MARKERS[0], 0, &t), diag);
    t.p.k_row_stride = D + 8; /* runs past the end of K */
    void *arguments[] = {&t.p};
    CHECK_OK(run("attn_fwd", MARKERS[0], arguments) == 0 ? 0 : fa_driver_last_result(driver) - 700,
             diag);
    CHECK_INT(fa_stream_synchronize(driver, NULL, &diag), FA_ECUDA);
    CHECK(fa_driver_context_lost(driver));
}

static void faults_count_their_launches(void)
{
    struct tensors t;
    CHECK_OK(start("fault * launch_failure after=1 times=2\n"), diag);
    CHECK_OK(create(MARKERS[0], 0, &t), diag);
    void *arguments[] = {&t.p};
    const int expected[] = {0, FA_ECUDA, FA_ECUDA, 0};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        CHECK_INT(run("attn_fwd", MARKERS[0], arguments), expected[i]);
    CHECK_OK(start("fault BLOCK_M=64; load_failure\n"), diag);
    CHECK(load("attn_fwd", MARKERS[1], 89) == NULL);
    fa_module *module = load("attn_fwd", MARKERS[0], 89);
    CHECK(module != NULL);
    fa_module_unload(&module);
}

/* Times `count` launches by events. */
static int time_launches(const char *marker, double *samples, int count)
{
    struct tensors t;
    fa_event begin = NULL, end = NULL;
    fa_stream stream = NULL;
    fa_function function;
    const uint32_t grid[3] = {1, 1, 1};
    int rc = create(marker, 0, &t);
    fa_module *module = load("attn_fwd", marker, 89);
    void *arguments[] = {&t.p};
    rc |= module == NULL ? FA_ECUDA : fa_module_function(module, "attn_fwd", 0, &function, &diag);
    rc |= fa_stream_create(driver, &stream, &diag) | fa_event_create(driver, &begin, &diag) |
          fa_event_create(driver, &end, &diag);
    for (int i = 0; rc == 0 && i < count; i++) {
        rc |= fa_event_record(driver, begin, stream, &diag);
        rc |= fa_launch_kernel(driver, function, grid, (const uint32_t[]){128, 1, 1}, 0, stream,
                               arguments, &diag);
        rc |= fa_event_record(driver, end, stream, &diag);
        rc |= fa_event_elapsed_us(driver, begin, end, &samples[i], &diag);
    }
    fa_event_destroy(driver, &begin);
    fa_event_destroy(driver, &end);
    fa_stream_destroy(driver, &stream);
    fa_module_unload(&module);
    destroy(&t);
    return rc;
}

static void the_virtual_clock_follows_the_script(void)
{
    double samples[20], again[20];
    CHECK_OK(start("time family=tested 30\ntime BLOCK_M=128;BLOCK_N=64 40 # later lines win\n"),
             diag);
    CHECK_OK(time_launches(MARKERS[0], samples, 20), diag);
    for (int i = 0; i < 20; i++)
        CHECK(samples[i] >= 39.5 && samples[i] <= 40.5);
    CHECK(samples[0] != samples[1]); /* some jitter */
    CHECK_OK(time_launches(MARKERS[0], again, 20), diag);
    for (int i = 0; i < 20; i++)
        CHECK(fabs(samples[i] - again[i]) < 1e-3); /* the same jitter every time */
    CHECK_OK(time_launches(MARKERS[1], samples, 20), diag);
    CHECK(samples[0] > 29 && samples[0] < 31);
    CHECK_OK(start(""), diag);
    CHECK_OK(time_launches(MARKERS[0], samples, 1), diag);
    CHECK_OK(time_launches(MARKERS[1], again, 1), diag);
    CHECK(samples[0] > 40 && again[0] > samples[0]); /* made up: small tiles are slower */
}

static void launches_are_logged_with_pid_and_marker(void)
{
    char lines[400], wanted[200];
    struct fa_attn_compare r;
    remove(log_path);
    snprintf(lines, sizeof lines, "log %s\n", log_path);
    CHECK_OK(launch_and_judge(lines, MARKERS[0], &r), diag);
    FILE *file = fopen(log_path, "re");
    CHECK(file != NULL);
    snprintf(wanted, sizeof wanted, "pid=%d launch attn_fwd %s\n", (int)getpid(), MARKERS[0]);
    int found = 0;
    while (fgets(lines, sizeof lines, file) != NULL)
        found += strcmp(lines, wanted) == 0;
    fclose(file);
    CHECK_INT(found, 1);
}

int main(void)
{
    if (!open_folder())
        return 1;
    TEST(a_crashing_kernel_ends_its_own_process);
    TEST(a_hanging_kernel_never_synchronises);
    TEST(numbers_convert_as_the_hardware_does);
    TEST(the_fake_computes_attention);
    TEST(a_right_output_passes_every_check);
    TEST(every_scripted_damage_shows_in_its_check);
    TEST(a_scripted_launch_failure_leaves_the_context_usable);
    TEST(an_illegal_address_loses_the_context);
    TEST(a_kernel_that_reads_outside_its_tensors_is_caught);
    TEST(faults_count_their_launches);
    TEST(the_virtual_clock_follows_the_script);
    TEST(launches_are_logged_with_pid_and_marker);
    close_folder();
    return check_done();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver room against the fake driver, and on a real device where there is one. What the fake
 * computes is proved here too, against a computation of this file's own: other tests rely on it.
 *
 * FA_TEST_FAKE_CUDA names the fake library.
 */
#include "check.h"
#include "fake_cubin.h"
#include "fake_cuda_numbers.h"

#include "../kernel_templates/attn_check.h"
#include "../kernel_templates/attn_params.h"
#include "../src/gpu/driver.h"
#include "../src/gpu/nvml.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static fa_diag diag;
static char folder[200], script_path[256], log_path[256];
static fa_driver *driver;

/* Closes the driver of the test before, writes the script, and opens unless told otherwise. */
static void use_script(const char *lines)
{
    fa_driver_close(&driver);
    FILE *file = fopen(script_path, "we");
    if (file != NULL) {
        fputs(lines, file);
        fclose(file);
    }
    setenv("FAKE_CUDA_SCRIPT", script_path, 1);
    setenv("FA_TUNE_LIBCUDA", getenv("FA_TEST_FAKE_CUDA"), 1);
}

static int start(const char *lines)
{
    use_script(lines);
    int rc = fa_driver_open(&driver, &diag);
    return rc != 0 ? rc : fa_driver_retain_context(driver, 0, &diag);
}

/* ---- a problem on the fake -------------------------------------------------------------------*/

enum { B = 2, HQ = 4, HKV = 2, SQ = 5, SK = 7, D = 16, ROWS = B * HQ * SQ, GUARD = 64 };

static const char *const MARKERS[2] = {
    "family=tested;BLOCK_M=128;BLOCK_N=64;HEAD_DIM=16;DTYPE_BF16=0;CAUSAL=0;ALIGNED=1;",
    "family=tested;BLOCK_M=64;BLOCK_N=64;HEAD_DIM=16;DTYPE_BF16=1;CAUSAL=1;ALIGNED=1;"};

static fa_module *load(const char *entry, const char *marker, int sm)
{
    unsigned char bytes[FAKE_CUBIN_MAX];
    fa_module *module = NULL;
    fake_cubin c = {.sm = sm, .entry = entry, .registers = 64, .threads_x = 128, .marker = marker};
    size_t size = fake_cubin_build(&c, bytes);
    fa_module_load(driver, bytes, size, &module, &diag);
    return module;
}

/* Loads a cubin with just this entry and launches it. */
static int run(const char *entry, const char *marker, void **arguments)
{
    fa_function function;
    const uint32_t grid[3] = {4, 1, 1};
    fa_module *module = load(entry, marker, 89);
    if (module == NULL)
        return FA_ECUDA;
    int rc = fa_module_function(module, entry, 1024, &function, &diag);
    if (rc == 0)
        rc = fa_launch_kernel(driver, function, grid, 128, 1024, NULL, arguments, &diag);
    fa_module_unload(&module);
    return rc;
}

struct tensors {
    fa_device_ptr q, k, v, o, lse, rows, ref_o, ref_lse, lowp_o, result;
    struct fa_attn_params p;
};

static int fill_random(const char *marker, fa_device_ptr ptr, uint64_t count, uint64_t seed)
{
    float scale = 1;
    void *arguments[] = {&ptr, &count, &seed, &scale};
    return run("attn_fill", marker, arguments);
}

/* O has padded rows and is followed by a guard. */
static int create(const char *marker, int causal_offset, struct tensors *t)
{
    const size_t q = B * HQ * SQ * D, k = B * HKV * SK * D, o = ROWS * (D + 8);
    int rc = 0;
    *t = (struct tensors){0};
    rc |= fa_device_alloc(driver, q * 2, &t->q, &diag);
    rc |= fa_device_alloc(driver, k * 2, &t->k, &diag);
    rc |= fa_device_alloc(driver, k * 2, &t->v, &diag);
    rc |= fa_device_alloc(driver, o * 2 + GUARD, &t->o, &diag);
    rc |= fa_device_alloc(driver, ROWS * 4, &t->lse, &diag);
    rc |= fa_device_alloc(driver, ROWS * D * 4, &t->ref_o, &diag);
    rc |= fa_device_alloc(driver, ROWS * D * 4, &t->lowp_o, &diag);
    rc |= fa_device_alloc(driver, ROWS * 4, &t->ref_lse, &diag);
    rc |= fa_device_alloc(driver, sizeof(struct fa_attn_compare), &t->result, &diag);
    rc |= fill_random(marker, t->q, q, 1) | fill_random(marker, t->k, k, 2) |
          fill_random(marker, t->v, k, 3);
    rc |= fa_fill16(driver, t->o, FA_POISON_ELEMENT, o, NULL, &diag);
    rc |= fa_fill8(driver, t->o + (o - 8) * 2, FA_GUARD_BYTE, 16 + GUARD, NULL, &diag);
    rc |= fa_fill32(driver, t->lse, FA_POISON_LSE, ROWS, NULL, &diag);
    t->p = (struct fa_attn_params){
        .q = (void *)t->q, .k = (void *)t->k, .v = (void *)t->v, .o = (void *)t->o,
        .lse = (float *)t->lse,
        .q_batch_stride = HQ * SQ * D, .q_head_stride = SQ * D, .q_row_stride = D,
        .k_batch_stride = HKV * SK * D, .k_head_stride = SK * D, .k_row_stride = D,
        .v_batch_stride = HKV * SK * D, .v_head_stride = SK * D, .v_row_stride = D,
        .o_batch_stride = HQ * SQ * (D + 8), .o_head_stride = SQ * (D + 8), .o_row_stride = D + 8,
        .batch = B, .heads_q = HQ, .heads_kv = HKV, .seq_q = SQ, .seq_k = SK,
        .causal_offset = causal_offset, .softmax_scale = 0.25f, .softmax_scale_log2 = 0.36067376f,
    };
    return rc;
}

static void destroy(struct tensors *t)
{
    fa_device_ptr *const all[] = {&t->q, &t->k, &t->v, &t->o, &t->lse, &t->ref_o, &t->lowp_o,
                                  &t->ref_lse, &t->result};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        fa_device_free(driver, all[i]);
}

/* References, comparison, and the two scans of the whole output. */
static int judge(const char *marker, struct tensors *t, struct fa_attn_compare *ret)
{
    long long *rows = NULL;
    int row_count = ROWS, rc = fa_fill8(driver, t->result, 0, sizeof *ret, NULL, &diag);
    unsigned short poison = FA_POISON_ELEMENT;
    unsigned char expect = FA_GUARD_BYTE;
    fa_device_ptr guard = t->o + (ROWS * (D + 8) - 8) * 2;
    unsigned long long guard_bytes = 16 + GUARD;
    void *fp32[] = {&t->p, &rows, &row_count, &t->ref_o, &t->ref_lse};
    void *lowp[] = {&t->p, &rows, &row_count, &t->lowp_o, &t->ref_lse};
    void *compare[] = {&t->p, &rows, &row_count, &t->ref_o, &t->ref_lse, &t->lowp_o, &t->result};
    void *written[] = {&t->p, &poison, &t->result};
    void *guards[] = {&guard, &guard_bytes, &expect, &t->result};
    rc |= run("attn_ref_lowp", marker, lowp) | run("attn_ref_fp32", marker, fp32);
    rc |= run("attn_compare", marker, compare) | run("attn_check_written", marker, written);
    rc |= run("attn_check_guard", marker, guards);
    return rc | fa_copy_from_device(driver, ret, t->result, sizeof *ret, &diag);
}

/* Launches attn_fwd of this script once and judges it. */
static int launch_and_judge(const char *lines, const char *marker, struct fa_attn_compare *ret)
{
    struct tensors t;
    int rc = start(lines);
    if (rc == 0)
        rc = create(marker, SK - SQ, &t);
    void *arguments[] = {&t.p};
    if (rc == 0)
        rc = run("attn_fwd", marker, arguments);
    if (rc == 0)
        rc = judge(marker, &t, ret);
    return rc;
}

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

/* ---- tests: opening --------------------------------------------------------------------------*/

static void a_missing_library_gives_no_driver(void)
{
    use_script("");
    setenv("FA_TUNE_LIBCUDA", "/nowhere/libcuda.so.1", 1);
    CHECK_INT(fa_driver_open(&driver, &diag), FA_ENODRIVER);
    CHECK_HAS(diag.text, "/nowhere/libcuda.so.1");
    CHECK(driver == NULL);
    setenv("FA_TUNE_LIBCUDA", "libm.so.6", 1);
    CHECK_INT(fa_driver_open(&driver, &diag), FA_ENODRIVER);
    CHECK_HAS(diag.text, "cuInit");
}

static void a_machine_without_a_device_is_told_apart(void)
{
    use_script("no_device\n");
    CHECK_INT(fa_driver_open(&driver, &diag), FA_ENODEVICE);
    CHECK_HAS(diag.text, "no device");
    CHECK(driver == NULL);
    CHECK_INT(start(""), 0); /* the failure left nothing behind */
}

static void an_old_driver_is_refused_with_both_versions(void)
{
    use_script("driver 11080\n");
    CHECK_INT(fa_driver_open(&driver, &diag), FA_ENODRIVER);
    CHECK_HAS(diag.text, "CUDA 11.8");
    CHECK_HAS(diag.text, "12.0");
    CHECK_HAS(diag.text, "580");
    CHECK_OK(start("driver 12020\n"), diag);
    CHECK_INT(fa_driver_version(driver), 12020);
}

static void opening_twice_gives_the_same_driver_and_counts(void)
{
    fa_driver *second = NULL;
    CHECK_OK(start(""), diag);
    CHECK_OK(fa_driver_open(&second, &diag), diag);
    CHECK(second == driver);
    fa_driver_close(&second);
    CHECK(second == NULL);
    CHECK_INT(fa_driver_device_count(driver), 1);
    fa_driver_close(NULL);
}

static void devices_are_described_by_their_attributes(void)
{
    fa_gpu gpu;
    CHECK_OK(start("device\n"
                   "device name=NVIDIA_GeForce_RTX_4090 sms=128 l2=72M bus=384 clock=2520 "
                   "memclock=10501 memory=24G\n"
                   "device name=NVIDIA_H200 sm=90 sms=132 l2=60M bus=6016 clock=1980 "
                   "memclock=3201\n"), diag);
    CHECK_INT(fa_driver_device_count(driver), 3);
    CHECK_OK(fa_driver_device(driver, 0, &gpu, &diag), diag);
    CHECK_TEXT(gpu.name, "NVIDIA L4");
    CHECK_INT(gpu.sm, 89);
    CHECK_INT(gpu.sm_count, 58);
    CHECK_INT(gpu.smem_per_block, 101376);
    CHECK_INT(gpu.smem_reserved, 1024);
    CHECK_INT(gpu.blocks_per_sm, 24);
    CHECK_INT(gpu.l2_bytes, 50331648);
    CHECK(gpu.present && gpu.ordinal == 0);
    CHECK(fabs(gpu.bandwidth_gbs - 300) < 1 && fabs(gpu.tensor_tflops - 121) < 1);
    CHECK_OK(fa_driver_device(driver, 1, &gpu, &diag), diag);
    CHECK(fabs(gpu.tensor_tflops - 165) < 1); /* half rate, by the catalogue */
    CHECK_TEXT(gpu.uuid, "fafafafa-fafa-fafa-fafa-fafafafafa01");
    CHECK_OK(fa_driver_device(driver, 2, &gpu, &diag), diag);
    CHECK_INT(gpu.smem_per_block, 232448);
    CHECK_INT(fa_driver_device(driver, 3, &gpu, &diag), FA_EINVAL);
    CHECK_INT(fa_driver_device(driver, -1, &gpu, &diag), FA_EINVAL);
}

static void contexts_are_pushed_and_popped_in_pairs(void)
{
    int ordinal = -1;
    use_script("device\ndevice\n");
    CHECK_OK(fa_driver_open(&driver, &diag), diag);
    CHECK(fa_driver_current_context(driver) == NULL);
    CHECK_INT(fa_driver_current_device(driver, &ordinal, &diag), FA_ECUDA);
    CHECK_OK(fa_driver_retain_context(driver, 1, &diag), diag);
    void *outer = fa_driver_current_context(driver);
    CHECK(outer != NULL);
    CHECK_OK(fa_driver_retain_context(driver, 0, &diag), diag);
    CHECK(fa_driver_current_context(driver) != outer);
    fa_driver_release_context(driver, 0);
    CHECK(fa_driver_current_context(driver) == outer);
    CHECK_OK(fa_driver_current_device(driver, &ordinal, &diag), diag);
    CHECK_INT(ordinal, 1);
    fa_driver_release_context(driver, 1);
    CHECK(fa_driver_current_context(driver) == NULL);
    CHECK_INT(fa_driver_retain_context(driver, 2, &diag), FA_EINVAL);
}

/* ---- tests: modules and launches -------------------------------------------------------------*/

static void a_cubin_for_another_architecture_is_not_supported(void)
{
    CHECK_OK(start(""), diag);
    for (int i = 0; i < 3; i++) {
        const int sms[] = {75, 90, 120};
        CHECK(load("attn_fwd", MARKERS[0], sms[i]) == NULL);
        CHECK_HAS(diag.text, "CUDA_ERROR_NO_BINARY_FOR_GPU (209)");
    }
    unsigned char bytes[FAKE_CUBIN_MAX];
    fa_module *module = NULL;
    fake_cubin c = {.sm = 90, .entry = "attn_fwd", .registers = 64};
    size_t size = fake_cubin_build(&c, bytes);
    CHECK_INT(fa_module_load(driver, bytes, size, &module, &diag), FA_ENOTSUP);
    CHECK(!fa_driver_context_lost(driver));
    module = load("attn_fwd", MARKERS[0], 80); /* same major, lower minor */
    CHECK(module != NULL);
    fa_module_unload(&module);
    CHECK(module == NULL);
    fa_module_unload(&module);
}

static void what_is_no_cubin_never_reaches_the_driver(void)
{
    fa_module *module = NULL;
    static const char ptx[] = ".version 9.0\n.target sm_89\n.address_size 64\n.entry k() {} //";
    CHECK_OK(start(""), diag);
    CHECK_INT(fa_module_load(driver, ptx, sizeof ptx, &module, &diag), FA_ECORRUPT);
    CHECK_INT(fa_module_load(driver, "\x7f" "ELF", 4, &module, &diag), FA_ECORRUPT);
}

static void functions_tell_what_the_cubin_says(void)
{
    fa_function function;
    fa_function_info info;
    int32_t blocks;
    CHECK_OK(start(""), diag);
    fa_module *module = load("attn_fwd", MARKERS[0], 89);
    CHECK(module != NULL);
    CHECK_INT(fa_module_function(module, "attn_bwd", 0, &function, &diag), FA_ECUDA);
    CHECK_HAS(diag.text, "attn_bwd");
    CHECK_INT(fa_module_function(module, "attn_fwd", 101377, &function, &diag), FA_ECUDA);
    CHECK_HAS(diag.text, "101377 bytes");
    CHECK_OK(fa_module_function(module, "attn_fwd", 49152, &function, &diag), diag);
    CHECK_OK(fa_function_query(driver, function, &info, &diag), diag);
    CHECK_INT(info.registers, 64);
    CHECK_INT(info.local_bytes, 0);
    CHECK_INT(info.max_threads, 128);
    CHECK_OK(fa_function_occupancy(driver, function, 128, 49152, &blocks, &diag), diag);
    CHECK_INT(blocks, 2); /* 2 x (48 + 1) KB of 100 KB */
    CHECK_OK(fa_function_occupancy(driver, function, 128, 0, &blocks, &diag), diag);
    CHECK_INT(blocks, 8); /* 65,536 / (64 x 128) registers */
    fa_module_unload(&module);
}

static void a_launch_out_of_limits_fails_with_its_numbers(void)
{
    fa_function function;
    const uint32_t grid[3] = {3, 1, 1}, too_wide[3] = {1, 65536, 1};
    CHECK_OK(start(""), diag);
    fa_module *module = load("attn_fwd", MARKERS[0], 89);
    CHECK(module != NULL);
    CHECK_OK(fa_module_function(module, "attn_fwd", 1024, &function, &diag), diag);
    void *arguments[1] = {NULL};
    CHECK_INT(fa_launch_kernel(driver, function, grid, 128, 60000, NULL, arguments, &diag),
              FA_ECUDA);
    CHECK_HAS(diag.text, "3x1x1 blocks of 128 threads with 60000 bytes");
    CHECK_INT(fa_launch_kernel(driver, function, grid, 160, 0, NULL, arguments, &diag), FA_ECUDA);
    CHECK_INT(fa_driver_last_result(driver), 701);
    CHECK_INT(fa_launch_kernel(driver, function, too_wide, 128, 0, NULL, arguments, NULL),
              FA_ECUDA);
    CHECK(!fa_driver_context_lost(driver));
    fa_module_unload(&module);
}

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
        rc |= fa_launch_kernel(driver, function, grid, 128, 0, stream, arguments, &diag);
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

/* ---- tests: memory ---------------------------------------------------------------------------*/

static void memory_is_limited_and_counted(void)
{
    size_t free_bytes, total;
    fa_device_ptr a = 0, b = 0;
    CHECK_OK(start("device memory=1M\n"), diag);
    CHECK_OK(fa_device_alloc(driver, 600 << 10, &a, &diag), diag);
    CHECK_INT(fa_device_alloc(driver, 600 << 10, &b, &diag), FA_ECUDA);
    CHECK_INT(fa_driver_last_result(driver), 2);
    CHECK_HAS(diag.text, "614400 bytes");
    CHECK_INT(b, 0);
    CHECK_OK(fa_device_memory(driver, &free_bytes, &total, &diag), diag);
    CHECK(total == 1 << 20 && free_bytes == (1 << 20) - (600 << 10));
    fa_device_free(driver, &a);
    CHECK_INT(a, 0);
    CHECK_OK(fa_device_alloc(driver, 600 << 10, &b, &diag), diag);
}

static void fills_and_copies_keep_to_their_ranges(void)
{
    unsigned char bytes[64], expected[64];
    fa_device_ptr ptr = 0;
    CHECK_OK(start(""), diag);
    CHECK_OK(fa_device_alloc(driver, sizeof bytes, &ptr, &diag), diag);
    CHECK_OK(fa_fill32(driver, ptr, 0x04030201, 16, NULL, &diag), diag);
    CHECK_OK(fa_fill16(driver, ptr + 8, 0xbeef, 4, NULL, &diag), diag);
    CHECK_OK(fa_fill8(driver, ptr + 33, 0x77, 3, NULL, &diag), diag);
    CHECK_OK(fa_fill8(driver, ptr, 0x77, 0, NULL, &diag), diag);
    for (int i = 0; i < 64; i++)
        expected[i] = (unsigned char)(i % 4 + 1);
    for (int i = 8; i < 16; i++)
        expected[i] = i % 2 == 0 ? 0xef : 0xbe;
    memset(expected + 33, 0x77, 3);
    CHECK_OK(fa_copy_from_device(driver, bytes, ptr, sizeof bytes, &diag), diag);
    CHECK_INT(memcmp(bytes, expected, sizeof bytes), 0);
    CHECK_INT(fa_copy_from_device(driver, bytes, ptr + 1, sizeof bytes, &diag), FA_ECUDA);
    CHECK_INT(fa_copy_to_device(driver, ptr + 60, bytes, 5, &diag), FA_ECUDA);
    CHECK_INT(fa_fill16(driver, ptr, 0, 33, NULL, &diag), FA_ECUDA);
    CHECK_OK(fa_copy_to_device(driver, ptr, bytes, 0, &diag), diag);
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

/* ---- tests: fork, NVML, a real device --------------------------------------------------------*/

/* In a child of a process that has opened the driver; returns the number of the first mistake. */
static int use_in_child(fa_device_ptr ptr)
{
    fa_driver *other = NULL;
    fa_gpu gpu;
    size_t a, b;
    const uint32_t grid[3] = {1, 1, 1};
    if (fa_driver_open(&other, &diag) != FA_EFORKED || other != NULL)
        return 1;
    if (strstr(diag.text, "fork") == NULL || strstr(diag.text, "spawn") == NULL)
        return 2;
    if (fa_driver_device(driver, 0, &gpu, NULL) != FA_EFORKED ||
        fa_driver_retain_context(driver, 0, NULL) != FA_EFORKED ||
        fa_device_memory(driver, &a, &b, NULL) != FA_EFORKED)
        return 3;
    if (fa_launch_kernel(driver, NULL, grid, 1, 0, NULL, NULL, NULL) != FA_EFORKED)
        return 4;
    if (fa_driver_current_context(driver) != NULL || fa_driver_device_count(driver) != 0)
        return 5;
    fa_device_free(driver, &ptr); /* harmless */
    fa_driver_release_context(driver, 0);
    fa_driver_close(&driver);
    return driver == NULL ? 0 : 6;
}

static void a_forked_child_is_refused_everywhere(void)
{
    fa_device_ptr ptr = 0;
    unsigned char byte = 0;
    int status = 0;
    CHECK_OK(start(""), diag);
    CHECK_OK(fa_device_alloc(driver, 16, &ptr, &diag), diag);
    CHECK_OK(fa_fill8(driver, ptr, 9, 16, NULL, &diag), diag);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(use_in_child(ptr));
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), 0);
    CHECK_OK(fa_copy_from_device(driver, &byte, ptr, 1, &diag), diag); /* the parent goes on */
    CHECK_INT(byte, 9);
}

static void throttle_reasons_have_names(void)
{
    char text[128], small[8];
    fa_nvml_throttle_text(0, text, sizeof text);
    CHECK_TEXT(text, "");
    fa_nvml_throttle_text(1 | 2 | 0x100, text, sizeof text); /* idle and fixed clocks: no trouble */
    CHECK_TEXT(text, "");
    fa_nvml_throttle_text(0x04, text, sizeof text);
    CHECK_TEXT(text, "power cap");
    fa_nvml_throttle_text(0x40 | 0x04 | 0x80, text, sizeof text);
    CHECK_TEXT(text, "thermal, power cap, power brake");
    fa_nvml_throttle_text(UINT64_MAX, small, sizeof small);
    CHECK_INT(strlen(small), sizeof small - 1);
}

static void a_real_device_describes_itself_and_keeps_memory(void)
{
    fa_gpu gpu;
    uint16_t host[100];
    fa_device_ptr ptr = 0;
    fa_nvml *nvml = NULL;
    fa_clock_state state;
    fa_driver_close(&driver);
    unsetenv("FA_TUNE_LIBCUDA");
    if (fa_driver_open(&driver, &diag) != 0)
        SKIP("no CUDA device");
    CHECK_OK(fa_driver_device(driver, 0, &gpu, &diag), diag);
    printf("# %s: sm_%d, %d SMs, smem %d/%d (%d reserved), L2 %lld, bus %d, %d MHz, %.0f GB/s, "
           "%.0f TFLOP/s, %s\n", gpu.name, gpu.sm, gpu.sm_count, gpu.smem_per_block,
           gpu.smem_per_sm, gpu.smem_reserved, (long long)gpu.l2_bytes, gpu.memory_bus_bits,
           gpu.clock_mhz, gpu.bandwidth_gbs, gpu.tensor_tflops, gpu.uuid);
    CHECK(gpu.sm >= 70 && gpu.sm_count > 0 && gpu.regs_per_sm == 65536 && gpu.l2_bytes > 0);
    CHECK_OK(fa_driver_retain_context(driver, 0, &diag), diag);
    CHECK_OK(fa_device_alloc(driver, sizeof host, &ptr, &diag), diag);
    CHECK_OK(fa_fill16(driver, ptr, 0x7fa5, 100, NULL, &diag), diag);
    CHECK_OK(fa_copy_from_device(driver, host, ptr, sizeof host, &diag), diag);
    CHECK(host[0] == 0x7fa5 && host[99] == 0x7fa5);
    fa_device_free(driver, &ptr);
    if (fa_nvml_open(&nvml, &diag) == 0) {
        CHECK_OK(fa_nvml_read(nvml, gpu.uuid, &state, &diag), diag);
        printf("# driver %s, SM clock %d of %d MHz, %d degrees, reasons %llx\n", state.driver,
               state.sm_mhz, state.max_sm_mhz, state.temperature_c,
               (unsigned long long)state.throttle_reasons);
        CHECK(state.max_sm_mhz > 0 && state.driver[0] != 0);
    }
    fa_nvml_close(&nvml);
    fa_driver_release_context(driver, 0);
}

static void run_fake_tests(void)
{
    TEST(a_crashing_kernel_ends_its_own_process);
    TEST(a_hanging_kernel_never_synchronises);
    TEST(a_missing_library_gives_no_driver);
    TEST(a_machine_without_a_device_is_told_apart);
    TEST(an_old_driver_is_refused_with_both_versions);
    TEST(opening_twice_gives_the_same_driver_and_counts);
    TEST(devices_are_described_by_their_attributes);
    TEST(contexts_are_pushed_and_popped_in_pairs);
    TEST(a_cubin_for_another_architecture_is_not_supported);
    TEST(what_is_no_cubin_never_reaches_the_driver);
    TEST(functions_tell_what_the_cubin_says);
    TEST(a_launch_out_of_limits_fails_with_its_numbers);
    TEST(numbers_convert_as_the_hardware_does);
    TEST(the_fake_computes_attention);
    TEST(a_right_output_passes_every_check);
    TEST(every_scripted_damage_shows_in_its_check);
    TEST(a_scripted_launch_failure_leaves_the_context_usable);
    TEST(an_illegal_address_loses_the_context);
    TEST(a_kernel_that_reads_outside_its_tensors_is_caught);
    TEST(faults_count_their_launches);
    TEST(the_virtual_clock_follows_the_script);
    TEST(memory_is_limited_and_counted);
    TEST(fills_and_copies_keep_to_their_ranges);
    TEST(launches_are_logged_with_pid_and_marker);
    TEST(a_forked_child_is_refused_everywhere);
}

int main(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/fa_driver_XXXXXX", base == NULL ? "/tmp" : base);
    if (getenv("FA_TEST_FAKE_CUDA") == NULL || mkdtemp(folder) == NULL) {
        printf("Bail out! FA_TEST_FAKE_CUDA must name the fake driver\n");
        return 1;
    }
    snprintf(script_path, sizeof script_path, "%s/script", folder);
    snprintf(log_path, sizeof log_path, "%s/log", folder);
    run_fake_tests();
    TEST(throttle_reasons_have_names);
    TEST(a_real_device_describes_itself_and_keeps_memory);
    fa_driver_close(&driver);
    remove(script_path);
    remove(log_path);
    rmdir(folder);
    return check_done();
}

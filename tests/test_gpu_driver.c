/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver room against the fake driver, and on a real device where there is one.
 */
#include "driver_fixture.h"

#include "driver.h"

#include <sys/wait.h>

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
                   "memclock=3201 smem_block=2147483647\n"),
             diag); /* as a driver once said */
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
    CHECK(current_context(driver) == NULL);
    CHECK_INT(fa_driver_current_device(driver, &ordinal, &diag), FA_ECUDA);
    CHECK_OK(fa_driver_enter(driver, 1, &diag), diag);
    void *outer = current_context(driver);
    CHECK(outer != NULL);
    CHECK_OK(fa_driver_enter(driver, 0, &diag), diag);
    CHECK(current_context(driver) != outer);
    fa_driver_leave(driver);
    CHECK(current_context(driver) == outer);
    CHECK_OK(fa_driver_current_device(driver, &ordinal, &diag), diag);
    CHECK_INT(ordinal, 1);
    fa_driver_leave(driver);
    CHECK(current_context(driver) == NULL);
    CHECK_INT(fa_driver_enter(driver, 2, &diag), FA_EINVAL);
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

static void a_function_is_found_by_its_name_and_within_its_shared_memory(void)
{
    fa_function function;
    CHECK_OK(start(""), diag);
    fa_module *module = load("attn_fwd", MARKERS[0], 89);
    CHECK(module != NULL);
    CHECK_INT(fa_module_function(module, "attn_bwd", 0, &function, &diag), FA_ECUDA);
    CHECK_HAS(diag.text, "attn_bwd");
    CHECK_INT(fa_module_function(module, "attn_fwd", 101377, &function, &diag), FA_ECUDA);
    CHECK_HAS(diag.text, "101377 bytes");
    CHECK_OK(fa_module_function(module, "attn_fwd", 49152, &function, &diag), diag);
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
    CHECK_INT(fa_launch_kernel(driver, function, grid, (const uint32_t[]){128, 1, 1}, 60000, NULL,
                               arguments, &diag),
              FA_ECUDA);
    CHECK_HAS(diag.text, "3x1x1 blocks of 128x1x1 threads with 60000 bytes");
    CHECK_INT(fa_launch_kernel(driver, function, grid, (const uint32_t[]){160, 1, 1}, 0, NULL,
                               arguments, &diag),
              FA_ECUDA);
    CHECK_INT(fa_driver_last_result(driver), 701);
    CHECK_INT(fa_launch_kernel(driver, function, too_wide, (const uint32_t[]){128, 1, 1}, 0, NULL,
                               arguments, NULL),
              FA_ECUDA);
    CHECK(!fa_driver_context_lost(driver));
    fa_module_unload(&module);
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
        fa_driver_enter(driver, 0, NULL) != FA_EFORKED ||
        fa_device_memory(driver, &a, &b, NULL) != FA_EFORKED)
        return 3;
    if (fa_launch_kernel(driver, NULL, grid, grid, 0, NULL, NULL, NULL) != FA_EFORKED)
        return 4;
    if (fa_driver_context_id(driver) != 0 || fa_driver_device_count(driver) != 0)
        return 5;
    fa_device_free(driver, &ptr); /* harmless */
    fa_driver_leave(driver);
    fa_driver_close(&driver);
    return driver == NULL ? 0 : 6;
}

static void a_forked_child_is_refused_everywhere(void)
{
    fa_device_ptr ptr = 0;
    unsigned char byte = 0;
    int status = 0;
    if (getenv("MESON_EXE_WRAPPER") != NULL)
        SKIP("an emulator's fork does not wipe memory");
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
    CHECK_OK(hold_context(driver, 0, &diag), diag);
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
    drop_context(driver, 0);
}

int main(void)
{
    if (!open_folder())
        return 1;
    TEST(a_missing_library_gives_no_driver);
    TEST(a_machine_without_a_device_is_told_apart);
    TEST(an_old_driver_is_refused_with_both_versions);
    TEST(opening_twice_gives_the_same_driver_and_counts);
    TEST(devices_are_described_by_their_attributes);
    TEST(contexts_are_pushed_and_popped_in_pairs);
    TEST(a_cubin_for_another_architecture_is_not_supported);
    TEST(what_is_no_cubin_never_reaches_the_driver);
    TEST(a_function_is_found_by_its_name_and_within_its_shared_memory);
    TEST(a_launch_out_of_limits_fails_with_its_numbers);
    TEST(memory_is_limited_and_counted);
    TEST(fills_and_copies_keep_to_their_ranges);
    TEST(a_forked_child_is_refused_everywhere);
    TEST(throttle_reasons_have_names);
    TEST(a_real_device_describes_itself_and_keeps_memory);
    close_folder();
    return check_done();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver room against the fake driver, which FA_TEST_FAKE_CUDA names, and on a real device where there is one.
 */
#define CHECK_OWN_MAIN
#include "check.h"
#include "device_context.h"
#include "fake_cubin.h"

#include "catalogue.h"

#include <sys/wait.h>

static char folder[CHECK_FOLDER], script_path[300];
static fa_driver *driver;

/* Closes the driver of the test before, writes the script, and opens unless told otherwise. */
static void use_script(const char *lines)
{
    fa_driver_close(&driver);
    check_write_file(script_path, lines, strlen(lines));
    setenv("FAKE_CUDA_SCRIPT", script_path, 1);
    setenv("FA_TUNE_LIBCUDA", getenv("FA_TEST_FAKE_CUDA"), 1);
}

static int start(const char *lines)
{
    use_script(lines);
    int rc = fa_driver_open(&driver, &diag);
    return rc != 0 ? rc : hold_context(driver, 0, &diag);
}

static fa_module *load(int sm)
{
    unsigned char bytes[FAKE_CUBIN_MAX];
    fa_module *module = NULL;
    fake_cubin c = {.sm = sm,
                    .entry = "attn_fwd",
                    .registers = 64,
                    .marker = "family=tested;HEAD_DIM=16;DTYPE_BF16=0;CAUSAL=0;ALIGNED=1;"};
    size_t size = fake_cubin_build(&c, bytes);
    fa_module_load(driver, bytes, size, &module, &diag);
    return module;
}

/* ---- tests: opening --------------------------------------------------------------------------*/

TEST(a_missing_library_gives_no_driver)
{
    use_script("");
    setenv("FA_TUNE_LIBCUDA", "/nowhere/libcuda.so.1", 1);
    CHECK_FAILS(fa_driver_open(&driver, &diag), FA_ENODRIVER, "/nowhere/libcuda.so.1");
    CHECK(driver == NULL);
    setenv("FA_TUNE_LIBCUDA", "libm.so.6", 1);
    CHECK_FAILS(fa_driver_open(&driver, &diag), FA_ENODRIVER, "cuInit");
}

TEST(a_machine_without_a_device_is_told_apart)
{
    use_script("no_device\n");
    CHECK_FAILS(fa_driver_open(&driver, &diag), FA_ENODEVICE, "no device");
    CHECK(driver == NULL);
    CHECK_INT(start(""), 0); /* the failure left nothing behind */
}

TEST(an_old_driver_is_refused_with_both_versions)
{
    use_script("driver 11080\n");
    CHECK_FAILS(fa_driver_open(&driver, &diag), FA_ENODRIVER, "CUDA 11.8");
    CHECK_HAS(diag.text, "12.0");
    CHECK_HAS(diag.text, "580");
    CHECK_OK(start("driver 12020\n"), diag);
    CHECK_INT(fa_driver_version(driver), 12020);
}

TEST(devices_are_described_by_their_attributes)
{
    fa_gpu gpu;
    CHECK_OK(start("device\n"
                   "device name=NVIDIA_GeForce_RTX_4090 sms=128 l2=72M bus=384 clock=2520 "
                   "memclock=10501 memory=24G\n"
                   "device name=NVIDIA_H200 sm=90 sms=132 l2=60M bus=6016 clock=1980 "
                   "memclock=3201 smem_block=2147483647 smem_sm=0\n" /* as a driver once said */
                   "device name=NVIDIA_RTX_A6000 sm=86 sms=84 bus=384 clock=1740 memclock=7251\n"),
             diag);
    CHECK_INT(fa_driver_device_count(driver), 4);
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
    CHECK(gpu.smem_per_block == 232448 && gpu.smem_per_sm == 233472);
    CHECK_OK(fa_driver_device(driver, 3, &gpu, &diag), diag);
    CHECK(fabs(gpu.bandwidth_gbs - 768) < 1); /* its name's, not the A40's of the same chip */
    CHECK_INT(fa_driver_device(driver, 4, &gpu, &diag), FA_EINVAL);
    CHECK_INT(fa_driver_device(driver, -1, &gpu, &diag), FA_EINVAL);
}

TEST(contexts_are_pushed_and_popped_in_pairs)
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

TEST(a_cubin_for_another_architecture_is_not_supported)
{
    CHECK_OK(start(""), diag);
    for (int i = 0; i < 3; i++) {
        const int sms[] = {75, 90, 120};
        CHECK(load(sms[i]) == NULL);
        CHECK_HAS(diag.text, "CUDA_ERROR_NO_BINARY_FOR_GPU (209)");
    }
    unsigned char bytes[FAKE_CUBIN_MAX];
    fa_module *module = NULL;
    fake_cubin c = {.sm = 90, .entry = "attn_fwd", .registers = 64};
    size_t size = fake_cubin_build(&c, bytes);
    CHECK_INT(fa_module_load(driver, bytes, size, &module, &diag), FA_ENOTSUP);
    CHECK(!fa_driver_context_lost(driver));
    module = load(80); /* same major, lower minor */
    CHECK(module != NULL);
    fa_module_unload(&module);
    CHECK(module == NULL);
    fa_module_unload(&module);
}

TEST(what_is_no_cubin_never_reaches_the_driver)
{
    fa_module *module = NULL;
    static const char ptx[] = ".version 9.0\n.target sm_89\n.address_size 64\n.entry k() {} //";
    CHECK_OK(start(""), diag);
    CHECK_INT(fa_module_load(driver, ptx, sizeof ptx, &module, &diag), FA_ECORRUPT);
    CHECK_INT(fa_module_load(driver, "\x7f" "ELF", 4, &module, &diag), FA_ECORRUPT);
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

TEST(a_forked_child_is_refused_everywhere)
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

TEST(a_real_device_describes_itself_and_keeps_memory)
{
    fa_gpu gpu;
    uint16_t host[100];
    fa_device_ptr ptr = 0;
    fa_clock_state state = {0};
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
    if (fa_nvml_read(gpu.uuid, &state, &diag) != FA_ENODRIVER) {
        printf("# driver %s, SM clock %d of %d MHz, %d degrees, throttled: %s\n", state.driver,
               state.sm_mhz, state.max_sm_mhz, state.temperature_c, state.throttle);
        CHECK(state.max_sm_mhz > 0 && state.driver[0] != 0);
    }
    drop_context(driver, 0);
}

int main(void)
{
    check_make_folder(folder, NULL);
    snprintf(script_path, sizeof script_path, "%s/script", folder);
    check_all();
    fa_driver_close(&driver);
    check_remove_folder(folder);
    return check_done();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The devices of the driver, as fa_gpu, their primary contexts and their memory.
 *
 * Workload: devices are asked once; contexts are retained per thread that works on a device.
 * Invariant: contexts are retained and released, pushed and popped in pairs, and never reset: they
 * are shared with the rest of the process.
 */
#include "driver_api.h"

#include "catalogue.h"
#include "error.h"

#include <stdio.h>

/* ---- devices ---------------------------------------------------------------------------------*/

int fa_driver_device_count(fa_driver *driver)
{
    return fa_driver_forked() ? 0 : driver->device_count;
}

/* The 8-4-4-4-12 digits that nvidia-smi and NVML print after "GPU-". */
static void uuid_text(const struct cu_uuid *uuid, char *ret_text, size_t size)
{
    const unsigned char *b = uuid->bytes;
    snprintf(ret_text, size, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
             b[14], b[15]);
}

static int query_attributes(fa_driver *driver, cu_device device, fa_gpu *gpu, fa_diag *diag)
{
    int major = 0, minor = 0, l2 = 0;
    struct {
        int attribute;
        int32_t *to;
        const char *name;
    } rows[] = {
        {CU_COMPUTE_MAJOR, &major, "compute capability"},
        {CU_COMPUTE_MINOR, &minor, "compute capability"},
        {CU_SM_COUNT, &gpu->sm_count, "SM count"},
        {CU_SMEM_PER_BLOCK_OPTIN, &gpu->smem_per_block, "shared memory per block"},
        {CU_SMEM_PER_SM, &gpu->smem_per_sm, "shared memory per SM"},
        {CU_SMEM_RESERVED, &gpu->smem_reserved, "reserved shared memory"},
        {CU_REGS_PER_SM, &gpu->regs_per_sm, "registers per SM"},
        {CU_THREADS_PER_SM, &gpu->threads_per_sm, "threads per SM"},
        {CU_BLOCKS_PER_SM, &gpu->blocks_per_sm, "blocks per SM"},
        {CU_L2_BYTES, &l2, "L2 size"},
        {CU_MEMORY_BUS_BITS, &gpu->memory_bus_bits, "memory bus width"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cu_result result = driver->device_attribute(rows[i].to, rows[i].attribute, device);
        if (result != CU_OK)
            return fa_driver_fail(driver, result, "cuDeviceGetAttribute", diag,
                                  "asking device %d for its %s", gpu->ordinal, rows[i].name);
    }
    gpu->sm = major * 10 + minor;
    gpu->l2_bytes = l2;
    return 0;
}

/* Clocks, and what follows from them, are the catalogue's where the chip is listed: the driver takes
 * half a millisecond to tell each, which a stored winner's caller would wait for; boards of one chip
 * differ by a few percent only, which decides no winner; and no attribute tells whether the product
 * runs fp32 accumulation at half rate. */
static int complete(fa_driver *driver, cu_device device, fa_gpu *gpu, fa_diag *diag)
{
    fa_gpu known;
    int clock = 0, memory_clock = 0; /* kHz */
    if (fa_catalogue_match(gpu, &known) == 0 && known.clock_mhz > 0 && known.bandwidth_gbs > 0) {
        gpu->clock_mhz = known.clock_mhz;
        gpu->bandwidth_gbs = known.bandwidth_gbs;
        gpu->tensor_tflops = known.tensor_tflops;
        return 0;
    }
    cu_result result = driver->device_attribute(&clock, CU_CLOCK_RATE_KHZ, device);
    if (result == CU_OK)
        result = driver->device_attribute(&memory_clock, CU_MEMORY_CLOCK_KHZ, device);
    if (result != CU_OK)
        return fa_driver_fail(driver, result, "cuDeviceGetAttribute", diag,
                              "asking device %d for its clock rates", gpu->ordinal);
    gpu->clock_mhz = clock / 1000;
    /* Two transfers per memory clock, of bus bits / 8 bytes each. */
    gpu->bandwidth_gbs = 2.0 * memory_clock * 1e3 * gpu->memory_bus_bits / 8 / 1e9;
    gpu->tensor_tflops = fa_catalogue_tensor_flops(gpu->sm) * gpu->sm_count * clock * 1e3 / 1e12;
    return 0;
}

int fa_driver_device(fa_driver *driver, int ordinal, fa_gpu *ret_gpu, fa_diag *diag)
{
    if (fa_driver_forked())
        return fa_driver_fail_forked(diag);
    if (ordinal < 0 || ordinal >= driver->device_count)
        return fa_fail(diag, FA_EINVAL, "there is no CUDA device %d: %d %s present", ordinal,
                       driver->device_count, driver->device_count == 1 ? "is" : "are");
    fa_gpu gpu = {.present = true, .ordinal = ordinal};
    cu_device device;
    struct cu_uuid uuid;
    cu_result result = driver->device_get(&device, ordinal);
    if (result != CU_OK)
        return fa_driver_fail(driver, result, "cuDeviceGet", diag, "opening device %d", ordinal);
    result = driver->device_name(gpu.name, sizeof gpu.name, device);
    if (result != CU_OK)
        return fa_driver_fail(driver, result, "cuDeviceGetName", diag, "naming device %d", ordinal);
    gpu.name[sizeof gpu.name - 1] = 0;
    result = driver->device_uuid(&uuid, device);
    if (result != CU_OK)
        return fa_driver_fail(driver, result, "cuDeviceGetUuid", diag, "naming device %d", ordinal);
    uuid_text(&uuid, gpu.uuid, sizeof gpu.uuid);
    int rc = query_attributes(driver, device, &gpu, diag);
    if (rc != 0)
        return rc;
    rc = complete(driver, device, &gpu, diag);
    if (rc == 0)
        *ret_gpu = gpu;
    return rc;
}

/* ---- contexts --------------------------------------------------------------------------------*/

void *fa_driver_current_context(fa_driver *driver)
{
    cu_context context = NULL;
    if (fa_driver_forked() || driver->context_current(&context) != CU_OK)
        return NULL;
    return context;
}

uint64_t fa_driver_context_id(fa_driver *driver)
{
    unsigned long long id = 0;
    return !fa_driver_forked() && driver->context_id(NULL, &id) == CU_OK ? id + 1 : 0;
}

int fa_driver_current_device(fa_driver *driver, int *ret_ordinal, fa_diag *diag)
{
    /* A CUdevice is the ordinal: cuDeviceGet of every driver returns its argument. */
    cu_device device = 0;
    int rc = FA_DRIVER_CALL(driver, diag, driver->context_device(&device), "cuCtxGetDevice",
                            "asking for the current device of this thread");
    if (rc == 0)
        *ret_ordinal = device;
    return rc;
}

int fa_driver_retain_context(fa_driver *driver, int ordinal, fa_diag *diag)
{
    if (fa_driver_forked())
        return fa_driver_fail_forked(diag);
    if (ordinal < 0 || ordinal >= driver->device_count)
        return fa_fail(diag, FA_EINVAL, "there is no CUDA device %d", ordinal);
    cu_device device;
    cu_context context;
    cu_result result = driver->device_get(&device, ordinal);
    if (result != CU_OK)
        return fa_driver_fail(driver, result, "cuDeviceGet", diag, "opening device %d", ordinal);
    result = driver->primary_retain(&context, device);
    if (result != CU_OK)
        return fa_driver_fail(driver, result, "cuDevicePrimaryCtxRetain", diag,
                              "opening a context on device %d", ordinal);
    result = driver->context_push(context);
    if (result != CU_OK) {
        driver->primary_release(device);
        return fa_driver_fail(driver, result, "cuCtxPushCurrent", diag,
                              "entering the context of device %d", ordinal);
    }
    __atomic_store_n(&driver->primary[ordinal], context, __ATOMIC_RELEASE);
    return 0;
}

void fa_driver_release_context(fa_driver *driver, int ordinal)
{
    cu_device device;
    if (fa_driver_forked() || ordinal < 0 || ordinal >= driver->device_count)
        return;
    /* Pops only its own context: never one that the caller pushed above it. */
    cu_context current = fa_driver_current_context(driver);
    if (current != NULL && current == __atomic_load_n(&driver->primary[ordinal], __ATOMIC_ACQUIRE))
        driver->context_pop(&current);
    if (driver->device_get(&device, ordinal) == CU_OK)
        driver->primary_release(device);
}

bool fa_driver_is_on(fa_driver *driver, int ordinal)
{
    cu_device device;
    return !fa_driver_forked() && driver->context_device(&device) == CU_OK && device == ordinal;
}

/* The device's primary context, retained by the first who asks; two at once retain it twice. */
static int keep_context(fa_driver *driver, int ordinal, cu_context *ret_context, fa_diag *diag)
{
    *ret_context = __atomic_load_n(&driver->kept[ordinal], __ATOMIC_ACQUIRE);
    if (*ret_context != NULL)
        return 0;
    cu_result result = driver->primary_retain(ret_context, ordinal);
    if (result != CU_OK)
        return fa_driver_fail(driver, result, "cuDevicePrimaryCtxRetain", diag,
                              "opening a context on device %d", ordinal);
    __atomic_store_n(&driver->kept[ordinal], *ret_context, __ATOMIC_RELEASE);
    return 0;
}

int fa_driver_enter(fa_driver *driver, int ordinal, fa_diag *diag)
{
    if (fa_driver_forked())
        return fa_driver_fail_forked(diag);
    if (ordinal < 0 || ordinal >= driver->device_count)
        return fa_fail(diag, FA_EINVAL, "there is no CUDA device %d: %d %s present", ordinal,
                       driver->device_count, driver->device_count == 1 ? "is" : "are");
    cu_context context = NULL;
    int rc = keep_context(driver, ordinal, &context, diag);
    if (rc != 0)
        return rc;
    cu_result result = driver->context_push(context);
    return result == CU_OK ? 0
                           : fa_driver_fail(driver, result, "cuCtxPushCurrent", diag,
                                            "entering the context of device %d", ordinal);
}

void fa_driver_leave(fa_driver *driver)
{
    cu_context context;
    if (!fa_driver_forked())
        driver->context_pop(&context);
}

/* ---- memory -----------------------------------------------------------------------------------*/
/* Workload: a handful of buffers per measured problem; fills poison outputs before every proof.
 * Copies are synchronous and ordered with the streams that this room creates. */
int fa_device_alloc(fa_driver *driver, size_t size, fa_device_ptr *ret_ptr, fa_diag *diag)
{
    fa_device_ptr ptr = 0;
    int rc = FA_DRIVER_CALL(driver, diag, driver->memory_alloc(&ptr, size), "cuMemAlloc",
                            "allocating %zu bytes of device memory", size);
    if (rc == 0)
        *ret_ptr = ptr;
    return rc;
}

void fa_device_free(fa_driver *driver, fa_device_ptr *ptr)
{
    if (ptr == NULL || *ptr == 0)
        return;
    if (!fa_driver_forked())
        driver->memory_free(*ptr);
    *ptr = 0;
}

int fa_device_memory(fa_driver *driver, size_t *ret_free, size_t *ret_total, fa_diag *diag)
{
    return FA_DRIVER_CALL(driver, diag, driver->memory_info(ret_free, ret_total), "cuMemGetInfo",
                          "asking for free memory");
}

int fa_copy_to_device(fa_driver *driver, fa_device_ptr to, const void *from, size_t size,
                      fa_diag *diag)
{
    return FA_DRIVER_CALL(driver, diag, size == 0 ? CU_OK : driver->copy_to_device(to, from, size),
                          "cuMemcpyHtoD", "copying %zu bytes to the device", size);
}

int fa_copy_from_device(fa_driver *driver, void *to, fa_device_ptr from, size_t size, fa_diag *diag)
{
    return FA_DRIVER_CALL(driver, diag,
                          size == 0 ? CU_OK : driver->copy_from_device(to, from, size),
                          "cuMemcpyDtoH", "copying %zu bytes from the device", size);
}

int fa_copy_on_device(fa_driver *driver, fa_device_ptr to, fa_device_ptr from, size_t size,
                      fa_stream stream, fa_diag *diag)
{
    return FA_DRIVER_CALL(
        driver, diag, size == 0 ? CU_OK : driver->copy_on_device(to, from, size, stream),
        "cuMemcpyDtoDAsync", "copying %zu bytes from one place of the device to another", size);
}

int fa_fill8(fa_driver *driver, fa_device_ptr ptr, uint8_t value, size_t count, fa_stream stream,
             fa_diag *diag)
{
    return FA_DRIVER_CALL(driver, diag,
                          count == 0 ? CU_OK : driver->fill8(ptr, value, count, stream),
                          "cuMemsetD8Async", "filling %zu bytes", count);
}

int fa_fill16(fa_driver *driver, fa_device_ptr ptr, uint16_t value, size_t count, fa_stream stream,
              fa_diag *diag)
{
    return FA_DRIVER_CALL(driver, diag,
                          count == 0 ? CU_OK : driver->fill16(ptr, value, count, stream),
                          "cuMemsetD16Async", "filling %zu 16-bit elements", count);
}

int fa_fill32(fa_driver *driver, fa_device_ptr ptr, uint32_t value, size_t count, fa_stream stream,
              fa_diag *diag)
{
    return FA_DRIVER_CALL(driver, diag,
                          count == 0 ? CU_OK : driver->fill32(ptr, value, count, stream),
                          "cuMemsetD32Async", "filling %zu 32-bit elements", count);
}

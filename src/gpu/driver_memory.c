/* SPDX-License-Identifier: Apache-2.0
 *
 * Device memory: allocation, copies and fills.
 *
 * Workload: a handful of buffers per measured problem; fills poison outputs before every proof.
 * Copies are synchronous and ordered with the streams that this room creates.
 */
#include "driver_api.h"

#include "error.h"

int fa_device_alloc(fa_driver *driver, size_t size, fa_device_ptr *ret_ptr, fa_diag *diag)
{
    if (fa_driver_forked())
        return fa_driver_fail_forked(diag);
    fa_device_ptr ptr;
    cu_result result = driver->memory_alloc(&ptr, size);
    if (result != CU_OK)
        return fa_driver_fail(driver, result, "cuMemAlloc", diag,
                              "allocating %zu bytes of device memory", size);
    *ret_ptr = ptr;
    return 0;
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
    if (fa_driver_forked())
        return fa_driver_fail_forked(diag);
    size_t free_bytes, total;
    cu_result result = driver->memory_info(&free_bytes, &total);
    if (result != CU_OK)
        return fa_driver_fail(driver, result, "cuMemGetInfo", diag, "asking for free memory");
    *ret_free = free_bytes;
    *ret_total = total;
    return 0;
}

int fa_copy_to_device(fa_driver *driver, fa_device_ptr to, const void *from, size_t size,
                      fa_diag *diag)
{
    if (fa_driver_forked())
        return fa_driver_fail_forked(diag);
    if (size == 0)
        return 0;
    cu_result result = driver->copy_to_device(to, from, size);
    if (result != CU_OK)
        return fa_driver_fail(driver, result, "cuMemcpyHtoD", diag,
                              "copying %zu bytes to the device", size);
    return 0;
}

int fa_copy_from_device(fa_driver *driver, void *to, fa_device_ptr from, size_t size, fa_diag *diag)
{
    if (fa_driver_forked())
        return fa_driver_fail_forked(diag);
    if (size == 0)
        return 0;
    cu_result result = driver->copy_from_device(to, from, size);
    if (result != CU_OK)
        return fa_driver_fail(driver, result, "cuMemcpyDtoH", diag,
                              "copying %zu bytes from the device", size);
    return 0;
}

int fa_fill8(fa_driver *driver, fa_device_ptr ptr, uint8_t value, size_t count, fa_stream stream,
             fa_diag *diag)
{
    if (fa_driver_forked())
        return fa_driver_fail_forked(diag);
    cu_result result = count == 0 ? CU_OK : driver->fill8(ptr, value, count, stream);
    if (result != CU_OK)
        return fa_driver_fail(driver, result, "cuMemsetD8Async", diag, "filling %zu bytes", count);
    return 0;
}

int fa_fill16(fa_driver *driver, fa_device_ptr ptr, uint16_t value, size_t count, fa_stream stream,
              fa_diag *diag)
{
    if (fa_driver_forked())
        return fa_driver_fail_forked(diag);
    cu_result result = count == 0 ? CU_OK : driver->fill16(ptr, value, count, stream);
    if (result != CU_OK)
        return fa_driver_fail(driver, result, "cuMemsetD16Async", diag,
                              "filling %zu 16-bit elements", count);
    return 0;
}

int fa_fill32(fa_driver *driver, fa_device_ptr ptr, uint32_t value, size_t count, fa_stream stream,
              fa_diag *diag)
{
    if (fa_driver_forked())
        return fa_driver_fail_forked(diag);
    cu_result result = count == 0 ? CU_OK : driver->fill32(ptr, value, count, stream);
    if (result != CU_OK)
        return fa_driver_fail(driver, result, "cuMemsetD32Async", diag,
                              "filling %zu 32-bit elements", count);
    return 0;
}

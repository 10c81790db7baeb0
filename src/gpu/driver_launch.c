/* SPDX-License-Identifier: Apache-2.0
 *
 * Modules, functions, tensor maps, launches, streams and events.
 *
 * Workload: fa_launch_kernel is the hot path, once per call of a tuned kernel: one load for the
 * fork check, one indirect call, nothing else unless it fails.
 */
#include "driver_api.h"

#include "cubin.h"
#include "error.h"

#include <stdlib.h>
#include <string.h>

static void free_module(fa_module *module)
{
    pthread_mutex_destroy(&module->entered);
    fa_buf_free(&module->mangled);
    free(module);
}

int fa_module_load(fa_driver *driver, const void *cubin, size_t size, fa_module **ret_module,
                   fa_diag *diag)
{
    if (fa_driver_forked())
        return fa_driver_fail_forked(diag);
    /* cuModuleLoadData takes no size: a cubin tells its own, other text is read to its NUL and
     * compiled. So only ELF gets that far, and bytes from outside must have passed fa_cubin_read. */
    const unsigned char *bytes = cubin;
    if (size < 64 || bytes[0] != 0x7f || bytes[1] != 'E' || bytes[2] != 'L' || bytes[3] != 'F')
        return fa_fail(diag, FA_ECORRUPT, "cannot load %zu bytes that are no cubin", size);
    fa_module *module = calloc(1, sizeof *module);
    if (module == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory loading a cubin");
    module->driver = driver;
    pthread_mutex_init(&module->entered, NULL);
    int rc = fa_cubin_mangled(cubin, size, &module->mangled, diag);
    if (rc == 0) {
        cu_result result = driver->context_current(&module->context);
        if (result == CU_OK)
            result = driver->context_id(module->context, &module->context_id);
        if (result == CU_OK)
            result = driver->module_load(&module->module, cubin);
        rc = fa_driver_fail(driver, result, "cuModuleLoadData", diag,
                            "loading a cubin of %zu bytes", size);
    }
    if (rc != 0)
        free_module(module);
    else
        *ret_module = module;
    return rc;
}

bool fa_driver_context_lives(const fa_driver *driver, cu_context context, unsigned long long id)
{
    unsigned long long now;
    return !fa_driver_forked() && driver->context_id(context, &now) == CU_OK && now == id;
}

void fa_module_unload(fa_module **module)
{
    if (module == NULL || *module == NULL)
        return;
    if (fa_driver_context_lives((*module)->driver, (*module)->context, (*module)->context_id)) {
        fa_event_destroy((*module)->driver, &(*module)->left);
        (*module)->driver->module_unload((*module)->module);
    }
    free_module(*module);
    *module = NULL;
}

/* What the module's kernel or variable of this name is for the driver: by its symbol, as fa_cubin_read() finds it. */
static cu_result find(const fa_module *module, const char *name, fa_function *ret_function,
                      fa_device_ptr *ret_at, size_t *ret_bytes)
{
    const fa_driver *driver = module->driver;
    const char *symbol = name, *next = module->mangled.data;
    const char *const end = next + module->mangled.size;
    cu_result result = CU_NOT_FOUND;
    while (result == CU_NOT_FOUND && symbol != NULL) {
        result = ret_function != NULL
                     ? driver->module_function(ret_function, module->module, symbol)
                     : driver->module_variable(ret_at, ret_bytes, module->module, symbol);
        for (symbol = NULL; symbol == NULL && next < end; next += strlen(next) + 1)
            symbol = fa_cubin_is_called(next, name) ? next : NULL;
    }
    return result;
}

int fa_module_function(fa_module *module, const char *entry, int32_t smem_bytes,
                       fa_function *ret_function, fa_diag *diag)
{
    if (fa_driver_forked())
        return fa_driver_fail_forked(diag);
    enum { SMEM_UNASKED = 49152 }; /* static and dynamic */
    fa_driver *driver = module->driver;
    fa_function function;
    int allowed = 0, fixed = 0;
    int rc = fa_driver_fail(driver, find(module, entry, &function, NULL, NULL),
                            "cuModuleGetFunction", diag, "finding entry \"%s\"", entry);
    if (rc == 0) /* another launch of the same function may need more */
        rc = fa_driver_fail(driver,
                            driver->function_get(&allowed, CU_FUNCTION_MAX_DYNAMIC_SMEM, function),
                            "cuFuncGetAttribute", diag, "asking for the limits of %s", entry);
    if (rc == 0)
        rc = fa_driver_fail(driver, driver->function_get(&fixed, CU_FUNCTION_SMEM, function),
                            "cuFuncGetAttribute", diag, "asking for the memory of %s", entry);
    if (rc == 0 &&
        (allowed < smem_bytes || (allowed <= SMEM_UNASKED && smem_bytes > SMEM_UNASKED - fixed)))
        rc = fa_driver_fail(
            driver, driver->function_set(function, CU_FUNCTION_MAX_DYNAMIC_SMEM, smem_bytes),
            "cuFuncSetAttribute", diag, "allowing %s %d bytes of dynamic shared memory", entry,
            smem_bytes);
    if (rc == 0)
        *ret_function = function;
    return rc;
}

int fa_module_variable(fa_module *module, const char *name, fa_device_ptr *ret_at,
                       size_t *ret_bytes, fa_diag *diag)
{
    if (fa_driver_forked())
        return fa_driver_fail_forked(diag);
    fa_driver *driver = module->driver;
    cu_result result = find(module, name, NULL, ret_at, ret_bytes);
    int rc = fa_driver_fail(driver, result, "cuModuleGetGlobal", diag,
                            "finding the variable \"%s\"", name);
    return result == CU_NOT_FOUND ? FA_ENOTFOUND : rc;
}

int fa_module_enter(fa_module *module, fa_stream stream, fa_diag *diag)
{
    fa_driver *driver = module->driver;
    pthread_mutex_lock(&module->entered);
    int rc = fa_stream_captured(driver, stream, &module->captured, diag);
    if (rc == 0 && !module->captured && module->left != NULL)
        rc = FA_DRIVER_CALL(driver, diag, driver->stream_wait(stream, module->left, 0),
                            "cuStreamWaitEvent", "letting a stream wait for an event");
    if (rc != 0)
        pthread_mutex_unlock(&module->entered);
    return rc;
}

int fa_module_leave(fa_module *module, fa_stream stream, fa_diag *diag)
{
    int rc = 0;
    if (!module->captured && module->left == NULL)
        rc = fa_event_create(module->driver, &module->left, diag);
    if (rc == 0 && !module->captured)
        rc = fa_event_record(module->driver, module->left, stream, diag);
    pthread_mutex_unlock(&module->entered);
    return rc;
}

int fa_launch_kernel(fa_driver *driver, fa_function function, const uint32_t grid[3],
                     const uint32_t block[3], uint32_t smem_bytes, fa_stream stream,
                     void **arguments, fa_diag *diag)
{
    if (fa_driver_forked())
        return fa_driver_fail_forked(diag);
    cu_result result = driver->launch(function, grid[0], grid[1], grid[2], block[0], block[1],
                                      block[2], smem_bytes, stream, arguments, NULL);
    if (result != CU_OK)
        return fa_driver_fail(
            driver, result, "cuLaunchKernel", diag,
            "launching %ux%ux%u blocks of %ux%ux%u threads with %u bytes of shared "
            "memory",
            grid[0], grid[1], grid[2], block[0], block[1], block[2], smem_bytes);
    return 0;
}

int fa_launch_clusters(fa_driver *driver, fa_function function, const uint32_t grid[3],
                       const uint32_t block[3], const uint32_t cluster[3], bool cooperative,
                       uint32_t smem_bytes, fa_stream stream, void **arguments, fa_diag *diag)
{
    if (cluster[0] == 0 && !cooperative)
        return fa_launch_kernel(driver, function, grid, block, smem_bytes, stream, arguments, diag);
    struct cu_launch_attribute attribute[2];
    uint32_t count = 0;
    if (cluster[0] != 0)
        attribute[count++] = (struct cu_launch_attribute){
            .id = CU_LAUNCH_CLUSTER, .value.cluster = {cluster[0], cluster[1], cluster[2]}};
    if (cooperative)
        attribute[count++] =
            (struct cu_launch_attribute){.id = CU_LAUNCH_COOPERATIVE, .value.cooperative = 1};
    const struct cu_launch_config config = {.grid = {grid[0], grid[1], grid[2]},
                                            .block = {block[0], block[1], block[2]},
                                            .smem_bytes = smem_bytes,
                                            .stream = stream,
                                            .attribute = attribute,
                                            .attribute_count = count};
    if (driver->launch_with == NULL)
        return fa_fail(
            diag, FA_ENODRIVER,
            "the driver %s has no cuLaunchKernelEx, which clusters and cooperative launches need: update it",
            driver->path);
    return FA_DRIVER_CALL(
        driver, diag, driver->launch_with(&config, function, arguments, NULL), "cuLaunchKernelEx",
        "launching %ux%ux%u blocks of %ux%ux%u threads %sin clusters of %ux%ux%u "
        "with %u bytes of shared memory",
        grid[0], grid[1], grid[2], block[0], block[1], block[2], cooperative ? "at once, " : "",
        cluster[0], cluster[1], cluster[2], smem_bytes);
}

/* ---- profiling -------------------------------------------------------------------------------*/
int fa_profiler_turn(fa_driver *driver, bool on, fa_diag *diag)
{
    cu_result (*call)(void) = on ? driver->profiler_start : driver->profiler_stop;
    const char *name = on ? "cuProfilerStart" : "cuProfilerStop";
    return call == NULL ? fa_fail(diag, FA_ENODRIVER, "the driver %s has no %s", driver->path, name)
                        : FA_DRIVER_CALL(driver, diag, call(), name, "%s a profile",
                                         on ? "starting" : "ending");
}

/* ---- tensor maps -----------------------------------------------------------------------------*/

int fa_tensor_map_available(const fa_driver *driver, fa_diag *diag)
{
    if (driver->tensor_map_encode != NULL)
        return 0;
    return fa_fail(diag, FA_ENODRIVER,
                   "%s has no function cuTensorMapEncodeTiled, which kernels "
                   "that use TMA need: update the NVIDIA driver",
                   driver->path);
}

int fa_tensor_map_encode(fa_driver *driver, const fa_tensor_shape *shape, void *ret_map,
                         fa_diag *diag)
{
    static const uint32_t every[FA_TENSOR_MAP_RANK] = {1, 1, 1, 1, 1};
    uint32_t row_bytes = shape->box[0] * fa_tensor_element_bytes(shape);
    if (fa_driver_forked())
        return fa_driver_fail_forked(diag);
    int rc = fa_tensor_map_available(driver, diag);
    if (rc != 0)
        return rc;
    if (row_bytes != 32 && row_bytes != 64 && row_bytes != 128)
        return fa_fail(diag, FA_EINVAL, "a box with rows of %u bytes: use 32, 64 or 128",
                       row_bytes);
    int swizzle = row_bytes == 32   ? CU_MAP_SWIZZLE_32
                  : row_bytes == 64 ? CU_MAP_SWIZZLE_64
                                    : CU_MAP_SWIZZLE_128;
    int type = shape->bytes              ? CU_MAP_UINT8
               : shape->dtype == FA_BF16 ? CU_MAP_BFLOAT16
                                         : CU_MAP_FLOAT16;
    cu_result result = driver->tensor_map_encode(ret_map, type, shape->rank, shape->base,
                                                 shape->extent, shape->stride, shape->box, every, 0,
                                                 swizzle, CU_MAP_PROMOTE_256, 0);
    if (result == CU_OK)
        return 0;
    rc = fa_driver_fail(driver, result, "cuTensorMapEncodeTiled", diag,
                        "encoding a tensor map of rank %u", shape->rank);
    return result == CU_INVALID_VALUE ? FA_EINVAL : rc;
}

/* ---- streams and events ----------------------------------------------------------------------*/

int fa_stream_create(fa_driver *driver, fa_stream *ret_stream, fa_diag *diag)
{
    /* Flag 0, not NON_BLOCKING: the synchronous copies use the default stream, and only a blocking
     * stream is ordered with it. */
    return FA_DRIVER_CALL(driver, diag, driver->stream_create(ret_stream, 0), "cuStreamCreate",
                          "creating a stream");
}

void fa_stream_destroy(fa_driver *driver, fa_stream *stream)
{
    if (stream == NULL || *stream == NULL)
        return;
    if (!fa_driver_forked())
        driver->stream_destroy(*stream);
    *stream = NULL;
}

int fa_stream_synchronize(fa_driver *driver, fa_stream stream, fa_diag *diag)
{
    return FA_DRIVER_CALL(driver, diag, driver->stream_synchronize(stream), "cuStreamSynchronize",
                          "waiting for the work of a stream");
}

int fa_stream_captured(fa_driver *driver, fa_stream stream, bool *ret_captured, fa_diag *diag)
{
    if (fa_driver_forked())
        return fa_driver_fail_forked(diag);
    int status = CU_CAPTURE_NONE;
    cu_result result = driver->stream_capturing(stream, &status);
    /* The default stream cannot be captured; where another one is, that is what the driver answers. */
    if (result == CU_CAPTURE_IMPLICIT)
        status = CU_CAPTURE_ACTIVE;
    else if (result != CU_OK)
        return fa_driver_fail(driver, result, "cuStreamIsCapturing", diag,
                              "asking whether a stream is captured");
    *ret_captured = status != CU_CAPTURE_NONE;
    return 0;
}

int fa_event_create(fa_driver *driver, fa_event *ret_event, fa_diag *diag)
{
    return FA_DRIVER_CALL(driver, diag, driver->event_create(ret_event, 0), "cuEventCreate",
                          "creating an event"); /* 0: with timing */
}

void fa_event_destroy(fa_driver *driver, fa_event *event)
{
    if (event == NULL || *event == NULL)
        return;
    if (!fa_driver_forked())
        driver->event_destroy(*event);
    *event = NULL;
}

int fa_event_record(fa_driver *driver, fa_event event, fa_stream stream, fa_diag *diag)
{
    return FA_DRIVER_CALL(driver, diag, driver->event_record(event, stream), "cuEventRecord",
                          "recording an event");
}

int fa_event_elapsed_us(fa_driver *driver, fa_event start, fa_event stop, double *ret_us,
                        fa_diag *diag)
{
    float ms = 0;
    int rc = FA_DRIVER_CALL(driver, diag, driver->event_synchronize(stop), "cuEventSynchronize",
                            "waiting for an event");
    if (rc == 0)
        rc = FA_DRIVER_CALL(driver, diag, driver->event_elapsed(&ms, start, stop),
                            "cuEventElapsedTime", "reading the time between two events");
    if (rc == 0)
        *ret_us = (double)ms * 1e3;
    return rc;
}

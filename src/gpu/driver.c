/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening the CUDA driver, its error sentences, and telling a forked child; its devices, as fa_gpu, their primary contexts
 * and their memory.
 *
 * Workload: one open per process; devices are asked once; contexts are retained per thread that works on a device.
 * Invariants: one fa_driver per process, created and freed under open_lock; after cuInit its
 * function table never changes. libcuda is never unmapped: it does not survive that.
 * Contexts are retained and released, pushed and popped in pairs, and never reset: they are shared with the rest of the
 * process.
 *
 * Fork: a flag that is set in the child tells it what it is, for the price of one load per call.
 *
 * Modules, functions, tensor maps, launches, streams and events: fa_launch_kernel is the hot path, once per call of a tuned
 * kernel: one load for the fork check, one indirect call, nothing else unless it fails.
 */
#include "driver_api.h"

#include "catalogue.h"
#include "cubin.h"
#include "error.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OLDEST_DRIVER = 12000, CUDA_13_DRIVER = 13000 };

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static fa_driver opened; /* guarded by open_lock; references 0: it is not */

static bool forked; /* in a child of a process that had called cuInit */

/* Of every thread from its start: what a thread gets at its first access ends the process where memory is short. */
static _Thread_local cu_result last_result __attribute__((tls_model("initial-exec")));

/* ---- fork ------------------------------------------------------------------------------------*/
static void note_fork(void)
{
    __atomic_store_n(&forked, true, __ATOMIC_RELAXED);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, note_fork);
}

bool fa_driver_forked(void)
{
    return __atomic_load_n(&forked, __ATOMIC_RELAXED);
}

int fa_driver_fail_forked(fa_diag *diag)
{
    return fa_fail(diag, FA_EFORKED,
                   "this process was forked from one that had opened the CUDA "
                   "driver, and CUDA does not work there: start the process with exec or spawn "
                   "(Python: multiprocessing.set_start_method(\"spawn\"))");
}

/* ---- errors ----------------------------------------------------------------------------------*/
int fa_driver_fail(const fa_driver *driver, cu_result result, const char *call, fa_diag *diag,
                   const char *format, ...)
{
    const char *name = NULL, *text = NULL;
    char doing[512];
    va_list args;
    if (result == CU_OK)
        return 0;
    last_result = result;
    va_start(args, format);
    vsnprintf(doing, sizeof doing, format, args);
    va_end(args);
    driver->error_name(result, &name);
    driver->error_text(result, &text);
    return fa_fail(diag, result == CU_WRONG_ARCHITECTURE ? FA_ENOTSUP : FA_ECUDA,
                   "%s: %s gave %s (%d): %s", doing, call, name == NULL ? "an unknown error" : name,
                   result, text == NULL ? "no description" : text);
}

int fa_driver_last_result(const fa_driver *driver)
{
    (void)driver;
    return last_result;
}

bool fa_driver_context_lost(const fa_driver *driver)
{
    /* CUresults after which every later call in the context fails too. */
    static const cu_result lost[] = {
        4,   /* DEINITIALIZED */
        201, /* INVALID_CONTEXT */
        214, /* ECC_UNCORRECTABLE */
        220, /* NVLINK_UNCORRECTABLE */
        226, /* CONTAINED */
        700, /* ILLEGAL_ADDRESS */
        702, /* LAUNCH_TIMEOUT */
        709, /* CONTEXT_IS_DESTROYED */
        710, /* ASSERT */
        714, /* HARDWARE_STACK_ERROR */
        715, /* ILLEGAL_INSTRUCTION */
        716, /* MISALIGNED_ADDRESS */
        717, /* INVALID_ADDRESS_SPACE */
        718, /* INVALID_PC */
        719, /* LAUNCH_FAILED */
        721, /* TENSOR_MEMORY_LEAK */
        999, /* UNKNOWN */
    };
    (void)driver;
    for (size_t i = 0; i < sizeof lost / sizeof *lost; i++)
        if (lost[i] == last_result)
            return true;
    return false;
}

/* ---- opening ---------------------------------------------------------------------------------*/
static int load_library(fa_driver *driver, fa_diag *diag)
{
    const char *named = getenv("FA_TUNE_LIBCUDA");
    const char *path = named != NULL && named[0] != 0 ? named : "libcuda.so.1";
    snprintf(driver->path, sizeof driver->path, "%s", path);
    driver->library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (driver->library == NULL)
        return fa_fail(diag, FA_ENODRIVER,
                       "cannot load the CUDA driver (%s): install the NVIDIA "
                       "driver, or tune for a GPU that is not here by its name, such as L4",
                       dlerror());
#define LOAD(member, symbol, arguments)                                    \
    *(void **)&driver->member = dlsym(driver->library, symbol);            \
    if (driver->member == NULL)                                            \
        return fa_fail(diag, FA_ENODRIVER,                                 \
                       "%s has no function " symbol ": the NVIDIA driver " \
                       "is too old or this is no CUDA driver",             \
                       path);
    CU_FUNCTIONS(LOAD)
#undef LOAD
    return 0;
}

static int check_version(fa_driver *driver, fa_diag *diag)
{
    cu_result result = driver->driver_version(&driver->version);
    if (result == CU_STUB_LIBRARY)
        return fa_fail(diag, FA_ENODRIVER,
                       "%s is the stub for linking, not the driver: remove its "
                       "directory from the library path",
                       driver->path);
    if (result != CU_OK) {
        fa_driver_fail(driver, result, "cuDriverGetVersion", diag, "opening the CUDA driver");
        return FA_ENODRIVER;
    }
    if (driver->version < OLDEST_DRIVER)
        return fa_fail(
            diag, FA_ENODRIVER,
            "the NVIDIA driver supports CUDA %d.%d and fa-tune "
            "needs %d.%d (driver 525) at least, %d.%d (driver 580) for kernels compiled by "
            "NVRTC 13: update the driver",
            driver->version / 1000, driver->version % 1000 / 10, OLDEST_DRIVER / 1000,
            OLDEST_DRIVER % 1000 / 10, CUDA_13_DRIVER / 1000, CUDA_13_DRIVER % 1000 / 10);
    return 0;
}

static int initialise(fa_driver *driver, fa_diag *diag)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    cu_result result = driver->init(0);
    if (result == CU_OK)
        result = driver->count_devices(&driver->device_count);
    if (result == CU_NO_DEVICE || (result == CU_OK && driver->device_count == 0)) {
        last_result = CU_NO_DEVICE;
        return fa_fail(diag, FA_ENODEVICE,
                       "the CUDA driver sees no device: check nvidia-smi and "
                       "CUDA_VISIBLE_DEVICES, or tune for a GPU by its name, such as L4");
    }
    if (result == CU_NOT_INITIALIZED) {
        /* The result of cuInit in a child whose parent used CUDA without this library. */
        last_result = result;
        return fa_driver_fail_forked(diag);
    }
    if (result != CU_OK) {
        fa_driver_fail(driver, result, "cuInit", diag, "starting the CUDA driver %s (CUDA %d.%d)",
                       driver->path, driver->version / 1000, driver->version % 1000 / 10);
        return FA_ENODRIVER;
    }
    if (driver->device_count > FA_MAX_DEVICES)
        driver->device_count = FA_MAX_DEVICES;
    return 0;
}

static void unload(fa_driver *driver)
{
    if (driver->library != NULL)
        dlclose(driver->library);
    *driver = (fa_driver){.library = NULL};
}

int fa_driver_open(fa_driver **ret_driver, fa_diag *diag)
{
    int rc;
    /* before the lock, which a thread of the parent may hold for ever */
    FA_RETURN_IF_FORKED(diag);
    FA_HOLDS(&open_lock);
    if (opened.references == 0 &&
        ((rc = load_library(&opened, diag)) != 0 || (rc = check_version(&opened, diag)) != 0 ||
         (rc = initialise(&opened, diag)) != 0)) {
        unload(&opened);
        return rc;
    }
    opened.references++;
    *ret_driver = &opened;
    return 0;
}

void fa_driver_close(fa_driver **driver)
{
    if (driver == NULL || *driver == NULL)
        return;
    *driver = NULL;
    if (fa_driver_forked())
        return;
    FA_HOLDS(&open_lock);
    if (--opened.references == 0)
        unload(&opened);
}

int fa_driver_version(const fa_driver *driver)
{
    return driver->version;
}

int fa_driver_peek_version(void)
{
    fa_driver driver = {.library = NULL};
    int version = 0;
    if (load_library(&driver, NULL) != 0 || driver.driver_version(&version) != CU_OK)
        version = 0;
    unload(&driver);
    return version;
}

/* ---- devices --------------------------------------------------------------------------------*/
int fa_driver_device_count(fa_driver *driver)
{
    return fa_driver_forked() ? 0 : driver->device_count;
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
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        FA_OR_RETURN(fa_driver_fail(driver,
                                    driver->device_attribute(rows[i].to, rows[i].attribute, device),
                                    "cuDeviceGetAttribute", diag, "asking device %d for its %s",
                                    gpu->ordinal, rows[i].name));
    gpu->sm = major * 10 + minor;
    gpu->l2_bytes = l2;
    fa_catalogue_bound(gpu);
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

static int check_ordinal(const fa_driver *driver, int ordinal, fa_diag *diag)
{
    FA_RETURN_IF_FORKED(diag);
    return ordinal >= 0 && ordinal < driver->device_count
               ? 0
               : fa_fail(diag, FA_EINVAL, "there is no CUDA device %d: %d %s present", ordinal,
                         driver->device_count, driver->device_count == 1 ? "is" : "are");
}

int fa_driver_device(fa_driver *driver, int ordinal, fa_gpu *ret_gpu, fa_diag *diag)
{
    FA_OR_RETURN(check_ordinal(driver, ordinal, diag));
    fa_gpu gpu = {.present = true, .ordinal = ordinal};
    cu_device device;
    struct cu_uuid uuid;
    cu_result result = driver->device_get(&device, ordinal);
    if (result == CU_OK)
        result = driver->device_name(gpu.name, sizeof gpu.name, device);
    if (result == CU_OK)
        result = driver->device_uuid(&uuid, device);
    FA_OR_RETURN(fa_driver_fail(driver, result, "cuDeviceGet", diag, "naming device %d", ordinal));
    gpu.name[sizeof gpu.name - 1] = 0;
    char *text = gpu.uuid; /* the 8-4-4-4-12 digits that nvidia-smi and NVML print after "GPU-" */
    for (int i = 0; i < 16; i++)
        text += sprintf(text, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
                        (unsigned char)uuid.bytes[i]);
    FA_OR_RETURN(query_attributes(driver, device, &gpu, diag));
    FA_OR_RETURN(complete(driver, device, &gpu, diag));
    *ret_gpu = gpu;
    return 0;
}

/* ---- contexts -------------------------------------------------------------------------------*/
uint64_t fa_driver_context_id(fa_driver *driver)
{
    unsigned long long id = 0;
    return !fa_driver_forked() && driver->context_id(NULL, &id) == CU_OK ? id + 1 : 0;
}

int fa_driver_current_device(fa_driver *driver, int *ret_ordinal, fa_diag *diag)
{
    /* A CUdevice is the ordinal: cuDeviceGet of every driver returns its argument. */
    return FA_DRIVER_CALL(driver, diag, driver->context_device(ret_ordinal), "cuCtxGetDevice",
                          "asking for the current device of this thread");
}

bool fa_driver_is_on(fa_driver *driver, int ordinal)
{
    cu_device device;
    return !fa_driver_forked() && driver->context_device(&device) == CU_OK && device == ordinal;
}

int fa_driver_enter(fa_driver *driver, int ordinal, fa_diag *diag)
{
    FA_OR_RETURN(check_ordinal(driver, ordinal, diag));
    /* Retained by the first who asks; two at once retain it twice. */
    cu_context context = __atomic_load_n(&driver->kept[ordinal], __ATOMIC_ACQUIRE);
    if (context == NULL) {
        FA_OR_RETURN(fa_driver_fail(driver, driver->primary_retain(&context, ordinal),
                                    "cuDevicePrimaryCtxRetain", diag,
                                    "opening a context on device %d", ordinal));
        __atomic_store_n(&driver->kept[ordinal], context, __ATOMIC_RELEASE);
    }
    return fa_driver_fail(driver, driver->context_push(context), "cuCtxPushCurrent", diag,
                          "entering the context of device %d", ordinal);
}

void fa_driver_leave(fa_driver *driver)
{
    cu_context context;
    if (!fa_driver_forked())
        driver->context_pop(&context);
}

/* ---- memory ---------------------------------------------------------------------------------*/
/* Workload: a handful of buffers per measured problem; fills poison outputs before every proof.
 * Copies are synchronous and ordered with the streams that this room creates. */
int fa_device_alloc(fa_driver *driver, size_t size, fa_device_ptr *ret_ptr, fa_diag *diag)
{
    return FA_DRIVER_CALL(driver, diag, driver->memory_alloc(ret_ptr, size), "cuMemAlloc",
                          "allocating %zu bytes of device memory", size);
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

#define FILL(bits, elements)                                                                      \
    int fa_fill##bits(fa_driver *driver, fa_device_ptr ptr, uint##bits##_t value, size_t count,   \
                      fa_stream stream, fa_diag *diag)                                            \
    {                                                                                             \
        return FA_DRIVER_CALL(driver, diag,                                                       \
                              count == 0 ? CU_OK : driver->fill##bits(ptr, value, count, stream), \
                              "cuMemsetD" #bits "Async", "filling %zu " elements, count);         \
    }
FILL(8, "bytes")
FILL(16, "16-bit elements")
FILL(32, "32-bit elements")
#undef FILL

static void free_module(fa_module *module)
{
    pthread_mutex_destroy(&module->entered);
    fa_buf_free(&module->mangled);
    free(module);
}

int fa_module_load(fa_driver *driver, const void *cubin, size_t size, fa_module **ret_module,
                   fa_diag *diag)
{
    FA_RETURN_IF_FORKED(diag);
    /* cuModuleLoadData takes no size: a cubin tells its own, other text is read to its NUL and
     * compiled. So only ELF gets that far, and bytes from outside must have passed fa_cubin_read. */
    const unsigned char *bytes = cubin;
    if (size < 64 || bytes[0] != 0x7f || bytes[1] != 'E' || bytes[2] != 'L' || bytes[3] != 'F')
        return fa_fail(diag, FA_ECORRUPT, "cannot load %zu bytes that are no cubin", size);
    fa_module *module = calloc(1, sizeof *module);
    FA_OR_RETURN(fa_have(module != NULL, "a cubin", diag));
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
    cu_result result;
    do {
        result = ret_function != NULL
                     ? driver->module_function(ret_function, module->module, symbol)
                     : driver->module_variable(ret_at, ret_bytes, module->module, symbol);
        for (symbol = NULL; symbol == NULL && next < end; next += strlen(next) + 1)
            symbol = fa_cubin_is_called(next, name) ? next : NULL;
    } while (result == CU_NOT_FOUND && symbol != NULL);
    return result;
}

int fa_module_function(fa_module *module, const char *entry, int32_t smem_bytes,
                       fa_function *ret_function, fa_diag *diag)
{
    FA_RETURN_IF_FORKED(diag);
    enum { SMEM_UNASKED = 49152 }; /* static and dynamic */
    fa_driver *driver = module->driver;
    fa_function function;
    int allowed = 0, fixed = 0;
    FA_OR_RETURN(fa_driver_fail(driver, find(module, entry, &function, NULL, NULL),
                                "cuModuleGetFunction", diag, "finding entry \"%s\"", entry));
    cu_result result = driver->function_get(&allowed, CU_FUNCTION_MAX_DYNAMIC_SMEM, function);
    if (result == CU_OK)
        result = driver->function_get(&fixed, CU_FUNCTION_SMEM, function);
    /* Another launch of the same function may have needed more. */
    if (result == CU_OK &&
        (allowed < smem_bytes || (allowed <= SMEM_UNASKED && smem_bytes > SMEM_UNASKED - fixed)))
        result = driver->function_set(function, CU_FUNCTION_MAX_DYNAMIC_SMEM, smem_bytes);
    FA_OR_RETURN(fa_driver_fail(driver, result, "cuFuncSetAttribute", diag,
                                "allowing %s %d bytes of dynamic shared memory", entry,
                                smem_bytes));
    *ret_function = function;
    return 0;
}

int fa_module_variable(fa_module *module, const char *name, fa_device_ptr *ret_at,
                       size_t *ret_bytes, fa_diag *diag)
{
    FA_RETURN_IF_FORKED(diag);
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
    FA_RETURN_IF_FORKED(diag);
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

int fa_launch_how(fa_driver *driver, fa_function function, const uint32_t grid[3],
                  const uint32_t block[3], unsigned how, uint32_t smem_bytes, fa_stream stream,
                  void **arguments, fa_diag *diag)
{
    if (driver->version < 12030) /* whose graphs have no such edges */
        how &= ~(unsigned)FA_LAUNCH_PROGRAMMATIC;
    if (how == 0)
        return fa_launch_kernel(driver, function, grid, block, smem_bytes, stream, arguments, diag);
    struct cu_launch_attribute attribute[2];
    uint32_t count = 0;
    if ((how & FA_LAUNCH_COOPERATIVE) != 0)
        attribute[count++] =
            (struct cu_launch_attribute){.id = CU_LAUNCH_COOPERATIVE, .value.on = 1};
    if ((how & FA_LAUNCH_PROGRAMMATIC) != 0)
        attribute[count++] =
            (struct cu_launch_attribute){.id = CU_LAUNCH_PROGRAMMATIC, .value.on = 1};
    const struct cu_launch_config config = {.grid = {grid[0], grid[1], grid[2]},
                                            .block = {block[0], block[1], block[2]},
                                            .smem_bytes = smem_bytes,
                                            .stream = stream,
                                            .attribute = attribute,
                                            .attribute_count = count};
    return FA_DRIVER_CALL(driver, diag, driver->launch_with(&config, function, arguments, NULL),
                          "cuLaunchKernelEx",
                          "launching %ux%ux%u blocks of %ux%ux%u threads %swith %u bytes of shared "
                          "memory",
                          grid[0], grid[1], grid[2], block[0], block[1], block[2],
                          (how & FA_LAUNCH_COOPERATIVE) != 0 ? "at once, " : "", smem_bytes);
}

/* ---- profiling -------------------------------------------------------------------------------*/
int fa_profiler_turn(fa_driver *driver, bool on, fa_diag *diag)
{
    return FA_DRIVER_CALL(driver, diag, on ? driver->profiler_start() : driver->profiler_stop(),
                          on ? "cuProfilerStart" : "cuProfilerStop", "%s a profile",
                          on ? "starting" : "ending");
}

/* ---- tensor maps -----------------------------------------------------------------------------*/
int fa_tensor_map_encode(fa_driver *driver, const fa_tensor_shape *shape, void *ret_map,
                         fa_diag *diag)
{
    static const uint32_t every[FA_TENSOR_MAP_RANK] = {1, 1, 1, 1, 1};
    const int swizzle = shape->swizzle == 128 ? 3 : shape->swizzle / 32;
    int promotion = CU_MAP_PROMOTE_256;
    _Alignas(64) unsigned char map[FA_TENSOR_MAP_BYTES];
    fa_tensor_shape is = *shape;
    FA_RETURN_IF_FORKED(diag);
    for (uint32_t i = 1; i < is.rank && i < FA_TENSOR_MAP_RANK; i++)
        if (is.extent[i] <= 1) { /* any driver takes it */
            is.extent[i] = 1;
            is.stride[i - 1] = (is.extent[0] * (is.type == FA_MAP_UINT8 ? 1 : 2) + 15) / 16 * 16;
        } else if (is.stride[i - 1] % 128 != 0 && shape->promotion == 0) {
            promotion = CU_MAP_PROMOTE_128;
        }
    cu_result result =
        driver->tensor_map_encode(map, (int)is.type, is.rank, is.base, is.extent, is.stride, is.box,
                                  every, 0, swizzle, promotion, 0);
    if (result == CU_OK) {
        memcpy(ret_map, map, sizeof map);
        return 0;
    }
    int rc =
        fa_driver_fail(driver, result, "cuTensorMapEncodeTiled", diag,
                       "TMA does not take %s at %#llx with strides of %lld, %lld and %lld bytes",
                       is.name, (unsigned long long)is.base, (long long)is.stride[0],
                       (long long)is.stride[1], (long long)is.stride[2]);
    return result == CU_INVALID_VALUE ? FA_EALIGN : rc;
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
    FA_RETURN_IF_FORKED(diag);
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
    FA_OR_RETURN(FA_DRIVER_CALL(driver, diag, driver->event_synchronize(stop), "cuEventSynchronize",
                                "waiting for an event"));
    FA_OR_RETURN(FA_DRIVER_CALL(driver, diag, driver->event_elapsed(&ms, start, stop),
                                "cuEventElapsedTime", "reading the time between two events"));
    *ret_us = (double)ms * 1e3;
    return 0;
}

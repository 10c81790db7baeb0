/* SPDX-License-Identifier: Apache-2.0
 *
 * A fake libcuda.so.1 for tests without a GPU: exactly the functions that src/gpu/ loads, over
 * host memory, with a virtual clock and scripted trouble (fake_cuda_script.c). Load it through
 * FA_TUNE_LIBCUDA. Work is done inside cuLaunchKernel; its errors surface at the next call, as a
 * real device's do.
 *
 * A module is a real cubin (made by NVRTC). Its entries run on the CPU (fake_cuda_kernels.c); what
 * they were built for is read from the marker that every rendered source ends with:
 *     fa_tune_config=family=NAME;BLOCK_M=128;…;HEAD_DIM=64;DTYPE_BF16=0;CAUSAL=1;
 *
 * A primary context that nobody retains is destroyed with its modules, and made anew at the same address.
 *
 * Invariants: one lock around everything; a child of fork gets CUDA_ERROR_NOT_INITIALIZED; after
 * an illegal address every call answers 700. cuInit starts afresh: the script is read again and
 * everything from before is gone, so that a test may open, close and open again; unless the script
 * says "init_once": then a further cuInit does nothing, as a real driver's.
 */
#include "fake_cuda_state.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ADDRESS_BASE 0xf00000000000ull /* outside what user space can map: never a host address */

enum { CONTEXT_DEPTH = 16 };

struct fake_state fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local struct context *stack[CONTEXT_DEPTH];
static _Thread_local int depth;

void fake_note(const char *format, ...)
{
    char line[2 * MARKER];
    va_list args;
    if (fake.script.log[0] == 0)
        return;
    int n = snprintf(line, sizeof line, "pid=%d ", (int)getpid());
    va_start(args, format);
    n += vsnprintf(line + n, sizeof line - (size_t)n - 1, format, args);
    va_end(args);
    if (n > (int)sizeof line - 2)
        n = (int)sizeof line - 2;
    line[n++] = '\n';
    int fd = open(fake.script.log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, line, (size_t)n) != n)
        fprintf(stderr, "fake_cuda: cannot write the log %s\n", fake.script.log);
    if (fd >= 0)
        close(fd);
}

struct context *fake_current(void)
{
    return depth > 0 && stack[depth - 1]->retained > 0 ? stack[depth - 1] : NULL;
}

int fake_check(void)
{
    if (fake.pid == 0 || fake.pid != getpid())
        return FAKE_NOT_INITIALIZED;
    if (fake.sticky != FAKE_OK)
        return fake.sticky;
    return fake_current() == NULL ? FAKE_INVALID_CONTEXT : FAKE_OK;
}

void fake_unlock(int *locked)
{
    (void)locked;
    pthread_mutex_unlock(&fake.lock);
}

void fake_hang_if_told(void)
{
    while (fake.hanging)
        pause(); /* with the lock held: the whole process is stuck, as with a real hang */
}

/* ---- start, devices, contexts ----------------------------------------------------------------*/

static void free_everything(void)
{
    while (fake.blocks != NULL)
        fake_free_block(&fake.blocks);
    while (fake.modules != NULL)
        fake_free_module(&fake.modules);
    while (fake.dead != NULL) {
        struct function *next = fake.dead->next;
        free(fake.dead);
        fake.dead = next;
    }
    while (fake.handles != NULL) {
        struct handle *next = fake.handles->next;
        free(fake.handles);
        fake.handles = next;
    }
    fake_kernel_forget();
    fake_forget_counters(true);
}

__attribute__((destructor)) static void at_exit(void)
{
    if (fake.pid == getpid())
        free_everything();
}

CUDA cuDriverGetVersion(int *ret)
{
    struct fake_script script; /* may be asked before cuInit */
    fake_script_read(&script);
    *ret = script.driver_version;
    return FAKE_OK;
}

CUDA cuInit(unsigned flags)
{
    ENTER_UNCHECKED;
    if (flags != 0)
        return FAKE_INVALID_VALUE;
    if (fake.pid != 0 && fake.pid != getpid())
        return FAKE_NOT_INITIALIZED; /* a child of fork */
    if (fake.pid != 0 && fake.script.init_once)
        return fake.sticky;
    free_everything();
    fake_script_read(&fake.script);
    memset(fake.primary, 0, sizeof fake.primary);
    memset(fake.used, 0, sizeof fake.used);
    fake.next_address = ADDRESS_BASE;
    fake.sticky = FAKE_OK;
    fake.hanging = false;
    fake.clock_us = 0;
    depth = 0;
    if (fake.script.no_device)
        return FAKE_NO_DEVICE;
    fake.pid = getpid();
    for (int i = 0; i < FAKE_DEVICES; i++)
        fake.primary[i].device = i;
    return FAKE_OK;
}

CUDA cuGetErrorName(int result, const char **ret)
{
    static const struct {
        int result;
        const char *name;
    } names[] = {
        {FAKE_OK, "CUDA_SUCCESS"},
        {FAKE_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
        {FAKE_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
        {FAKE_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"},
        {FAKE_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
        {FAKE_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
        {FAKE_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"},
        {FAKE_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
        {FAKE_UNCORRECTABLE, "CUDA_ERROR_ECC_UNCORRECTABLE"},
        {FAKE_NO_BINARY, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
        {FAKE_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"},
        {FAKE_NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
        {FAKE_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
        {FAKE_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
        {FAKE_COOPERATIVE_TOO_LARGE, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (names[i].result != result)
            continue;
        *ret = names[i].name;
        return FAKE_OK;
    }
    *ret = NULL;
    return FAKE_INVALID_VALUE;
}

CUDA cuGetErrorString(int result, const char **ret)
{
    int known = cuGetErrorName(result, ret);
    if (known == FAKE_OK)
        *ret = "as the fake driver was told";
    return known;
}

static bool started(void)
{
    return fake.pid != 0 && fake.pid == getpid();
}

CUDA cuDeviceGetCount(int *ret)
{
    *ret = fake.script.device_count;
    return started() ? FAKE_OK : FAKE_NOT_INITIALIZED;
}

CUDA cuDeviceGet(int *ret, int ordinal)
{
    if (!started())
        return FAKE_NOT_INITIALIZED;
    *ret = ordinal;
    return ordinal >= 0 && ordinal < fake.script.device_count ? FAKE_OK : FAKE_INVALID_DEVICE;
}

CUDA cuDeviceGetName(char *ret, int size, int device)
{
    snprintf(ret, (size_t)size, "%s", fake.script.device[device].gpu.name);
    return FAKE_OK;
}

CUDA cuDeviceGetUuid_v2(void *ret, int device)
{
    memset(ret, 0xfa, 16);
    ((unsigned char *)ret)[14] = (unsigned char)(0xfa + fake.script.device[device].board);
    ((unsigned char *)ret)[15] = (unsigned char)device;
    return FAKE_OK;
}

CUDA cuDeviceGetAttribute(int *ret, int attribute, int device)
{
    const struct fake_device *d = &fake.script.device[device];
    const struct {
        int attribute, value;
    } rows[] = {
        {13, d->gpu.clock_mhz * 1000}, {16, d->gpu.sm_count},       {36, d->memory_clock_khz},
        {37, d->gpu.memory_bus_bits},  {38, (int)d->gpu.l2_bytes},  {39, d->gpu.threads_per_sm},
        {75, d->gpu.sm / 10},          {76, d->gpu.sm % 10},        {81, d->gpu.smem_per_sm},
        {82, d->gpu.regs_per_sm},      {97, d->gpu.smem_per_block}, {106, d->gpu.blocks_per_sm},
        {111, d->gpu.smem_reserved},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].attribute != attribute)
            continue;
        *ret = rows[i].value;
        return FAKE_OK;
    }
    return FAKE_INVALID_VALUE;
}

CUDA cuDevicePrimaryCtxRetain(void **ret, int device)
{
    ENTER_UNCHECKED;
    if (!started())
        return FAKE_NOT_INITIALIZED;
    if (device < 0 || device >= fake.script.device_count)
        return FAKE_INVALID_DEVICE;
    if (fake.primary[device].retained++ == 0)
        fake.primary[device].id = ++fake.last_context;
    *ret = &fake.primary[device];
    return FAKE_OK;
}

CUDA cuDevicePrimaryCtxRelease_v2(int device)
{
    ENTER_UNCHECKED;
    if (!started() || fake.primary[device].retained == 0)
        return FAKE_INVALID_CONTEXT;
    if (--fake.primary[device].retained > 0)
        return FAKE_OK;
    for (struct module **link = &fake.modules; *link != NULL;) {
        if ((*link)->device == device)
            fake_free_module(link);
        else
            link = &(*link)->next;
    }
    return FAKE_OK;
}

CUDA cuCtxGetCurrent(void **ret)
{
    ENTER_UNCHECKED;
    *ret = started() ? fake_current() : NULL;
    return started() ? FAKE_OK : FAKE_NOT_INITIALIZED;
}

CUDA cuCtxGetId(const struct context *context, unsigned long long *ret)
{
    ENTER_UNCHECKED;
    if (!started())
        return FAKE_NOT_INITIALIZED;
    context = context != NULL ? context : fake_current();
    if (context == NULL || context->retained == 0)
        return FAKE_INVALID_CONTEXT;
    *ret = context->id;
    return FAKE_OK;
}

CUDA cuCtxPushCurrent_v2(void *context)
{
    ENTER_UNCHECKED;
    if (!started() || context == NULL || depth == CONTEXT_DEPTH)
        return FAKE_INVALID_CONTEXT;
    stack[depth++] = context;
    return FAKE_OK;
}

CUDA cuCtxPopCurrent_v2(void **ret)
{
    ENTER_UNCHECKED;
    if (!started() || depth == 0)
        return FAKE_INVALID_CONTEXT;
    depth--;
    if (ret != NULL)
        *ret = stack[depth];
    return FAKE_OK;
}

CUDA cuCtxGetDevice(int *ret)
{
    ENTER;
    *ret = fake_current()->device;
    return FAKE_OK;
}

/* ---- streams and events ----------------------------------------------------------------------*/

static int create_handle(struct handle **ret, bool event)
{
    struct handle *h = calloc(1, sizeof *h);
    if (h == NULL)
        return FAKE_OUT_OF_MEMORY;
    *h = (struct handle){.next = fake.handles, .event = event, .id = ++fake.last_handle + 1};
    fake.handles = h;
    *ret = h;
    return FAKE_OK;
}

static struct handle **find_handle(const struct handle *wanted, bool event)
{
    for (struct handle **link = &fake.handles; *link != NULL; link = &(*link)->next)
        if (*link == wanted && wanted->event == event)
            return link;
    return NULL;
}

static int destroy_handle(struct handle *handle, bool event)
{
    struct handle **link = find_handle(handle, event);
    if (link == NULL)
        return FAKE_INVALID_HANDLE;
    *link = handle->next;
    free(handle);
    return FAKE_OK;
}

CUDA cuStreamCreate(struct handle **ret, unsigned flags)
{
    ENTER;
    (void)flags;
    return create_handle(ret, false);
}

CUDA cuStreamDestroy_v2(struct handle *stream)
{
    ENTER;
    return destroy_handle(stream, false);
}

CUDA cuStreamSynchronize(struct handle *stream)
{
    ENTER;
    fake_hang_if_told();
    return stream == NULL || find_handle(stream, false) != NULL ? FAKE_OK : FAKE_INVALID_HANDLE;
}

CUDA cuProfilerStart(void)
{
    ENTER;
    fake_note("profiler start");
    return FAKE_OK;
}

CUDA cuProfilerStop(void)
{
    ENTER;
    fake_note("profiler stop");
    return FAKE_OK;
}

uint64_t fake_stream_id(const struct handle *stream)
{
    return stream == NULL ? 1 : find_handle(stream, false) != NULL ? stream->id : 0;
}

CUDA cuStreamGetId(struct handle *stream, unsigned long long *ret)
{
    ENTER;
    if (fake.capturing && fake.captured == stream)
        return FAKE_CAPTURE_UNSUPPORTED;
    *ret = fake_stream_id(stream);
    return *ret != 0 ? FAKE_OK : FAKE_INVALID_HANDLE;
}

/* A stream that is captured must not wait for what lies outside its graph. */
CUDA cuStreamWaitEvent(struct handle *stream, struct handle *event, unsigned flags)
{
    ENTER;
    if (flags != 0 || find_handle(event, true) == NULL || fake_stream_id(stream) == 0)
        return FAKE_INVALID_HANDLE;
    if (fake.capturing && fake.captured == stream)
        return FAKE_CAPTURE_UNSUPPORTED;
    fake_note("wait");
    fake_pass_counters(event, fake_stream_id(stream));
    return FAKE_OK;
}

CUDA cuEventCreate(struct handle **ret, unsigned flags)
{
    ENTER;
    (void)flags;
    return create_handle(ret, true);
}

CUDA cuEventDestroy_v2(struct handle *event)
{
    ENTER;
    return destroy_handle(event, true);
}

CUDA cuEventRecord(struct handle *event, struct handle *stream)
{
    ENTER;
    if (find_handle(event, true) == NULL ||
        (stream != NULL && find_handle(stream, false) == NULL))
        return FAKE_INVALID_HANDLE;
    event->recorded = true;
    event->at_us = fake.clock_us;
    event->stream = fake_stream_id(stream);
    event->uses = fake.uses;
    return FAKE_OK;
}

/* Not a function of CUDA's: from now on no event has passed, as on a GPU that is busy. */
CUDA fake_cuda_busy(int on)
{
    ENTER_UNCHECKED;
    fake.busy = on != 0;
    return FAKE_OK;
}

CUDA cuEventQuery(struct handle *event)
{
    ENTER;
    if (find_handle(event, true) == NULL)
        return FAKE_INVALID_HANDLE;
    if (!fake_may_allocate()) /* it would spoil another thread's capture */
        return fake.sticky = FAKE_CAPTURE_UNSUPPORTED;
    if (fake.busy)
        return FAKE_NOT_READY;
    fake_pass_counters(event, 0);
    return FAKE_OK;
}

CUDA cuEventSynchronize(struct handle *event)
{
    ENTER;
    fake_hang_if_told();
    return find_handle(event, true) != NULL ? FAKE_OK : FAKE_INVALID_HANDLE;
}

CUDA cuEventElapsedTime(float *ret_ms, struct handle *start, struct handle *stop)
{
    ENTER;
    if (find_handle(start, true) == NULL || find_handle(stop, true) == NULL || !start->recorded ||
        !stop->recorded)
        return FAKE_INVALID_HANDLE;
    *ret_ms = (float)((stop->at_us - start->at_us) / 1000);
    return FAKE_OK;
}

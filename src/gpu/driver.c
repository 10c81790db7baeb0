/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening the CUDA driver, its error sentences, and telling a forked child.
 *
 * Workload: one open per process.
 * Invariants: one fa_driver per process, created and freed under open_lock; after cuInit its
 * function table never changes. libcuda is never unmapped: it does not survive that.
 *
 * Fork: a page of memory that the kernel empties in a forked child tells the child what it is,
 * for the price of one load per call, however the child was made.
 */
#include "driver_api.h"

#include "error.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { OLDEST_DRIVER = 12000, CUDA_13_DRIVER = 13000 };

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static fa_driver *opened; /* guarded by open_lock */

/* Set once, before the first cuInit: a page that fork empties, or where the kernel cannot do that,
 * just the pid. */
static volatile int *fork_page;
static pid_t fork_pid;

/* Of every thread from its start: what a thread gets at its first access ends the process where memory is short. */
static _Thread_local cu_result last_result __attribute__((tls_model("initial-exec")));

/* ---- fork ------------------------------------------------------------------------------------*/

static void watch_forks(void)
{
    if (__atomic_load_n(&fork_page, __ATOMIC_ACQUIRE) != NULL || fork_pid != 0)
        return;
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page != MAP_FAILED && madvise(page, size, MADV_WIPEONFORK) == 0) {
        *(volatile int *)page = 1; /* what a forked child reads as 0 */
        __atomic_store_n(&fork_page, page, __ATOMIC_RELEASE);
        return;
    }
    if (page != MAP_FAILED)
        munmap(page, size);
    __atomic_store_n(&fork_pid, getpid(), __ATOMIC_RELEASE);
}

bool fa_driver_forked(void)
{
    volatile int *page = __atomic_load_n(&fork_page, __ATOMIC_ACQUIRE);
    if (page != NULL)
        return *page == 0;
    pid_t pid = __atomic_load_n(&fork_pid, __ATOMIC_ACQUIRE);
    return pid != 0 && pid != getpid();
}

int fa_driver_fail_forked(fa_diag *diag)
{
    return fa_fail(diag, FA_EFORKED,
                   "this process was forked from one that had opened the CUDA "
                   "driver, and CUDA does not work there: start the process with exec or spawn "
                   "(Python: multiprocessing.set_start_method(\"spawn\"))");
}

/* ---- errors ----------------------------------------------------------------------------------*/

static void remember(cu_result result)
{
    last_result = result;
}

int fa_driver_fail(const fa_driver *driver, cu_result result, const char *call, fa_diag *diag,
                   const char *format, ...)
{
    const char *name = NULL, *text = NULL;
    char doing[512];
    va_list args;
    if (result == CU_OK)
        return 0;
    remember(result);
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
#define LOAD_OPTIONAL(member, symbol, arguments) \
    *(void **)&driver->member = dlsym(driver->library, symbol);
    CU_OPTIONAL_FUNCTIONS(LOAD_OPTIONAL)
#undef LOAD_OPTIONAL
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
    watch_forks();
    cu_result result = driver->init(0);
    if (result == CU_OK)
        result = driver->count_devices(&driver->device_count);
    if (result == CU_NO_DEVICE || (result == CU_OK && driver->device_count == 0)) {
        remember(CU_NO_DEVICE);
        return fa_fail(diag, FA_ENODEVICE,
                       "the CUDA driver sees no device: check nvidia-smi and "
                       "CUDA_VISIBLE_DEVICES, or tune for a GPU by its name, such as L4");
    }
    if (result == CU_NOT_INITIALIZED) {
        /* The result of cuInit in a child whose parent used CUDA without this library. */
        remember(result);
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

static void destroy(fa_driver *driver)
{
    if (driver->library != NULL)
        dlclose(driver->library);
    free(driver);
}

static int create(fa_driver **ret_driver, fa_diag *diag)
{
    fa_driver *driver = calloc(1, sizeof *driver);
    if (driver == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory opening the CUDA driver");
    int rc = load_library(driver, diag);
    if (rc == 0)
        rc = check_version(driver, diag);
    if (rc == 0)
        rc = initialise(driver, diag);
    if (rc != 0)
        destroy(driver);
    else
        *ret_driver = driver;
    return rc;
}

int fa_driver_open(fa_driver **ret_driver, fa_diag *diag)
{
    if (fa_driver_forked()) /* before the lock, which a thread of the parent may hold for ever */
        return fa_driver_fail_forked(diag);
    pthread_mutex_lock(&open_lock);
    int rc = opened == NULL ? create(&opened, diag) : 0;
    if (rc == 0) {
        opened->references++;
        *ret_driver = opened;
    }
    pthread_mutex_unlock(&open_lock);
    return rc;
}

void fa_driver_close(fa_driver **driver)
{
    if (driver == NULL || *driver == NULL)
        return;
    *driver = NULL;
    if (fa_driver_forked())
        return;
    pthread_mutex_lock(&open_lock);
    if (opened != NULL && --opened->references == 0) {
        destroy(opened);
        opened = NULL;
    }
    pthread_mutex_unlock(&open_lock);
}

int fa_driver_version(const fa_driver *driver)
{
    return driver->version;
}

int fa_driver_peek_version(void)
{
    fa_driver *driver = calloc(1, sizeof *driver);
    fa_diag diag;
    int version = 0;
    if (driver != NULL && load_library(driver, &diag) == 0 &&
        driver->driver_version(&driver->version) == CU_OK)
        version = driver->version;
    if (driver != NULL)
        destroy(driver);
    return version;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * NVML through dlopen, read only: there is no function in the table that changes anything.
 *
 * Workload: one read before and after the samples of a trial. Everything is optional: what a board
 * or driver does not tell stays 0, and a machine without NVML tunes all the same.
 */
#include "driver.h"

#include "error.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

typedef struct nvml_device *device; /* nvmlDevice_t */

enum { RESULT_OK = 0, CLOCK_SM = 1, CLOCK_MEMORY = 2, SENSOR_GPU = 0 };

/* Filled once; never unloaded. */
static struct {
    int (*init)(void);
    int (*driver_version)(char *, unsigned);
    int (*by_uuid)(const char *, device *);
    int (*clock)(device, int, unsigned *);
    int (*max_clock)(device, int, unsigned *);
    int (*temperature)(device, int, unsigned *);
    int (*throttle)(device, unsigned long long *); /* may be NULL */
    int (*power_limit)(device, unsigned *);        /* milliwatts; may be NULL */
} nvml;
static int failed; /* 0, or why NVML is not there, with its sentence */
static fa_diag failure;

#define SYMBOLS(X)                                  \
    X(init, "nvmlInit_v2")                          \
    X(driver_version, "nvmlSystemGetDriverVersion") \
    X(by_uuid, "nvmlDeviceGetHandleByUUID")         \
    X(clock, "nvmlDeviceGetClockInfo")              \
    X(max_clock, "nvmlDeviceGetMaxClockInfo")       \
    X(temperature, "nvmlDeviceGetTemperature")

static int load_nvml(fa_diag *diag)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return fa_fail(diag, FA_ENODRIVER,
                       "cannot load NVML (%s): clocks and temperature will not "
                       "be recorded",
                       dlerror());
#define LOAD(member, name)                         \
    *(void **)&nvml.member = dlsym(library, name); \
    if (nvml.member == NULL)                       \
        return fa_fail(diag, FA_ENODRIVER, "NVML has no function " name ": it is too old");
    SYMBOLS(LOAD)
#undef LOAD
    /* Renamed in driver 535; the mask is the same. */
    *(void **)&nvml.throttle = dlsym(library, "nvmlDeviceGetCurrentClocksEventReasons");
    if (nvml.throttle == NULL)
        *(void **)&nvml.throttle = dlsym(library, "nvmlDeviceGetCurrentClocksThrottleReasons");
    *(void **)&nvml.power_limit = dlsym(library, "nvmlDeviceGetEnforcedPowerLimit");
    int result = nvml.init();
    if (result != RESULT_OK)
        return fa_fail(diag, FA_ENODRIVER,
                       "NVML does not start (nvmlInit gave %d): clocks and "
                       "temperature will not be recorded",
                       result);
    return 0;
}

static void load_once(void)
{
    failed = load_nvml(&failure);
}

static int32_t mhz(int (*get)(device, int, unsigned *), device gpu, int kind)
{
    unsigned value = 0;
    return get(gpu, kind, &value) == RESULT_OK && value < 1000000 ? (int32_t)value : 0;
}

static void name_reasons(unsigned long long reasons, char *ret_text, size_t size)
{
    /* Idle, application clocks and display clocks are ordinary states, so they get no name. */
    static const struct {
        uint64_t mask;
        const char *name;
    } rows[] = {
        {0x20 | 0x40, "thermal"},    {0x04, "power cap"},  {0x80, "power brake"},
        {0x08, "hardware slowdown"}, {0x10, "sync boost"},
    };
    ret_text[0] = 0;
    size_t n = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows && n < size; i++) {
        if ((reasons & rows[i].mask) == 0)
            continue;
        n += (size_t)snprintf(ret_text + n, size - n, "%s%s", n == 0 ? "" : ", ", rows[i].name);
    }
}

int fa_nvml_read(const char *uuid, fa_clock_state *ret_state, fa_diag *diag)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    fa_clock_state state = {0};
    device gpu;
    unsigned temperature = 0, milliwatts = 0;
    unsigned long long reasons = 0;
    /* fa_gpu keeps the digits only; NVML wants the kind of device before them. */
    static const char *const kinds[] = {"GPU-", "MIG-", ""};
    bool found = false;
    pthread_once(&once, load_once);
    if (failed != 0)
        return fa_fail(diag, failed, "%s", failure.text);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !found; i++) {
        char text[96];
        snprintf(text, sizeof text, "%s%.80s", kinds[i], uuid);
        found = nvml.by_uuid(text, &gpu) == RESULT_OK;
    }
    if (!found)
        return fa_fail(diag, FA_ENODEVICE, "NVML does not know the GPU %.80s", uuid);
    state.sm_mhz = mhz(nvml.clock, gpu, CLOCK_SM);
    state.memory_mhz = mhz(nvml.clock, gpu, CLOCK_MEMORY);
    state.max_sm_mhz = mhz(nvml.max_clock, gpu, CLOCK_SM);
    if (nvml.temperature(gpu, SENSOR_GPU, &temperature) == RESULT_OK && temperature < 1000)
        state.temperature_c = (int32_t)temperature;
    if (nvml.power_limit != NULL && nvml.power_limit(gpu, &milliwatts) == RESULT_OK)
        state.power_limit_w = (int32_t)(milliwatts / 1000);
    if (nvml.throttle != NULL && nvml.throttle(gpu, &reasons) == RESULT_OK)
        name_reasons(reasons, state.throttle, sizeof state.throttle);
    if (nvml.driver_version(state.driver, sizeof state.driver) != RESULT_OK)
        state.driver[0] = 0;
    state.driver[sizeof state.driver - 1] = 0;
    *ret_state = state;
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Looking up GPU types by name or by silicon; the data are in catalogue.def. And the clocks of a GPU that is here: NVML
 * through dlopen, read only: there is no function in its table that changes anything.
 *
 * Workload: a few lookups per process over some forty rows: linear scans, no state, thread-safe; and one read before and
 * after the samples of a trial. All of the clocks is optional: what a board or driver does not tell stays 0, and a machine
 * without NVML tunes all the same.
 */
#include "catalogue.h"

#include "error.h"
#include "words.h"

#include <ctype.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* Members of fa_gpu that an architecture bounds. */
#define BOUNDED(X) \
    X(smem_per_block) X(smem_per_sm) X(regs_per_sm) X(threads_per_sm) X(blocks_per_sm)

enum { REGS_PER_SM = 65536, NAME_LENGTH = 64, KB = 1024 };

static const struct architecture {
    int32_t sm, block_kb, sm_kb, reserved, threads, blocks;
    double tensor_rate;
} architectures[] = {
#define ARCHITECTURE(sm, block_kb, sm_kb, reserved, threads, blocks, rate) \
    {sm, block_kb, sm_kb, reserved, threads, blocks, rate},
#include "catalogue.def"
#undef ARCHITECTURE
};

static const struct entry {
    const char *name;
    int32_t sm, sm_count, l2_kb, bus_bits, clock_mhz;
    double bandwidth_gbs, tensor_rate;
    const char *names; /* this and its aliases, each with a '|' behind it */
    const char *refused;
} entries[] = {
#define GPU(name, sm, sms, l2, bus, clock, bandwidth, rate, aliases, refused) \
    {name, sm, sms, l2, bus, clock, bandwidth, rate, name "|" aliases, refused},
#include "catalogue.def"
#undef GPU
};
enum { ENTRIES = sizeof entries / sizeof *entries };

static const struct architecture *find_architecture(int sm)
{
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
        if (architectures[i].sm == sm)
            return &architectures[i];
    return NULL;
}

double fa_catalogue_tensor_flops(int sm)
{
    const struct architecture *found = find_architecture(sm);
    return found == NULL ? 0 : found->tensor_rate;
}

int fa_catalogue_limits(int sm, fa_gpu *gpu)
{
    const struct architecture *found = find_architecture(sm);
    if (found == NULL)
        return FA_ENOTFOUND;
    gpu->smem_per_block = found->block_kb * KB;
    gpu->smem_per_sm = found->sm_kb * KB;
    gpu->smem_reserved = found->reserved;
    gpu->regs_per_sm = REGS_PER_SM;
    gpu->threads_per_sm = found->threads;
    gpu->blocks_per_sm = found->blocks;
    return 0;
}

void fa_catalogue_bound(fa_gpu *device)
{
    fa_gpu limits = {.regs_per_sm = 0};
    const bool known = fa_catalogue_limits(device->sm, &limits) == 0;
    for (size_t i = 0; !known && i < sizeof architectures / sizeof *architectures; i++) {
        fa_gpu one = {.regs_per_sm = 0};
        fa_catalogue_limits(architectures[i].sm, &one);
#define MORE(member) limits.member = one.member > limits.member ? one.member : limits.member;
        BOUNDED(MORE)
#undef MORE
    }
#define BOUND(member)                                          \
    if (device->member <= 0 || device->member > limits.member) \
        device->member = limits.member;
    BOUNDED(BOUND)
#undef BOUND
    if (device->smem_reserved < 0 || device->smem_reserved > device->smem_per_sm)
        device->smem_reserved = limits.smem_reserved;
}

static fa_gpu gpu_of(const struct entry *entry)
{
    fa_gpu gpu = {
        .sm = entry->sm,
        .sm_count = entry->sm_count,
        .l2_bytes = (int64_t)entry->l2_kb * KB,
        .memory_bus_bits = entry->bus_bits,
        .clock_mhz = entry->clock_mhz,
        .bandwidth_gbs = entry->bandwidth_gbs,
        .tensor_tflops = entry->tensor_rate * entry->sm_count * entry->clock_mhz * 1e6 / 1e12,
        .ordinal = -1,
    };
    snprintf(gpu.name, sizeof gpu.name, "%s", entry->name);
    fa_catalogue_limits(entry->sm, &gpu); /* every entry's architecture has a row: tested */
    return gpu;
}

int fa_catalogue_count(void)
{
    return ENTRIES;
}

void fa_catalogue_at(int index, fa_gpu *ret_gpu, const char **ret_refused)
{
    *ret_gpu = gpu_of(&entries[index]);
    if (ret_refused != NULL)
        *ret_refused = entries[index].refused;
}

/* Lower case without spaces, '-' and '_', and without the makers' prefixes: "NVIDIA GeForce RTX
 * 4090" -> "rtx4090". */
static void normalise(const char *name, size_t length, char ret[NAME_LENGTH])
{
    static const char *const prefixes[] = {"nvidia", "geforce", "tesla"};
    size_t n = 0;
    for (size_t i = 0; i < length && n + 1 < NAME_LENGTH; i++)
        if (strchr(" -_", name[i]) == NULL)
            ret[n++] = (char)tolower((unsigned char)name[i]);
    ret[n] = 0;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        size_t skip = strlen(prefixes[i]);
        if (strncmp(ret, prefixes[i], skip) == 0 && ret[skip] != 0)
            memmove(ret, ret + skip, strlen(ret + skip) + 1);
    }
}

/* By its name or an alias. */
static bool is_called(const struct entry *entry, const char *wanted)
{
    char name[NAME_LENGTH];
    for (const char *at = entry->names, *end; (end = strchr(at, '|')) != NULL; at = end + 1) {
        normalise(at, (size_t)(end - at), name);
        if (strcmp(name, wanted) == 0)
            return true;
    }
    return false;
}

int fa_catalogue_find(const char *name, fa_gpu *ret_gpu, fa_diag *diag)
{
    char wanted[NAME_LENGTH];
    const char *names[ENTRIES + 1] = {NULL};
    int count = 0;
    normalise(name, strlen(name), wanted);
    for (int i = 0; i < ENTRIES; i++) {
        if (!is_called(&entries[i], wanted))
            continue;
        if (entries[i].refused != NULL)
            return fa_fail(diag, FA_ENOTSUP, "%s cannot be tuned for: %s", entries[i].name,
                           entries[i].refused);
        *ret_gpu = gpu_of(&entries[i]);
        return 0;
    }
    for (int i = 0; i < ENTRIES; i++)
        if (entries[i].refused == NULL)
            names[count++] = entries[i].name;
    const char *near = fa_nearest(name, names);
    return fa_fail(diag, FA_ENOTFOUND,
                   "no GPU called \"%.64s\" is known%s%s; `fa-tune gpus` lists all types", name,
                   near != NULL ? "; near it: " : "", near != NULL ? near : "");
}

int fa_catalogue_match(const fa_gpu *device, fa_gpu *ret_gpu)
{
    /* Several products share SM, SM count and bus (A100s; A40 and RTX A6000; L40, L40S and RTX
     * 6000 Ada): the name decides, else the first stands for all. */
    const struct entry *found = NULL;
    char name[NAME_LENGTH];
    normalise(device->name, strnlen(device->name, sizeof device->name), name);
    for (const struct entry *e = entries; e < entries + ENTRIES; e++)
        if (e->refused == NULL && e->sm == device->sm && e->sm_count == device->sm_count &&
            e->bus_bits == device->memory_bus_bits && (found == NULL || is_called(e, name)))
            found = e;
    if (found == NULL)
        return FA_ENOTFOUND;
    *ret_gpu = gpu_of(found);
    return 0;
}

/* ---- NVML -----------------------------------------------------------------------------------*/
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * What a launch costs the host, by the ways that the driver has for it: an empty kernel, launched in bursts
 * that never fill the queue. The ways take turns in an order drawn anew each round, and the median of
 * the rounds counts. With the parameters of a Hopper attention kernel (208 bytes and four tensor maps) unless
 * a way says otherwise.
 * Needs a device and NVRTC; a way that this driver lacks is left out.
 *
 *     bench_launch [ROUNDS]      100; prints one line a way: nanoseconds a launch in bursts of 200, of 20 and of 1
 */
#include "driver_api.h"
#include "error.h"
#include "fa_tune.h"
#include "nvrtc.h"
#include "hash.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PARAMETERS = 720, BURSTS = 3, ROUNDS_MAX = 10000, LAUNCHES = 200 };
enum { NON_BLOCKING = 1, END = 0, BUFFER_POINTER = 1, BUFFER_SIZE = 2 }; /* of CUstream_flags; of `extra` */

static const int bursts[BURSTS] = {200, 20, 1};

static const char source[] =
    "struct __align__(64) params { char byte[720]; };\n"
    "extern \"C\" __global__ void all(const __grid_constant__ params p) {}\n"
    "extern \"C\" __global__ void none() {}\n";

/* CUlaunchConfig */
struct launch_config {
    unsigned grid[3], block[3], shared_bytes;
    fa_stream stream;
    void *attributes;
    unsigned attribute_count;
};

/* What newer drivers have. */
static struct {
    cu_result (*launch)(const struct launch_config *, fa_function, void **, void **);
    cu_result (*library_load)(void **, const void *, void *, void **, unsigned, void *, void **,
                              unsigned);
    cu_result (*library_kernel)(fa_function *, void *, const char *);
} newer;

static struct way {
    const char *name;
    fa_function function; /* NULL: not here */
    fa_stream stream;
    enum { PLAIN, PACKED, EXTENDED } call;
    bool bare; /* no parameters */
    float ns[BURSTS][ROUNDS_MAX];
} ways[16];
static int way_count;
static fa_driver *driver;
static _Alignas(64) char values[PARAMETERS];

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int fail(const char *what, const fa_diag *diag)
{
    fprintf(stderr, "bench_launch: %s: %s\n", what, diag->text);
    return 1;
}

static void add(const char *name, fa_function function, fa_stream stream, int call, bool bare)
{
    ways[way_count].name = name;
    ways[way_count].function = function;
    ways[way_count].stream = stream;
    ways[way_count].call = call;
    ways[way_count++].bare = bare;
}

static cu_result launch(const struct way *way)
{
    void *arguments[] = {values};
    size_t size = sizeof values;
    void *packed[] = {(void *)BUFFER_POINTER, values, (void *)BUFFER_SIZE, &size, (void *)END};
    struct launch_config config = {.grid = {1, 1, 1}, .block = {32, 1, 1}, .stream = way->stream};
    if (way->call == EXTENDED)
        return newer.launch(&config, way->function, arguments, NULL);
    if (way->call == PACKED)
        return driver->launch(way->function, 1, 1, 1, 32, 1, 1, 0, way->stream, NULL, packed);
    return driver->launch(way->function, 1, 1, 1, 32, 1, 1, 0, way->stream,
                          way->bare ? NULL : arguments, NULL);
}

/* Nanoseconds a launch in bursts of one size, `LAUNCHES` in all. */
static int time_way(const struct way *way, int burst, float *ret_ns, fa_diag *diag)
{
    double spent = 0;
    int some = burst == 1 ? LAUNCHES / 10 : LAUNCHES;
    for (int done = 0; done < some; done += burst) {
        cu_result result = CU_OK;
        double start = now_ns();
        for (int i = 0; result == CU_OK && i < burst; i++)
            result = launch(way);
        spent += now_ns() - start;
        if (result != CU_OK)
            return fa_fail(diag, FA_ECUDA, "%s: error %d of the driver", way->name, result);
        int rc = fa_stream_synchronize(driver, way->stream, diag);
        if (rc != 0)
            return rc;
    }
    *ret_ns = (float)(spent / some);
    return 0;
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static int compile(fa_buf *ret_cubin, fa_diag *diag)
{
    fa_nvrtc_location location;
    fa_nvrtc *nvrtc = NULL;
    fa_buf log = {0};
    fa_gpu gpu;
    char architecture[16];
    int rc = fa_driver_device(driver, 0, &gpu, diag);
    snprintf(architecture, sizeof architecture, "sm_%d", gpu.sm);
    if (rc == 0)
        rc = fa_nvrtc_locate(&location, diag);
    if (rc == 0)
        rc = fa_nvrtc_open(&location, &nvrtc, diag);
    fa_compile_request request = {
        .source = source, .name = "empty.cu", .architecture = architecture};
    if (rc == 0)
        rc = fa_nvrtc_compile(nvrtc, &request, ret_cubin, &log, diag);
    fa_buf_free(&log);
    fa_nvrtc_close(&nvrtc);
    return rc;
}

static int set_up(fa_buf *cubin, fa_diag *diag)
{
    fa_module *module = NULL; /* until the process ends */
    fa_function all, none, of_library = NULL;
    fa_stream stream, free_stream = NULL;
    void *library = NULL, *cuda = dlopen(driver->path, RTLD_NOW | RTLD_NOLOAD);
    int rc = compile(cubin, diag);
    if (rc == 0)
        rc = fa_module_load(driver, cubin->data, cubin->size, &module, diag);
    if (rc == 0)
        rc = fa_module_function(module, "all", 0, &all, diag);
    if (rc == 0)
        rc = fa_module_function(module, "none", 0, &none, diag);
    if (rc == 0)
        rc = fa_stream_create(driver, &stream, diag);
    if (rc != 0)
        return rc;
    if (driver->stream_create(&free_stream, NON_BLOCKING) != CU_OK)
        free_stream = NULL;
    if (cuda != NULL) {
        *(void **)&newer.launch = dlsym(cuda, "cuLaunchKernelEx");
        *(void **)&newer.library_load = dlsym(cuda, "cuLibraryLoadData");
        *(void **)&newer.library_kernel = dlsym(cuda, "cuLibraryGetKernel");
    }
    if (newer.library_load != NULL && newer.library_kernel != NULL &&
        (newer.library_load(&library, cubin->data, NULL, NULL, 0, NULL, NULL, 0) != CU_OK ||
         newer.library_kernel(&of_library, library, "all") != CU_OK))
        of_library = NULL;
    add("cuLaunchKernel, as fa_launch does", all, stream, PLAIN, false);
    add("the same, no parameters", none, stream, PLAIN, true);
    add("the same, parameters in one buffer", all, stream, PACKED, false);
    add("the same, a CUkernel of a library", of_library, stream, PLAIN, false);
    add("the same, a stream that waits for no other", free_stream != NULL ? all : NULL, free_stream,
        PLAIN, false);
    add("the same, the default stream", all, NULL, PLAIN, false);
    add("the same, the thread's default stream", all, (fa_stream)2, PLAIN, false);
    add("cuLaunchKernelEx without attributes", newer.launch != NULL ? all : NULL, stream, EXTENDED,
        false);
    add("cuLaunchKernelEx, a CUkernel of a library", newer.launch != NULL ? of_library : NULL, stream,
        EXTENDED, false);
    return 0;
}

/* Every way once for each size of a burst, in an order drawn anew. */
static int run_round(int round, fa_diag *diag)
{
    int order[sizeof ways / sizeof *ways], rc = 0;
    for (int i = 0; i < way_count; i++) {
        int j = (int)(fa_random(1, (uint64_t)(round * way_count + i)) % (uint64_t)(i + 1));
        order[i] = order[j];
        order[j] = i;
    }
    for (int i = 0; rc == 0 && i < way_count; i++) {
        struct way *way = &ways[order[i]];
        for (int b = 0; rc == 0 && way->function != NULL && b < BURSTS; b++)
            rc = time_way(way, bursts[b], &way->ns[b][round], diag);
    }
    return rc;
}

int main(int argc, char **argv)
{
    fa_diag diag = {{0}};
    fa_buf cubin = {0};
    int rounds = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 100;
    float warm;
    if (rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "bench_launch: 1 to %d rounds, not %s\n", ROUNDS_MAX, argv[1]);
        return 2;
    }
    if (fa_driver_open(&driver, &diag) != 0 || fa_driver_enter(driver, 0, &diag) != 0)
        return fail("no device", &diag);
    if (set_up(&cubin, &diag) != 0)
        return fail("no kernel", &diag);
    for (int i = 0; i < way_count; i++)
        if (ways[i].function != NULL && time_way(&ways[i], bursts[0], &warm, &diag) != 0)
            return fail("warm-up", &diag);
    for (int round = 0; round < rounds; round++)
        if (run_round(round, &diag) != 0)
            return fail("launch", &diag);
    printf("%-44s %6s %6s %6s  ns a launch in bursts of 200, 20, 1\n", "way", "200", "20", "1");
    for (int i = 0; i < way_count; i++) {
        printf("%-44s", ways[i].name);
        for (int b = 0; ways[i].function != NULL && b < BURSTS; b++) {
            qsort(ways[i].ns[b], (size_t)rounds, sizeof(float), by_value);
            printf(" %6.0f", (double)ways[i].ns[b][rounds / 2]);
        }
        puts(ways[i].function != NULL ? "" : "   this driver lacks it");
    }
    fa_buf_free(&cubin);
    fa_driver_leave(driver);
    fa_driver_close(&driver);
    return 0;
}

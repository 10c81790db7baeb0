/* SPDX-License-Identifier: Apache-2.0
 *
 * What an answer costs: fa_get_best_kernel() for a kernel of this process, the way from a stored
 * winner to a launchable kernel in a new process (context excluded), and one launch on the host with what
 * of it is not the driver's.
 * Needs a device and a store or system bundle that has the winner of a problem in fp16.
 *
 *     bench_latency [BATCH HEADS SEQ HEAD_DIM]      4 8 512 64; prints one line
 */
#include "driver_api.h"
#include "fa_tune.h"
#include "kernel_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int fail(const char *what, const fa_diag *diag)
{
    fprintf(stderr, "bench_latency: %s: %s\n", what, diag->text);
    return 1;
}

/* In the place of cuLaunchKernel. */
static cu_result launch_nothing(fa_function function, unsigned x, unsigned y, unsigned z, unsigned a,
                                unsigned b, unsigned c, unsigned shared, fa_stream stream,
                                void **arguments, void **extra)
{
    (void)function, (void)x, (void)y, (void)z, (void)a, (void)b, (void)c, (void)shared;
    (void)stream, (void)arguments, (void)extra;
    return CU_OK;
}

int main(int argc, char **argv)
{
    enum { HITS = 1000000, LAUNCHES = 20000 };
    int32_t shape[4] = {4, 8, 512, 64};
    for (int i = 0; i < 4 && i + 1 < argc; i++)
        shape[i] = (int32_t)strtol(argv[i + 1], NULL, 10);
    const fa_problem problem = {.head_dim = shape[3], .batch = shape[0], .heads_q = shape[1],
                                .heads_kv = shape[1], .seq_q = shape[2], .seq_k = shape[2]};
    size_t bytes = (size_t)shape[0] * (size_t)shape[1] * (size_t)shape[2] * (size_t)shape[3] * 2;
    fa_diag diag = {{0}};
    fa_driver *driver = NULL;
    fa_tuner *tuner = NULL;
    const fa_kernel *kernel = NULL;
    fa_device_ptr tensor[4] = {0};
    fa_stream stream = NULL;
    if (fa_driver_open(&driver, &diag) != 0 || fa_driver_enter(driver, 0, &diag) != 0)
        return fail("no device", &diag);
    double begin = now_ns();
    if (fa_open(NULL, &tuner, &diag) != 0)
        return fail("open", &diag);
    double opened = now_ns();
    if (fa_get_best_kernel(tuner, &problem, FA_EFFORT_CACHED, &kernel, &diag) != 0)
        return fail("no stored winner: tune first", &diag);
    double ready = now_ns();
    for (int i = 0; i < HITS; i++)
        if (fa_get_best_kernel(tuner, &problem, FA_EFFORT_MEASURE, &kernel, &diag) != 0)
            return fail("hit", &diag);
    double hits = now_ns();
    for (int i = 0; i < 4; i++)
        if (fa_device_alloc(driver, bytes, &tensor[i], &diag) != 0)
            return fail("memory", &diag);
    fa_attn_args args = {.size = sizeof(fa_attn_args), .q = (const void *)(uintptr_t)tensor[0],
                         .k = (const void *)(uintptr_t)tensor[1],
                         .v = (const void *)(uintptr_t)tensor[2],
                         .o = (void *)(uintptr_t)tensor[3]};
    double launch = 0;
    if (fa_stream_create(driver, &stream, &diag) != 0)
        return fail("stream", &diag);
    for (int i = 0; i < LAUNCHES; i += 200) { /* short bursts: the queue is never full */
        double start = now_ns();
        for (int j = 0; j < 200; j++)
            if (fa_launch(kernel, &args, stream, &diag) != 0)
                return fail("launch", &diag);
        launch += now_ns() - start;
        if (fa_stream_synchronize(driver, stream, &diag) != 0)
            return fail("synchronize", &diag);
    }
    kernel->call.driver->launch = launch_nothing;
    double own = now_ns();
    for (int i = 0; i < HITS; i++)
        if (fa_launch(kernel, &args, stream, &diag) != 0)
            return fail("launch", &diag);
    own = now_ns() - own;
    printf("new process, stored winner to launchable kernel %.2f ms (open %.2f ms); hit in the "
           "process %.0f ns; launch on the host %.2f us, of it %.0f ns outside the driver\n",
           (ready - begin) / 1e6, (opened - begin) / 1e6, (hits - ready) / HITS,
           launch / LAUNCHES / 1e3, own / HITS);
    fa_stream_destroy(driver, &stream);
    fa_close(&tuner);
    for (int i = 0; i < 4; i++)
        fa_device_free(driver, &tensor[i]);
    fa_driver_leave(driver);
    fa_driver_close(&driver);
    return 0;
}

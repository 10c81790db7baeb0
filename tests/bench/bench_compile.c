/* SPDX-License-Identifier: Apache-2.0
 *
 * What the compiles of a cold tune cost, without a GPU: the reference and every different source of a problem's
 * space, compiled once in this process, in processor time, so that a busy machine may do it; then how long
 * 4, 8, 12 and 16 workers take for all of them, handed out as the model ranks them, as a tune hands them out
 * (largest first) and longest first as measured. 16,384 tokens, hidden size 2,048; needs the real NVRTC.
 *
 *     bench_compile [GPU SEQ HEAD_DIM DTYPE CAUSAL]      H200 4096 128 fp16 none
 */
#include "attn_fixture.h"
#include "model.h"

#include <stdlib.h>

enum { SOURCES_MAX = 512, WORKERS_MAX = 16 };

static struct fixture fixture;
static fa_nvrtc *nvrtc;
static fa_gpu gpu;
static fa_problem problem;
static fa_space space;
static double *seconds; /* [space.count] */

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* One config for each source, as the model ranks them; *ret_configs: of how many. */
static int list_sources(int order[SOURCES_MAX], int *ret_configs)
{
    int all = 0, count = 0;
    for (int i = 0; i < space.count && all < SOURCES_MAX; i++) {
        fa_candidate *candidate = &space.candidate[i];
        if (candidate->trial.status != FA_STATUS_PENDING)
            continue;
        fa_model_predict(candidate, &problem, &gpu, &candidate->trial);
        order[all++] = i;
    }
    fa_model_rank(&space, order, all);
    for (int i = 0; i < all; i++) {
        int same = 0;
        while (same < count && !fa_render_is_same(&fixture.families, &space.candidate[order[same]],
                                                  &space.candidate[order[i]]))
            same++;
        if (same == count)
            order[count++] = order[i];
    }
    *ret_configs = all;
    return count;
}

static int compile_reference(double *ret_s, fa_diag *diag)
{
    fa_buf cubin = {0};
    double begin = cpu_s();
    int rc = fixture_reference(&fixture, nvrtc, &problem, &gpu, &cubin, diag);
    *ret_s = cpu_s() - begin;
    fa_buf_free(&cubin);
    return rc;
}

static int compile(int index, double *ret_s, fa_diag *diag)
{
    fa_buf cubin = {0};
    double begin = cpu_s();
    int rc = fixture_build(&fixture, nvrtc, &space.candidate[index], &problem, &gpu, &cubin, diag);
    *ret_s = cpu_s() - begin;
    fa_buf_free(&cubin);
    return rc;
}

/* When the last of `workers` is done: the reference first, then each next one to who is free first. */
static double makespan(const int *order, int count, int workers, double reference_s)
{
    double until[WORKERS_MAX] = {reference_s}, last = reference_s;
    for (int i = 0; i < count; i++) {
        int first = 0;
        for (int w = 1; w < workers; w++)
            first = until[w] < until[first] ? w : first;
        until[first] += seconds[order[i]];
        last = until[first] > last ? until[first] : last;
    }
    return last;
}

static int by_seconds(const void *a, const void *b)
{
    double x = seconds[*(const int *)a], y = seconds[*(const int *)b];
    return (x < y) - (x > y);
}

static void print_makespans(int *order, int count, double reference_s)
{
    static const int workers[] = {4, 8, 12, 16};
    double model[4], largest[4];
    for (int i = 0; i < 4; i++)
        model[i] = makespan(order, count, workers[i], reference_s);
    fa_model_largest_first(&space, order, count);
    for (int i = 0; i < 4; i++)
        largest[i] = makespan(order, count, workers[i], reference_s);
    qsort(order, (size_t)count, sizeof *order, by_seconds);
    printf("workers  as ranked  largest first  longest first\n");
    for (int i = 0; i < 4; i++)
        printf("%7d  %8.2fs  %12.2fs  %12.2fs\n", workers[i], model[i], largest[i],
               makespan(order, count, workers[i], reference_s));
}

static int run(fa_diag *diag)
{
    int order[SOURCES_MAX], configs,
        rc = fa_space_enumerate(&(fa_task){&fixture.families, &problem, &gpu}, &space, diag);
    double reference_s = 0, sum = 0;
    if (rc != 0)
        return rc;
    seconds = calloc((size_t)space.count + 1, sizeof *seconds);
    if (seconds == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory");
    int count = list_sources(order, &configs);
    for (int warm = 0; rc == 0 && warm < 2;
         warm++) /* the first compile of a process opens what NVRTC loads late */
        rc = compile_reference(&reference_s, diag);
    for (int i = 0; rc == 0 && i < count; i++) {
        char text[FA_CONFIG_TEXT_MAX];
        rc = compile(order[i], &seconds[order[i]], diag);
        sum += seconds[order[i]];
        fa_config_text(&space.candidate[order[i]].trial.config, text);
        printf("%6.2fs  %s\n", seconds[order[i]], text);
    }
    if (rc != 0)
        return rc;
    printf("%d configs, %d sources, %.2f s; the reference %.2f s\n", configs, count, sum,
           reference_s);
    print_makespans(order, count, reference_s);
    return 0;
}

int main(int argc, char **argv)
{
    static const char *const preset[] = {"H200", "4096", "128", "fp16", "none"};
    const char *word[5];
    fa_diag diag = {{0}};
    for (int i = 0; i < 5; i++)
        word[i] = i + 1 < argc ? argv[i + 1] : preset[i];
    int seq = (int)strtol(word[1], NULL, 10), head_dim = (int)strtol(word[2], NULL, 10);
    if (seq < 1 || seq > 16384 || head_dim < 8 || head_dim > 256) {
        fprintf(stderr, "bench_compile: SEQ is 1 to 16384, HEAD_DIM 8 to 256\n");
        return 2;
    }
    problem = (fa_problem){.dtype = strcmp(word[3], "bf16") == 0 ? FA_BF16 : FA_FP16,
                           .causal = strcmp(word[4], "none") == 0 ? FA_CAUSAL_NONE
                                                                  : FA_CAUSAL_BOTTOM_RIGHT,
                           .head_dim = head_dim,
                           .batch = 16384 / seq,
                           .heads_q = 2048 / head_dim,
                           .heads_kv = 2048 / head_dim,
                           .seq_q = seq,
                           .seq_k = seq};
    int rc = fixture_open(&fixture, &diag);
    if (rc == 0)
        rc = fa_catalogue_find(word[0], &gpu, &diag);
    if (rc == 0)
        rc = fixture_nvrtc(&nvrtc, &diag);
    if (rc == 0)
        rc = run(&diag);
    if (rc != 0)
        fprintf(stderr, "bench_compile: %s\n", diag.text);
    free(seconds);
    fa_space_free(&space);
    fa_nvrtc_close(&nvrtc);
    fixture_close(&fixture);
    return rc != 0;
}

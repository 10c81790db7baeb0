/* SPDX-License-Identifier: Apache-2.0
 *
 * Many sources to cubins, by the compile workers, for no GPU in particular.
 *
 * Workload: some hundred sources for a dozen architectures, a quarter of a second each.
 * Invariants: every build ends once, with a cubin or with the compiler's sentence; a worker that dies
 * over a build ends all, so that the result never depends on the machine's mood.
 */
#include "bundle_work.h"
#include "compile_pool.h"
#include "error.h"
#include "session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct building {
    const fa_records_options *options;
    fa_build *build;
    int32_t count, next, done;
    fa_compile_pool pool;
    fa_loop loop;
    bool ended;
    int rc;
    fa_diag diag;
};

static void end_building(void *context, int rc, const char *sentence)
{
    struct building *all = context;
    if (all->ended)
        return;
    all->ended = true;
    all->rc = rc != 0 ? fa_fail(&all->diag, rc, "%s", sentence) : 0;
    fa_loop_stop(&all->loop);
}

static bool next_build(void *context, fa_compile_task *ret_task)
{
    struct building *all = context;
    while (all->next < all->count && all->build[all->next].cubin != NULL)
        all->next++;
    if (all->ended || all->next == all->count)
        return false;
    fa_build *build = &all->build[all->next];
    *ret_task = (fa_compile_task){.id = all->next++,
                                  .name = "candidate.cu", /* as a tune names it: equal bytes */
                                  .source = build->source};
    memcpy(ret_task->architecture, build->architecture, sizeof ret_task->architecture);
    build->source = NULL;
    return true;
}

static void build_compiled(void *context, int id, fa_compile_result *result)
{
    struct building *all = context;
    fa_build *build = &all->build[id];
    const fa_records_options *options = all->options;
    if (result->rc != 0) {
        fa_fail(&build->diag, FA_ECOMPILE, "%s", result->text);
    } else {
        build->cubin = result->cubin;
        build->size = result->size;
        result->cubin = NULL;
        build->log = strdup(result->log);
    }
    all->done++;
    if (options->progress != NULL &&
        options->progress(options->context, "compiling", all->done, all->count) != 0)
        end_building(all, FA_ECANCELED, "canceled while compiling; nothing is written");
    if (all->done == all->count)
        end_building(all, 0, "");
}

/* A failure by chance or by load is no reason to leave a winner out. */
static void build_lost(void *context, int id, const char *reason, fa_child_end end, int waited_ms)
{
    char sentence[256];
    (void)id, (void)end, (void)waited_ms;
    snprintf(sentence, sizeof sentence, "a compile worker %.150s; nothing is written: try again",
             reason);
    end_building(context, FA_EWORKER, sentence);
}

static void worker_started(void *context, bool confined)
{
    (void)context, (void)confined;
}

static void go_on(void *context)
{
    struct building *all = context;
    if (!all->ended)
        fa_compile_pool_advance(&all->pool);
}

int fa_builds_run(fa_tuner *tuner, const fa_nvrtc_location *nvrtc, fa_build *build, int32_t count,
                  const fa_records_options *options, fa_diag *diag)
{
    static const fa_compile_events events = {next_build,     build_compiled, build_lost,
                                             worker_started, end_building,   go_on};
    int32_t there = 0;
    for (int32_t i = 0; i < count; i++)
        there += build[i].cubin != NULL;
    if (there == count)
        return 0;
    struct building *all = calloc(1, sizeof *all);
    if (all == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for compiling");
    all->options = options;
    all->build = build;
    all->count = count;
    all->done = there;
    fa_compile_setup setup = {.loop = &all->loop,
                              .worker_path = tuner->worker_path,
                              .nvrtc = nvrtc,
                              .templates = tuner->templates,
                              .strict_ms = tuner->strict_ms,
                              .timeout_ms = tuner->compile_timeout_ms};
    fa_compile_pool_init(&all->pool, &setup, &events, all);
    fa_compile_pool_widen(&all->pool, count - there < tuner->compile_workers
                                          ? count - there
                                          : tuner->compile_workers);
    fa_compile_pool_advance(&all->pool);
    if (!all->ended)
        fa_loop_run(&all->loop);
    fa_compile_pool_stop(&all->pool);
    fa_loop_close(&all->loop);
    int rc = all->rc;
    if (rc != 0)
        fa_fail(diag, rc, "%s", all->diag.text);
    free(all);
    return rc;
}

void fa_builds_free(fa_build *build, int32_t count)
{
    for (int32_t i = 0; build != NULL && i < count; i++) {
        free(build[i].source);
        free(build[i].cubin);
        free(build[i].log);
    }
    free(build);
}

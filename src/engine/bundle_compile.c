/* SPDX-License-Identifier: Apache-2.0
 *
 * Many sources to cubins, by the compile workers, for no GPU in particular.
 *
 * Workload: some hundred sources for a dozen architectures, a quarter of a second each.
 * Invariants: every build ends once, with a cubin or with the compiler's sentence; a worker that dies
 * over a build ends all, so that the result never depends on the machine's mood.
 */
#include "bundles.h"

#include "compile_worker.h"
#include "error.h"
#include "json.h"
#include "session.h"

#include <stdlib.h>
#include <string.h>

enum { NOTHING = -1, STARTS_IN_VAIN = 3 };

struct builder {
    struct building *all;
    fa_child *child;
    int32_t at; /* build under way, or NOTHING */
    bool ready;
};

struct building {
    fa_tuner *tuner;
    const fa_nvrtc_location *nvrtc;
    const fa_records_options *options;
    fa_build *build;
    int32_t count, next, done;
    struct builder builder[FA_WORKERS_MAX];
    int builders, starts_in_vain;
    fa_loop loop;
    bool ended;
    int rc;
    fa_diag diag;
};

static void end(struct building *all, int rc)
{
    if (all->ended)
        return;
    all->ended = true;
    all->rc = rc;
    fa_loop_stop(&all->loop);
}

static void advance(struct building *all);

static void settle(struct building *all, int32_t at, const char *failure)
{
    if (failure != NULL)
        fa_fail(&all->build[at].diag, FA_ECOMPILE, "%s", failure);
    all->done++;
    const fa_records_options *options = all->options;
    if (options->progress != NULL &&
        options->progress(options->context, "compiling", all->done, all->count) != 0)
        end(all, fa_fail(&all->diag, FA_ECANCELED, "canceled while compiling; nothing is written"));
    if (all->done == all->count)
        end(all, 0);
}

static void take_answer(struct building *all, int32_t at, fa_message *message)
{
    fa_build *build = &all->build[at];
    int64_t rc = FA_ECOMPILE, id = NOTHING;
    const char *text = "no reason given", *log = "";
    fa_json_int(message->json, "rc", INT32_MIN, 0, &rc, "message", NULL);
    fa_json_int(message->json, "id", 0, INT32_MAX, &id, "message", NULL);
    fa_json_text(message->json, "text", &text, "message", NULL);
    fa_json_text(message->json, "log", &log, "message", NULL);
    if (id != at)
        text = "the compiler answered out of turn";
    if (rc != 0 || id != at || message->blob == NULL) {
        settle(all, at, text);
        return;
    }
    build->cubin = message->blob;
    build->size = message->blob_size;
    message->blob = NULL;
    build->log = strdup(log);
    settle(all, at, NULL);
}

static void answered(fa_child *child, fa_message *message)
{
    struct builder *builder = fa_child_context(child);
    struct building *all = builder->all;
    int32_t at = builder->at;
    if (!builder->ready) {
        int64_t rc = FA_EWORKER;
        const char *text = "no reason given";
        fa_json_int(message->json, "rc", INT32_MIN, 0, &rc, "message", NULL);
        fa_json_text(message->json, "text", &text, "message", NULL);
        builder->ready = rc == 0;
        if (rc != 0)
            end(all, fa_fail(&all->diag, (int)rc, "compile worker: %s", text));
        all->starts_in_vain = 0;
    } else if (at != NOTHING) {
        builder->at = NOTHING;
        take_answer(all, at, message);
    }
    advance(all);
}

static void gone(fa_child *child, const char *reason, fa_child_end how)
{
    struct builder *builder = fa_child_context(child);
    struct building *all = builder->all;
    int32_t at = builder->at;
    (void)how;
    builder->child = NULL;
    builder->at = NOTHING;
    if (at != NOTHING) /* by chance or by load: no reason to leave a winner out */
        end(all, fa_fail(&all->diag, FA_EWORKER,
                         "a compile worker %s; nothing is written: try "
                         "again",
                         reason));
    else if (!builder->ready && ++all->starts_in_vain >= STARTS_IN_VAIN)
        end(all, fa_fail(&all->diag, FA_EWORKER, "compile worker %s %s", all->tuner->worker_path,
                         reason));
    advance(all);
}

static void start(struct building *all, struct builder *builder)
{
    static const fa_child_events events = {answered, gone};
    *builder = (struct builder){.all = all, .at = NOTHING};
    int rc = fa_compile_worker_start(&all->loop, all->tuner->worker_path, all->nvrtc,
                                     all->tuner->strict_ms, &events, builder, &builder->child,
                                     &all->diag);
    if (rc == 0)
        rc = fa_compile_worker_headers(builder->child, all->tuner->templates, &all->diag);
    if (rc != 0)
        end(all, rc);
}

static void give(struct building *all, struct builder *builder)
{
    const fa_build *build = &all->build[all->next];
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "do", "compile");
    cJSON_AddNumberToObject(json, "id", all->next);
    cJSON_AddStringToObject(json, "name", "candidate.cu"); /* as a tune names it: equal bytes */
    cJSON_AddStringToObject(json, "architecture", build->architecture);
    cJSON_AddStringToObject(json, "source", build->source);
    int rc =
        fa_child_send(builder->child, json, NULL, 0, all->tuner->compile_timeout_ms, &all->diag);
    cJSON_Delete(json);
    builder->at = all->next++;
    if (rc != 0)
        end(all, rc);
}

/* Gives idle workers work, and starts those that there is work for. */
static void advance(struct building *all)
{
    for (int i = 0; i < all->builders && !all->ended; i++) {
        struct builder *builder = &all->builder[i];
        while (all->next < all->count && all->build[all->next].cubin != NULL)
            all->next++;
        if (all->next == all->count)
            return;
        if (builder->child == NULL)
            start(all, builder);
        else if (builder->ready && builder->at == NOTHING)
            give(all, builder);
    }
}

int fa_builds_run(fa_tuner *tuner, const fa_nvrtc_location *nvrtc, fa_build *build, int32_t count,
                  const fa_records_options *options, fa_diag *diag)
{
    int32_t there = 0;
    for (int32_t i = 0; i < count; i++)
        there += build[i].cubin != NULL;
    if (there == count)
        return 0;
    struct building *all = calloc(1, sizeof *all);
    if (all == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for compiling");
    all->tuner = tuner;
    all->nvrtc = nvrtc;
    all->options = options;
    all->build = build;
    all->count = count;
    all->done = there;
    all->builders = count - there < tuner->compile_workers ? count - there : tuner->compile_workers;
    advance(all);
    if (!all->ended)
        fa_loop_run(&all->loop);
    for (int i = 0; i < all->builders; i++)
        fa_child_kill(all->builder[i].child);
    for (int i = 0; i < all->builders; i++)
        fa_child_stop(&all->builder[i].child);
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

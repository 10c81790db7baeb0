/* SPDX-License-Identifier: Apache-2.0 */
#include "pending_lookup.h"

#include "error.h"
#include "families.h"
#include "tuners.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool serve_pending_is_sweep(const serve_pending *pending)
{
    return pending->kind == SERVE_PENDING_SWEEP ||
           (pending->kind == SERVE_PENDING_JOB && pending->job->kind == SERVE_SWEEP);
}

int serve_lookup_request(serve_pending *pending, fa_request *ret_request, fa_diag *diag)
{
    const serve_service *service = pending->service;
    const fa_ask *ask = &pending->ask;
    fa_request request = {.size = sizeof request,
                          .problem = ask->problem,
                          .ordinal = ask->ordinal,
                          .effort = ask->effort,
                          .again = ask->again,
                          .exact = ask->exact,
                          .first_contact = ask->first_contact};
    snprintf(pending->gpu_name, sizeof pending->gpu_name, "%s", ask->gpu);
    bool here = ask->uuid[0] == 0;
    for (int i = 0; !here && i < service->device_count; i++)
        if (strcmp(service->device[i].uuid, ask->uuid) == 0) {
            here = true;
            pending->gpu_name[0] = 0;
            request.ordinal = service->device[i].ordinal;
        }
    if (!here && ask->gpu[0] == 0)
        return fa_fail(diag, FA_ENODEVICE,
                       "no device here has the uuid %s: GET /v1/gpus lists them", ask->uuid);
    request.gpu = pending->gpu_name[0] != 0 ? pending->gpu_name : NULL;
    *ret_request = request;
    return 0;
}

static int look_up_tune(serve_pending *pending)
{
    serve_service *service = pending->service;
    fa_request request;
    int rc = serve_lookup_request(pending, &request, &pending->diag);
    if (rc == 0 && pending->ask.family[0] != 0)
        rc = serve_family_open(service, pending->ask.family, &service->family, &pending->diag);
    if (rc == 0 && request.gpu == NULL && service->device_code != 0)
        rc = fa_fail(&pending->diag, service->device_code, "%s", service->device_reason.text);
    if (rc != 0)
        return rc;
    if (pending->as_good) {
        request.again = false;
        if (request.effort > FA_EFFORT_MEASURE)
            request.effort = FA_EFFORT_MEASURE;
    }
    fa_tuner *tuner = pending->ask.family[0] != 0 ? service->family.tuner : service->tuner;
    pending->found = (fa_found){.size = sizeof pending->found};
    rc = fa_find(tuner, &request, &pending->found, &pending->diag);
    if (rc != 0)
        return rc;
    pending->gpu = pending->found.gpu;
    return pending->found.answered ? serve_kernel_text(tuner, &pending->found.answer,
                                                       &pending->document, &pending->diag)
                                   : 0;
}

enum { NAMES_MAX = 64 };

/* Whether `name` is new; it is remembered, as long as there is room. */
static bool is_new(const char *names[NAMES_MAX], int *count, const char *name)
{
    for (int i = 0; i < *count; i++)
        if (strcmp(names[i], name) == 0)
            return false;
    if (*count < NAMES_MAX)
        names[(*count)++] = name;
    return true;
}

/* Reads a sweep and finds its runner: a device's runner where one of the items is for that device. */
static int look_up_sweep(serve_pending *pending)
{
    serve_service *service = pending->service;
    const char *names[NAMES_MAX]; /* looked up already */
    int asked = 0;
    int rc = fa_sweep_ask_read(pending->body->bytes, pending->body->size, &pending->sweep,
                               &pending->items, pending->plan, &pending->diag);
    if (rc == 0)
        rc = fa_sweep_key(&pending->sweep, pending->found.key, &pending->diag);
    for (int32_t i = 0; rc == 0 && i < pending->sweep.count && !pending->gpu.present; i++) {
        const char *name = pending->items[i].gpu;
        if (!is_new(names, &asked, name))
            continue;
        fa_request request = {.size = sizeof request,
                              .problem = pending->items[i].problem,
                              .gpu = name[0] != 0 ? name : NULL,
                              .ordinal = pending->sweep.ordinal,
                              .effort = FA_EFFORT_PREDICT};
        fa_found found = {.size = sizeof found};
        if (request.gpu == NULL && service->device_code != 0)
            rc = fa_fail(&pending->diag, service->device_code, "%s", service->device_reason.text);
        else
            rc = fa_find(service->tuner, &request, &found, &pending->diag);
        if (rc == 0)
            pending->gpu = found.gpu;
    }
    return rc;
}

static int look_up(serve_pending *pending)
{
    return serve_pending_is_sweep(pending) ? look_up_sweep(pending) : look_up_tune(pending);
}

void serve_lookup_work(serve_task *task, serve_thread *thread)
{
    serve_pending *pending = (serve_pending *)task;
    serve_service *service = pending->service;
    (void)thread;
    serve_find_devices(service);
    pending->rc = look_up(pending);
    if (serve_tuner_reopen(service, pending->rc)) {
        free(pending->items);
        pending->items = NULL;
        pending->rc = look_up(pending);
    }
    serve_tuner_watch(service);
}

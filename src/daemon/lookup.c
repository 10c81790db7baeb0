/* SPDX-License-Identifier: Apache-2.0
 *
 * What the lookup thread does for a flight: from its ask to an answer, or to what a tune is for.
 */
#include "flight.h"

#include "error.h"

#include <stdio.h>
#include <string.h>

int serve_flight_request(serve_flight *flight, fa_request *ret_request, fa_diag *diag)
{
    const serve_service *service = flight->service;
    const fa_ask *ask = &flight->ask;
    fa_request request = {.size = sizeof request,
                          .problem = ask->problem,
                          .ordinal = ask->ordinal,
                          .effort = ask->effort,
                          .again = ask->again,
                          .exact = ask->exact,
                          .first_contact = ask->first_contact};
    snprintf(flight->gpu_name, sizeof flight->gpu_name, "%s", ask->gpu);
    bool here = ask->uuid[0] == 0;
    for (int i = 0; !here && i < service->device_count; i++)
        if (strcmp(service->device[i].uuid, ask->uuid) == 0) {
            here = true;
            flight->gpu_name[0] = 0;
            request.ordinal = service->device[i].ordinal;
        }
    if (!here && ask->gpu[0] == 0)
        return fa_fail(diag, FA_ENODEVICE,
                       "no device here has the uuid %s: GET /v1/gpus lists them", ask->uuid);
    request.gpu = flight->gpu_name[0] != 0 ? flight->gpu_name : NULL;
    *ret_request = request;
    return 0;
}

static int look_up_tune(serve_flight *flight)
{
    serve_service *service = flight->service;
    fa_request request;
    fa_tuner *tuner = service->tuner;
    int rc = serve_flight_request(flight, &request, &flight->diag);
    if (rc == 0 && flight->ask.family[0] != 0)
        rc = serve_guest_open(service, flight->ask.family, &service->guest, &tuner, &flight->diag);
    if (rc == 0 && request.gpu == NULL && service->device_code != 0)
        rc = fa_fail(&flight->diag, service->device_code, "%s", service->device_reason.text);
    if (rc != 0)
        return rc;
    if (flight->as_good) {
        request.again = false;
        if (request.effort > FA_EFFORT_MEASURE)
            request.effort = FA_EFFORT_MEASURE;
    }
    flight->found = (fa_found){.size = sizeof flight->found};
    rc = fa_find(tuner, &request, &flight->found, &flight->diag);
    if (rc != 0)
        return rc;
    flight->gpu = flight->found.gpu;
    return flight->found.answered
               ? serve_compose(tuner, &flight->found.answer, &flight->document, &flight->diag)
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

/* Reads a sweep and finds whose runner it is for: a device's where one of its items is for that. */
static int look_up_sweep(serve_flight *flight)
{
    serve_service *service = flight->service;
    const char *names[NAMES_MAX]; /* looked up already */
    int asked = 0;
    int rc = fa_sweep_ask_read(flight->body, flight->body_size, &flight->sweep, &flight->items,
                               flight->plan, &flight->diag);
    if (rc == 0)
        rc = fa_sweep_key(&flight->sweep, flight->found.key, &flight->diag);
    for (int32_t i = 0; rc == 0 && i < flight->sweep.count && !flight->gpu.present; i++) {
        const char *name = flight->items[i].gpu;
        if (!is_new(names, &asked, name))
            continue;
        fa_request request = {.size = sizeof request,
                              .problem = flight->items[i].problem,
                              .gpu = name[0] != 0 ? name : NULL,
                              .ordinal = flight->sweep.ordinal,
                              .effort = FA_EFFORT_PREDICT};
        fa_found found = {.size = sizeof found};
        if (request.gpu == NULL && service->device_code != 0)
            rc = fa_fail(&flight->diag, service->device_code, "%s", service->device_reason.text);
        else
            rc = fa_find(service->tuner, &request, &found, &flight->diag);
        if (rc == 0)
            flight->gpu = found.gpu;
    }
    return rc;
}

void serve_flight_look_up(serve_task *task, serve_worker *worker)
{
    serve_flight *flight = (serve_flight *)task;
    serve_devices_know(flight->service);
    flight->rc = serve_flight_is_sweep(flight) ? look_up_sweep(flight) : look_up_tune(flight);
    serve_watch(worker, flight->service);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * A flight, as flights.c and lookup.c share it.
 */
#ifndef FA_DAEMON_FLIGHT_H
#define FA_DAEMON_FLIGHT_H

#include "service.h"

/* The order in which what a request asks for includes what another does. */
enum { WANTS_PREDICTED, WANTS_FIRST_CONTACT, WANTS_MEASURED, WANTS_AGAIN, WANTS_PATIENT };

struct serve_flight {
    serve_task task;
    serve_service *service;
    serve_flight *next, *previous;
    serve_flight_kind kind;
    char *body;
    size_t body_size;
    fa_ask ask;
    serve_cache_time when;
    serve_gathering waiters;
    serve_job *job; /* that it waits for, or that it is about */
    bool waits_for_job;
    bool as_good; /* what is stored now is what is wanted, also `again` */
    /* What the lookup thread writes. */
    int rc;
    fa_diag diag;
    fa_found found;
    char *document; /* when answered */
    fa_sweep_request sweep;
    fa_sweep_item *items;
    char plan[512];
    char gpu_name[64]; /* of the request; "": a device */
    fa_gpu gpu;        /* whose runner it is for */
};

bool serve_flight_is_sweep(const serve_flight *flight);
/* The request of its ask, whose gpu points to the flight's name. */
int serve_flight_request(serve_flight *flight, fa_request *ret_request, fa_diag *diag);
/* A serve_task.work, of the lookup thread. */
void serve_flight_look_up(serve_task *task, serve_worker *worker);

#endif

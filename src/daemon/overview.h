/* SPDX-License-Identifier: Apache-2.0
 *
 * The page and what it shows: the report's document, the fleet's queue, and the jobs as a stream.
 *
 * A separate thread with a tuner of its own reads reports and the queue, so that no lookup waits for them. One
 * report is made at a time, however many clients request it, and making reports takes at most a fifth of the time:
 * a report is kept for four times as long as it took, and after that until the store has changed. Every follower
 * gets the whole state of the jobs, at most twice a second and only when it has changed: a follower that falls
 * behind misses states and costs no memory.
 */
#ifndef FA_DAEMON_OVERVIEW_H
#define FA_DAEMON_OVERVIEW_H

#include "service.h"

void serve_get_page(serve_service *service, serve_exchange *exchange);
void serve_get_report(serve_service *service, serve_exchange *exchange);
void serve_get_queue(serve_service *service, serve_exchange *exchange);
void serve_get_events(serve_service *service, serve_exchange *exchange);

/* Sends the followers the state of the jobs if it has changed; and a comment. */
void serve_overview_send(serve_service *service);
void serve_overview_keep_alive(serve_service *service);
void serve_overview_stop(serve_service *service);
void serve_overview_free(serve_service *service);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The page and what it shows: the report's document, the fleet's queue, and the jobs as a stream.
 *
 * Reports and the queue are read on a thread of their own with a tuner of its own, so that no lookup
 * waits for them. However many ask, one report is made at a time, and in a fifth of the time at most: it
 * is kept for four times as long as it took, and after that until the store has changed.
 * Of the jobs every follower is told the whole state, at most twice a second and when it has changed:
 * who falls behind misses states, and costs no memory.
 */
#ifndef FA_DAEMON_OVERVIEW_H
#define FA_DAEMON_OVERVIEW_H

#include "service.h"

void serve_get_page(serve_service *service, serve_exchange *exchange);
void serve_get_report(serve_service *service, serve_exchange *exchange);
void serve_get_queue(serve_service *service, serve_exchange *exchange);
void serve_get_events(serve_service *service, serve_exchange *exchange);

void serve_overview_tell(serve_service *service);       /* followers, what has changed */
void serve_overview_keep_alive(serve_service *service); /* a comment to them */
void serve_overview_stop(serve_service *service);
void serve_overview_free(serve_service *service);

#endif

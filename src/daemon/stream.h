/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams of events: a reply that goes on until it is ended.
 */
#ifndef FA_DAEMON_STREAM_H
#define FA_DAEMON_STREAM_H

#include "exchange.h"

void serve_stream(serve_exchange *exchange);
/* Queues text. What may be dropped is, when the client has fallen behind. */
void serve_stream_send(serve_exchange *exchange, const char *text, size_t size, bool may_drop);
void serve_stream_end(serve_exchange *exchange); /* after what is queued */

#endif

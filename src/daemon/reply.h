/* SPDX-License-Identifier: Apache-2.0
 *
 * Replies: exactly one for an exchange, at once or later.
 */
#ifndef FA_DAEMON_REPLY_H
#define FA_DAEMON_REPLY_H

#include "exchange.h"
#include "page.h"

struct fa_buf;

/* The caller keeps its reference; NULL: memory was short, and the connection is cut off. */
void serve_reply(serve_exchange *exchange, unsigned status, serve_page *page);
/* The same; the caller's reference is given up. */
void serve_reply_page(serve_exchange *exchange, unsigned status, serve_page *page);
/* The page, or 304 with its ETag where the client's If-None-Match names it. */
void serve_reply_unless_known(serve_exchange *exchange, serve_page *page);
/* Text that was malloced, or NULL when memory was short; it is freed. */
void serve_reply_json(serve_exchange *exchange, unsigned status, char *text);
/* {"error": {"code": "FA_E…", "message": …}} with the code's status, and "job" where it is
 * given. */
void serve_reply_error(serve_exchange *exchange, int code, const char *message, const char *job);
/* The same with a status and, when positive, Retry-After. */
void serve_reply_refused(serve_exchange *exchange, unsigned status, int code, const char *message,
                         int retry_after_s);
/* To a client whose body found no room: it is to come back. */
void serve_reply_no_memory(serve_exchange *exchange);
unsigned serve_status_of(int code);
/* The error document; malloced. */
char *serve_error_text(int code, const char *message, const char *job);
/* A buffer's text, which is the caller's from here on; NULL when memory was short. */
char *serve_text_of(struct fa_buf *buf);
/* An error as a whole reply, written past libmicrohttpd to a connection that ends with it. */
void serve_send_alone(int fd, unsigned status, int code, const char *message);

#endif

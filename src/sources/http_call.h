/* SPDX-License-Identifier: Apache-2.0
 *
 * One HTTP request over a connection of its own: HTTP/1.0, so that the reply ends with the connection and has no chunks.
 */
#ifndef FA_SOURCES_HTTP_CALL_H
#define FA_SOURCES_HTTP_CALL_H

#include "buf.h"

typedef struct fa_http_address {
    char shown[320]; /* "unix:/path" or "http://host:port" */
    char path[108];  /* of a Unix socket; "" otherwise */
    char host[256], port[6];
    char token[256]; /* "": none */
} fa_http_address;

typedef struct fa_http_call {
    const char *target, *body; /* body: JSON that is posted; NULL: the target is got */
    bool events;  /* the reply may be a stream of events, of which the last one is wanted */
    size_t limit; /* bytes of the reply's body at most */
    int quiet_ms; /* limit without any byte received */
    /* About every 100 ms; a non-zero return ends the call. NULL: not called. */
    int (*idle)(void *context);
    void *context;
} fa_http_call;

typedef struct fa_http_reply {
    int status;    /* 200, 404, …; of a stream 200, or 422 where its last event is "failed" */
    char etag[80]; /* without its quotes */
    fa_buf body;
} fa_http_reply;

/* "unix:/path", "/path" or "http://host:port"; FA_EINVAL. */
int fa_http_parse(const char *text, fa_http_address *ret_address, fa_diag *diag);
/* 0 with a whole reply, whatever its status, whose body the caller frees; FA_ECANCELED: idle ended it; FA_ENOTFOUND: no
 * server listens; FA_ETIMEOUT; FA_EIO: the server closed the connection; FA_ECORRUPT: no reply of HTTP, or one larger than
 * the limit; FA_EUNTRUSTED: the socket is another user's. */
int fa_http_do(const fa_http_address *address, const fa_http_call *call, fa_http_reply *ret_reply,
               fa_diag *diag);

#endif

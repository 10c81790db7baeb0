/* SPDX-License-Identifier: Apache-2.0
 *
 * Where else winners come from: system bundles (system_bundles.c), and a service, `fa-tune serve` on this host's Unix socket
 * or on a TCP port with a token, whose texts are here, too (wire.c). Of its client (remote.c):
 * One question: POST /v1/kernel, and then GET /v1/cubins/KEY. What the server answers is the answer, also when that is a
 * failure of the request itself. When the server is gone, or cannot do its part, or says what cannot be, the caller does
 * without: one note, and the server is not asked again for a while.
 *
 * Invariants: any number of threads ask, each over a connection of its own, and none waits for another's question. Every
 * reply is hostile until checked: sizes, types, hashes, and who owns the socket.
 */
#ifndef FA_SOURCES_SOURCES_H
#define FA_SOURCES_SOURCES_H

#include "buf.h"
#include "fa_tune.h"
#include "json.h"
#include "session.h"

/* For fa_open. The server that options and environment name; *ret_service stays as it is when they name none. Opens
 * nothing yet. */
int fa_service_make(const fa_options *options, fa_service **ret_service, fa_diag *diag);
/* Whether it answers, for fa_doctor(). */
int fa_service_check(const fa_service *service, char *ret_text, size_t size, fa_diag *diag);

/* ---- one HTTP request, for a connection of its own: HTTP/1.0, so that the reply ends with it and has no chunks ----*/
typedef struct fa_http_address {
    char shown[320]; /* "unix:/path" or "http://host:port" */
    char path[108];  /* of a Unix socket; "" otherwise */
    char host[256], port[6];
    char token[256]; /* "": none */
} fa_http_address;

typedef struct fa_http_call {
    const char *target, *body; /* body: JSON that is posted; NULL: the target is got */
    int quiet_ms; /* limit without any byte received */
    /* Its progress() hears about every 100 ms that it waits, and may cancel the call; NULL: nobody's. */
    const fa_request *request;
} fa_http_call;

typedef struct fa_http_reply {
    int status; /* 200, 404, …; of a stream of events 200, or 422 where the last one is "failed" */
    char etag[80]; /* without its quotes */
    fa_buf body;   /* of a stream the data of the last event; NUL-terminated */
} fa_http_reply;

/* "unix:/path", "/path" or "http://host:port"; FA_EINVAL. */
int fa_http_parse(const char *text, fa_http_address *ret_address, fa_diag *diag);
/* 0 with a whole reply, whatever its status, whose body the caller frees; FA_ECANCELED: the request's progress() ended it; FA_ENOTFOUND: no
 * server listens; FA_ETIMEOUT; FA_EIO: the server closed the connection; FA_ECORRUPT: no reply of HTTP, or one larger than
 * the limit; FA_EUNTRUSTED: the socket is another user's. */
int fa_http_do(const fa_http_address *address, const fa_http_call *call, fa_http_reply *ret_reply,
               fa_diag *diag);

/* ---- texts of fa_service.h that the library itself reads and writes (wire.c) --------------------------*/
bool fa_is_sha256(const char *text); /* 64 hexadecimal digits */

extern const fa_member fa_sweep_members[], fa_each_members[]; /* of a fa_sweep; of a fa_ask */

int fa_ask_write(const fa_ask *ask, char **ret_text, fa_diag *diag);
/* {"answer": …}, of which other keys are passed over. */
int fa_kernel_read(const char *text, size_t size, fa_answer *ret_answer, fa_diag *diag);
/* A code that is not known reads as FA_EIO. */
int fa_failure_read(const char *text, size_t size, int *ret_code, fa_diag *ret_message,
                    fa_diag *diag);

/* ---- system bundles ---------------------------------------------------------------------------*/
/* One that is damaged or not to be believed is noted and passed over. */
int fa_system_make(void (*note)(void *context, const char *sentence), void *context,
                   fa_source **ret_source, fa_diag *diag);
/* Adds their winners of fa_bundle_winners_like(), each with its origin here. */
void fa_system_list(fa_source *system, const fa_problem *like, fa_list *list);

#endif

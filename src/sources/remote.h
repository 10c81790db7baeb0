/* SPDX-License-Identifier: Apache-2.0
 *
 * The client of a service: `fa-tune serve` on this host's Unix socket, or on a TCP port with a token.
 * fa_service.h describes the messages.
 *
 * Workload: one small request for each key that a process has not seen yet, over kept connections;
 * streams of events while something tunes.
 * Invariants: an fa_remote serves any number of threads, and no thread waits for another thread's request.
 * Every reply is hostile until checked: sizes, times, types, hashes, and who owns the socket.
 */
#ifndef FA_SOURCES_REMOTE_H
#define FA_SOURCES_REMOTE_H

#include "source.h"

#include "buf.h"
#include "hash.h"

#include <stdatomic.h>

/* ---- HTTP (remote_http.c): libcurl, opened at run time --------------------------------------*/
typedef struct fa_http fa_http;

typedef struct fa_http_call {
    const char *method, *path;
    const char *body; /* JSON, or NULL */
    size_t limit;     /* bytes of the reply's body at most */
    int64_t whole_ms; /* limit of the whole call; 0: no limit */
    int64_t quiet_ms; /* limit without any byte received */
    /* Receives the body of a reply with status 200, which then is not in the reply. A non-zero return ends
     * the call. */
    int (*data)(void *context, const char *bytes, size_t size);
    /* About every 100 ms; a non-zero return ends the call. */
    int (*idle)(void *context);
    void *context;
} fa_http_call;

typedef struct fa_http_reply {
    int status;        /* 200, 404, … */
    int retry_after_s; /* 0: the reply has none */
    char etag[80];     /* without its quotes */
    fa_buf body;
} fa_http_reply;

/* Opens nothing yet. "unix:/path", "/path" or "http://host:port"; FA_EINVAL. */
int fa_http_make(const char *address, const char *token, fa_http **ret_http, fa_diag *diag);
void fa_http_free(fa_http **http);
/* 0 with a whole reply, whatever its status; FA_ECANCELED: data or idle ended it; FA_ENOTFOUND: no server listens;
 * FA_ETIMEOUT; FA_EIO: the server closed the connection; FA_ECORRUPT: the body is larger than the limit;
 * FA_EUNTRUSTED: the socket is another user's; FA_ENOTSUP: no libcurl. The caller frees the reply's body. */
int fa_http_do(fa_http *http, const fa_http_call *call, fa_http_reply *ret_reply, fa_diag *diag);
const char *fa_http_address(const fa_http *http);
/* A Unix socket, of this user or root: only such a server's times and proofs are believed. A token identifies the
 * client to the server; it does not tell the client who listens on a port. */
bool fa_http_is_local(const fa_http *http);

/* ---- asking (remote.c, remote_tune.c) -------------------------------------------------------*/
typedef struct fa_remote {
    fa_source source;
    fa_http *http;
    _Atomic int64_t paused_until_ms; /* it is not asked before */
    _Atomic int64_t waited_ms;       /* in vain, for its last answer */
    atomic_bool gone;                /* it was given up, and has not answered since */
    atomic_bool noted;
} fa_remote;

/* For fa_open. */
int fa_service_make(fa_tuner *tuner, const fa_options *options, fa_source **ret_source,
                    fa_diag *diag);
fa_remote *fa_remote_of(const fa_tuner *tuner); /* NULL: no server is named */
/* From options and environment, *ret_remote NULL when no server is named. Opens nothing yet. */
int fa_remote_make(const fa_options *options, fa_remote **ret_remote, fa_diag *diag);
void fa_remote_free(fa_remote **remote);
/* Stops asking the server for a while, and notes that the first time. Returns FA_SOURCE_NONE. */
int fa_remote_give_up(fa_tuner *tuner, const char *why);
/* The same for this request alone: the next request asks the server again. */
int fa_remote_do_without(fa_tuner *tuner, const char *why);
bool fa_remote_usable(const fa_tuner *tuner);
/* Whether an error code of a server concerns the request rather than the server. */
bool fa_remote_is_answer(int code);

enum {
    FA_REMOTE_REPLY_MAX = 2 * FA_ANSWER_TEXT_MAX,
    FA_REMOTE_CUBIN_MAX = 64 << 20,
    FA_REMOTE_ASK_MS = 35000, /* a request that needs no tune; the GPU's driver may have to start first */
    FA_REMOTE_LONG_MS = 60000 /* a request whose reply may be large */
};

/* Returns 0 with a reply of status 200 or `other`, whose body the caller frees; the request's own failure;
 * FA_ECANCELED when idle() cancels; or FA_SOURCE_NONE. A temporary failure of the server is retried once. */
int fa_remote_ask(fa_tuner *tuner, const fa_http_call *call, int other, fa_http_reply *ret_reply,
                  fa_diag *diag);

/* The cubin of a server's answer: its key, and the hash and size of its bytes. */
typedef struct fa_remote_cubin {
    char key[FA_HASH_HEX], sha256[FA_HASH_HEX];
    size_t size; /* 0: no cubin */
} fa_remote_cubin;

/* Each returns 0, FA_SOURCE_NONE, or the error that the server answered. `work` is not held. */
int fa_remote_tune(fa_tuner *tuner, const fa_request *request, fa_answer *ret_answer,
                   fa_diag *diag);
/* For a device that is here. */
int fa_remote_kernel(fa_tuner *tuner, const fa_problem *problem, const fa_gpu *gpu,
                     fa_effort effort, fa_answer *ret_answer, fa_remote_cubin *ret_cubin,
                     fa_diag *diag);
int fa_remote_sweep(fa_tuner *tuner, const fa_sweep_request *request, fa_sweep *ret_sweep,
                    fa_diag *diag);
int fa_remote_winners(fa_tuner *tuner, fa_answer_visit *visit, void *context, fa_diag *diag);
/* FA_ENOTFOUND: the server has no such cubin. expected NULL: checks the bytes against the server's hash. */
int fa_remote_cubin_get(fa_tuner *tuner, const char *key, const fa_remote_cubin *expected,
                        void **ret_bytes, size_t *ret_size, fa_diag *diag);
/* Whether it answers, for fa_doctor(). */
int fa_remote_check(fa_remote *remote, char *ret_text, size_t size, fa_diag *diag);

/* ---- jobs -----------------------------------------------------------------------------------*/
/* Callbacks of fa_remote_follow. */
typedef struct fa_follower {
    int (*event)(void *context, const char *data, size_t size); /* data of a "progress" or "item" */
    int (*idle)(void *context);
    void *context;
} fa_follower;

/* Waits for a job's end. 0: ret_result is the result's text; FA_ECANCELED: the follower canceled (then the
 * job is canceled too), or another client did; FA_ENOTFOUND: the server does not know the job; FA_EIO or
 * FA_ETIMEOUT: the server is gone; any other code is the job's own failure, and *ret_answered is true. */
int fa_remote_follow(fa_http *http, const char *job, const fa_follower *follower,
                     fa_buf *ret_result, bool *ret_answered, fa_diag *diag);
int64_t fa_remote_now_ms(void);

#endif

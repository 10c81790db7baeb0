/* SPDX-License-Identifier: Apache-2.0
 *
 * Queries: work for a thread besides the loop's, for clients that wait for the answer or for the service itself; and
 * what is made of them: lists and cubins, the journal, the page, families of clients.
 */
#ifndef FA_DAEMON_QUERIES_H
#define FA_DAEMON_QUERIES_H

#include "buf.h"
#include "service.h"

/* ---- any query, lists and cubins (queries.c) ------------------------------------------------*/
typedef struct serve_query serve_query;
struct serve_query {
    serve_task task;
    serve_service *service;
    serve_waiters client;                           /* who waits; a report may have several */
    int (*work)(serve_query *query, fa_diag *diag); /* on its thread */
    serve_thread *apart; /* that thread; NULL: the lookup thread, with its tuner */
    serve_body *body;
    char gpu[64]; /* lists winners of this GPU type; "": of all types */
    int limit;
    char key[65]; /* of a cubin, or of a job */
    serve_cache_time when;
    uint64_t began_ns; /* of a report */
    unsigned status;   /* of a successful reply */
    int rc;
    fa_diag diag;
    fa_buf text; /* the reply, JSON; of the journal, a file's */
    void *bytes; /* of a cubin */
    size_t size;
};

/* Runs a query for `exchange`, which may be NULL. *query is copied, and the copy owns its body and text. The reply is the
 * query's text, unless done() is given: it replies and frees the query. Returns the copy, until it is done; NULL: out of
 * memory, and the exchange has its reply. */
serve_query *serve_query_submit(serve_service *service, serve_exchange *exchange,
                                const serve_query *query, void (*done)(serve_task *task));
void serve_query_free(serve_query *query);
void serve_get_winners(serve_service *service, serve_exchange *exchange);
void serve_get_cubin(serve_service *service, serve_exchange *exchange);
void serve_get_gpus(serve_service *service, serve_exchange *exchange);

/* ---- the journal (jobs.c) -------------------------------------------------------------------*/
/* On the journal's thread, as a query's work: takes the journal's directory and reads it. A failure: no job can be
 * kept, and why. */
int serve_journal_load(serve_query *query, fa_diag *diag);

/* ---- the page (overview.c) ------------------------------------------------------------------*/
/* The page and what it shows: the report's document, the fleet's queue, and the jobs as a stream.
 *
 * A separate thread with a tuner of its own reads reports and the queue, so that no lookup waits for them. One
 * report is made at a time, however many clients request it, and making reports takes at most a fifth of the time:
 * a report is kept for four times as long as it took, and after that until the store has changed. Every follower
 * gets the whole state of the jobs, at most twice a second and only when it has changed: a follower that falls
 * behind misses states and costs no memory. */
void serve_get_page(serve_service *service, serve_exchange *exchange);
void serve_get_report(serve_service *service, serve_exchange *exchange);
void serve_get_queue(serve_service *service, serve_exchange *exchange);
void serve_get_events(serve_service *service, serve_exchange *exchange);

/* Sends the followers the state of the jobs if it has changed; and a comment. */
void serve_overview_send(serve_service *service);
void serve_overview_keep_alive(serve_service *service);
void serve_overview_stop(serve_service *service);
void serve_overview_free(serve_service *service);

/* ---- families (families.c) ------------------------------------------------------------------*/
/* Kernel families that clients send, where the operator allows it: a manifest and a template, kept
 * beside the store in families/ID, ID being the SHA-256 of their content. Nothing of them is
 * trusted: manifests are bounded where they are read, source is compiled in strict workers only
 * (fa_options' untrusted_templates), and winners of a family are found by those who name its ID.
 * A kernel specification comes in the place of a manifest, and is an operation of its own, "NAME@HASH", which requests name.
 *
 * A family is made in families/.new-XXXXXX by a daemon that shares the lock of families/, and moved
 * when it is whole. A daemon that holds the lock alone knows that nobody makes a family, in any daemon
 * on this store: a folder of such a name was then left behind by a daemon that was killed. */
void serve_post_family(serve_service *service, serve_exchange *exchange);
/* Makes this the tuner of a client's family; it is opened unless it was asked for last. */
int serve_family_open(const serve_service *service, const char *id, serve_family_tuner *family,
                      fa_diag *diag);
/* Makes the operations of specifications known that were sent to earlier daemons on this store. */
void serve_families_load(const serve_service *service);
/* Removes what daemons that were killed had half made; on the thread that makes families, which would otherwise hold
 * the lock that this needs. */
void serve_families_clean(const serve_service *service);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Accepted jobs on disk, so that they outlive the process: one file for each job in a directory next to the store,
 * removed when the job has ended. Every daemon has its own directory, named after the address where it serves;
 * daemons in containers or on hosts that share a store may serve at the same path, and then each of them locks
 * another directory.
 *
 * A file: "fa-tune-job 1 KIND ID ACCEPTED\n" and the request's body as it came. The journal knows
 * nothing else about a job; a body that was read is checked as if a client had sent it.
 */
#ifndef FA_DAEMON_JOURNAL_H
#define FA_DAEMON_JOURNAL_H

#include "thread.h"

enum { SERVE_ID_SIZE = 33 };

typedef struct serve_journal {
    serve_thread *thread;
    char folder[1100];
    int lock;  /* held while this process lives; -1 */
    bool shut; /* nothing is written: the directory is not to be trusted, or another daemon's */
} serve_journal;

typedef struct serve_journal_entry {
    struct serve_journal_entry *next;
    char id[SERVE_ID_SIZE], kind[8]; /* "tune" or "sweep" */
    int64_t accepted_ms;             /* Unix time */
    char *body;
    size_t size;
} serve_journal_entry;

/* On the loop: the jobs of an earlier process, the first accepted first, which are freed after the
 * call. rc: no job can be kept, and why. */
typedef void serve_journal_loaded(void *context, const serve_journal_entry *first, int rc,
                                  const char *reason);
/* On the loop: the job is on disk, or could not be put there (rc). */
typedef void serve_journal_written(void *context, const char *id, int rc, const char *reason);

/* Takes the directory and reads it, on the journal's thread. `limit`: bytes of a body. */
void serve_journal_load(serve_journal *journal, size_t limit, serve_journal_loaded *loaded,
                        void *context);
/* Writes a job's file; false: out of memory, and written() is not called. */
bool serve_journal_add(serve_journal *journal, const serve_journal_entry *entry,
                       serve_journal_written *written, void *context);
void serve_journal_remove(serve_journal *journal, const char *id);
bool serve_is_id(const char *text); /* of a job */

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Child processes that answer messages, and the loop that waits for them.
 *
 * Workload: one child per core plus one, each given one message at a time and reused. A child may
 * hang, crash or be killed at any moment; only its own message is lost then.
 * The loop is poll(2) over the children's sockets. It needs no descriptor and no thread of its own, and
 * it cannot fail: a library must not end its host when descriptors or memory run out.
 * Thread-safety: everything happens on the loop's thread. No write raises SIGPIPE.
 */
#ifndef FA_BASE_POOL_H
#define FA_BASE_POOL_H

#include "buf.h"
#include "error.h"

#include <cJSON.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- messages -------------------------------------------------------------------------------*/
/* Messages between the engine and its worker processes: a JSON object and an optional blob, framed
 * with their lengths over a stream socket. Both ends treat the other as hostile: lengths are
 * bounded before anything is allocated, JSON is checked before it is used.
 *
 * Frame: "FAM1", u32 JSON bytes, u64 blob bytes, JSON, blob. */
enum { FA_FRAME_JSON_MAX = 8 << 20, FA_FRAME_BLOB_MAX = 64 << 20 };

typedef struct fa_message {
    cJSON *json;
    void *blob; /* NULL when there is none */
    size_t blob_size;
} fa_message;

void fa_message_free(fa_message *message); /* NULL and half-built ones are allowed */

/* Appends one frame to buf. */
int fa_message_encode(const cJSON *json, const void *blob, size_t blob_size, fa_buf *buf,
                      fa_diag *diag);
/* Takes one whole frame from the front of bytes. *ret_used is 0 when more bytes are needed. */
int fa_message_decode(const void *bytes, size_t size, fa_message *ret_message, size_t *ret_used,
                      fa_diag *diag);

/* Blocking forms, for the worker's end; the one that writes frees its JSON. FA_EIO at the end of the stream. */
int fa_message_write(int fd, cJSON *json, const void *blob, size_t blob_size, fa_diag *diag);
int fa_message_read(int fd, fa_message *ret_message, fa_diag *diag);

/* ---- children and their loop ----------------------------------------------------------------*/
typedef struct fa_child fa_child;

enum { FA_LOOP_CHILDREN_MAX = 320 };

/* All zeros is a loop without children. */
typedef struct fa_loop {
    fa_child *first; /* the children that run, and those that ended during this round */
    int count;
    bool stopped;
    int tick_ms; /* 0: `tick` is not called */
    uint64_t next_tick_ns;
    void (*tick)(void *context);
    void (*before_wait)(void *context); /* before each wait; NULL: nothing */
    pthread_mutex_t *held; /* by the loop's thread, but not while it waits; NULL: none */
    void *context;
} fa_loop;

/* Waits for children and calls their events, until the loop is stopped or has no child any more. */
void fa_loop_run(fa_loop *loop);
void fa_loop_stop(fa_loop *loop);
/* Stops the children that still run, and frees all. The loop may be used again. */
void fa_loop_close(fa_loop *loop);

uint64_t fa_clock_ns(void); /* of a clock that never goes back */
int64_t fa_clock_ms(void);
double fa_clock_s(void);

typedef enum fa_child_end {
    FA_CHILD_DIED, /* by itself: a crash, an exit, a broken message */
    FA_CHILD_KILLED, /* by another process, with a signal that no fault raises: the message is not to blame */
    FA_CHILD_TIMED_OUT, /* its deadline passed, and it was killed here */
    FA_CHILD_SHORT /* it ended with FA_CHILD_SHORT_CODE, or its answer could not be read for lack of memory
                           or because a read failed: the message is not to blame */
} fa_child_end;

/* Exit status of a child that ran out of memory or descriptors, or whose channel failed: EX_TEMPFAIL of sysexits.h. */
enum { FA_CHILD_SHORT_CODE = 75 };

typedef struct fa_child_events {
    /* The callee may keep the message (move it out and clear it); else it is freed afterwards. */
    void (*message)(fa_child *child, fa_message *message);
    /* The child is gone, by itself or killed; `reason` says how ("was killed by signal 11",
     * "did not answer within 10000 ms"). It is freed after this call. Not called for
     * fa_child_stop. */
    void (*gone)(fa_child *child, const char *reason, fa_child_end end);
} fa_child_events;

/* Starts `path` with `arguments` (argv, NULL-terminated) and environment (NULL: of this process's what CUDA
 * needs, no token or password). FA_EIO: no descriptor is left for the channel; FA_EWORKER: the program does
 * not start. */
int fa_child_start(fa_loop *loop, const char *path, char *const *arguments,
                   char *const *environment, const fa_child_events *events, void *context,
                   fa_child **ret_child, fa_diag *diag);
/* Kills the child without calling an event, and sets *child to NULL; NULL is allowed. The memory is
 * released when the loop next runs or is closed. */
void fa_child_stop(fa_child **child);

/* Kills the child and its process group and does not wait: called for many children before fa_child_stop, so that they
 * die at the same time. */
void fa_child_kill(fa_child *child); /* NULL is allowed */

/* Queues one message and, when timeout_ms > 0, sets the deadline for the next answer. */
int fa_child_send(fa_child *child, const cJSON *json, const void *blob, size_t blob_size,
                  int timeout_ms, fa_diag *diag);
/* Time for which the child was ready to run and got no CPU is added, up to nine times the timeout. */
void fa_child_deadline(fa_child *child, int timeout_ms); /* 0: none */
/* Lowers the child's priority: 1 to 19, as nice(1) counts; 19 runs only when no other process wants to (SCHED_IDLE); 0
 * does nothing. To be called soon after the start: threads that the child has already keep their priority. */
void fa_child_yield(fa_child *child, int nice);
void *fa_child_context(const fa_child *child);

/* The process's end of its socket. It notices a dead parent by the end of file there. */
enum { FA_CHILD_FD = 3 };

#endif

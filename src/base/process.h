/* SPDX-License-Identifier: Apache-2.0
 *
 * A process at the other end of a socket: how it starts, and how it ends.
 *
 * Workload: a worker per core, started once and reused; it may hang, crash or be killed at any moment.
 * Processes are started with posix_spawn (never fork: the host may have threads that hold locks) in a group of
 * their own, and reaped by pid, so that no SIGCHLD handler is installed in the host. A process sees its end of
 * the socket as descriptor FA_CHILD_FD and notices a dead parent by its end of file.
 * Invariant: no signal is sent to a pid that somebody has reaped. A pid that is 0 stands for none.
 */
#ifndef FA_BASE_PROCESS_H
#define FA_BASE_PROCESS_H

#include "error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { FA_CHILD_FD = 3 };

/* Starts `path` with `arguments` (argv, NULL-terminated) and environment (NULL: inherit). FA_EIO: no
 * descriptor is left for the socket; FA_EWORKER: the program does not start. */
int fa_process_start(const char *path, char *const *arguments, char *const *environment,
                     pid_t *ret_pid, int *ret_fd, fa_diag *diag);

typedef struct fa_process_end {
    bool known;     /* nobody else has reaped it, and it died in time */
    bool by_itself; /* it had ended before */
    int status;     /* as waitpid tells it */
} fa_process_end;

/* Kills it with its group where it runs, and reaps it. */
fa_process_end fa_process_finish(pid_t pid);
/* Tells it and its group to die and does not wait. */
void fa_process_kill(pid_t pid);
/* End of file on the socket comes a moment before the exit status: waits for that, 50 ms at most. */
void fa_process_await(pid_t pid);

/* How long its first thread, which does its work, has been ready to run and did not; 0: the kernel does
 * not tell. */
uint64_t fa_process_waited_ns(pid_t pid);
/* Lets other processes go first: 1 to 19, as nice(1) counts; 19 computes only where nobody else
 * wants to (SCHED_IDLE). 0: nothing. Soon after its start: threads that it has already stay. */
void fa_process_yield(pid_t pid, int nice);

#endif

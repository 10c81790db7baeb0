/* SPDX-License-Identifier: Apache-2.0
 *
 * One call of a kernel for one problem: the launches that it takes, and how an operation turns the
 * caller's arguments into the kernel's.
 *
 * Workload: each layer of every step, from any thread. Nothing is allocated and nothing waits.
 *
 * May be used by: tuner/ops, engine. Thread-safety: a call is constant once it is made.
 */
#ifndef FA_TUNER_OPS_CALL_H
#define FA_TUNER_OPS_CALL_H

#include "../launches.h"
#include "../../src/gpu/driver.h"

enum { FA_CALL_ARGUMENTS = 4 }; /* of a kernel, the address of its workspace included */

/* What a call of more than one launch, or with a workspace, has besides; one such call may run at a
 * time. */
typedef struct fa_call_composed {
    fa_launches launches;
    fa_function function[FA_LAUNCHES_MAX];
    fa_device_ptr workspace; /* belongs to the loaded cubin */
} fa_call_composed;

typedef struct fa_call {
    const struct fa_launcher *launcher;
    fa_driver *driver;
    void *shared; /* what launcher->load made */
    fa_function function;
    uint32_t grid[3], threads, smem_bytes;
    bool empty;                 /* there is nothing to compute */
    fa_call_composed *composed; /* NULL: one launch, without a workspace */
} fa_call;

/* An operation's part of fa_launch. */
typedef struct fa_launcher {
    /* Makes what all launches of an entry of a loaded cubin share (NULL: nothing). FA_ECORRUPT: the
     * entry does not take what it would be passed; `workspace`: the address of one too. */
    int (*load)(fa_driver *driver, const fa_problem *problem, const void *cubin, size_t size,
                const char *entry, bool workspace, void **ret_shared, fa_diag *diag);
    void (*unload)(void **shared);
    /* Checks the caller's arguments, a struct of the operation's own that is not NULL, and launches. */
    int (*launch)(const fa_call *call, const fa_problem *problem, const void *args,
                  fa_stream stream, fa_diag *diag);
} fa_launcher;

/* The workspace of a call, 0: it has none. The caller's, where he brings one: FA_EINVAL when that is too small. */
int fa_call_workspace(const fa_call *call, void *brought, size_t bytes, fa_device_ptr *ret_at,
                      fa_diag *diag);

/* All launches of a call. The first `count` entries of `arguments` are set; the address of the workspace
 * follows them, where the call has one. */
int fa_call_run(const fa_call *call, void *arguments[FA_CALL_ARGUMENTS], int count,
                fa_device_ptr workspace, fa_stream stream, fa_diag *diag);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * One call of a kernel for one problem: the launches that it takes, and how an operation turns the
 * caller's arguments into the kernel's.
 *
 * Workload: each layer of every step, from any thread. Only the first launch on a stream, or of a larger kernel there,
 * allocates.
 *
 * May be used by: tuner/ops, engine. Thread-safety: a call is constant once it is made.
 */
#ifndef FA_TUNER_OPS_CALL_H
#define FA_TUNER_OPS_CALL_H

#include "driver.h"
#include "error.h"
#include "fa_types.h"

#include <stdatomic.h>

/* ---- the launches of one call: most kernels have one; a split over keys has two -----------------*/
enum {
    FA_LAUNCHES_MAX = 5,
    FA_SCRATCH_MAX = 4,             /* arguments that are scratch */
    FA_THE_ANSWER = FA_LAUNCHES_MAX /* in place of a launch: the kernel that says what is right */
};

/* A kernel of a cubin, and what it is to be passed. */
typedef struct fa_cubin_entry {
    const void *cubin;
    size_t size;
    const char *name;
    int launch;               /* which of a call's it is for, or FA_THE_ANSWER */
    bool workspace, counters; /* their addresses, too */
} fa_cubin_entry;

/* What a manifest's "work" tells of a launch, for the cost model, in the order of its keys: of all blocks together. */
typedef enum fa_work {
    FA_WORK_STEPS, /* what the others are multiplied by; 1 unless it is told */
    FA_WORK_MMA_FLOPS,
    FA_WORK_WGMMA_FLOPS,
    FA_WORK_EXPONENTIALS,
    FA_WORK_OPERATIONS, /* of FP32 and integer lanes */
    FA_WORK_SHARED_BYTES,
    FA_WORK_L2_BYTES,
    FA_WORK_BYTES,  /* of device memory */
    FA_WORK_CLOCKS, /* that a block waits and only other blocks of its SM fill */
    FA_WORKS
} fa_work;

typedef struct fa_launch_shape {
    int32_t threads, smem_bytes; /* of one block */
    uint32_t block[3];           /* its sides, of `threads` in all */
    uint32_t grid[3];
    unsigned how;          /* of fa_launch_how() */
    double work[FA_WORKS]; /* all 0: not told */
} fa_launch_shape;

/* In the order in which they run, one behind the other on one stream. */
typedef struct fa_launches {
    int32_t count;
    fa_launch_shape at[FA_LAUNCHES_MAX];
    /* scratch that all launches of a call share, its content unknown; 0: none */
    int64_t workspace_bytes;
    int64_t scratch[FA_SCRATCH_MAX]; /* where in it the arguments begin that are scratch */
    /* 32-bit words that are 0 before and after a call, for one stream alone; 0: none */
    int64_t counters;
    int32_t splits; /* that a kernel is told: into how many parts it cuts its keys */
} fa_launches;

/* ---- a call ----------------------------------------------------------------------------------*/
/* Of a kernel, the addresses of its workspace and counters included. */
enum { FA_CALL_ARGUMENTS = 46 };

/* What a call of more than one launch, or with memory between its blocks, has besides. */
typedef struct fa_call_composed {
    fa_launches launches;
    fa_function function[FA_LAUNCHES_MAX];
    fa_stream_memory *memory; /* of the context */
} fa_call_composed;

/* The memory of one call; 0: it has none. */
typedef struct fa_call_memory {
    fa_device_ptr workspace, counters;
    fa_stream_lease lease;
} fa_call_memory;

typedef struct fa_call {
    const struct fa_launcher *launcher;
    fa_driver *driver;
    void *shared; /* what launcher->load made */
    fa_function function;
    uint32_t grid[3], threads, smem_bytes;
    bool empty;                 /* there is nothing to compute */
    /* NULL: one launch of blocks with one side, without a workspace or counters */
    fa_call_composed *composed;
} fa_call;

/* An operation's part of fa_launch. */
typedef struct fa_launcher {
    /* Makes what all launches of an entry of a loaded cubin share (NULL: nothing); the module lives as long. No module: the
     * entry is looked at alone. FA_ECORRUPT: it does not take what it would be passed. */
    int (*load)(fa_module *module, const fa_problem *problem, const fa_cubin_entry *entry,
                void **ret_shared, fa_diag *diag);
    void (*unload)(void **shared);
    /* Checks the caller's arguments, a struct that is not NULL, and launches: fa_args, or where `argument` is NULL one of
     * the operation's own. */
    int (*launch)(const fa_call *call, const fa_problem *problem, const void *args,
                  fa_stream stream, fa_diag *diag);
    /* As fa_kernel_argument. */
    int (*argument)(const fa_call *call, const fa_problem *problem, int32_t index,
                    fa_argument *ret_argument);
} fa_launcher;

/* The memory of a call on this stream. The workspace is the caller's if `brought` is not NULL: FA_EINVAL when it is too
 * small. Counters, and a workspace that is not brought, are the stream's own until fa_stream_memory_leave(), which follows
 * the launches. */
static inline int fa_call_take_memory(const fa_call *call, void *brought, size_t bytes,
                                      fa_stream stream, fa_call_memory *ret_memory, fa_diag *diag)
{
    const fa_call_composed *composed = call->composed;
    size_t needed = composed != NULL ? (size_t)composed->launches.workspace_bytes : 0;
    size_t counters = composed != NULL ? 4 * (size_t)composed->launches.counters : 0;
    fa_stream_lease lease = {.stream = stream};
    if (needed > 0 && brought != NULL && (bytes < needed || (uintptr_t)brought % 256 != 0))
        return fa_fail(diag, FA_EINVAL,
                       "the workspace of %zu bytes at %p will not do: fa_kernel_workspace says "
                       "%zu bytes, and they must be 256-byte aligned",
                       bytes, brought, needed);
    size_t own[FA_STREAM_KINDS] = {
        [FA_STREAM_COUNTERS] = counters, [FA_STREAM_SCRATCH] = brought == NULL ? needed : 0};
    int rc = 0;
    if (own[FA_STREAM_COUNTERS] > 0 || own[FA_STREAM_SCRATCH] > 0)
        rc = fa_stream_memory_take(composed->memory, stream, own, &lease, diag);
    if (rc == 0)
        *ret_memory =
            (fa_call_memory){needed > 0 && brought != NULL ? (fa_device_ptr)(uintptr_t)brought
                                                           : lease.at[FA_STREAM_SCRATCH],
                             lease.at[FA_STREAM_COUNTERS], lease};
    return rc;
}

/* Of a config, or of sizes, that the launch is not for (point.c). */
bool fa_launch_is_left_out(const fa_launch_shape *launch);
/* A launch of the function, which takes as many of the arguments as its kernel does; none that is left out. */
int fa_launch_shaped(fa_driver *driver, const fa_launch_shape *launch, fa_function function,
                     void **arguments, fa_stream stream, fa_diag *diag);
static inline int fa_call_launches(const fa_call *call)
{
    return call->composed != NULL ? call->composed->launches.count : 1;
}
/* One of a call's launches, which run in their order. The first `count` entries of `arguments` are set; the addresses of the
 * workspace and of the counters follow them. */
static inline int fa_call_run(const fa_call *call, int launch, void *arguments[FA_CALL_ARGUMENTS],
                              int count, fa_call_memory *memory, fa_stream stream, fa_diag *diag)
{
    const fa_call_composed *composed = call->composed;
    if (composed == NULL)
        return fa_launch_kernel(call->driver, call->function, call->grid,
                                (const uint32_t[]){call->threads, 1, 1}, call->smem_bytes, stream,
                                arguments, diag);
    if (composed->launches.workspace_bytes > 0)
        arguments[count++] = &memory->workspace;
    arguments[count] = &memory->counters;
    return fa_launch_shaped(call->driver, &composed->launches.at[launch],
                            composed->function[launch], arguments, stream, diag);
}

/* ---- tensor maps (generic.c) -----------------------------------------------------------------*/
enum { FA_MAPS_MAX = 4, FA_MAP_SETS = 8 };
/* The maps of the last sets of tensors that the launches of a cubin had. A thread that does not get the flag goes without them, so
 * nobody ever waits for anybody, not even for one that was stopped. */
typedef struct fa_kept_maps {
    atomic_flag taken;
    unsigned next; /* to be replaced */
    struct {
        unsigned char key[FA_MAPS_MAX * sizeof(fa_tensor_shape)]; /* zeros: nothing here */
        unsigned char map[FA_MAPS_MAX][FA_TENSOR_MAP_BYTES];
    } set[FA_MAP_SETS];
} fa_kept_maps;

/* The maps that were made for this key of `size` bytes, one behind the other; false: they are not kept. */
bool fa_maps_find(fa_kept_maps *kept, const void *key, size_t size, int count, void *ret_maps);
/* Makes the maps of these tensors, and keeps them for the key. FA_EALIGN as fa_tensor_map_encode(). */
int fa_maps_make(fa_kept_maps *kept, fa_driver *driver, const void *key, size_t size, int count,
                 const fa_tensor_shape *shape, void *ret_maps, fa_diag *diag);

#endif

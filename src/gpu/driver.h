/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA driver, opened at run time. The only room that knows CUDA; callers see devices,
 * modules, device memory, events and launches, each with errors as sentences.
 *
 * May be used by: tuner, engine. May not use: db, tuner, engine, doors.
 * Thread-safety: an fa_driver may be shared by threads; calls act on the calling thread's current
 * context. A forked child may not use CUDA after its parent has: every entry point compares the pid
 * and answers FA_EFORKED.
 */
#ifndef FA_GPU_DRIVER_H
#define FA_GPU_DRIVER_H

#include "fa_types.h"

#include <stdbool.h>

typedef struct fa_driver fa_driver;
typedef uint64_t fa_device_ptr;
typedef struct fa_module fa_module;
typedef void *fa_stream;   /* CUstream */
typedef void *fa_event;    /* CUevent */
typedef void *fa_function; /* CUfunction */

/* dlopens libcuda.so.1 (or the file FA_TUNE_LIBCUDA names) and calls cuInit. One per process:
 * later opens return the same driver and count references.
 * FA_ENODRIVER: library or symbol missing, or too old (the sentence says which); FA_ENODEVICE:
 * driver present, no device. */
int fa_driver_open(fa_driver **ret_driver, fa_diag *diag);
void fa_driver_close(fa_driver **driver);
int fa_driver_version(const fa_driver *driver); /* 13000 for 13.0 */
/* The same without a driver being started or a device being looked for; 0: there is no driver. */
int fa_driver_peek_version(void);

int fa_driver_device_count(fa_driver *driver);
/* Limits queried from the device, tensor peak derived from SM and clock. */
int fa_driver_device(fa_driver *driver, int ordinal, fa_gpu *ret_gpu, fa_diag *diag);

/* A number for the calling thread's current context that no other context of this process gets, not
 * even a later one at the same address; 0: there is none. A cheap call. */
uint64_t fa_driver_context_id(fa_driver *driver);
/* The ordinal of the current context's device. */
int fa_driver_current_device(fa_driver *driver, int *ret_ordinal, fa_diag *diag);

/* Whether the calling thread's current context is one of the device. A cheap call. */
bool fa_driver_is_on(fa_driver *driver, int ordinal);
/* Makes the device's primary context current, and leaves it; never resets it. It is retained once and for good: who enters
 * thousands of times a second pays for a push and a pop. */
int fa_driver_enter(fa_driver *driver, int ordinal, fa_diag *diag);
void fa_driver_leave(fa_driver *driver);

/* Loads a cubin into the current context. FA_ENOTSUP: built for another architecture (209). */
int fa_module_load(fa_driver *driver, const void *cubin, size_t size, fa_module **ret_module,
                   fa_diag *diag);
void fa_module_unload(fa_module **module); /* NULL is allowed */
/* Finds an entry and allows it smem_bytes of dynamic shared memory. */
int fa_module_function(fa_module *module, const char *entry, int32_t smem_bytes,
                       fa_function *ret_function, fa_diag *diag);
/* Where a variable of the module lies, as fa_cubin_variable() finds it, and its bytes. FA_ENOTFOUND: there is none. */
int fa_module_variable(fa_module *module, const char *name, fa_device_ptr *ret_at,
                       size_t *ret_bytes, fa_diag *diag);
/* For launches of kernels whose variables are filled anew before each: they are the module's, one for all streams. Between
 * the two no other thread enters, and the stream waits for what was put on other streams there before. A stream that is
 * captured waits for nothing, because a graph may not; replays of graphs are the caller's to order. Leave after an enter that
 * returned 0, whatever failed between. */
int fa_module_enter(fa_module *module, fa_stream stream, fa_diag *diag);
int fa_module_leave(fa_module *module, fa_stream stream, fa_diag *diag);

/* arguments: array of pointers to the kernel's parameters, as cuLaunchKernel takes them.
 * No allocation, no synchronisation: the hot path. diag is written on failure only. */
int fa_launch_kernel(fa_driver *driver, fa_function function, const uint32_t grid[3],
                     const uint32_t block[3], uint32_t smem_bytes, fa_stream stream,
                     void **arguments, fa_diag *diag);
/* The same; `how`: of FA_LAUNCH_COOPERATIVE, all blocks are resident at once, or nothing is launched; FA_LAUNCH_PROGRAMMATIC, the
 * kernel may begin before the one in front of it has ended (CUDA's programmatic dependent launch). */
enum { FA_LAUNCH_COOPERATIVE = 1, FA_LAUNCH_PROGRAMMATIC = 2 };
int fa_launch_how(fa_driver *driver, fa_function function, const uint32_t grid[3],
                  const uint32_t block[3], unsigned how, uint32_t smem_bytes, fa_stream stream,
                  void **arguments, fa_diag *diag);

/* A tensor as TMA sees it. Dimensions are innermost first; stride[i] is of dimension i + 1. It has no padding, so that two of
 * them are compared as bytes. */
enum { FA_TENSOR_MAP_BYTES = 128, FA_TENSOR_MAP_RANK = 5 };
enum { FA_MAP_UINT8 = 0, FA_MAP_FLOAT16 = 6, FA_MAP_BFLOAT16 = 9 }; /* of CUtensorMapDataType */
typedef struct fa_tensor_shape {
    const char *name;                        /* for sentences */
    fa_device_ptr base;                      /* 16-byte aligned */
    uint64_t extent[FA_TENSOR_MAP_RANK];     /* elements, 0..2^32 */
    uint64_t stride[FA_TENSOR_MAP_RANK - 1]; /* bytes, multiples of 16 below 2^40 */
    uint32_t box[FA_TENSOR_MAP_RANK];        /* elements, 1..256 */
    uint32_t rank, type;                     /* of CUtensorMapDataType */
    uint16_t swizzle;                        /* bytes: 0, 32, 64 or 128 */
    uint16_t promotion; /* bytes fetched by L2: 256; 0: 256 or 128, by strides */
} fa_tensor_shape;

/* Encodes the map into FA_TENSOR_MAP_BYTES. A host call of well under a microsecond; the tensor is not touched. A dimension of
 * at most one element may have any stride. FA_EALIGN: the driver refuses such a tensor, which the sentence names. */
int fa_tensor_map_encode(fa_driver *driver, const fa_tensor_shape *shape, void *ret_map,
                         fa_diag *diag);

int fa_device_alloc(fa_driver *driver, size_t size, fa_device_ptr *ret_ptr, fa_diag *diag);
void fa_device_free(fa_driver *driver, fa_device_ptr *ptr); /* 0 is allowed; sets it to 0 */
int fa_device_memory(fa_driver *driver, size_t *ret_free, size_t *ret_total, fa_diag *diag);
int fa_copy_to_device(fa_driver *driver, fa_device_ptr to, const void *from, size_t size,
                      fa_diag *diag);
int fa_copy_from_device(fa_driver *driver, void *to, fa_device_ptr from, size_t size,
                        fa_diag *diag);
/* A profiler that watches this process counts the launches between on and off alone. */
int fa_profiler_turn(fa_driver *driver, bool on, fa_diag *diag);
/* Asynchronous on stream. */
int fa_copy_on_device(fa_driver *driver, fa_device_ptr to, fa_device_ptr from, size_t size,
                      fa_stream stream, fa_diag *diag);
int fa_fill8(fa_driver *driver, fa_device_ptr ptr, uint8_t value, size_t count, fa_stream stream,
             fa_diag *diag);
int fa_fill16(fa_driver *driver, fa_device_ptr ptr, uint16_t value, size_t count, fa_stream stream,
              fa_diag *diag);
int fa_fill32(fa_driver *driver, fa_device_ptr ptr, uint32_t value, size_t count, fa_stream stream,
              fa_diag *diag);

int fa_stream_create(fa_driver *driver, fa_stream *ret_stream, fa_diag *diag);
void fa_stream_destroy(fa_driver *driver, fa_stream *stream);
int fa_stream_captured(fa_driver *driver, fa_stream stream, bool *ret_captured, fa_diag *diag);
int fa_stream_synchronize(fa_driver *driver, fa_stream stream, fa_diag *diag);
int fa_event_create(fa_driver *driver, fa_event *ret_event, fa_diag *diag);
void fa_event_destroy(fa_driver *driver, fa_event *event);
int fa_event_record(fa_driver *driver, fa_event event, fa_stream stream, fa_diag *diag);
/* Waits for `stop`; microseconds between the two. */
int fa_event_elapsed_us(fa_driver *driver, fa_event start, fa_event stop, double *ret_us,
                        fa_diag *diag);

/* True when the last failure means that the context is lost (illegal address, launch timeout,
 * hardware fault, …): the process must end. */
bool fa_driver_context_lost(const fa_driver *driver);
/* CUresult of the last failure on this thread (0: none), for telling out-of-memory from others. */
int fa_driver_last_result(const fa_driver *driver);

/* ---- memory of a stream (stream_memory.c) ----------------------------------------------------*/
/* Device memory that launches may rely on: each stream of a context, and each graph that is captured,
 * has its own, and nobody else writes there.
 *
 * Workload: asked before each launch of a kernel that has counters, or scratch that its caller did not
 * bring. A stream that asked before costs three calls of the driver that touch no device; only the
 * first time, or a larger kernel, allocates, also while a stream is captured.
 * Invariants: counters are zero when they are handed out first, and every launch leaves them zero, so
 * launches that follow one another on a stream share them; each captured launch has its own. The
 * content of scratch is unknown; launches that one capture takes from one stream share it, so whoever
 * lets two of them run at once in the graph must bring workspaces. What a
 * capture was given serves that graph alone, until the graph and all that was instantiated from it are
 * destroyed; two executables of one graph must not run at the same time, nor one graph that is a child
 * of another twice; what they leave in its counters reaches no other graph. Memory is kept for at most 64 streams, unless more launch at the same moment: the first 16 keep
 * theirs until it is freed; what a later stream was given serves another when its launches have ended, or after them.
 *
 * May be used by: tuner, engine. Thread-safety: take and leave from any thread at any time. */
typedef struct fa_stream_memory fa_stream_memory;

enum { FA_STREAM_COUNTERS, FA_STREAM_SCRATCH, FA_STREAM_KINDS };

/* The memory of the launches between take and leave. */
typedef struct fa_stream_lease {
    fa_device_ptr at[FA_STREAM_KINDS]; /* 0 where no bytes were asked for */
    fa_stream stream;
    struct fa_stream_owner *lent; /* NULL: the stream or the graph keeps it */
} fa_stream_lease;

/* Of the calling thread's current context, with counters for the first streams. Not while a stream is
 * captured. */
int fa_stream_memory_create(fa_driver *driver, fa_stream_memory **ret_memory, fa_diag *diag);
/* Frees the device memory, which no launch may use any more. NULL is allowed. */
void fa_stream_memory_free(fa_stream_memory **memory);

/* At least `bytes` of each kind for launches on this stream of the context, 256-byte aligned. FA_ECUDA, FA_ENOMEM. */
int fa_stream_memory_take(fa_stream_memory *memory, fa_stream stream,
                          const size_t bytes[FA_STREAM_KINDS], fa_stream_lease *ret_lease,
                          fa_diag *diag);
/* After the launches, whether they succeeded or not. Zeros are allowed. */
void fa_stream_memory_leave(const fa_stream_lease *lease);

#endif

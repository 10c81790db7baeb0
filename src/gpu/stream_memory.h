/* SPDX-License-Identifier: Apache-2.0
 *
 * Device memory that launches may rely on: each stream of a context, and each graph that is captured,
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
 * of another twice. What a stream was given
 * stays its own until the memory is freed: a stream's id is never given out again.
 *
 * May be used by: tuner, engine. Thread-safety: fa_stream_memory_take from any thread at any time.
 */
#ifndef FA_GPU_STREAM_MEMORY_H
#define FA_GPU_STREAM_MEMORY_H

#include "driver.h"

typedef struct fa_stream_memory fa_stream_memory;

enum { FA_STREAM_COUNTERS, FA_STREAM_SCRATCH, FA_STREAM_KINDS };

/* Of the calling thread's current context, with counters for the first streams. Not while a stream is
 * captured. */
int fa_stream_memory_create(fa_driver *driver, fa_stream_memory **ret_memory, fa_diag *diag);
/* Frees the device memory, which no launch may use any more. NULL is allowed. */
void fa_stream_memory_free(fa_stream_memory **memory);

/* At least `bytes` of each kind for launches on this stream of the context, 256-byte aligned; of a kind with 0
 * bytes nothing, and ret_at is 0. FA_ECUDA, FA_ENOMEM. */
int fa_stream_memory_take(fa_stream_memory *memory, fa_stream stream,
                          const size_t bytes[FA_STREAM_KINDS],
                          fa_device_ptr ret_at[FA_STREAM_KINDS], fa_diag *diag);

#endif

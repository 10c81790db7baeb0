/* SPDX-License-Identifier: Apache-2.0
 *
 * The launches of one call of a kernel: most kernels have one; a split over keys has two.
 */
#ifndef FA_TUNER_LAUNCHES_H
#define FA_TUNER_LAUNCHES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

#endif

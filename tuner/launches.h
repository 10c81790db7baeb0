/* SPDX-License-Identifier: Apache-2.0
 *
 * The launches of one call of a kernel: most kernels have one; a split over keys has two.
 */
#ifndef FA_TUNER_LAUNCHES_H
#define FA_TUNER_LAUNCHES_H

#include <stdint.h>

enum { FA_LAUNCHES_MAX = 4 };

typedef struct fa_launch_shape {
    int32_t threads, smem_bytes; /* of one block */
    uint32_t block[3];           /* its sides, of `threads` in all */
    uint32_t grid[3];
} fa_launch_shape;

/* In the order in which they run, one behind the other on one stream. */
typedef struct fa_launches {
    int32_t count;
    fa_launch_shape at[FA_LAUNCHES_MAX];
    int64_t
        workspace_bytes; /* scratch that all launches of a call share, its content unknown; 0: none */
    int64_t
        counters; /* 32-bit words that are 0 before and after a call, for one stream alone; 0: none */
    int32_t splits;          /* that a kernel is told: into how many parts it cuts its keys */
} fa_launches;

#endif

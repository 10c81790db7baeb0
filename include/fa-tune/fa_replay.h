/* SPDX-License-Identifier: Apache-2.0
 *
 * How well each way of searching does, tried without a GPU on spaces that were once measured whole.
 *
 * Part of fa_tune.h. Needs no fa_tuner, keeps nothing, starts no process and no thread. Returns as there.
 */
#ifndef FA_REPLAY_H
#define FA_REPLAY_H

#include "fa_tuner.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A recorded space. */
typedef struct fa_replay_space {
    char kernel[128], device[128]; /* as the file has them; may be empty */
    char objective[64];      /* what is looked for; a rate ("GFLOP/s") is looked for from above */
    int32_t parameters;      /* that have more than one value */
    int64_t points;          /* that no restriction forbids */
    int64_t unbuilt, failed; /* of these, how many did not compile, and failed otherwise */
    double optimum;
} fa_replay_space;

/* What became of the repeats of one strategy. A repeat's share is optimum ÷ found, from 0 to 1. */
typedef struct fa_replay_result {
    const char *strategy; /* valid for good */
    const char *chosen;   /* the one that worked: "auto" chooses */
    double median, tenth; /* of the shares; the tenth percentile: one repeat in ten was no better */
    double evaluations;   /* that a repeat spent, on average */
} fa_replay_result;

typedef struct fa_replay_options {
    size_t size;          /* sizeof(fa_replay_options) */
    const char *file;     /* a cache file of Kernel Tuner, or a result in the T4 format, as JSON */
    const char *strategy; /* NULL: "auto"; "all": each */
    int32_t evaluations;  /* that a repeat may spend; 0: 100 */
    int32_t repeats;      /* 0: 100 */
    int32_t batch;        /* points asked for at once, as for so many compile workers; 0: 1 */
    uint64_t seed;        /* of the first repeat; the next ones count on from it */
    /* Each strategy's result as it comes; a non-zero return stops and is returned. */
    int (*visit)(void *context, const fa_replay_result *result);
    void *context;
} fa_replay_options;

/* Reads the file and searches the space again and again. FA_EINVAL: what the file lacks, or there is no such
 * strategy. ret_space may be NULL. */
FA_API int fa_replay(const fa_replay_options *options, fa_replay_space *ret_space, fa_diag *diag);

/* The name and one line about the i-th strategy; NULL past the last. */
FA_API const char *fa_replay_strategy(int32_t i, const char **ret_summary);

#ifdef __cplusplus
}
#endif
#endif

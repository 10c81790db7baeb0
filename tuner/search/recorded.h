/* SPDX-License-Identifier: Apache-2.0
 *
 * A space that somebody measured, read from a file that may be anybody's: a cache file of Kernel Tuner, also one that
 * was never closed, or a result in the T4 format. The values of its parameters are those that occur.
 */
#ifndef FA_SEARCH_RECORDED_H
#define FA_SEARCH_RECORDED_H

#include "fa_replay.h"
#include "walk.h"

typedef struct fa_recorded {
    fa_replay_space about;
    fa_walk walk; /* knows every point with its cost */
    uint8_t *twos[FA_SEARCH_DIMS_MAX]; /* of each value of a parameter, for fa_search_space */
} fa_recorded;

/* FA_EINVAL with a sentence, FA_EIO, FA_ENOTFOUND, FA_ENOMEM; then there is nothing to free. */
int fa_recorded_read(const char *path, fa_recorded *ret_recorded, fa_diag *diag);
/* The same of a text, which is `where`. */
int fa_recorded_parse(const char *text, size_t size, const char *where, fa_recorded *ret_recorded,
                      fa_diag *diag);
void fa_recorded_free(fa_recorded *recorded);

/* Whether the point was recorded, and what its values are, for fa_search_space: `context` is the fa_recorded. */
bool fa_recorded_valid(void *context, const int32_t *point);
int fa_recorded_twos(void *context, int dim, int32_t value);
/* What fa_search_tell() is to be told of a valid point. */
double fa_recorded_cost(const fa_recorded *recorded, const int32_t *point);

#endif

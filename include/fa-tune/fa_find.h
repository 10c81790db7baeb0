/* SPDX-License-Identifier: Apache-2.0
 *
 * What a request comes to without a tune, for whoever schedules tunes himself: a service that sends
 * requests of one key to one tune. Part of fa_tune.h. Starts no process and changes nothing, but that
 * what a fleet knows of it comes into the local store.
 */
#ifndef FA_FIND_H
#define FA_FIND_H

#include "fa_tune.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fa_found {
    size_t size;      /* sizeof(fa_found), set by the caller */
    char key[65];     /* of the winner that the request is about, which one process at a time may
                         tune. Requests differ in it where their buckets, GPUs or templates do */
    fa_gpu gpu;       /* that it is for: its device's where that is here */
    bool answered;    /* fa_tune() would answer at once, with `answer` */
    fa_answer answer;
} fa_found;

/* Looks a request up, and says what a tune of it would be for; `again` and FA_EFFORT_PATIENT are
 * never answered. Not answered is no failure, but for FA_EFFORT_CACHED: FA_ENOTFOUND. */
FA_API int fa_find(fa_tuner *tuner, const fa_request *request, fa_found *ret_found, fa_diag *diag);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * First contact and trust: the steps of a lookup, and why each was taken or passed over.
 *
 * Part of fa_tune.h. Changes nothing and starts no process. Returns as there.
 */
#ifndef FA_CONTACT_H
#define FA_CONTACT_H

#include "fa_tuner.h"

/* ---- why ------------------------------------------------------------------------------------*/
typedef enum fa_step_kind {
    FA_STEP_EXACT = 0,     /* a winner stored for these very lengths, off the buckets */
    FA_STEP_BUCKET = 1,    /* the winner stored for the problem's bucket on this silicon */
    FA_STEP_PREDICTED = 4, /* the model's choice, stored for either */
    FA_STEP_TUNE = 5       /* what a request that may tune would do, in `why` */
} fa_step_kind;

/* One place that a lookup looks at. */
typedef struct fa_step {
    fa_step_kind kind;
    bool found;             /* something is there; else only kind, name and why are set */
    bool taken;             /* the answer of a lookup that may not tune; at most one is */
    char name[16];          /* of the kind: "exact", "bucket"… */
    char why[512];          /* why it was taken or passed over */
    fa_answer answer;       /* what it would give */
} fa_step;

/* The steps of a lookup for this request, in the order of trust; several of one kind follow each
 * other. */
FA_API int fa_why(fa_tuner *tuner, const fa_request *request, fa_step **ret_steps,
                  size_t *ret_count, fa_gpu *ret_gpu, fa_diag *diag);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What predicted choices turned out to be.
 */
#ifndef FA_DB_PREDICTIONS_H
#define FA_DB_PREDICTIONS_H

#include "scopes.h"

/* What a choice that nobody had measured on that GPU turned out to be when it was. */
typedef struct fa_prediction_record {
    fa_scope scope;
    fa_origin origin;  /* TRANSFERRED or PREDICTED */
    char gpu_name[64]; /* where it was measured */
    char from_gpu[64]; /* whose winner it was; gpu_name when the model's */
    fa_config config;
    double predicted_us, measured_us, best_us;
    int32_t rank, raced; /* 1: nothing that was measured beside it was faster */
    int64_t unix_time;   /* on read */
} fa_prediction_record;
/* The newest FA_PREDICTIONS_MAX are kept. */
enum { FA_PREDICTIONS_MAX = 4096 };
int fa_store_prediction_put(fa_store *store, const fa_prediction_record *record, fa_diag *diag);
/* Newest first. A non-zero return stops and is returned. */
typedef int fa_prediction_record_visit(void *context, const fa_prediction_record *record);
int fa_store_predictions_each(fa_store *store, fa_prediction_record_visit *visit, void *context,
                              fa_diag *diag);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What was learned beside trials and winners: predictions, verifications and baselines.
 */
#ifndef FA_DB_FINDINGS_H
#define FA_DB_FINDINGS_H

#include "scopes.h"

/* ---- predictions --------------------------------------------------------------------------- */
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

/* ---- verifications: which cubins were proved again, on which silicon, under which driver ---- */
/* That a cubin was proved again, or failed to be, on a silicon under a driver; or that it came to no
 * verdict in its time. */
typedef struct fa_verification {
    char cubin_key[FA_HASH_HEX];
    char silicon[FA_SILICON_MAX];
    int32_t driver_version;
    bool passed;
    int32_t late;      /* how often in a row its time ran out; 0: it passed or it failed */
    int64_t unix_time; /* when the mark was kept */
    char reason[512];  /* when it did not pass */
} fa_verification;
enum { FA_VERIFICATION_LATE_MAX = 30 };
/* Keeps the mark as of now and, in the same transaction, tells the scope's winner when it still is
 * this cubin: passed, its driver_version becomes this one; failed, it is deleted; late, it stays. */
int fa_store_verification_put(fa_store *store, const fa_verification *mark, const fa_scope *scope,
                              fa_diag *diag);
/* FA_ENOTFOUND: this cubin was never proved again there. */
int fa_store_verification_get(fa_store *store, const char *cubin_key, const char *silicon,
                              int32_t driver_version, fa_verification *ret_mark, fa_diag *diag);

/* ---- baselines: what other kernels take, as somebody measured it ---------------------------- */
/* Its fields but the problem, as X(KIND, "name in JSON", member and column, rules). */
#define FA_BASELINE_FIELDS(X)                                              \
    X(TEXT, "gpu", gpu_name)                                               \
    X(TEXT, "peer", peer)                                                  \
    X(TEXT, "source", source, .rules = FA_MEMBER_LEFT_OUT)                 \
    X(NUMBER, "median_us", median_us)                                      \
    X(NUMBER, "low_us", low_us, .rules = FA_MEMBER_LEFT_OUT)               \
    X(NUMBER, "high_us", high_us, .rules = FA_MEMBER_LEFT_OUT)             \
    X(COUNT, "sample_count", sample_count, .rules = FA_MEMBER_LEFT_OUT)    \
    X(NUMBER, "matmul_tflops", matmul_tflops, .rules = FA_MEMBER_LEFT_OUT) \
    X(COUNT64, "unix_time", unix_time, .rules = FA_MEMBER_LEFT_OUT, .most = FA_BASELINE_TIME_MAX)
#define FA_BASELINE_TIME_MAX ((int64_t)1 << 40)

/* All in one transaction. A baseline of the same problem, GPU and peer replaces the earlier baseline. */
int fa_store_baselines_put(fa_store *store, const fa_baseline *baselines, size_t count,
                           fa_diag *diag);
/* All, in order of their import; a non-zero return stops and is returned. */
typedef int fa_store_baseline_visit(void *context, const fa_baseline *baseline);
int fa_store_baselines_each(fa_store *store, fa_store_baseline_visit *visit, void *context,
                            fa_diag *diag);

#endif

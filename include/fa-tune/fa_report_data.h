/* SPDX-License-Identifier: Apache-2.0
 *
 * What the store holds beyond winners: every problem that was ever tried on some silicon, and what
 * became of each of its configs, with the raw samples and under which circumstances they were
 * taken. Needs no GPU: studies of GPUs that are gone and of templates that have moved on are told
 * as they were stored, and can be forgotten.
 *
 * Texts, but for the report's, are as they were stored: names, reasons and JSON may hold anything. Whoever prints them
 * escapes them.
 */
#ifndef FA_REPORT_DATA_H
#define FA_REPORT_DATA_H

#include "fa_tuner.h"

/* All that is on record about one problem on one silicon, from one set of templates. */
typedef struct fa_study {
    size_t size;         /* sizeof(fa_study), set by the library */
    int64_t id;          /* the store's own */
    fa_problem problem;
    fa_gpu gpu;          /* the winner's, else the catalogue's; its sm is 0 when only a name is known */
    char silicon[128];
    char templates[65];  /* hash of the templates */
    char policy[64];     /* how it was measured */
    bool current;        /* made from this session's templates, or from earlier ones whose winner still
                          * holds: its whole space can be told */
    bool has_winner;
    int32_t trials;      /* configs on record */
    int64_t unix_time;   /* of the newest of them, or of the winner */
    fa_answer winner;    /* when has_winner */
    /* The problem's JSON as stored, where its operation or its fields are not known here: problem and winner are
     * then all 0, and it can be forgotten alone. Else NULL. */
    const char *unread;
} fa_study;

/* Every study, in no order that means anything. */
FA_API int fa_list_studies(fa_tuner *tuner, fa_study **ret_studies, size_t *ret_count,
                           fa_diag *diag);

/* The configs of a study in the order of fa_explain(), the winner first. A current study comes
 * with the rest of its space, each config with what the budget says of it. Of an imported winner whose
 * problem was not tuned here: what was measured beside it, as far as it brought that with it. */
FA_API int fa_list_study_trials(fa_tuner *tuner, const fa_study *study, fa_study_trial **ret_trials,
                                size_t *ret_count, fa_diag *diag);

/* ---- values of other tuners -------------------------------------------------------------------*/
/* The value of a key with its bytes, or with key NULL all values, newest first, without them; *ret_kept is one block, the
 * caller's. FA_ENOTFOUND: there is none; with `hold` the caller is then to make it, and whoever else would hold the key gets
 * FA_EBUSY, until the caller keeps or forgets a value of that key, asks for it without `hold`, closes the tuner or dies. */
FA_API int fa_list_kept(fa_tuner *tuner, const char *key, bool hold, fa_kept **ret_kept,
                        size_t *ret_count, fa_diag *diag);
/* Keeps a value, in the place of an earlier one of its key; bytes NULL: forgets that. */
FA_API int fa_keep(fa_tuner *tuner, const fa_kept *value, fa_diag *diag);

/* ---- the report -----------------------------------------------------------------------------*/
typedef enum fa_report_format {
    FA_REPORT_HTML = 0, /* one page that needs no network */
    FA_REPORT_JSON = 3  /* docs/json.md */
} fa_report_format;

typedef struct fa_report_options {
    size_t size; /* sizeof(fa_report_options) */
    fa_report_format format;
    /* Which problems are told, by the name of their GPU too; NULL: all. */
    bool (*keep)(const void *context, const fa_problem *problem, const char *gpu);
    /* Called before each problem with the number done and the number of all; true ends the report with
     * FA_ECANCELED. May be NULL. */
    bool (*progress)(const void *context, int32_t done, int32_t all);
    const void *context;
} fa_report_options;

/* The document of `fa-tune report`: what is stored about every problem, its configs and its baselines; alone, or in a page
 * that draws it. *ret_text is malloced, the caller's, and ends with a zero that *ret_size does not count. */
FA_API int fa_write_report(fa_tuner *tuner, const fa_report_options *options, char **ret_text,
                           size_t *ret_size, fa_diag *diag);

/* ---- forgetting -----------------------------------------------------------------------------*/
/* Forgets what tuning has stored of these studies, as fa_list_studies() gave them: winners, trials, their proofs and the
 * cubins that nothing else refers to, in one transaction. Studies to which something was stored since they were listed
 * stay: those that went are the first *count. count NULL: everything. Baselines and the plans of sweeps stay, and such a
 * sweep tunes the problem again; so do system bundles, and kernels that a process has loaded. dry_run: only says what would
 * go, also of a store that is read-only. Waits up to ten seconds for tunes into this store: FA_EBUSY. FA_EREADONLY.
 * ret_forgotten may be NULL. */
FA_API int fa_forget(fa_tuner *tuner, fa_study *studies, size_t *count, bool dry_run,
                     fa_forgotten *ret_forgotten, fa_diag *diag);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Stored winners and cubins, and winners as answers; which of them serves a target, in the order of trust, and which of
 * the loaded kernels.
 */
#ifndef FA_ENGINE_LOOKUP_H
#define FA_ENGINE_LOOKUP_H

#include "bundle.h"
#include "fa_tune.h"
#include "json.h"
#include "session.h"
#include "store.h"

extern const fa_member fa_funnel_members[]; /* of an fa_answer; each may be absent */
/* A stored winner as an answer; gpu NULL: of no GPU in particular. 0 or FA_ENOMEM. */
__attribute__((warn_unused_result)) int fa_records_answer(const fa_winner_record *winner,
                                                          const fa_gpu *gpu, fa_answer *ret_answer,
                                                          fa_diag *diag);
/* {"gpu":…,"uuid":…,"driver":…,"nvrtc":…,"library":…}: where trials were made. Caller frees. */
char *fa_records_environment(const fa_gpu *gpu, int driver_version, const char *nvrtc,
                             int32_t contents);
/* What an environment names. */
typedef struct fa_tools {
    int64_t driver, contents; /* contents: of the inputs, fa_spec_cases() */
    char nvrtc[256];
} fa_tools;
bool fa_records_tools(const char *environment, fa_tools *ret_tools); /* false: not all of it */
/* The record of an answer that is to be stored under this scope; FA_ENOMEM. */
int fa_records_winner(const fa_answer *answer, const fa_scope *scope, fa_winner_record *ret_winner,
                      fa_diag *diag);

/* The config that won on the nearest other GPU for the very problem that is to be tuned; where there is none, its config has
 * no name and fits none. */
typedef struct fa_elsewhere {
    fa_config config;
    char gpu[64];
} fa_elsewhere;
int fa_records_elsewhere(fa_tuner *tuner, const fa_target *target, fa_elsewhere *ret_elsewhere,
                         fa_diag *diag);
/* A cubin by key: the store's, else a system bundle's. */
int fa_records_cubin(fa_tuner *tuner, const char *key, fa_cubin_record *ret_cubin, fa_diag *diag);

/* ---- lookup.c --------------------------------------------------------------------------------*/
/* The mark that an earlier proof of the cubin under this driver left; false: there is none. `work` is held. */
bool fa_reproof_mark(fa_tuner *tuner, const char *cubin_key, const char *silicon,
                     int32_t driver_version, fa_verification *ret_mark);

/* A stored winner of the target's silicon, judged for it. */
typedef struct fa_match {
    fa_step_kind kind;
    fa_answer answer; /* for the asked problem: its grid, its predicted time */
    fa_scope scope;   /* where it is stored */
    bool usable;      /* its config runs the asked problem on this GPU, and no check refused it */
    char why[512];    /* why it is not usable */
    int rc; /* FA_ENOMEM or FA_EIO: it could not be judged, which says nothing about the match */
} fa_match;

typedef struct fa_lookup {
    fa_match own[2];  /* of the asked lengths and of their bucket, as far as they were read */
    int count, taken; /* taken: 1 + the one that serves; 0: none */
    bool looked;      /* else nobody has looked yet */
    fa_answer answer; /* and its */
    fa_scope scope;
    fa_cubin_record cubin;
} fa_lookup;

/* Looks the target up. *ret_found is always set, for fa_lookup_free(). FA_ENOTFOUND: no winner serves; FA_ECORRUPT: no
 * winner serves because a cubin is missing. all: what comes behind the answer is read, too. `work` is held. */
int fa_look(fa_tuner *tuner, const fa_target *target, bool all, fa_lookup *ret_found,
            fa_diag *diag);
void fa_lookup_free(fa_lookup *found);

/* Answers with the loaded kernel of the problem that is nearest to the asked one. The kernel was proved on this silicon, its
 * source is the same for both problems, its cubin is loaded in the context, and it is launched as its family computes for
 * the asked problem. FA_ENOTFOUND: no kernel is. Reads no store; `work` is held. */
int fa_look_among_loaded(fa_tuner *tuner, const fa_target *target, uint64_t context,
                         fa_answer *ret_answer, fa_diag *diag);

/* ---- api.c: the configs of a problem, ranked ---------------------------------------------*/
/* The configs on record of a target's scope; with `rest` those of its space as well, unless it is searched. The winner,
 * which may be NULL, is the first of those that finished. ret_space, which may be NULL: without `rest` its GPU alone.
 * `work` is held. */
int fa_configs_read(fa_tuner *tuner, const fa_target *target, const fa_answer *winner, bool rest,
                    fa_study_trial **ret_rows, size_t *ret_count, fa_explained *ret_space,
                    fa_diag *diag);
int fa_configs_compare(const void *a, const void *b); /* for qsort(), as fa_trial_compare() */
/* The same of a request; winner NULL: what a lookup finds. Takes `work` itself. */
int fa_configs_rank(fa_tuner *tuner, const fa_request *request, const fa_answer *winner, bool rest,
                    fa_study_trial **ret_rows, size_t *ret_count, fa_explained *ret_space,
                    fa_diag *diag);

/* ---- lookup.c: a bundle that is believed, one winner of it with its cubin, and which of two is the better ----*/
/* What a winner of a bundle is called here: what was measured elsewhere is imported. */
static inline fa_origin fa_bundle_origin(fa_origin there)
{
    return there < FA_ORIGIN_IMPORTED ? FA_ORIGIN_IMPORTED : there;
}
/* Opens a bundle and checks it: hash, signature, signer, tables and pages, in this order.
 * trusted NULL: the signer may be anybody, and the bundle's info says whether it is trusted. */
int fa_bundle_open_whole(const char *path, const fa_import_options *trusted, fa_bundle **ret_bundle,
                         fa_diag *diag);
/* Whether a cubin is what its winner says: entry, architecture, registers, stack, threads. */
int fa_bundle_check_cubin(const fa_winner_record *winner, const void *bytes, size_t size,
                          fa_diag *diag);
/* Puts {"imported":{"origin":…,"signer":…}} into a winner's evidence, unless it has that from an
 * earlier journey, and changes its origin. */
int fa_bundle_adopt(fa_winner_record *winner, const char *signer, fa_diag *diag);
/* What becomes of a winner where `stored` is. */
typedef enum fa_bundle_change {
    FA_BUNDLE_ADDED = 1,    /* the store had none for this problem and GPU */
    FA_BUNDLE_REPLACED = 2, /* better than the stored one */
    FA_BUNDLE_KEPT = 3,     /* the stored one is better and stays */
    FA_BUNDLE_SAME = 4      /* the stored one is this one */
} fa_bundle_change;
fa_bundle_change fa_bundle_weigh(const fa_winner_record *stored, const fa_winner_record *incoming);

#endif

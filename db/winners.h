/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiled kernels by cubin key, SHA-256 hex of everything that went into them (cubins.c), and winners, one for each
 * scope (winners.c).
 */
#ifndef FA_DB_WINNERS_H
#define FA_DB_WINNERS_H

#include "scopes.h"

typedef struct fa_cubin_record {
    char key[FA_HASH_HEX];
    char entry[FA_NAME_MAX];
    int32_t sm;
    void *bytes; /* on get: malloced, owned by the record */
    size_t size;
    char *log; /* compiler's log, escaped by who prints it; may be NULL; owned on get */
    double compile_ms;
} fa_cubin_record;
int fa_store_cubin_put(fa_store *store, const fa_cubin_record *record, fa_diag *diag);
/* FA_ENOTFOUND; FA_ECORRUPT when the bytes do not match their SHA-256 (the row is deleted). */
int fa_store_cubin_get(fa_store *store, const char *key, fa_cubin_record *ret_record,
                       fa_diag *diag);
/* Without its bytes: what a host asks before it sends them. */
int fa_store_cubin_exists(fa_store *store, const char *key, bool *ret_exists, fa_diag *diag);
/* Its SHA-256 and size as they are stored; the bytes are neither read nor compared. */
int fa_store_cubin_hash(fa_store *store, const char *key, char ret_sha256[FA_HASH_HEX],
                        size_t *ret_size, fa_diag *diag);
void fa_cubin_record_free(fa_cubin_record *record);

typedef struct fa_winner_record {
    fa_scope scope;
    fa_origin origin;
    fa_trial trial; /* config, launch geometry, times */
    char entry[FA_NAME_MAX];
    char cubin_key[FA_HASH_HEX];
    char gpu_name[64];      /* label */
    char nvrtc[256];        /* NVRTC identity that made the cubin */
    int32_t driver_version; /* it was proved under; 0: predicted */
    char *evidence;    /* JSON: funnel counts, default's time, ties, runners-up; owned on get */
    int64_t unix_time; /* on get */
} fa_winner_record;

/* Winner, its cubin (may be NULL when already stored) and its evidence in one transaction,
 * replacing the scope's earlier winner unless that one has a better origin. *ret_kept is true
 * when the earlier one was kept. ret_kept may be NULL. */
int fa_store_winner_put(fa_store *store, const fa_winner_record *winner,
                        const fa_cubin_record *cubin, bool *ret_kept, fa_diag *diag);
/* The same for a winner that was made elsewhere and has been weighed against the stored one: takes
 * its place whatever that is, and keeps its own time of making. */
int fa_store_winner_replace(fa_store *store, const fa_winner_record *winner,
                            const fa_cubin_record *cubin, fa_diag *diag);
/* Inside a batch: until its end nobody else changes the scope's winner, so that it can be weighed and
 * replaced. */
int fa_store_winner_hold(fa_store *store, const fa_scope *scope, fa_diag *diag);
/* FA_ENOTFOUND when the scope has none; the cubin comes with it in one read transaction. FA_ECORRUPT
 * when the cubin is missing or corrupt (it is deleted; the winner stays, and ret_cubin NULL gets it
 * alone, so that it can be compiled again) or the winner's own row is not valid (a second reading under
 * the write lock sets it aside, in a table of its own). A winner that only a newer version can read is left as
 * it is: FA_ENOTFOUND. */
int fa_store_winner_get(fa_store *store, const fa_scope *scope, fa_winner_record *ret_winner,
                        fa_cubin_record *ret_cubin, fa_diag *diag);
/* 0 when some GPU has a winner for this problem from these templates, FA_ENOTFOUND when none has. */
int fa_store_winner_any(fa_store *store, const fa_problem *problem, const char *templates);
/* The winners of all GPUs for problems that differ from this one in their lengths at most, made from
 * these templates under this policy; newest first. A non-zero return stops and is returned. */
typedef int fa_winner_visit(void *context, const fa_winner_record *winner);
int fa_store_winners_like(fa_store *store, const fa_scope *scope, fa_winner_visit *visit,
                          void *context, fa_diag *diag);
/* All winners, those of one cubin one after another; where `like` is given, those of them that somebody has timed
 * for a problem of its shape, whatever the lengths. */
int fa_store_winners_by_cubin(fa_store *store, const fa_problem *like, fa_winner_visit *visit,
                              void *context, fa_diag *diag);
void fa_winner_record_free(fa_winner_record *winner);
/* All winners, newest first. */
int fa_store_winners_each(fa_store *store, fa_winner_visit *visit, void *context, fa_diag *diag);

#endif

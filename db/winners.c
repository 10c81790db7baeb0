/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiled kernels by key. The bytes lie beside their hash and are never handed out without having been compared with it:
 * they would be run on the caller's GPU.
 *
 * Winners: one per scope, written together with its cubin and its evidence in one transaction and
 * read together in one statement. A winner that is not wholly valid is not served.
 *
 * A reader deletes nothing: a row that it cannot read it passes over, and the next put replaces it.
 */
#include "statements.h"

#include <stdlib.h>
#include <string.h>

/* ---- compiled kernels -----------------------------------------------------------------------*/
#define CUBIN_COLUMNS \
    "cubin.key, cubin.entry, cubin.sm, cubin.compile_ms, cubin.log, cubin.hash, cubin.bytes"
/* Behind a cubin `found` by its key: reads all columns from the table. A damaged index may name another
 * cubin's row, and SQLite would take the key from the index and the bytes from that row. */
#define CUBIN_ROW " LEFT JOIN cubin ON cubin.id = found.id "

static int check_cubin(const fa_cubin_record *record, fa_diag *diag)
{
    return record->size > 0 && record->size <= FA_STORE_CUBIN_MAX
               ? 0
               : fa_fail(diag, FA_EINVAL, "a cubin has %zu bytes: 1 to %d can be stored",
                         record->size, FA_STORE_CUBIN_MAX);
}

static int cubin_exists(fa_store *store, const char *key, bool *ret_exists, fa_diag *diag)
{
    int64_t id = 0;
    int rc = fa_db_find(store, diag, &id, "SELECT id FROM cubin WHERE key = ?", fa_text(key));
    *ret_exists = id != 0;
    return rc;
}

/* CUBIN_COLUMNS; the row is not valid when the bytes are not those of that key. */
static void read_cubin(fa_query *query, const char *key, fa_cubin_record *ret_record)
{
    FA_ENDS(fa_cubin_record_free) fa_cubin_record record = {0};
    char stored[FA_HASH_HEX], now[FA_HASH_HEX];
    fa_read_copy(query, record.key, sizeof record.key);
    fa_read_copy(query, record.entry, sizeof record.entry);
    record.sm = (int32_t)fa_read_int(query, 0, INT32_MAX);
    record.compile_ms = fa_read_real(query, 0);
    record.log = fa_read_owned(query);
    fa_read_copy(query, stored, sizeof stored);
    const void *bytes = fa_read_blob(query, FA_STORE_CUBIN_MAX, &record.size);
    if (query->rc == 0) {
        fa_hash_bytes(bytes, record.size, now);
        if (record.size == 0 || strcmp(record.key, key) != 0 || strcmp(stored, now) != 0)
            fa_read_fail(query, FA_ECORRUPT);
    }
    if (query->rc == 0 && (record.bytes = malloc(record.size)) == NULL)
        fa_read_fail(query, FA_ENOMEM);
    if (query->rc != 0)
        return;
    memcpy(record.bytes, bytes, record.size);
    *ret_record = record;
    record = (fa_cubin_record){0};
}

/* FA_ENOTFOUND when there is none, FA_ECORRUPT when it was read whole and is not what was stored. */
static int get_cubin(fa_store *store, const char *key, fa_cubin_record *ret_record, fa_diag *diag)
{
    fa_query query = fa_db_prepare(
        store, diag, "SELECT " CUBIN_COLUMNS " FROM cubin AS found" CUBIN_ROW "WHERE found.key = ?",
        fa_text(key));
    int rc = fa_db_step(&query);
    if (rc < 0)
        return rc;
    if (rc == 0)
        return fa_fail(diag, FA_ENOTFOUND, "store %s has no cubin %s", store->path, key);
    read_cubin(&query, key, ret_record);
    rc = fa_read_end(&query);
    if (rc == 0)
        return fa_fail(diag, FA_ECORRUPT,
                       "store %s: cubin %s does not match its hash; it will be compiled again",
                       store->path, key);
    return rc < 0 ? rc : 0;
}

/* A cubin that is stored and sound stays: its proof is about its very bytes. */
static int put_cubin(fa_store *store, const fa_cubin_record *record, fa_diag *diag)
{
    FA_ENDS(fa_cubin_record_free) fa_cubin_record earlier = {0};
    int rc = get_cubin(store, record->key, &earlier, diag);
    if (rc == 0)
        return 0;
    if (rc == FA_ECORRUPT && !store->damaged)
        rc = fa_db_do(store, diag, "DELETE FROM cubin WHERE key = ?", fa_text(record->key));
    if (rc != 0 && rc != FA_ENOTFOUND)
        return rc;
    char hash[FA_HASH_HEX];
    fa_hash_bytes(record->bytes, record->size, hash);
    /* A compiler log of more than a megabyte is cut. The same content of a bundle gives the same bytes. */
    return fa_db_do(store, diag,
                    "INSERT INTO cubin (key, entry, sm, compile_ms, log, hash, unix_time, bytes) "
                    "VALUES (?,?,?,?,?,?,?,?) ON CONFLICT (key) DO NOTHING",
                    fa_text(record->key), fa_text(record->entry), fa_int(record->sm),
                    fa_real(record->compile_ms), fa_text_start(record->log, FA_STORE_TEXT_MAX),
                    fa_text(hash), store->absent ? fa_int(0) : fa_now(),
                    fa_blob(record->bytes, record->size));
}

int fa_store_cubin_put(fa_store *store, const fa_cubin_record *record, fa_diag *diag)
{
    int rc = check_cubin(record, diag);
    return rc != 0 ? rc : FA_CHANGED(store, diag, put_cubin(store, record, diag));
}

int fa_store_cubin_get(fa_store *store, const char *key, fa_cubin_record *ret_record, fa_diag *diag)
{
    int rc = fa_db_enter(store, diag);
    return rc != 0 ? rc : get_cubin(store, key, ret_record, diag);
}

int fa_store_cubin_exists(fa_store *store, const char *key, bool *ret_exists, fa_diag *diag)
{
    int rc = fa_db_enter(store, diag);
    return rc != 0 ? rc : cubin_exists(store, key, ret_exists, diag);
}

void fa_cubin_record_free(fa_cubin_record *record)
{
    if (record == NULL)
        return;
    free(record->bytes);
    free(record->log);
    record->bytes = record->log = NULL;
    record->size = 0;
}

/* ---- winners --------------------------------------------------------------------------------*/
#define FA_COLUMN_RECORD fa_winner_record
static const fa_member columns[] = {FA_WINNER_FIELDS(FA_COLUMN_ENTRY){.key = NULL}};

#define OWN_NAME(kind, name, ...) ", winner." name
#define OWN_MEMBER(kind, name, member, ...) ", winner." #member
#define OWN_NAME3(name, member) ", winner." name "_x, winner." name "_y, winner." name "_z"
#define WINNER_COLUMNS                                                      \
    "winner.config_key, winner.config" FA_TRIAL_FIELDS(OWN_NAME, OWN_NAME3) \
        FA_WINNER_FIELDS(OWN_MEMBER) ", winner.unix_time, winner.evidence"
#define ROW_COLUMNS \
    "scope_id, " FA_TRIAL_COLUMNS FA_WINNER_FIELDS(FA_COLUMN_MEMBER) ", evidence, unix_time"

void fa_winner_record_free(fa_winner_record *winner)
{
    if (winner == NULL)
        return;
    free(winner->evidence);
    winner->evidence = NULL;
}

/* ---- rows -----------------------------------------------------------------------------------*/
/* WINNER_COLUMNS but the last. */
static void read_winner(fa_query *query, fa_winner_record *ret_winner)
{
    fa_db_trial_read(query, &ret_winner->trial);
    fa_read_columns(query, columns, ret_winner);
    ret_winner->unix_time = fa_read_int(query, 0, INT64_MAX);
}

/* ---- putting --------------------------------------------------------------------------------*/
static int check_winner(const fa_winner_record *winner, const fa_cubin_record *cubin, fa_diag *diag)
{
    FA_OR_RETURN(fa_db_scope_check(&winner->scope, diag));
    FA_OR_RETURN(fa_db_trial_check(&winner->trial, diag));
    FA_OR_RETURN(cubin != NULL ? check_cubin(cubin, diag) : 0);
    if (winner->evidence != NULL && strlen(winner->evidence) > FA_STORE_TEXT_MAX)
        return fa_fail(diag, FA_EINVAL, "a winner's evidence is longer than %d bytes",
                       FA_STORE_TEXT_MAX);
    if (cubin != NULL && strcmp(cubin->key, winner->cubin_key) != 0)
        return fa_fail(diag, FA_EINVAL, "a winner names cubin %s and comes with cubin %s",
                       winner->cubin_key, cubin->key);
    return 0;
}

/* Whether the scope has a winner of a better origin. It counts only with its cubin, a sound one: without, it could not be
 * served. */
static int has_better(fa_store *store, int64_t scope_id, fa_origin origin, bool *ret_better,
                      fa_diag *diag)
{
    fa_winner_record earlier = {0};
    FA_ENDS(fa_cubin_record_free) fa_cubin_record cubin = {0};
    fa_query query = fa_db_prepare(
        store, diag, "SELECT " WINNER_COLUMNS " FROM winner WHERE scope_id = ?", fa_int(scope_id));
    int rc = fa_db_step(&query);
    if (rc != 1)
        return rc;
    read_winner(&query, &earlier);
    rc = fa_read_end(&query);
    if (rc != 1 || fa_origin_trust(earlier.origin) >= fa_origin_trust(origin))
        return rc < 0 ? rc : 0;
    rc = get_cubin(store, earlier.cubin_key, &cubin, diag);
    *ret_better = rc == 0;
    return rc == FA_ENOTFOUND || (rc == FA_ECORRUPT && !store->damaged) ? 0 : rc;
}

/* The scope's number, made where it is missing; nobody else changes its winner until the end of the change. */
static int hold(fa_store *store, const fa_scope *scope, int64_t *ret_id, fa_diag *diag)
{
    FA_OR_RETURN(fa_db_scope_id(store, scope, true, ret_id, diag));
    return fa_db_find(store, diag, ret_id, "SELECT id FROM scope WHERE id = ? /*! FOR UPDATE */",
                      fa_int(*ret_id));
}

/* Inside a change. unix_time: of its making. */
static int put_winner(fa_store *store, const fa_winner_record *winner, const fa_cubin_record *cubin,
                      bool replace, bool *ret_kept, fa_diag *diag)
{
    int64_t scope_id = 0;
    bool kept = false, exists = true;
    FA_OR_RETURN(hold(store, &winner->scope, &scope_id, diag));
    if (!replace)
        FA_OR_RETURN(has_better(store, scope_id, winner->origin, &kept, diag));
    *ret_kept = kept;
    if (cubin != NULL)
        FA_OR_RETURN(put_cubin(store, cubin, diag));
    if (kept)
        return 0;
    if (cubin == NULL)
        FA_OR_RETURN(cubin_exists(store, winner->cubin_key, &exists, diag));
    if (!exists)
        return fa_fail(
            diag, FA_ESTORE,
            "store %s: the winner's cubin %s is not in it any more; was the store replaced?",
            store->path, winner->cubin_key);
    FA_OR_RETURN(fa_db_do(store, diag, "DELETE FROM winner WHERE scope_id = ?", fa_int(scope_id)));
    fa_query query =
        fa_db_prepare(store, diag,
                      "INSERT INTO winner (" ROW_COLUMNS
                      ") VALUES (?," FA_TRIAL_PLACES FA_WINNER_FIELDS(FA_COLUMN_PLACE) ",?,?)",
                      fa_int(scope_id));
    fa_db_trial_bind(&query, &winner->trial);
    fa_bind_columns(&query, columns, winner);
    fa_bind(&query, fa_text(winner->evidence), replace ? fa_int(winner->unix_time) : fa_now());
    return fa_db_step(&query);
}

int fa_store_winner_put(fa_store *store, const fa_winner_record *winner,
                        const fa_cubin_record *cubin, bool replace, bool *ret_kept, fa_diag *diag)
{
    bool kept = false;
    FA_OR_RETURN(check_winner(winner, cubin, diag));
    FA_OR_RETURN(FA_CHANGED(store, diag, put_winner(store, winner, cubin, replace, &kept, diag)));
    if (ret_kept != NULL)
        *ret_kept = kept;
    return 0;
}

int fa_store_winner_hold(fa_store *store, const fa_scope *scope, fa_diag *diag)
{
    int64_t scope_id = 0;
    int rc = fa_db_scope_check(scope, diag);
    return rc != 0 ? rc : FA_CHANGED(store, diag, hold(store, scope, &scope_id, diag));
}

/* ---- reading --------------------------------------------------------------------------------*/
int fa_store_winner_get(fa_store *store, const fa_scope *scope, fa_winner_record *ret_winner,
                        fa_cubin_record *ret_cubin, fa_diag *diag)
{
    fa_winner_record winner = {.scope = *scope};
    fa_cubin_record cubin = {0};
    FA_OR_RETURN(fa_db_scope_check(scope, diag));
    fa_query query =
        fa_db_query(store, diag,
                    "SELECT " WINNER_COLUMNS ", " CUBIN_COLUMNS
                    " FROM scope JOIN winner ON winner.scope_id = scope.id "
                    "LEFT JOIN cubin AS found ON found.key = winner.cubin_key" CUBIN_ROW
                    "WHERE scope.key = ? AND scope.problem_key = ? AND scope.silicon = ? "
                    "AND scope.templates = ? AND scope.policy = ?");
    fa_db_scope_bind(&query, scope);
    int rc = fa_db_step(&query);
    if (rc < 0)
        return rc;
    if (rc == 0)
        return fa_fail(diag, FA_ENOTFOUND, "store %s has no winner for this problem and GPU",
                       store->path);
    read_winner(&query, &winner);
    winner.evidence = fa_read_owned(&query);
    int why = query.rc;
    if (why == 0 && ret_cubin != NULL)
        read_cubin(&query, winner.cubin_key, &cubin);
    rc = fa_read_end(&query);
    if (rc == 1) {
        *ret_winner = winner;
        if (ret_cubin != NULL)
            *ret_cubin = cubin;
        return 0;
    }
    fa_winner_record_free(&winner);
    if (rc < 0)
        return rc;
    if (why != 0)
        return fa_fail(
            diag, FA_ECORRUPT,
            "store %s: the winner of this problem is not valid and is not served; tune again",
            store->path);
    return fa_fail(diag, FA_ECORRUPT,
                   "store %s: the winner's cubin %s is missing or does not match its hash; "
                   "it must be compiled again",
                   store->path, winner.cubin_key);
}

int fa_store_winner_any(fa_store *store, const fa_problem *problem, const char *templates)
{
    char key[FA_PROBLEM_KEY_MAX];
    int64_t any = 0;
    fa_problem_key(problem, key);
    fa_query query =
        fa_db_query(store, NULL,
                    "SELECT scope.id FROM scope JOIN winner ON winner.scope_id = scope.id "
                    "WHERE scope.problem_key = ? AND scope.templates = ? LIMIT 1",
                    fa_text(key), fa_text(templates));
    int rc = fa_db_step_id(&query, &any);
    return rc != 0 ? rc : any != 0 ? 0 : FA_ENOTFOUND;
}

void fa_winners_add(fa_list *list, const fa_winner_record *winner)
{
    fa_winner_record copy = *winner;
    copy.evidence = (char *)(uintptr_t)fa_list_keep_text(list, winner->evidence);
    fa_list_add(list, &copy, sizeof copy);
}

int fa_winners_end(fa_list *list, int rc, fa_winner_record **ret_rows, size_t *ret_count,
                   fa_diag *diag)
{
    static const size_t pointers[] = {offsetof(fa_winner_record, evidence), SIZE_MAX};
    return fa_list_end(list, rc, pointers, ret_rows, ret_count, diag);
}

static int list_winners(fa_query *query, fa_winner_record **ret_rows, size_t *ret_count,
                        size_t *ret_unread)
{
    size_t unread = 0;
    int rc;
    while ((rc = fa_db_step(query)) == 1) {
        fa_winner_record winner = {0};
        fa_db_scope_read(query, &winner.scope);
        read_winner(query, &winner);
        winner.evidence = (char *)(uintptr_t)fa_read_kept(query, true);
        if (query->rc == 0)
            fa_list_add(&query->list, &winner, sizeof winner);
        unread += query->rc == FA_EVERSION;
    }
    if (ret_unread != NULL)
        *ret_unread = unread;
    return fa_winners_end(&query->list, rc, ret_rows, ret_count, query->diag);
}

#define LIST                                       \
    "SELECT " FA_SCOPE_COLUMNS ", " WINNER_COLUMNS \
    " FROM scope JOIN winner ON winner.scope_id = scope.id "
#define NEWEST "ORDER BY winner.unix_time DESC, winner.scope_id DESC"

int fa_store_winners(fa_store *store, const fa_problem *like, fa_winner_record **ret_rows,
                     size_t *ret_count, size_t *ret_unread, fa_diag *diag)
{
    char shape[FA_PROBLEM_KEY_MAX];
    if (like != NULL)
        fa_problem_shape(like, shape);
    fa_query query = like == NULL ? fa_db_query(store, diag, LIST NEWEST)
                                  : fa_db_query(store, diag, LIST "WHERE scope.shape = ? " NEWEST,
                                                fa_text(shape));
    return list_winners(&query, ret_rows, ret_count, ret_unread);
}

int fa_store_winners_by_cubin(fa_store *store, fa_winner_record **ret_rows, size_t *ret_count,
                              size_t *ret_unread, fa_diag *diag)
{
    fa_query query = fa_db_query(store, diag, LIST "ORDER BY winner.cubin_key, scope.key");
    return list_winners(&query, ret_rows, ret_count, ret_unread);
}

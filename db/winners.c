/* SPDX-License-Identifier: Apache-2.0
 *
 * Winners: one per scope, written together with its cubin and its evidence in one transaction and
 * read together in one statement. A winner that is not wholly valid is not served.
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WINNER_COLUMNS                                                                      \
    "winner.config_key, winner.config, winner.status, winner.reason, winner.threads, "      \
    "winner.smem_bytes, winner.registers, winner.spill_bytes, winner.blocks_per_sm, "       \
    "winner.grid_x, winner.grid_y, winner.grid_z, winner.compile_ms, winner.predicted_us, " \
    "winner.median_us, winner.low_us, winner.high_us, winner.sample_count, "                \
    "winner.max_error, winner.tolerance, winner.raced, winner.origin, winner.entry, "        \
    "winner.cubin_key, winner.gpu_name, winner.nvrtc, winner.driver_version, "                \
    "winner.evidence, winner.unix_time"

struct putting {
    const fa_winner_record *winner;
    const fa_cubin_record *cubin; /* may be NULL */
    bool replace;                 /* whatever is there */
    bool kept;
};

/* ---- putting --------------------------------------------------------------------------------*/
int fa_db_winner_check(const fa_winner_record *winner, const fa_cubin_record *cubin, fa_diag *diag)
{
    if (winner == NULL)
        return fa_fail(diag, FA_EINVAL, "no winner given");
    int rc = fa_db_scope_check(&winner->scope, diag);
    if (rc == 0)
        rc = fa_db_trial_check(&winner->trial, diag);
    if (rc == 0 && cubin != NULL)
        rc = fa_db_cubin_check(cubin, diag);
    if (rc != 0)
        return rc;
    fa_origin origin;
    if (fa_origin_parse(fa_origin_name(winner->origin), &origin) != 0)
        return fa_fail(diag, FA_EINVAL, "a winner has no such origin as %d", (int)winner->origin);
    if (memchr(winner->entry, 0, sizeof winner->entry) == NULL ||
        memchr(winner->gpu_name, 0, sizeof winner->gpu_name) == NULL ||
        memchr(winner->nvrtc, 0, sizeof winner->nvrtc) == NULL ||
        memchr(winner->cubin_key, 0, sizeof winner->cubin_key) == NULL || winner->cubin_key[0] == 0)
        return fa_fail(diag, FA_EINVAL,
                       "a winner needs a cubin key, an entry, a GPU name and an NVRTC that end");
    if (winner->trial.sample_count < 0 ||
        (winner->evidence != NULL &&
         strnlen(winner->evidence, FA_STORE_TEXT_MAX + 1) > FA_STORE_TEXT_MAX))
        return fa_fail(diag, FA_EINVAL,
                       "a winner's sample count is negative or its evidence "
                       "longer than %d bytes",
                       FA_STORE_TEXT_MAX);
    if (cubin != NULL && strcmp(cubin->key, winner->cubin_key) != 0)
        return fa_fail(diag, FA_EINVAL, "a winner names cubin %s and comes with cubin %s",
                       winner->cubin_key, cubin->key);
    return 0;
}

/* Whether the scope has a winner of a better origin. One without its cubin cannot be served, one
 * of no known origin is not valid: neither stands in the way. */
static int earlier_is_better(fa_store *store, int64_t scope_id, fa_origin origin, bool *ret_better,
                             fa_diag *diag)
{
    fa_statement *statement;
    int rc = fa_db_statement(store, FA_SQL_WINNER_ORIGIN,
                             "SELECT winner.origin FROM winner JOIN cubin "
                             "ON cubin.key = winner.cubin_key WHERE scope_id = ?",
                             &statement, diag);
    if (rc != 0)
        return rc;
    fa_binder binder = {.statement = statement};
    fa_bind_int(&binder, scope_id);
    rc = fa_db_step(store, statement, diag);
    if (rc < 0)
        return rc;
    *ret_better = false;
    if (rc == 1) {
        fa_reader reader = {.statement = statement, .ok = true};
        fa_origin earlier;
        const char *name = fa_read_text(&reader, false);
        *ret_better = fa_origin_parse(name, &earlier) == 0 && fa_origin_trust(earlier) < fa_origin_trust(origin);
        fa_db_reset(statement);
    }
    return 0;
}

static int delete_body(fa_store *store, void *context, fa_diag *diag)
{
    fa_statement *statement;
    int rc = fa_db_statement(store, FA_SQL_WINNER_DELETE, "DELETE FROM winner WHERE scope_id = ?",
                             &statement, diag);
    if (rc != 0)
        return rc;
    fa_binder binder = {.statement = statement};
    fa_bind_int(&binder, *(const int64_t *)context);
    return fa_db_run(store, &binder, diag);
}

static int replace_row(fa_store *store, int64_t scope_id, const fa_winner_record *winner,
                       int64_t unix_time, fa_diag *diag)
{
    fa_statement *statement;
    int rc = delete_body(store, &scope_id, diag);
    if (rc == 0)
        rc = fa_db_statement(store, FA_SQL_WINNER_PUT,
                             "INSERT INTO winner (scope_id, " FA_TRIAL_COLUMNS
                             ", origin, entry, cubin_key, gpu_name, nvrtc, driver_version, "
                             "evidence, unix_time) VALUES (?," FA_TRIAL_PLACES ",?,?,?,?,?,?,?,?)",
                             &statement, diag);
    if (rc != 0)
        return rc;
    fa_binder binder = {.statement = statement};
    fa_bind_int(&binder, scope_id);
    rc = fa_db_trial_bind(&binder, &winner->trial, diag);
    fa_bind_text(&binder, fa_origin_name(winner->origin));
    fa_bind_text(&binder, winner->entry);
    fa_bind_text(&binder, winner->cubin_key);
    fa_bind_text(&binder, winner->gpu_name);
    fa_bind_text(&binder, winner->nvrtc);
    fa_bind_int(&binder, winner->driver_version);
    fa_bind_text(&binder, winner->evidence);
    fa_bind_int(&binder, unix_time);
    if (rc != 0) {
        fa_db_reset(statement);
        return rc;
    }
    return fa_db_run(store, &binder, diag);
}

static int put_body(fa_store *store, void *context, fa_diag *diag)
{
    struct putting *putting = context;
    const fa_winner_record *winner = putting->winner;
    int64_t scope_id = 0;
    bool better = false, exists = true;
    int rc = fa_db_scope_id(store, &winner->scope, true, &scope_id, diag);
    if (rc == 0)
        rc = fa_db_scope_lock(store, scope_id, diag);
    if (rc == 0 && !putting->replace)
        rc = earlier_is_better(store, scope_id, winner->origin, &better, diag);
    if (rc == 0 && putting->cubin != NULL)
        rc = fa_db_cubin_put(store, putting->cubin, diag);
    else if (rc == 0 && !better)
        rc = fa_db_cubin_exists(store, winner->cubin_key, &exists, diag);
    if (rc == 0 && !exists)
        rc = fa_fail(diag, FA_EINVAL, "winner's cubin %s is not in the store: put them together",
                     winner->cubin_key);
    if (rc == 0 && !better)
        rc = replace_row(store, scope_id, winner,
                         putting->replace ? winner->unix_time : (int64_t)time(NULL), diag);
    putting->kept = better;
    return rc != 0 ? rc : fa_db_notify(store, diag);
}

int fa_db_winner_put(fa_store *store, const fa_winner_record *winner, const fa_cubin_record *cubin,
                     bool *ret_kept, fa_diag *diag)
{
    struct putting putting = {.winner = winner, .cubin = cubin};
    int rc = put_body(store, &putting, diag);
    if (rc == 0)
        *ret_kept = putting.kept;
    return rc;
}

static int put(fa_store *store, struct putting *putting, fa_diag *diag)
{
    int rc = fa_db_enter(store, diag);
    if (rc == 0)
        rc = fa_db_winner_check(putting->winner, putting->cubin, diag);
    return rc != 0 ? rc : fa_db_write(store, put_body, putting, diag);
}

int fa_store_winner_put(fa_store *store, const fa_winner_record *winner,
                        const fa_cubin_record *cubin, bool *ret_kept, fa_diag *diag)
{
    struct putting putting = {.winner = winner, .cubin = cubin};
    int rc = put(store, &putting, diag);
    if (rc == 0 && ret_kept != NULL)
        *ret_kept = putting.kept;
    return rc;
}

int fa_store_winner_replace(fa_store *store, const fa_winner_record *winner,
                            const fa_cubin_record *cubin, fa_diag *diag)
{
    struct putting putting = {.winner = winner, .cubin = cubin, .replace = true};
    return put(store, &putting, diag);
}

static int hold_body(fa_store *store, void *context, fa_diag *diag)
{
    int64_t scope_id = 0;
    int rc = fa_db_scope_id(store, context, true, &scope_id, diag);
    return rc != 0 ? rc : fa_db_scope_lock(store, scope_id, diag);
}

int fa_store_winner_hold(fa_store *store, const fa_scope *scope, fa_diag *diag)
{
    int rc = fa_db_enter(store, diag);
    if (rc == 0)
        rc = fa_db_scope_check(scope, diag);
    return rc != 0 ? rc : fa_db_write(store, hold_body, (void *)(uintptr_t)scope, diag);
}

/* ---- reading --------------------------------------------------------------------------------*/
void fa_winner_record_free(fa_winner_record *winner)
{
    if (winner == NULL)
        return;
    free(winner->evidence);
    winner->evidence = NULL;
}

/* WINNER_COLUMNS. 0 or FA_ENOMEM; validity is in reader->ok. */
static int read_winner(fa_reader *reader, fa_winner_record *ret_winner)
{
    fa_winner_record *winner = ret_winner;
    fa_db_trial_read(reader, &winner->trial);
    if (fa_origin_parse(fa_read_text(reader, false), &winner->origin) != 0)
        reader->ok = false;
    fa_read_copy(reader, winner->entry, sizeof winner->entry);
    fa_read_copy(reader, winner->cubin_key, sizeof winner->cubin_key);
    fa_read_copy(reader, winner->gpu_name, sizeof winner->gpu_name);
    fa_read_copy(reader, winner->nvrtc, sizeof winner->nvrtc);
    winner->driver_version = (int32_t)fa_read_int(reader, 0, INT32_MAX);
    const char *evidence = fa_read_text(reader, true);
    winner->unix_time = fa_read_int(reader, 0, INT64_MAX);
    winner->evidence = NULL;
    if (reader->ok && evidence != NULL) {
        winner->evidence = strdup(evidence);
        if (winner->evidence == NULL)
            return FA_ENOMEM;
    }
    return 0;
}

/* A stepped row of FA_SQL_WINNER_GET: what is in it, checked. *ret_missing: the winner is sound
 * and its cubin is absent or corrupt. */
static int read_pair(fa_statement *statement, int64_t *ret_scope_id, fa_winner_record *winner,
                     fa_cubin_record *cubin, bool *ret_valid, bool *ret_missing)
{
    fa_reader reader = {.statement = statement, .ok = true};
    *ret_scope_id = fa_read_int(&reader, 0, INT64_MAX);
    int rc = read_winner(&reader, winner);
    *ret_valid = reader.ok;
    *ret_missing = false;
    if (rc != 0 || !reader.ok || cubin == NULL)
        return rc;
    rc = fa_db_cubin_read(&reader, winner->cubin_key, cubin);
    *ret_missing = rc == 0 && !reader.ok;
    return rc;
}

static int step_get(fa_store *store, const fa_scope *scope, fa_statement **ret_statement,
                    fa_diag *diag)
{
    int rc = fa_db_statement(store, FA_SQL_WINNER_GET,
                             "SELECT winner.scope_id, " WINNER_COLUMNS ", " FA_CUBIN_COLUMNS
                             " FROM scope JOIN winner ON winner.scope_id = scope.id "
                             "LEFT JOIN cubin AS found ON found.key = winner.cubin_key" FA_CUBIN_ROW
                             "WHERE scope.key = ? AND scope.problem = ? AND scope.silicon = ? "
                             "AND scope.templates = ? AND scope.policy = ?",
                             ret_statement, diag);
    if (rc != 0)
        return rc;
    fa_binder binder = {.statement = *ret_statement};
    fa_db_scope_bind(&binder, scope);
    rc = fa_db_run(store, &binder, diag);
    if (rc == 0)
        return fa_fail(diag, FA_ENOTFOUND, "store %s has no winner for this problem and GPU",
                       store->path);
    return rc;
}

int fa_store_winner_get(fa_store *store, const fa_scope *scope, fa_winner_record *ret_winner,
                        fa_cubin_record *ret_cubin, fa_diag *diag)
{
    fa_statement *statement;
    int rc = fa_db_enter(store, diag);
    if (rc == 0)
        rc = fa_db_scope_check(scope, diag);
    if (rc == 0)
        rc = step_get(store, scope, &statement, diag);
    if (rc < 0)
        return rc;
    fa_winner_record winner = {.scope = *scope};
    fa_cubin_record cubin = {0};
    bool valid, missing;
    int64_t scope_id;
    rc = read_pair(statement, &scope_id, &winner, ret_cubin != NULL ? &cubin : NULL, &valid, &missing);
    fa_db_reset(statement);
    if (rc == 0 && valid && !missing) {
        *ret_winner = winner;
        if (ret_cubin != NULL)
            *ret_cubin = cubin;
        return 0;
    }
    fa_winner_record_free(&winner);
    if (rc != 0)
        return fa_fail(diag, rc, "out of memory");
    if (missing) {
        fa_db_cubin_drop(store, winner.cubin_key);
        return fa_fail(diag, FA_ECORRUPT,
                       "store %s: the winner's cubin %s is missing or does not match its SHA-256; "
                       "it must be compiled again",
                       store->path, winner.cubin_key);
    }
    if (!store->read_only)
        fa_db_write(store, delete_body, &scope_id, NULL);
    return fa_fail(diag, FA_ECORRUPT,
                   "store %s: the winner of this problem is not valid and was "
                   "discarded; tune again",
                   store->path);
}

int fa_store_winner_any(fa_store *store, const fa_problem *problem, const char *templates)
{
    fa_statement *statement;
    char key[FA_PROBLEM_KEY_MAX];
    int rc = fa_db_enter(store, NULL);
    if (rc == 0)
        rc = fa_db_statement(store, FA_SQL_WINNER_ANY,
                             "SELECT 1 FROM scope JOIN winner ON winner.scope_id = scope.id "
                             "WHERE scope.problem = ? AND scope.templates = ? LIMIT 1",
                             &statement, NULL);
    if (rc != 0)
        return rc;
    fa_problem_key(problem, key);
    fa_binder binder = {.statement = statement};
    fa_bind_text(&binder, key);
    fa_bind_text(&binder, templates);
    rc = fa_db_step(store, statement, NULL);
    fa_db_reset(statement);
    return rc > 0 ? 0 : rc == 0 ? FA_ENOTFOUND : rc;
}

/* 1: loaded; 0: gone or invalid, to be skipped; or negative. */
static int load(fa_store *store, int64_t scope_id, fa_winner_record *ret_winner, fa_diag *diag)
{
    fa_reader reader;
    int rc = fa_db_row(store, FA_SQL_WINNER_READ,
                       "SELECT " FA_SCOPE_COLUMNS ", " WINNER_COLUMNS
                       " FROM winner JOIN scope ON scope.id = winner.scope_id "
                       "WHERE winner.scope_id = ?",
                       scope_id, &reader, diag);
    if (rc <= 0)
        return rc;
    fa_db_scope_read(&reader, &ret_winner->scope);
    rc = read_winner(&reader, ret_winner);
    fa_db_reset(reader.statement);
    if (rc != 0)
        return fa_fail(diag, rc, "out of memory");
    return reader.ok ? 1 : 0;
}

/* No lock is held while visit runs: it may take its time and may use the store. Frees ids. */
static int visit_all(fa_store *store, int64_t *ids, size_t count, fa_winner_visit *visit,
                     void *context, fa_diag *diag)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        fa_winner_record winner = {0};
        rc = fa_db_enter(store, diag);
        if (rc == 0)
            rc = load(store, ids[i], &winner, diag);
        if (rc == 1)
            rc = visit(context, &winner);
        fa_winner_record_free(&winner);
    }
    free(ids);
    return rc;
}

int fa_store_winners_each(fa_store *store, fa_winner_visit *visit, void *context, fa_diag *diag)
{
    int64_t *ids = NULL;
    size_t count = 0;
    int rc = fa_db_ids(store, FA_SQL_WINNER_IDS,
                       "SELECT scope_id FROM winner ORDER BY unix_time DESC, scope_id DESC", &ids,
                       &count, diag);
    return rc != 0 ? rc : visit_all(store, ids, count, visit, context, diag);
}

int fa_store_winners_like(fa_store *store, const fa_scope *scope, fa_winner_visit *visit,
                          void *context, fa_diag *diag)
{
    int64_t *ids = NULL;
    size_t count = 0;
    fa_statement *statement;
    const fa_problem *p = &scope->problem;
    int rc = fa_db_enter(store, diag);
    if (rc == 0)
        rc = fa_db_scope_check(scope, diag);
    if (rc == 0)
        rc = fa_db_statement(store, FA_SQL_WINNER_LIKE,
                             "SELECT winner.scope_id FROM scope JOIN winner "
                             "ON winner.scope_id = scope.id WHERE head_dim = ? AND heads_q = ? "
                             "AND heads_kv = ? AND batch = ? AND dtype = ? AND causal = ? "
                             "AND layout = ? AND want_lse = ? AND unaligned = ? "
                             "AND templates = ? AND policy = ? "
                             "ORDER BY winner.unix_time DESC, winner.scope_id DESC",
                             &statement, diag);
    if (rc != 0)
        return rc;
    fa_binder binder = {.statement = statement};
    fa_bind_int(&binder, p->head_dim);
    fa_bind_int(&binder, p->heads_q);
    fa_bind_int(&binder, p->heads_kv);
    fa_bind_int(&binder, p->batch);
    fa_bind_text(&binder, fa_dtype_name(p->dtype));
    fa_bind_text(&binder, fa_causal_name(p->causal));
    fa_bind_text(&binder, fa_layout_name(p->layout));
    fa_bind_int(&binder, p->want_lse);
    fa_bind_int(&binder, p->unaligned);
    fa_bind_text(&binder, scope->templates);
    fa_bind_text(&binder, scope->policy);
    rc = fa_db_collect_ids(store, statement, &ids, &count, diag);
    return rc != 0 ? rc : visit_all(store, ids, count, visit, context, diag);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Scopes: what must agree for a winner to be served. The hash finds the row, the full text decides.
 */
#include "scopes.h"

#include <string.h>

void fa_scope_key(const fa_scope *scope, char ret_hex[FA_HASH_HEX])
{
    char problem[FA_PROBLEM_KEY_MAX];
    fa_hash hash;
    fa_problem_key(&scope->problem, problem);
    fa_hash_init(&hash);
    fa_hash_text(&hash, problem);
    fa_hash_text(&hash, scope->silicon);
    fa_hash_text(&hash, scope->templates);
    fa_hash_text(&hash, scope->policy);
    fa_hash_final(&hash, ret_hex);
}

int fa_db_scope_check(const fa_scope *scope, fa_diag *diag)
{
    if (scope == NULL)
        return fa_fail(diag, FA_EINVAL, "no scope given");
    if (memchr(scope->silicon, 0, sizeof scope->silicon) == NULL || scope->silicon[0] == 0 ||
        memchr(scope->templates, 0, sizeof scope->templates) == NULL || scope->templates[0] == 0 ||
        memchr(scope->policy, 0, sizeof scope->policy) == NULL || scope->policy[0] == 0)
        return fa_fail(diag, FA_EINVAL,
                       "a scope needs silicon, templates and policy, each a text that ends");
    return fa_problem_check(&scope->problem, diag);
}

/* The texts that were hashed are bound too. */
void fa_db_scope_bind(fa_binder *binder, const fa_scope *scope)
{
    char key[FA_HASH_HEX], problem[FA_PROBLEM_KEY_MAX];
    fa_scope_key(scope, key);
    fa_problem_key(&scope->problem, problem);
    fa_bind_copy(binder, key);
    fa_bind_copy(binder, problem);
    fa_bind_text(binder, scope->silicon);
    fa_bind_text(binder, scope->templates);
    fa_bind_text(binder, scope->policy);
}

static void read_problem(fa_reader *reader, fa_problem *ret_problem)
{
    const char *dtype = fa_read_text(reader, false);
    const char *causal = fa_read_text(reader, false);
    const char *layout = fa_read_text(reader, false);
    fa_problem problem = {0};
    if (fa_dtype_parse(dtype, &problem.dtype) != 0 ||
        fa_causal_parse(causal, &problem.causal) != 0 ||
        fa_layout_parse(layout, &problem.layout) != 0)
        fa_read_fail(reader, FA_EVERSION);
    problem.head_dim = (int32_t)fa_read_int(reader, 0, INT32_MAX);
    problem.batch = (int32_t)fa_read_int(reader, 0, INT32_MAX);
    problem.heads_q = (int32_t)fa_read_int(reader, 0, INT32_MAX);
    problem.heads_kv = (int32_t)fa_read_int(reader, 0, INT32_MAX);
    problem.seq_q = (int32_t)fa_read_int(reader, 0, INT32_MAX);
    problem.seq_k = (int32_t)fa_read_int(reader, 0, INT32_MAX);
    problem.want_lse = fa_read_int(reader, 0, 1) != 0;
    problem.unaligned = fa_read_int(reader, 0, 1) != 0;
    *ret_problem = problem;
}

void fa_db_scope_read(fa_reader *reader, fa_scope *ret_scope)
{
    char key[FA_HASH_HEX], key_now[FA_HASH_HEX];
    char problem[FA_PROBLEM_KEY_MAX], problem_now[FA_PROBLEM_KEY_MAX];
    fa_read_copy(reader, key, sizeof key);
    fa_read_copy(reader, problem, sizeof problem);
    read_problem(reader, &ret_scope->problem);
    fa_read_copy(reader, ret_scope->silicon, sizeof ret_scope->silicon);
    fa_read_copy(reader, ret_scope->templates, sizeof ret_scope->templates);
    fa_read_copy(reader, ret_scope->policy, sizeof ret_scope->policy);
    if (reader->rc == 0 && fa_db_scope_check(ret_scope, NULL) != 0)
        fa_read_fail(reader, FA_ECORRUPT);
    if (reader->rc != 0)
        return;
    fa_problem_key(&ret_scope->problem, problem_now);
    fa_scope_key(ret_scope, key_now);
    if (strcmp(problem, problem_now) != 0 || strcmp(key, key_now) != 0)
        fa_read_fail(reader, FA_ECORRUPT);
}

static int find(fa_store *store, const fa_scope *scope, int64_t *ret_id, fa_diag *diag)
{
    fa_binder binder =
        fa_db_prepare(store,
                      "SELECT id FROM scope WHERE key = ? AND problem = ? AND silicon = ? "
                      "AND templates = ? AND policy = ?",
                      diag);
    fa_db_scope_bind(&binder, scope);
    return fa_db_run_id(store, &binder, ret_id, diag);
}

static int add(fa_store *store, const fa_scope *scope, int64_t *ret_id, fa_diag *diag)
{
    const fa_problem *problem = &scope->problem;
    fa_binder binder =
        fa_db_prepare(store,
                      "INSERT INTO scope (key, problem, silicon, templates, policy, dtype, "
                      "causal, layout, head_dim, batch, heads_q, heads_kv, seq_q, seq_k, "
                      "want_lse, unaligned) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) "
                      "ON CONFLICT (key) DO NOTHING RETURNING id",
                      diag);
    fa_db_scope_bind(&binder, scope);
    fa_bind_text(&binder, fa_dtype_name(problem->dtype));
    fa_bind_text(&binder, fa_causal_name(problem->causal));
    fa_bind_text(&binder, fa_layout_name(problem->layout));
    const int32_t sizes[] = {problem->head_dim, problem->batch, problem->heads_q,
                             problem->heads_kv, problem->seq_q, problem->seq_k};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        fa_bind_int(&binder, sizes[i]);
    fa_bind_int(&binder, problem->want_lse);
    fa_bind_int(&binder, problem->unaligned);
    return fa_db_run_id(store, &binder, ret_id, diag);
}

int fa_db_scope_id(fa_store *store, const fa_scope *scope, bool create, int64_t *ret_id,
                   fa_diag *diag)
{
    int64_t id = 0;
    int rc = find(store, scope, &id, diag);
    if (rc == 0 && id == 0 && create)
        rc = add(store, scope, &id, diag);
    if (rc == 0 && id == 0 && create) /* another process has just added it */
        rc = find(store, scope, &id, diag);
    if (rc == 0 && id == 0 && create)
        rc = fa_fail(diag, FA_ECORRUPT, "store %s: a scope's row does not agree with its key",
                     store->path);
    if (rc == 0)
        *ret_id = id;
    return rc;
}

int fa_db_scope_lock(fa_store *store, int64_t id, fa_diag *diag)
{
    bool exists;
    fa_binder binder =
        fa_db_prepare(store, "SELECT 1 FROM scope WHERE id = ? /*! FOR UPDATE */", diag);
    fa_bind_int(&binder, id);
    return fa_db_run_exists(store, &binder, &exists, diag);
}

struct visiting {
    fa_scope_visit *visit;
    void *context;
};

static int visit_row(fa_store *store, int64_t id, void *context, fa_diag *diag)
{
    const struct visiting *visiting = context;
    fa_scope scope = {0};
    fa_reader reader;
    int rc = fa_db_row(store,
                       "SELECT " FA_SCOPE_COLUMNS ", "
                       "(SELECT count(DISTINCT config_key) FROM trial WHERE scope_id = ?1), "
                       "coalesce((SELECT unix_time FROM trial WHERE id = "
                       "(SELECT max(id) FROM trial WHERE scope_id = ?1)), 0) "
                       "FROM scope WHERE id = ?1",
                       id, &reader, diag);
    if (rc <= 0)
        return rc;
    fa_db_scope_read(&reader, &scope);
    int32_t trials = (int32_t)fa_read_int(&reader, 0, INT32_MAX);
    int64_t unix_time = fa_read_int(&reader, 0, INT64_MAX);
    rc = fa_read_end(&reader, diag);
    return rc == 1 ? visiting->visit(visiting->context, &scope, trials, unix_time) : rc;
}

int fa_store_scopes_each(fa_store *store, fa_scope_visit *visit, void *context, fa_diag *diag)
{
    struct visiting visiting = {visit, context};
    fa_binder ids = fa_db_query(store, "SELECT id FROM scope ORDER BY id", diag);
    return fa_db_each(store, &ids, visit_row, &visiting, diag);
}

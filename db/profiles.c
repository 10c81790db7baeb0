/* SPDX-License-Identifier: Apache-2.0
 *
 * Profiles: what a profiler counted of a config, one for each config of a scope, as JSON.
 */
#include "rows.h"

#include "json.h"
#include "trial.h"

#include <stdlib.h>
#include <string.h>

struct putting {
    const fa_scope *scope;
    const fa_profile *profile;
    char *json;
};

static int put_body(fa_store *store, void *context, fa_diag *diag)
{
    const struct putting *putting = context;
    char key[FA_HASH_HEX];
    int64_t scope_id = 0;
    int rc = fa_db_scope_id(store, putting->scope, true, &scope_id, diag);
    if (rc != 0)
        return rc;
    fa_db_config_key(&putting->profile->config, key);
    return fa_db_do(store, diag,
                    "INSERT INTO profile (scope_id, config_key, json) VALUES (?,?,?) "
                    "ON CONFLICT (scope_id, config_key) DO UPDATE SET json = excluded.json",
                    fa_int(scope_id), fa_text(key), fa_text(putting->json));
}

int fa_store_profile_put(fa_store *store, const fa_scope *scope, const fa_profile *profile,
                         fa_diag *diag)
{
    struct putting putting = {.scope = scope, .profile = profile};
    int rc = fa_db_scope_check(scope, diag);
    if (rc != 0)
        return rc;
    cJSON *json = fa_profile_to_json(profile);
    putting.json = fa_json_finish(json);
    if (putting.json == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a profile");
    rc = fa_db_change(store, put_body, &putting, diag);
    free(putting.json);
    return rc;
}

struct visiting {
    char scope_key[FA_HASH_HEX]; /* numbers of rows that went may be another scope's by now */
    fa_profile_visit *visit;
    void *context;
};

/* A row that is not valid is passed over: the config can be profiled again. */
static int visit_row(fa_store *store, int64_t id, void *context, fa_diag *diag)
{
    const struct visiting *visiting = context;
    fa_profile profile;
    fa_reader reader;
    fa_binder binder = fa_db_prepare(store,
                                     "SELECT profile.json FROM profile JOIN scope ON "
                                     "scope.id = scope_id WHERE profile.id = ? AND scope.key = ?",
                                     diag);
    fa_bind(&binder, fa_int(id), fa_text(visiting->scope_key));
    int rc = fa_db_run_row(store, &binder, &reader, diag);
    if (rc <= 0)
        return rc;
    cJSON *json = fa_read_json(&reader, FA_STORE_PROFILE_MAX);
    if (json != NULL && fa_profile_from_json(json, &profile, NULL) != 0)
        fa_read_fail(&reader, FA_ECORRUPT);
    cJSON_Delete(json);
    rc = fa_read_end(&reader, diag);
    return rc == 1 ? visiting->visit(visiting->context, &profile) : rc;
}

int fa_store_profiles_each(fa_store *store, const fa_scope *scope, fa_profile_visit *visit,
                           void *context, fa_diag *diag)
{
    struct visiting visiting = {.visit = visit, .context = context};
    fa_binder ids = fa_db_prepare_scope(
        store, scope, "SELECT id FROM profile WHERE scope_id = ? ORDER BY id", diag);
    if (ids.rc == 0)
        fa_scope_key(scope, visiting.scope_key);
    return fa_db_each(store, &ids, visit_row, &visiting, diag);
}

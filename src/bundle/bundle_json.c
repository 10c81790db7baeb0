/* SPDX-License-Identifier: Apache-2.0
 *
 * One winner of a bundle as JSON. Every field must be there and valid; a failure names the field.
 */
#include "bundle.h"
#include "scope_row.h"
#include "trial_row.h"
#include "database.h"

#include "json.h"
#include "json_make.h"

static const char where[] = "winner";

/* The fields of a trial with every number as it is; NaN is null. */
#define PLAIN_CHOICE(name, member, ...) FA_MEMBER(name, CHOICE, fa_trial, member, __VA_ARGS__),
#define PLAIN_TEXT(...) /* its reason */
#define PLAIN_COUNT(name, member, ...) FA_MEMBER(name, COUNT, fa_trial, member),
#define PLAIN_FLAG(name, member, ...) FA_MEMBER(name, FLAG, fa_trial, member),
#define PLAIN_THREE(name, member) FA_MEMBER(name, THREE, fa_trial, member),
#define PLAIN_REAL(name, member, ...) \
    FA_MEMBER(name, NUMBER, fa_trial, member, .rules = FA_MEMBER_NAN),
#define PLAIN(kind, name, ...) PLAIN_##kind(name, __VA_ARGS__)
static const fa_member trial_members[] = {
    FA_CONFIG_MEMBER(fa_trial, config),
    FA_TRIAL_FIELDS(PLAIN, PLAIN_THREE){.key = NULL},
};

static int read_problem(const cJSON *json, void *ret_problem, fa_diag *diag)
{
    return fa_problem_from_json(json, ret_problem, diag);
}

/* An object, whatever the text is. */
static cJSON *write_evidence(const void *member)
{
    cJSON *json;
    int rc = fa_json_parse_object(*(char *const *)member, "evidence", &json, NULL);
    return rc == 0 && json == NULL ? cJSON_CreateObject() : json;
}

static int read_evidence(const cJSON *json, void *ret_text, fa_diag *diag)
{
    if (!cJSON_IsObject(json))
        return fa_fail(diag, FA_EINVAL, "%s: \"evidence\" must be an object", where);
    *(char **)ret_text = fa_json_print(json);
    return *(char **)ret_text != NULL ? 0 : fa_fail(diag, FA_ENOMEM, "out of memory for a winner");
}

#define ROW(key, kind, member, ...) FA_MEMBER(key, kind, fa_winner_record, member, __VA_ARGS__)
#define CLEAN .rules = FA_MEMBER_CLEAN
#define LABEL(kind, key, member, ...) ROW(key, kind, member, __VA_ARGS__),
static const fa_member winner_members[] = {
    ROW("problem", OTHER, scope.problem, .write = fa_member_problem, .read = read_problem),
    ROW("silicon", TEXT, scope.silicon, CLEAN),
    ROW("templates", TEXT, scope.templates, CLEAN),
    ROW("policy", TEXT, scope.policy, CLEAN),
    ROW("trial", STRUCT, trial, .members = trial_members),
    FA_WINNER_LABELS(LABEL) ROW("time", COUNT64, unix_time, .most = (int64_t)1 << 40),
    ROW("evidence", OTHER, evidence, .write = write_evidence, .read = read_evidence),
    {.key = NULL},
};
#undef ROW

int fa_bundle_winner_print(const fa_winner_record *winner, fa_buf *out, fa_diag *diag)
{
    cJSON *json = fa_struct_to_json(winner_members, winner);
    char *text = json != NULL ? fa_json_print(json) : NULL;
    cJSON_Delete(json);
    if (text == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a winner");
    fa_buf_text(out, text);
    cJSON_free(text);
    if (out->failed)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a winner");
    return out->size <= FA_BUNDLE_RECORD_MAX
               ? 0
               : fa_fail(diag, FA_EINVAL,
                         "a winner with its evidence has %zu bytes: %d is the most", out->size,
                         FA_BUNDLE_RECORD_MAX);
}

/* A measured winner has the times and the trial to show for it; a prediction has none. */
static int check_winner(const fa_winner_record *winner, fa_diag *diag)
{
    const fa_trial *trial = &winner->trial;
    int rc = fa_db_scope_check(&winner->scope, diag);
    if (rc == 0)
        rc = fa_db_trial_check(trial, diag);
    if (rc != 0)
        return rc;
    if (winner->origin == FA_ORIGIN_NEAREST) /* what a lookup says, not what a winner is */
        return fa_fail(diag, FA_EINVAL, "%s: no winner is stored as \"%s\"", where,
                       fa_origin_name(winner->origin));
    if (winner->entry[0] == 0)
        return fa_fail(diag, FA_EINVAL, "%s: its entry has no name", where);
    if (trial->status != FA_STATUS_MEASURED && trial->status != FA_STATUS_COMPILED)
        return fa_fail(diag, FA_EINVAL, "%s: it ended as \"%s\", which no winner does", where,
                       fa_status_name(trial->status));
    bool timed = trial->status == FA_STATUS_MEASURED && trial->median_us > 0 &&
                 trial->low_us <= trial->median_us && trial->median_us <= trial->high_us;
    if (winner->origin <= FA_ORIGIN_IMPORTED && !timed)
        return fa_fail(diag, FA_EINVAL, "%s: it is %s and has no median with its interval", where,
                       fa_origin_name(winner->origin));
    if (trial->threads < 1 || trial->threads > 1024 || trial->grid[0] == 0 || trial->grid[1] == 0 ||
        trial->grid[2] == 0)
        return fa_fail(diag, FA_EINVAL,
                       "%s: %d threads on a grid of %u x %u x %u cannot be launched", where,
                       trial->threads, trial->grid[0], trial->grid[1], trial->grid[2]);
    return 0;
}

int fa_bundle_winner_parse(const char *text, size_t size, fa_winner_record *ret_winner,
                           fa_diag *diag)
{
    fa_winner_record winner = {0};
    cJSON *json = NULL;
    int rc = fa_json_parse(text, size, where, &json, diag);
    if (rc == 0 && !cJSON_IsObject(json))
        rc = fa_fail(diag, FA_EINVAL, "%s: must be a JSON object", where);
    if (rc == 0)
        rc = fa_struct_from_json(json, winner_members, &winner, where, diag);
    cJSON_Delete(json);
    if (rc == 0)
        rc = check_winner(&winner, diag);
    if (rc == 0)
        *ret_winner = winner;
    else
        cJSON_free(winner.evidence);
    return rc;
}

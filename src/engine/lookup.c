/* SPDX-License-Identifier: Apache-2.0
 *
 * Which winner answers for a problem on a GPU, in the order of trust; and for servers that do not wait for the store,
 * which loaded kernel is the nearest that is right for a problem.
 *
 *   the very lengths, where somebody had them tuned exactly
 *   their bucket: measured here, on another board of this silicon, or imported
 *   what the model predicted for either
 *
 * Lengths between buckets: where the number of tiles jumps, the config that wins at the bucket may waste a row of
 * tiles that another one does not. All of the bucket's were proved and timed there: each one's time, scaled as the
 * model scales it from the bucket to the asked lengths, tells which one to take.
 *
 * Believing a bundle: who signed it, is it whole, is each cubin what its winner says; and which of
 * two winners is the better one.
 *
 * Workload: a hit in one of the first two places reads one row, and at lengths between buckets the few fastest of the
 * bucket's trials, once for each such length in a process. A few hundred cubins are loaded at the most.
 * Invariants: nothing is served whose geometry does not hold for the asked problem on this GPU, and nothing that this
 * driver was seen to get wrong. The winner stays unless another config promises more than the model's error between two
 * lengths so near to each other; a raced winner is compared with those of its race alone, as the others were probed at
 * another clock.
 */
#include "lookup.h"

#include "buf.h"
#include "cubin.h"
#include "error.h"
#include "family.h"
#include "model.h"
#include "problem.h"
#include "trial.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- answers ---------------------------------------------------------------------------------*/
#define ROW(member, kind, ...) FA_MEMBER(#member, kind, fa_answer, member, __VA_ARGS__)
#define LEFT_OUT .rules = FA_MEMBER_LEFT_OUT
#define OPTIONAL .rules = FA_MEMBER_OPTIONAL
#define COUNTED(member) ROW(member, COUNT, .rules = FA_MEMBER_OPTIONAL | FA_MEMBER_NULL)
const fa_member fa_funnel_members[] = {
    COUNTED(space),  COUNTED(in_budget), COUNTED(compiled), COUNTED(clean),
    COUNTED(proved), COUNTED(measured),  COUNTED(failed),   {.key = NULL},
};

static const fa_member evidence_members[] = {
    {.key = "funnel", .kind = FA_MEMBER_PART, .members = fa_funnel_members},
    ROW(ties, COUNT, OPTIONAL),
    ROW(ties_differ, COUNT, LEFT_OUT),
    ROW(default_us, NUMBER, OPTIONAL),
    ROW(tune_s, NUMBER, OPTIONAL),
    ROW(shortlist_only, FLAG, LEFT_OUT),
    ROW(from_gpu, TEXT, LEFT_OUT),
    ROW(strategy, TEXT, LEFT_OUT),
    ROW(undated, FLAG, LEFT_OUT),
    ROW(contents, COUNT, LEFT_OUT),
    ROW(gpu, STRUCT, OPTIONAL, .members = fa_gpu_members),
    {.key = NULL},
};
#undef ROW

char *fa_records_environment(const fa_gpu *gpu, int driver_version, const char *nvrtc,
                             int32_t contents)
{
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    cJSON *json = cJSON_CreateObject();
    fa_json_add_text(json, "gpu", gpu->name);
    fa_json_add_text(json, "uuid", gpu->uuid);
    fa_json_add_number(json, "driver", driver_version);
    fa_json_add_text(json, "nvrtc", nvrtc);
    fa_json_add_text(json, "library", FA_TUNE_VERSION);
    fa_json_add_text(json, "host", host);
    if (contents != 0)
        fa_json_add_number(json, "contents", (double)contents);
    return fa_json_finish(json);
}

bool fa_records_tools(const char *environment, fa_tools *ret_tools)
{
    FA_ENDS(fa_json_end) cJSON *json = NULL;
    *ret_tools = (fa_tools){0};
    if (fa_json_parse(environment, strlen(environment), "environment", &json, NULL) != 0)
        return false;
    bool known =
        fa_json_copy(json, "nvrtc", ret_tools->nvrtc, sizeof ret_tools->nvrtc, "environment",
                     NULL) == 0 &&
        fa_json_int(json, "driver", 0, INT32_MAX, &ret_tools->driver, "environment", NULL) == 0;
    fa_json_int(json, "contents", 0, INT32_MAX, &ret_tools->contents, "environment", NULL);
    return known;
}

int fa_records_winner(const fa_answer *answer, const fa_scope *scope, fa_winner_record *ret_winner,
                      fa_diag *diag)
{
    *ret_winner =
        (fa_winner_record){.scope = *scope,
                           .origin = answer->origin,
                           .trial = answer->trial,
                           .driver_version = answer->driver_version,
                           .unix_time = answer->unix_time,
                           .evidence = fa_json_finish(fa_struct_to_json(evidence_members, answer))};
    memcpy(ret_winner->entry, answer->entry, sizeof ret_winner->entry);
    memcpy(ret_winner->cubin_key, answer->cubin_key, sizeof ret_winner->cubin_key);
    memcpy(ret_winner->nvrtc, answer->nvrtc, sizeof ret_winner->nvrtc);
    memcpy(ret_winner->gpu_name, answer->gpu.name, sizeof ret_winner->gpu_name);
    return fa_have(ret_winner->evidence != NULL, "a winner's evidence", diag);
}

int fa_records_answer(const fa_winner_record *winner, const fa_gpu *gpu, fa_answer *ret_answer,
                      fa_diag *diag)
{
    fa_answer answer = {.size = sizeof answer};
    answer.problem = answer.from_problem = winner->scope.problem;
    answer.origin = winner->origin;
    answer.trial = winner->trial;
    snprintf(answer.entry, sizeof answer.entry, "%s", winner->entry);
    snprintf(answer.cubin_key, sizeof answer.cubin_key, "%s", winner->cubin_key);
    snprintf(answer.nvrtc, sizeof answer.nvrtc, "%s", winner->nvrtc);
    answer.driver_version = winner->driver_version;
    answer.unix_time = winner->unix_time;
    if (strchr(winner->scope.policy, ',') != NULL)
        strcpy(answer.same_bits, "default");
    FA_ENDS(fa_json_end) cJSON *json = NULL;
    FA_OR_RETURN(fa_json_parse_object(winner->evidence, "evidence", &json, diag));
    /* May be somebody else's or an older version's: what stands before a member that cannot be read is taken. */
    if (json != NULL)
        fa_struct_from_json(json, evidence_members, &answer, "evidence", NULL);
    /* A bundle's evidence may tell of another GPU than the one that the winner is stored for. */
    char silicon[FA_SILICON_MAX];
    fa_gpu_silicon(&answer.gpu, silicon);
    if (strcmp(silicon, winner->scope.silicon) != 0)
        answer.gpu = (fa_gpu){0};
    char measured_on[sizeof answer.gpu.uuid];
    memcpy(measured_on, answer.gpu.uuid, sizeof measured_on);
    if (gpu != NULL)
        answer.gpu = *gpu;
    else if (answer.gpu.name[0] == 0)
        snprintf(answer.gpu.name, sizeof answer.gpu.name, "%s", winner->gpu_name);
    /* Another board of the same silicon: as good, and said so. */
    if (answer.origin == FA_ORIGIN_MEASURED && gpu != NULL && strcmp(measured_on, gpu->uuid) != 0)
        answer.origin = FA_ORIGIN_MEASURED_SAME_SILICON;
    answer.from_store = true;
    *ret_answer = answer;
    return 0;
}

/* ---- where winners and cubins come from -------------------------------------------------------*/
/* The stored winner of a target's scope as an answer, with its cubin when ret_cubin is not NULL; FA_ENOTFOUND when there is
 * none. The user's own comes first, but a guess of his own gives way to what somebody has measured. */
static int find_winner(fa_tuner *tuner, const fa_target *target, fa_answer *ret_answer,
                       fa_cubin_record *ret_cubin, fa_diag *diag)
{
    FA_ENDS(fa_winner_record_free) fa_winner_record winner = {0};
    FA_ENDS(fa_cubin_record_free) fa_cubin_record own = {0};
    FA_ENDS(fa_cubin_record_free) fa_cubin_record other = {0};
    fa_answer answer;
    int rc = fa_store_winner_get(tuner->store, &target->scope, &winner, &own, diag);
    if (rc != 0 && rc != FA_ENOTFOUND)
        return rc;
    const bool none = rc == FA_ENOTFOUND;
    bool taken = (none || fa_origin_trust(winner.origin) > fa_origin_trust(FA_ORIGIN_IMPORTED)) &&
                 tuner->system->find(tuner, target, &answer, &other) == 0 &&
                 (none || fa_origin_trust(answer.origin) < fa_origin_trust(winner.origin));
    if (none && !taken)
        return rc;
    FA_OR_RETURN(taken ? 0 : fa_records_answer(&winner, &target->gpu, &answer, diag));
    *ret_answer = answer;
    fa_cubin_record *chosen = taken ? &other : &own;
    if (ret_cubin != NULL) {
        *ret_cubin = *chosen;
        *chosen = (fa_cubin_record){0};
    }
    return 0;
}

int fa_records_elsewhere(fa_tuner *tuner, const fa_target *target, fa_elsewhere *ret_elsewhere,
                         fa_diag *diag)
{
    const fa_scope *scope = &target->scope;
    fa_winner_record *rows = NULL;
    fa_list list = {0};
    size_t count = 0;
    int sm = 0, nearest = INT_MAX;
    FA_OR_RETURN(fa_store_winners(tuner->store, &scope->problem, &rows, &count, NULL, diag));
    for (size_t i = 0; i < count; i++)
        fa_winners_add(&list, &rows[i]);
    free(rows);
    tuner->system->list(tuner, &scope->problem, &list);
    FA_OR_RETURN(fa_winners_end(&list, 0, &rows, &count, diag));
    for (size_t i = 0; i < count; i++) {
        const fa_scope *other = &rows[i].scope;
        if (!fa_origin_is_timed(rows[i].origin) || strcmp(other->silicon, scope->silicon) == 0 ||
            !fa_problem_equal(&other->problem, &scope->problem) ||
            strcmp(other->templates, scope->templates) != 0 ||
            strcmp(other->policy, scope->policy) != 0 || sscanf(other->silicon, "sm_%d ", &sm) != 1)
            continue;
        /* Those of one major architecture come first; of equally near ones the newest winner. */
        const int distance =
            1000 * (sm / 10 != target->gpu.sm / 10) + abs(sm - (int)target->gpu.sm);
        if (distance < nearest) {
            nearest = distance;
            ret_elsewhere->config = rows[i].trial.config;
            memcpy(ret_elsewhere->gpu, rows[i].gpu_name, sizeof ret_elsewhere->gpu);
        }
    }
    free(rows);
    return 0;
}

int fa_records_cubin(fa_tuner *tuner, const char *key, fa_cubin_record *ret_cubin, fa_diag *diag)
{
    int rc = fa_store_cubin_get(tuner->store, key, ret_cubin, diag);
    return rc == FA_ENOTFOUND && tuner->system->cubin(tuner, key, ret_cubin) == 0 ? 0 : rc;
}

/* ---- proofs under other drivers, in the store, else in the session ---------------------------*/
bool fa_reproof_mark(fa_tuner *tuner, const char *cubin_key, const char *silicon,
                     int32_t driver_version, fa_verification *ret_mark)
{
    if (fa_store_verification_get(tuner->store, cubin_key, silicon, driver_version, ret_mark,
                                  NULL) == 0)
        return true;
    const fa_failed *failed = fa_tuner_failed(tuner, cubin_key, silicon);
    if (failed == NULL)
        return false;
    *ret_mark = (fa_verification){.driver_version = driver_version};
    snprintf(ret_mark->reason, sizeof ret_mark->reason, "%s", failed->error);
    return true;
}

/* ---- lengths between buckets ------------------------------------------------------------------*/
/* SLOWER: how far behind the bucket's fastest a config may be there; MARGIN: how much faster than the
 * winner it must promise to be. */
static const double SLOWER = 1.3, MARGIN = 0.97;

enum { LOOKED_AT = 32 };

/* A config that was tried for the bucket. */
struct tried {
    fa_study_trial *record; /* as stored; then with the grid for the asked lengths */
    fa_tools tools;         /* driver: that it was proved under; 0: it is only predicted */
    double us;              /* at the asked lengths; 0: it does not run there as it is */
};

/* What is on record of the bucket, the fastest first; all of one family. */
struct between {
    const fa_trial *winner;
    fa_study_trial *record;
    struct tried tried[LOOKED_AT];
    int count;
    double winner_us; /* at the asked lengths */
    const char *entry;
    fa_candidate from[LOOKED_AT]; /* at the bucket's lengths */
    fa_candidate to[LOOKED_AT];   /* at the asked lengths */
};

static double time_of(const fa_trial *trial)
{
    return trial->status == FA_STATUS_MEASURED ? trial->median_us : trial->predicted_us;
}

static void keep_trial(struct between *b, fa_study_trial *record)
{
    struct tried *one = &b->tried[b->count];
    const fa_trial *trial = &record->trial;
    double fastest = time_of(b->count > 0 ? &b->tried[0].record->trial : trial);
    if (trial->raced != b->winner->raced ||
        strcmp(trial->config.family, b->winner->config.family) != 0 ||
        !(time_of(trial) > 0 && time_of(trial) <= fastest * SLOWER) ||
        !fa_records_tools(record->environment, &one->tools))
        return;
    if (trial->status != FA_STATUS_MEASURED)
        one->tools.driver = 0;
    else if (one->tools.driver == 0)
        return;
    one->record = record;
    b->count++;
}

/* Sets a config's time and grid at the asked lengths. */
static void scale(struct tried *one, fa_candidate *from, fa_candidate *to, const fa_problem *bucket,
                  const fa_target *target)
{
    fa_trial *trial = &one->record->trial;
    if (to->trial.status != FA_STATUS_PENDING || to->trial.threads != trial->threads ||
        to->trial.smem_bytes != trial->smem_bytes)
        return;
    from->trial.registers = to->trial.registers = trial->registers;
    from->trial.static_smem_bytes = to->trial.static_smem_bytes = trial->static_smem_bytes;
    fa_model_predict(from, bucket, &target->gpu, &from->trial);
    fa_model_predict(to, &target->asked, &target->gpu, &to->trial);
    if (from->trial.predicted_us > 0 && to->trial.predicted_us > 0)
        one->us = time_of(trial) * to->trial.predicted_us / from->trial.predicted_us;
    memcpy(trial->grid, to->trial.grid, sizeof trial->grid);
}

static int by_time(const void *a, const void *b)
{
    const struct tried *x = a, *y = b;
    return (x->us > y->us) - (x->us < y->us);
}

/* Leaves those that are faster than the winner at the asked lengths, the fastest first. */
static int find_between(fa_tuner *tuner, const fa_target *target, const fa_scope *bucket,
                        struct between *b)
{
    const fa_config *config[LOOKED_AT];
    size_t records = 0;
    FA_OR_RETURN(fa_tuner_families(tuner, NULL));
    FA_OR_RETURN(fa_store_trials_fastest(tuner->store, bucket, b->winner->status, LOOKED_AT,
                                         &b->record, &records, NULL));
    for (size_t i = 0; i < records; i++)
        keep_trial(b, &b->record[i]);
    if (b->count == 0)
        return 0;
    for (int i = 0; i < b->count; i++)
        config[i] = &b->tried[i].record->trial.config;
    const fa_task task = fa_task_for(tuner, &target->asked, &target->gpu);
    const fa_task measured = {task.families, &bucket->problem, &target->gpu};
    FA_OR_RETURN(fa_space_some(&measured, config, b->count, b->from, NULL));
    FA_OR_RETURN(fa_space_some(&task, config, b->count, b->to, NULL));
    b->entry = task.families->family[b->to[0].family]->launch[0].entry;
    uint64_t race = 0;
    for (int i = 0; i < b->count; i++) {
        scale(&b->tried[i], &b->from[i], &b->to[i], &bucket->problem, target);
        if (fa_config_equal(config[i], &b->winner->config)) {
            b->winner_us = b->tried[i].us;
            race = b->tried[i].record->seed;
        }
    }
    double margin = b->winner->status == FA_STATUS_MEASURED ? MARGIN : 1;
    int left = 0;
    for (int i = 0; i < b->count; i++) {
        const struct tried *one = &b->tried[i];
        if (one->us > 0 && one->us < b->winner_us * margin &&
            (!b->winner->raced || one->record->seed == race))
            b->tried[left++] = *one;
    }
    b->count = left;
    qsort(b->tried, (size_t)left, sizeof *b->tried, by_time);
    return 0;
}

/* ---- one match -------------------------------------------------------------------------------*/
static bool refuse(fa_match *match, const char *why)
{
    snprintf(match->why, sizeof match->why, "%.511s", why);
    return false;
}

/* Whether the config runs the asked problem on this GPU, launched as its cubin was compiled: sets its grid there. */
static bool fits(fa_tuner *tuner, const fa_target *target, fa_match *match)
{
    fa_trial *trial = &match->answer.trial;
    bool has_grid = trial->grid[0] > 0; /* a loaded cubin's answer has none */
    fa_candidate candidate;
    fa_diag diag = {{0}};
    if (has_grid && fa_problem_equal(&match->scope.problem, &target->asked))
        return true;
    int rc = fa_target_candidate(tuner, target, &trial->config, &candidate, &diag);
    match->rc = rc == FA_ENOMEM || rc == FA_EIO ? rc : 0;
    if (rc != 0)
        return refuse(match, diag.text);
    if (candidate.trial.status != FA_STATUS_PENDING)
        return refuse(match, candidate.trial.reason);
    if (candidate.trial.threads != trial->threads ||
        candidate.trial.smem_bytes != trial->smem_bytes)
        return refuse(match, "it is launched otherwise for these lengths");
    memcpy(trial->grid, candidate.trial.grid, sizeof trial->grid);
    return true;
}

/* Whether no proof under the driver of today speaks against its cubin. One that passed makes it this driver's. */
static bool stands_under_driver(fa_tuner *tuner, const fa_target *target, fa_match *match)
{
    fa_verification mark;
    fa_answer *answer = &match->answer;
    char text[sizeof match->why];
    int now = target->gpu.present && tuner->driver != NULL ? fa_driver_version(tuner->driver) : 0;
    if (now == 0 || answer->driver_version == 0 || answer->driver_version == now ||
        !fa_reproof_mark(tuner, answer->cubin_key, target->scope.silicon, now, &mark))
        return true;
    if (mark.passed) {
        answer->driver_version = now;
        return true;
    }
    snprintf(text, sizeof text, "it failed its proof under driver %d: %.440s", now, mark.reason);
    return refuse(match, text);
}

static void explain(const fa_target *target, fa_match *match)
{
    static const char *const how[] = {
        [FA_ORIGIN_MEASURED] = "measured on this GPU",
        [FA_ORIGIN_MEASURED_SAME_SILICON] = "measured on another board of this silicon",
        [FA_ORIGIN_NEAREST] = "measured on this silicon",
        [FA_ORIGIN_IMPORTED] = "imported for this silicon",
        [FA_ORIGIN_TRANSFERRED] = "transferred from ",
        [FA_ORIGIN_PREDICTED] = "predicted by the model",
        [FA_ORIGIN_UNRANKED] = "the default config, unranked without a model"};
    fa_answer *answer = &match->answer;
    FA_ENDS(fa_buf_free) fa_buf lengths = {0};
    const bool same = fa_problem_equal(&match->scope.problem, &target->asked),
               timed = fa_origin_is_timed(answer->origin);
    const char *from = answer->origin != FA_ORIGIN_TRANSFERRED ? ""
                       : answer->from_gpu[0] != 0              ? answer->from_gpu
                                                               : "another GPU";
    const int32_t given = fa_contents_of(&target->asked);
    fa_problem_lengths(&lengths, &match->scope.problem);
    snprintf(answer->why, sizeof answer->why, "%s%s%s%s%s%s%s%s%s", how[answer->origin], from,
             lengths.size > 0 ? " for " : "", lengths.size > 0 ? lengths.data : "",
             match->kind == FA_STEP_EXACT || same ? "" : ", the bucket of these lengths",
             answer->shortlist_only && timed ? ", in a race of the top few" : "",
             answer->same_bits[0] != 0 ? ", of configs with the default's bits" : "",
             answer->trial.spilled ? ", of configs that spill" : "",
             timed && given != 0 && given != answer->contents
                 ? ", with other contents than those that are given"
                 : "");
    if (!same && timed)
        answer->origin = FA_ORIGIN_NEAREST;
    answer->problem = target->asked;
}

/* Takes another of the bucket's configs, with its cubin, where that promises more at the asked lengths, and says so. What keeps it from being taken leaves the match as it is. */
static void refine(fa_tuner *tuner, const fa_target *target, fa_match *match,
                   fa_cubin_record *match_cubin)
{
    fa_answer *answer = &match->answer;
    fa_problem bucket = fa_problem_bucket(&target->asked);
    bool guess =
        match->kind == FA_STEP_PREDICTED && answer->driver_version == 0 && !target->gpu.present;
    if (!(guess || fa_origin_is_timed(answer->origin)) ||
        fa_problem_equal(&bucket, &target->asked) ||
        !fa_problem_equal(&bucket, &match->scope.problem))
        return;
    FA_ENDS(fa_free_at) struct between *b = calloc(1, sizeof *b);
    if (b == NULL)
        return;
    b->winner = &answer->trial;
    int rc = find_between(tuner, target, &match->scope, b);
    for (int i = 0; rc == 0 && i < b->count; i++) {
        const struct tried *one = &b->tried[i];
        fa_cubin_record cubin = {0};
        fa_match other = *match;
        other.answer.trial = one->record->trial;
        other.answer.driver_version = (int32_t)one->tools.driver;
        memcpy(other.answer.cubin_key, one->record->cubin_key, sizeof other.answer.cubin_key);
        memcpy(other.answer.nvrtc, one->tools.nvrtc, sizeof one->tools.nvrtc);
        snprintf(other.answer.entry, sizeof other.answer.entry, "%s", b->entry);
        if (!stands_under_driver(tuner, target, &other) ||
            fa_records_cubin(tuner, other.answer.cubin_key, &cubin, NULL) != 0)
            continue;
        size_t said = strlen(answer->why);
        snprintf(other.answer.why + said, sizeof answer->why - said,
                 ", where another config won: scaled by the model this one takes ~%.1f µs here and "
                 "that one ~%.1f µs",
                 one->us, b->winner_us);
        *match = other;
        fa_cubin_record_free(match_cubin);
        *match_cubin = cubin;
        break;
    }
    free(b->record);
}

/* Explained before it is refined, which adds a sentence; the driver's proofs are asked last, of the cubin that was
 * chosen: a bucket's winner that failed under this driver may have given way to another config. A prediction becomes that
 * of the asked lengths; as stored it is the bucket's. */
static void judge(fa_tuner *tuner, const fa_target *target, fa_match *match, fa_cubin_record *cubin)
{
    fa_answer *answer = &match->answer;
    const fa_problem *problem = &match->scope.problem, bucket = fa_problem_bucket(problem);
    match->kind = !fa_origin_is_timed(answer->origin)  ? FA_STEP_PREDICTED
                  : fa_problem_equal(problem, &bucket) ? FA_STEP_BUCKET
                                                       : FA_STEP_EXACT;
    match->usable = fits(tuner, target, match);
    explain(target, match);
    if (match->usable) {
        refine(tuner, target, match, cubin);
        match->usable = stands_under_driver(tuner, target, match);
    }
    if (answer->trial.status == FA_STATUS_COMPILED && answer->trial.predicted_us > 0 &&
        !fa_problem_equal(&answer->from_problem, &target->asked))
        fa_target_predict(tuner, target, &answer->trial);
}

/* ---- all of them ----------------------------------------------------------------------------*/
int fa_look(fa_tuner *tuner, const fa_target *target, bool all, fa_lookup *found, fa_diag *diag)
{
    /* Bits were compared at the winner's own lengths. */
    const fa_problem bucket =
        target->wants_bits ? target->asked : fa_problem_bucket(&target->asked);
    const fa_problem *const problem[] = {&target->asked, &bucket};
    int none = FA_ENOTFOUND;
    bool timed = false;
    found->count = found->taken = 0; /* which say what of the rest is set */
    found->looked = true;
    found->cubin = (fa_cubin_record){0};
    for (int i = fa_problem_equal(problem[0], problem[1]); i < 2; i++) {
        fa_match *match = &found->own[found->count];
        FA_ENDS(fa_cubin_record_free) fa_cubin_record cubin = {0};
        fa_diag why = {{0}};
        fa_target there = *target;
        there.problem = there.scope.problem = *problem[i];
        *match = (fa_match){.scope = there.scope};
        int rc = find_winner(tuner, &there, &match->answer, &cubin, &why);
        const bool gone = rc == FA_ECORRUPT; /* its cubin */
        if (gone) {
            none = fa_fail(diag, rc, "%s", why.text);
            rc = find_winner(tuner, &there, &match->answer, NULL, NULL);
        }
        if (rc == FA_ENOTFOUND || rc == FA_ECORRUPT)
            continue;
        if (rc == 0)
            judge(tuner, target, match, &cubin);
        if (rc == 0 && match->rc != 0)
            rc = fa_fail(&why, match->rc, "%s", match->why);
        if (rc != 0)
            return fa_fail(diag, rc, "%s", why.text);
        if (gone)
            match->usable = refuse(match, why.text);
        found->count++;
        const bool is_timed = fa_origin_is_timed(match->answer.origin);
        if (match->usable && (found->taken == 0 || (is_timed && !timed))) {
            fa_cubin_record_free(&found->cubin);
            found->cubin = cubin, cubin = (fa_cubin_record){0};
            found->taken = found->count;
            timed = is_timed;
        }
        if (timed && !all)
            break;
    }
    if (found->taken > 0) {
        found->answer = found->own[found->taken - 1].answer;
        found->scope = found->own[found->taken - 1].scope;
        return 0;
    }
    if (none == FA_ECORRUPT) /* the sentence is there */
        return none;
    return found->count > 0
               ? fa_fail(diag, none, "no winner that is stored serves this problem on %s: %s",
                         target->gpu.name, found->own[0].why)
               : fa_fail(diag, none, "no winner is stored for this problem on %s",
                         target->gpu.name);
}

void fa_lookup_free(fa_lookup *found)
{
    fa_cubin_record_free(&found->cubin);
    found->count = found->taken = 0;
    found->looked = false;
}

/* ---- of what is loaded ----------------------------------------------------------------------*/
/* Distances may be equal: then by key, so that processes agree that have loaded the same kernels in another order. */
static void take_nearer(fa_tuner *tuner, const fa_target *target, const fa_answer *answer,
                        fa_match *best, double *nearest)
{
    const double distance = fa_problem_apart(&answer->from_problem, &target->asked);
    const bool nearer =
        !best->usable || distance < *nearest ||
        (!(distance > *nearest) && strcmp(answer->cubin_key, best->answer.cubin_key) < 0);
    if (distance < 0 || answer->driver_version == 0 || !nearer)
        return;
    fa_match match = {.kind = FA_STEP_EXACT, .answer = *answer, .scope = target->scope};
    match.scope.problem = answer->from_problem;
    match.usable = fits(tuner, target, &match);
    explain(target, &match);
    if (match.usable || match.rc != 0)
        *best = match;
    if (match.usable)
        *nearest = distance;
}

int fa_look_among_loaded(fa_tuner *tuner, const fa_target *target, uint64_t context,
                         fa_answer *ret_answer, fa_diag *diag)
{
    fa_match best = {.usable = false};
    double nearest = 0;
    if (target->wants_bits)
        return fa_fail(diag, FA_ENOTFOUND, "kernels of other lengths may have other bits");
    for (const fa_loaded *loaded = tuner->kernels.loaded; loaded != NULL; loaded = loaded->next)
        for (const struct fa_like *like = loaded->likes; like != NULL && best.rc == 0;
             like = like->next)
            if (loaded->context == context)
                take_nearer(tuner, target, &like->answer, &best, &nearest);
    if (best.rc != 0)
        return fa_fail(diag, best.rc, "%s", best.why);
    if (!best.usable)
        return fa_fail(diag, FA_ENOTFOUND,
                       "no kernel that is loaded in this process is right for this problem");
    *ret_answer = best.answer;
    return 0;
}

/* ---- bundles: the whole file --------------------------------------------------------------*/
int fa_bundle_open_whole(const char *path, const fa_import_options *trusted, fa_bundle **ret_bundle,
                         fa_diag *diag)
{
    char folder[FA_STORE_PATH_MAX] = "";
    FA_OR_RETURN(fa_bundle_open(path, false, ret_bundle, diag));
    int rc = 0;
    const fa_bundle_info *info = fa_bundle_get_info(*ret_bundle);
    if (trusted != NULL && info->is_signed && !info->trusted) {
        fa_own_config(FA_TRUSTED_FOLDER, folder, sizeof folder);
        rc = fa_fail(diag, FA_EUNTRUSTED,
                     "bundle %s is signed by a key that is not trusted here: key ID %s. Its "
                     "kernels would run on your GPU: if you know whose key it is, copy its .pub "
                     "file into %s",
                     path, info->key, folder);
    } else if (trusted != NULL && !info->is_signed && !trusted->allow_unsigned) {
        rc = fa_fail(diag, FA_EUNTRUSTED,
                     "bundle %s is not signed: have it exported with a key, or import it with "
                     "--allow-unsigned if you know where it comes from",
                     path);
    }
    if (rc == 0)
        rc = fa_bundle_read(*ret_bundle, diag);
    if (rc != 0)
        fa_bundle_close(ret_bundle);
    return rc;
}

/* ---- bundles: one winner ------------------------------------------------------------------*/
/* The winner says the most of what it launches: no less than its first kernel, no more than any of the cubin. */
static bool lies_between(int32_t least, int32_t said, int32_t most)
{
    return least <= said && said <= most;
}

int fa_bundle_check_cubin(const fa_winner_record *winner, const void *bytes, size_t size,
                          fa_diag *diag)
{
    fa_cubin_info first, most;
    const fa_trial *trial = &winner->trial;
    int sm = 0;
    if (fa_cubin_read(bytes, size, winner->entry, &first, diag) != 0 ||
        fa_cubin_most(bytes, size, &most, diag) != 0)
        return fa_fail_in(diag, FA_ECORRUPT, "cubin %.12s of %s", winner->cubin_key,
                          winner->gpu_name);
    if (sscanf(winner->scope.silicon, "sm_%d ", &sm) != 1 || first.sm != sm)
        return fa_fail(diag, FA_ECORRUPT, "cubin %.12s is for sm_%d and its winner for \"%s\"",
                       winner->cubin_key, first.sm, winner->scope.silicon);
    if (!lies_between(first.registers, trial->registers, most.registers) ||
        !lies_between(first.stack_bytes, trial->spill_bytes, most.stack_bytes) ||
        !lies_between(first.static_smem_bytes, trial->static_smem_bytes, most.static_smem_bytes) ||
        (first.max_threads != 0 && first.max_threads < trial->threads))
        return fa_fail(diag, FA_ECORRUPT,
                       "the kernels of cubin %.12s have %d to %d registers, %d to %d B of stack, "
                       "%d to %d B of static shared memory and blocks of up to %d threads; its "
                       "winner says %d, %d, %d and %d",
                       winner->cubin_key, first.registers, most.registers, first.stack_bytes,
                       most.stack_bytes, first.static_smem_bytes, most.static_smem_bytes,
                       first.max_threads, trial->registers, trial->spill_bytes,
                       trial->static_smem_bytes, trial->threads);
    return 0;
}

int fa_bundle_adopt(fa_winner_record *winner, const char *signer, fa_diag *diag)
{
    cJSON *json;
    FA_OR_RETURN(fa_json_parse_object(winner->evidence, "evidence", &json, diag));
    if (json == NULL)
        json = cJSON_CreateObject();
    if (!cJSON_HasObjectItem(json, "imported")) {
        cJSON *imported = fa_json_add_object(json, "imported");
        fa_json_add_text(imported, "origin", fa_origin_name(winner->origin));
        fa_json_add_text(imported, "signer", signer);
    }
    char *text = fa_json_finish(json);
    FA_OR_RETURN(fa_have(text != NULL, "a winner", diag));
    free(winner->evidence);
    winner->evidence = text;
    winner->origin = fa_bundle_origin(winner->origin);
    return 0;
}

/* ---- bundles: two winners -----------------------------------------------------------------*/
/* Width of the interval relative to the median; what has none is wider than any. */
static double spread(const fa_trial *trial)
{
    return trial->median_us > 0 ? (trial->high_us - trial->low_us) / trial->median_us : 1e9;
}

fa_bundle_change fa_bundle_weigh(const fa_winner_record *stored, const fa_winner_record *incoming)
{
    const fa_winner_record *a = incoming, *b = stored; /* negative: a is the better */
    const double new = spread(&a->trial), old = spread(&b->trial);
    int order = fa_origin_trust(a->origin) - fa_origin_trust(b->origin);
    if (order == 0)
        order = (new > old) - (new < old);
    if (order == 0)
        order = (a->driver_version < b->driver_version) - (a->driver_version > b->driver_version);
    if (order == 0)
        order = (a->unix_time < b->unix_time) - (a->unix_time > b->unix_time);
    if (order != 0)
        return order < 0 ? FA_BUNDLE_REPLACED : FA_BUNDLE_KEPT;
    return strcmp(stored->cubin_key, incoming->cubin_key) == 0 &&
                   stored->origin == incoming->origin &&
                   fa_config_equal(&stored->trial.config, &incoming->trial.config)
               ? FA_BUNDLE_SAME
               : FA_BUNDLE_KEPT;
}

/* ---- bundles: inspecting ------------------------------------------------------------------*/
int fa_bundle_inspect(const char *file, fa_bundle_item **ret_items, size_t *ret_count,
                      fa_bundle_info *ret_info, fa_diag *diag)
{
    static const size_t pointers[] = {offsetof(fa_bundle_item, answer),
                                      offsetof(fa_bundle_item, evidence), SIZE_MAX};
    FA_ENDS(fa_bundle_close) fa_bundle *bundle = NULL;
    FA_ENDS(fa_free_at) fa_winner_record *rows = NULL;
    FA_ENDS(fa_cubin_record_free) fa_cubin_record cubin = {0};
    fa_list list = {0};
    fa_answer answer;
    fa_bundle_item item;
    size_t count = 0;
    int rc = fa_bundle_open_whole(file, NULL, &bundle, diag);
    if (rc == 0)
        rc = fa_bundle_winners(bundle, &rows, &count, diag);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        if ((rc = fa_bundle_cubin_of(bundle, &rows[i], &cubin, diag)) != 0 ||
            (rc = fa_bundle_check_cubin(&rows[i], cubin.bytes, cubin.size, diag)) != 0 ||
            (rc = fa_records_answer(&rows[i], NULL, &answer, diag)) != 0)
            break;
        item.answer = fa_list_keep(&list, &answer, sizeof answer);
        item.evidence = fa_list_keep_text(&list, rows[i].evidence);
        fa_list_add(&list, &item, sizeof item);
    }
    rc = fa_list_end(&list, rc, pointers, ret_items, ret_count, diag);
    if (rc == 0 && ret_info != NULL)
        *ret_info = *fa_bundle_get_info(bundle);
    return rc;
}

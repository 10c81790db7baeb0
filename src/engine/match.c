/* SPDX-License-Identifier: Apache-2.0
 *
 * One stored winner, seen from a target.
 *
 * Lengths between buckets: where the number of tiles jumps, the config that wins at the bucket may waste a row of
 * tiles that another one does not. All of the bucket's were proved and timed there: each one's time, scaled as the
 * model scales it from the bucket to the asked lengths, tells which one to take.
 *
 * Workload: once for each such length in a process; reads the few fastest of the bucket's trials. Invariants: the
 * winner stays unless another promises more than the model's error between two lengths so near to each other; a raced
 * winner is compared with those of its race alone, as the others were probed at another clock.
 */
#include "lookup.h"

#include "candidate.h"
#include "request.h"
#include "error.h"
#include "stored.h"
#include "manifest.h"
#include "model.h"
#include "problem.h"
#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- proofs under other drivers, in the store, else in the session ---------------------------*/
int64_t fa_reproof_rest_s(const fa_verification *mark)
{
    enum { FIRST_S = 60, DOUBLINGS = 10 };
    int64_t since = (int64_t)time(NULL) - mark->unix_time;
    if (mark->late == 0 || since < 0) /* the clock was set back: treat the mark as made now */
        return 0;
    int64_t rest = (int64_t)FIRST_S << (mark->late - 1 < DOUBLINGS ? mark->late - 1 : DOUBLINGS);
    return since < rest ? rest - since : 0;
}

static bool same_mark(const fa_verification *mark, const char *cubin_key, const char *silicon,
                      int32_t driver_version)
{
    return mark->driver_version == driver_version && strcmp(mark->cubin_key, cubin_key) == 0 &&
           strcmp(mark->silicon, silicon) == 0;
}

bool fa_reproof_mark(fa_tuner *tuner, const char *cubin_key, const char *silicon,
                     int32_t driver_version, fa_verification *ret_mark)
{
    bool known = fa_store_verification_get(tuner->store, cubin_key, silicon, driver_version,
                                           ret_mark, NULL) == 0;
    for (int i = 0; i < FA_UNKEPT_MAX; i++) {
        const fa_verification *mark = &tuner->unkept[i];
        if (!same_mark(mark, cubin_key, silicon, driver_version) ||
            (known && ret_mark->unix_time > mark->unix_time))
            continue;
        *ret_mark = *mark;
        known = true;
    }
    return known;
}

/* Without this every ask would prove it again. */
static void remember(fa_tuner *tuner, const fa_verification *mark)
{
    int at = 0;
    while (at < FA_UNKEPT_MAX &&
           !same_mark(&tuner->unkept[at], mark->cubin_key, mark->silicon, mark->driver_version))
        at++;
    if (at == FA_UNKEPT_MAX)
        at = tuner->unkept_next++ % FA_UNKEPT_MAX;
    tuner->unkept[at] = *mark;
    tuner->unkept[at].unix_time = (int64_t)time(NULL);
}

void fa_reproof_keep(fa_tuner *tuner, const fa_scope *scope, const fa_verification *mark)
{
    fa_diag why = {{0}};
    bool read_only = fa_store_is_read_only(tuner->store);
    int rc = read_only ? FA_EREADONLY : fa_store_verification_put(tuner->store, mark, scope, &why);
    if (rc != 0 && !read_only)
        fa_note(tuner, "the result of a winner's proof under driver %d could not be kept: %s",
                mark->driver_version, why.text);
    if (rc != 0 && !mark->passed)
        remember(tuner, mark);
}

/* ---- lengths between buckets ------------------------------------------------------------------*/
/* SLOWER: how far behind the bucket's fastest a config may be there; MARGIN: how much faster than the
 * winner it must promise to be. */
static const double SLOWER = 1.3, MARGIN = 0.97;

enum { LOOKED_AT = 32 };

/* What is on record of the bucket, the fastest first; all of one family. */
struct finding {
    fa_tuner *tuner;
    const fa_scope *bucket;
    const fa_problem *asked;
    const fa_gpu *gpu;
    const fa_trial *winner;
    fa_alternative alternative[LOOKED_AT];
    uint64_t seed[LOOKED_AT];          /* of the tune that timed it */
    fa_candidate candidate[LOOKED_AT]; /* at the asked lengths */
    fa_launches launches[LOOKED_AT];   /* at the bucket's */
    int count;
};

static double time_of(const fa_trial *trial)
{
    return trial->status == FA_STATUS_MEASURED ? trial->median_us : trial->predicted_us;
}

static int keep_trial(void *context, const fa_trial_record *record)
{
    struct finding *f = context;
    fa_alternative *one = &f->alternative[f->count];
    const fa_trial *trial = &record->trial;
    bool proved = trial->status == FA_STATUS_MEASURED;
    double fastest = time_of(f->count > 0 ? &f->alternative[0].trial : trial);
    if (f->count == LOOKED_AT || trial->raced != f->winner->raced ||
        strcmp(trial->config.family, f->winner->config.family) != 0 ||
        !(time_of(trial) > 0 && time_of(trial) <= fastest * SLOWER) ||
        !fa_records_tools(record->environment, &one->driver_version, one->nvrtc, sizeof one->nvrtc))
        return 0;
    if (!proved)
        one->driver_version = 0;
    else if (one->driver_version == 0)
        return 0;
    one->trial = *trial;
    memcpy(one->cubin_key, record->cubin_key, sizeof one->cubin_key);
    f->seed[f->count++] = record->seed;
    return 0;
}

/* The time at the asked lengths of what is on record of the bucket; 0: it does not run there as it
 * is. */
static double scale(const fa_trial *trial, fa_candidate *candidate, const fa_launches *launches,
                    const fa_problem *bucket, const fa_problem *asked, const fa_gpu *gpu)
{
    if (candidate->trial.status != FA_STATUS_PENDING ||
        candidate->trial.threads != trial->threads ||
        candidate->trial.smem_bytes != trial->smem_bytes)
        return 0;
    fa_candidate there = *candidate;
    /* Of a candidate, only grids and work depend on the lengths, and the bucket's first grid is on record. */
    memcpy(there.trial.grid, trial->grid, sizeof there.trial.grid);
    there.launches = *launches;
    there.trial.registers = candidate->trial.registers = trial->registers;
    there.trial.static_smem_bytes = candidate->trial.static_smem_bytes = trial->static_smem_bytes;
    fa_model_predict(&there, bucket, gpu, &there.trial);
    fa_model_predict(candidate, asked, gpu, &candidate->trial);
    double from = there.trial.predicted_us, to = candidate->trial.predicted_us;
    return from > 0 && to > 0 ? time_of(trial) * to / from : 0;
}

/* The configs that are faster than the winner, in order. */
static void choose(const struct finding *f, const char *entry, fa_alternatives *found)
{
    double margin = f->winner->status == FA_STATUS_MEASURED ? MARGIN : 1;
    uint64_t race = 0;
    for (int i = 0; i < f->count; i++)
        if (fa_config_equal(&f->alternative[i].trial.config, &f->winner->config)) {
            found->winner_us = f->alternative[i].us;
            race = f->seed[i];
        }
    for (int i = 0; i < f->count; i++) {
        double us = f->alternative[i].us;
        if (!(us > 0 && us < found->winner_us * margin) || (f->winner->raced && f->seed[i] != race))
            continue;
        int at = found->count < FA_ALTERNATIVES_MAX ? found->count++ : FA_ALTERNATIVES_MAX;
        for (; at > 0 && found->alternative[at - 1].us > us; at--)
            if (at < FA_ALTERNATIVES_MAX)
                found->alternative[at] = found->alternative[at - 1];
        if (at == FA_ALTERNATIVES_MAX)
            continue;
        found->alternative[at] = f->alternative[i];
        snprintf(found->alternative[at].entry, sizeof found->alternative[at].entry, "%s", entry);
        memcpy(found->alternative[at].trial.grid, f->candidate[i].trial.grid,
               sizeof found->alternative[at].trial.grid);
    }
}

static int find_between(struct finding *f, fa_alternatives *found, fa_diag *diag)
{
    const fa_scope *bucket = f->bucket;
    const fa_config *config[LOOKED_AT];
    int rc = fa_tuner_families(f->tuner, diag);
    if (rc == 0)
        rc = fa_store_trials_fastest(f->tuner->store, bucket, f->winner->status, LOOKED_AT,
                                     keep_trial, f, diag);
    if (rc != 0 || f->count == 0)
        return rc;
    for (int i = 0; i < f->count; i++)
        config[i] = &f->alternative[i].trial.config;
    const fa_task task = fa_task_for(f->tuner, f->asked, f->gpu);
    const fa_task measured = {task.families, &bucket->problem, f->gpu};
    rc = fa_space_some(&task, config, f->count, f->candidate, diag);
    if (rc == 0)
        rc = fa_space_launches(&measured, f->candidate, f->count, f->launches, 1, diag);
    if (rc != 0)
        return rc;
    for (int i = 0; i < f->count; i++)
        f->alternative[i].us = scale(&f->alternative[i].trial, &f->candidate[i], &f->launches[i],
                                     &bucket->problem, f->asked, f->gpu);
    choose(f, fa_family_entry(task.families->family[f->candidate[0].family]), found);
    return 0;
}

int fa_alternatives_find(fa_tuner *tuner, const fa_scope *bucket, const fa_trial *winner,
                         const fa_problem *asked, const fa_gpu *gpu,
                         fa_alternatives **ret_alternatives, fa_diag *diag)
{
    fa_alternatives *found = calloc(1, sizeof *found);
    struct finding *finding = calloc(1, sizeof *finding);
    int rc = found != NULL && finding != NULL ? 0 : FA_ENOMEM;
    if (rc != 0) {
        fa_fail(diag, rc, "out of memory for a lookup");
    } else {
        finding->tuner = tuner;
        finding->bucket = bucket;
        finding->asked = asked;
        finding->gpu = gpu;
        finding->winner = winner;
        rc = find_between(finding, found, diag);
    }
    free(finding);
    if (rc == 0)
        *ret_alternatives = found;
    else
        free(found);
    return rc;
}

/* ---- one match -------------------------------------------------------------------------------*/
bool fa_match_serves(const fa_target *target, const fa_match *match)
{
    /* A transferred config has no cubin of this GPU's yet; once it has one, it is stored. */
    bool stored_here = strcmp(match->scope.silicon, target->scope.silicon) == 0;
    return match->usable && stored_here;
}

static void refuse_match(fa_match *match, const char *why)
{
    match->usable = false;
    snprintf(match->why, sizeof match->why, "%.511s", why);
}

static void fit(fa_tuner *tuner, const fa_target *target, fa_match *match)
{
    fa_trial *trial = &match->answer.trial;
    bool stored_here = strcmp(match->scope.silicon, target->scope.silicon) == 0;
    fa_candidate candidate;
    fa_diag diag = {{0}};
    match->usable = true;
    match->rc = 0;
    bool has_grid = trial->grid[0] > 0; /* a loaded cubin's answer has none */
    if (stored_here && has_grid && fa_problem_equal(&match->scope.problem, &target->asked))
        return;
    int rc = fa_target_candidate(tuner, target, &trial->config, &candidate, &diag);
    if (rc != 0) {
        refuse_match(match, diag.text);
        match->rc = rc == FA_ENOMEM || rc == FA_EIO ? rc : 0;
    } else if (candidate.trial.status != FA_STATUS_PENDING) {
        refuse_match(match, candidate.trial.reason);
    } else if (stored_here && (candidate.trial.threads != trial->threads ||
                               candidate.trial.smem_bytes != trial->smem_bytes)) {
        refuse_match(match, "it is launched otherwise for these lengths");
    } else if (!stored_here) {
        candidate.trial.config = trial->config;
        fa_model_predict(&candidate, &target->asked, &target->gpu, &candidate.trial);
        *trial = candidate.trial;
    } else {
        memcpy(trial->grid, candidate.trial.grid, sizeof trial->grid);
    }
}

static void apply_verification(fa_tuner *tuner, const fa_target *target, fa_match *match)
{
    fa_verification mark;
    fa_answer *answer = &match->answer;
    int now = target->gpu.present && tuner->driver != NULL ? fa_driver_version(tuner->driver) : 0;
    if (!match->usable || now == 0 || answer->driver_version == 0 ||
        answer->driver_version == now ||
        !fa_reproof_mark(tuner, answer->cubin_key, target->scope.silicon, now, &mark))
        return;
    if (mark.passed) {
        answer->driver_version = now;
        return;
    }
    char text[sizeof match->why];
    int64_t rest = fa_reproof_rest_s(&mark);
    if (mark.late > 0 && rest == 0)
        return;
    if (mark.late > 0)
        snprintf(text, sizeof text,
                 "its proof under driver %d ran out of time and is made again in "
                 "%lld s or later: %.380s",
                 now, (long long)rest, mark.reason);
    else
        snprintf(text, sizeof text, "it failed its proof under driver %d: %.440s", now,
                 mark.reason);
    refuse_match(match, text);
}

static void explain(const fa_target *target, fa_match *match)
{
    fa_answer *answer = &match->answer;
    char length[48], how[96];
    bool same = fa_problem_equal(&match->scope.problem, &target->asked);
    fa_problem_lengths(&match->scope.problem, length, sizeof length);
    switch (answer->origin) {
    case FA_ORIGIN_MEASURED:
        snprintf(how, sizeof how, "measured on this GPU");
        break;
    case FA_ORIGIN_MEASURED_SAME_SILICON:
        snprintf(how, sizeof how, "measured on another board of this silicon");
        break;
    case FA_ORIGIN_NEAREST:
        snprintf(how, sizeof how, "measured on this silicon");
        break;
    case FA_ORIGIN_IMPORTED:
        snprintf(how, sizeof how, "imported for this silicon");
        break;
    case FA_ORIGIN_TRANSFERRED:
        snprintf(how, sizeof how, "transferred from %.63s",
                 answer->from_gpu[0] != 0 ? answer->from_gpu : "another GPU");
        break;
    case FA_ORIGIN_UNRANKED:
        snprintf(how, sizeof how, "the default config, unranked without a model");
        break;
    default:
        snprintf(how, sizeof how, "predicted by the model");
    }
    const char *where =
        match->kind == FA_STEP_NEAREST || same ? "" : ", the bucket of these lengths";
    bool timed = fa_origin_is_timed(answer->origin);
    int32_t given = fa_contents_of(&target->asked);
    snprintf(answer->why, sizeof answer->why, "%s%s%s%s%s%s", how, length[0] != 0 ? " for " : "",
             length, where, answer->shortlist_only && timed ? ", in a race of the top few" : "",
             timed && given != 0 && given != answer->contents
                 ? ", with other contents than those that are given"
                 : "");
    if (!same && fa_origin_is_timed(answer->origin))
        answer->origin = FA_ORIGIN_NEAREST;
    answer->problem = target->asked;
}

/* Takes another of the bucket's configs where that promises more at the asked lengths, with its cubin
 * when ret_cubin is not NULL, and says so. What keeps it from being taken leaves the match as it is. */
static void refine(fa_tuner *tuner, const fa_target *target, fa_match *match,
                   fa_cubin_record *ret_cubin)
{
    fa_answer *answer = &match->answer;
    fa_problem bucket = fa_problem_bucket(&target->asked);
    bool guess =
        match->kind == FA_STEP_PREDICTED && answer->driver_version == 0 && !target->gpu.present;
    fa_alternatives *alternatives = NULL;
    if (!match->usable || !(guess || fa_origin_is_timed(answer->origin)) ||
        fa_problem_equal(&bucket, &target->asked) ||
        !fa_problem_equal(&bucket, &match->scope.problem) ||
        strcmp(match->scope.silicon, target->scope.silicon) != 0 ||
        fa_alternatives_find(tuner, &match->scope, &answer->trial, &target->asked, &target->gpu,
                             &alternatives, NULL) != 0)
        return;
    for (int i = 0; i < alternatives->count; i++) {
        const fa_alternative *one = &alternatives->alternative[i];
        fa_cubin_record cubin = {0};
        fa_match other = *match;
        other.answer.trial = one->trial;
        other.answer.driver_version = one->driver_version;
        memcpy(other.answer.cubin_key, one->cubin_key, sizeof one->cubin_key);
        memcpy(other.answer.entry, one->entry, sizeof one->entry);
        memcpy(other.answer.nvrtc, one->nvrtc, sizeof one->nvrtc);
        apply_verification(tuner, target, &other);
        if (!other.usable || fa_records_cubin(tuner, one->cubin_key, &cubin, NULL) != 0)
            continue;
        size_t said = strlen(answer->why);
        snprintf(other.answer.why + said, sizeof answer->why - said,
                 ", where another config won: scaled by the model this one takes ~%.1f µs here and "
                 "that one ~%.1f µs",
                 one->us, alternatives->winner_us);
        *match = other;
        if (ret_cubin != NULL) {
            fa_cubin_record_free(ret_cubin);
            *ret_cubin = cubin;
        } else {
            fa_cubin_record_free(&cubin);
        }
        break;
    }
    free(alternatives);
}

void fa_match_judge(fa_tuner *tuner, const fa_target *target, fa_match *match,
                    fa_cubin_record *ret_cubin)
{
    fit(tuner, target, match);
    explain(target, match);
    refine(tuner, target, match, ret_cubin);
    apply_verification(tuner, target, match);
}

void fa_match_judge_loaded(fa_tuner *tuner, const fa_target *target, fa_match *match)
{
    fit(tuner, target, match);
    explain(target, match);
}

void fa_match_judge_own(fa_tuner *tuner, const fa_target *target, fa_match *match,
                        fa_cubin_record *ret_cubin)
{
    const fa_problem *problem = &match->scope.problem;
    fa_problem bucket = fa_problem_bucket(problem);
    fa_origin origin = match->answer.origin;
    match->kind = origin == FA_ORIGIN_TRANSFERRED      ? FA_STEP_TRANSFERRED
                  : !fa_origin_is_timed(origin)        ? FA_STEP_PREDICTED
                  : fa_problem_equal(problem, &bucket) ? FA_STEP_BUCKET
                                                       : FA_STEP_EXACT;
    fa_match_judge(tuner, target, match, ret_cubin);
}

void fa_match_predict(fa_tuner *tuner, const fa_target *target, fa_answer *answer)
{
    fa_candidate candidate;
    fa_trial *trial = &answer->trial;
    if (trial->status != FA_STATUS_COMPILED || !(trial->predicted_us > 0) ||
        fa_problem_equal(&answer->from_problem, &target->asked) ||
        fa_target_candidate(tuner, target, &trial->config, &candidate, NULL) != 0 ||
        candidate.trial.status != FA_STATUS_PENDING)
        return;
    candidate.trial.registers = trial->registers;
    candidate.trial.static_smem_bytes = trial->static_smem_bytes;
    fa_model_predict(&candidate, &target->asked, &target->gpu, &candidate.trial);
    if (candidate.trial.predicted_us > 0)
        trial->predicted_us = candidate.trial.predicted_us;
}

int fa_lookup_of_winner(fa_tuner *tuner, const fa_target *target, const fa_winner_record *winner,
                        fa_answer *ret_answer, fa_diag *diag)
{
    fa_match match = {.scope = winner->scope};
    int rc = fa_records_answer(winner, &target->gpu, &match.answer, diag);
    if (rc != 0)
        return rc;
    fa_match_judge_own(tuner, target, &match, NULL);
    fa_match_predict(tuner, target, &match.answer);
    *ret_answer = match.answer;
    return match.rc == 0 ? 0 : fa_fail(diag, match.rc, "%s", match.why);
}

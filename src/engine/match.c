/* SPDX-License-Identifier: Apache-2.0
 *
 * One stored winner, seen from a target.
 */
#include "match.h"

#include "between.h"
#include "effort.h"
#include "error.h"
#include "evidence.h"
#include "marks.h"
#include "model.h"
#include "problem.h"
#include "stored.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- distances ------------------------------------------------------------------------------*/
static double apart(double a, double b)
{
    return a > 0 && b > 0 ? fabs(log2(a / b)) : 1; /* not known: as if it were the double */
}

double fa_gpu_distance(const fa_gpu *a, const fa_gpu *b)
{
    enum { ANOTHER_MAJOR = 1000 };
    return (a->sm / 10 != b->sm / 10 ? ANOTHER_MAJOR : 0) + abs(a->sm - b->sm) / 10.0 +
           apart(a->sm_count, b->sm_count) + apart(a->smem_per_block, b->smem_per_block) +
           apart(a->smem_per_sm, b->smem_per_sm) + apart((double)a->l2_bytes, (double)b->l2_bytes) +
           apart(a->bandwidth_gbs, b->bandwidth_gbs) + apart(a->tensor_tflops, b->tensor_tflops);
}

/* ---- what a match is worth -------------------------------------------------------------------*/
bool fa_match_serves(const fa_target *target, const fa_match *match)
{
    /* A transferred config has no cubin of this GPU's yet; once it has one, it is stored. */
    bool stored_here = strcmp(match->scope.silicon, target->scope.silicon) == 0;
    return match->usable && stored_here;
}

/* ---- one match -------------------------------------------------------------------------------*/
static void refuse_match(fa_match *match, const char *why)
{
    match->usable = false;
    snprintf(match->why, sizeof match->why, "%.511s", why);
}

void fa_match_fit(fa_tuner *tuner, const fa_target *target, fa_match *match)
{
    fa_trial *trial = &match->answer.trial;
    bool stored_here = strcmp(match->scope.silicon, target->scope.silicon) == 0;
    fa_candidate candidate;
    fa_diag diag = {{0}};
    match->usable = true;
    if (stored_here && fa_problem_equal(&match->scope.problem, &target->asked))
        return;
    int rc = fa_tuner_families(tuner, &diag);
    if (rc == 0)
        rc = fa_space_one(&tuner->families, &trial->config, &target->asked, &target->gpu,
                          &candidate, &diag);
    if (rc == 0 && candidate.trial.status != FA_STATUS_PENDING)
        fa_fail(&diag, rc = FA_ENOTSUP, "%s", candidate.trial.reason);
    if (rc == 0 && stored_here &&
        (candidate.trial.threads != trial->threads ||
         candidate.trial.smem_bytes != trial->smem_bytes))
        fa_fail(&diag, rc = FA_ENOTSUP, "it is launched otherwise for these lengths");
    if (rc != 0) {
        refuse_match(match, diag.text);
        match->rc = rc == FA_ENOMEM || rc == FA_EIO ? rc : 0;
        return;
    }
    if (!stored_here) {
        candidate.trial.config = trial->config;
        fa_model_predict(&candidate, &target->asked, &target->gpu, &candidate.trial);
        *trial = candidate.trial;
    } else {
        memcpy(trial->grid, candidate.trial.grid, sizeof trial->grid);
    }
}

void fa_match_apply_verification(fa_tuner *tuner, const fa_target *target, fa_match *match)
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

void fa_match_explain(const fa_target *target, fa_match *match)
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
    case FA_ORIGIN_IMPORTED:
        snprintf(how, sizeof how, "imported for this silicon");
        break;
    case FA_ORIGIN_TRANSFERRED:
        snprintf(how, sizeof how, "transferred from %.63s",
                 answer->from_gpu[0] != 0 ? answer->from_gpu : "another GPU");
        break;
    case FA_ORIGIN_UNRANKED:
        snprintf(how, sizeof how, "the default config, unranked for want of a model");
        break;
    default:
        snprintf(how, sizeof how, "predicted by the model");
    }
    const char *where =
        match->kind == FA_STEP_NEAREST || same ? "" : ", the bucket of these lengths";
    snprintf(answer->why, sizeof answer->why, "%s%s%s%s%s", how, length[0] != 0 ? " for " : "",
             length, where,
             answer->top_few && fa_origin_is_timed(answer->origin) ? ", in a race of the top few"
                                                                   : "");
    if (!same && fa_origin_is_timed(answer->origin))
        answer->origin = FA_ORIGIN_NEAREST;
    answer->problem = target->asked;
}

/* Takes another of the bucket's configs where that promises more at the asked lengths, with its cubin
 * when ret_cubin is not NULL, and says so. What keeps it from being taken leaves the match as it is. */
void fa_match_refine(fa_tuner *tuner, const fa_target *target, fa_match *match,
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
        fa_match_apply_verification(tuner, target, &other);
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

/* What a winner of the target's own silicon is worth, once its answer is known. */
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
    fa_match_fit(tuner, target, match);
    fa_match_explain(target, match);
    fa_match_refine(tuner, target, match, ret_cubin);
    fa_match_apply_verification(tuner, target, match);
}

void fa_match_predict(fa_tuner *tuner, const fa_target *target, fa_answer *answer)
{
    fa_candidate candidate;
    fa_trial *trial = &answer->trial;
    if (trial->status != FA_STATUS_COMPILED || !(trial->predicted_us > 0) ||
        fa_problem_equal(&answer->from_problem, &target->asked) ||
        fa_tuner_families(tuner, NULL) != 0 ||
        fa_space_one(&tuner->families, &trial->config, &target->asked, &target->gpu, &candidate,
                     NULL) != 0 ||
        candidate.trial.status != FA_STATUS_PENDING)
        return;
    candidate.trial.registers = trial->registers;
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

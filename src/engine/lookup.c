/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of trust: which stored winners may serve a problem on a GPU, and in which order.
 *
 *   the very lengths, where somebody had them tuned exactly
 *   their bucket on this silicon: measured here, on another board, or imported
 *   the nearest measured problem on this silicon
 *   transferred from the nearest GPU whose winner this one can run
 *   predicted for the bucket
 *
 * Workload: a hit in one of the first two places reads one row and looks no further; a miss reads
 * the few rows of the same shape. Invariants: nothing is served whose geometry does not hold for the
 * asked problem on this GPU, and nothing that this driver was seen to get wrong.
 */
#include "lookup.h"

#include "between.h"
#include "driver.h"
#include "effort.h"
#include "evidence.h"
#include "manifest.h"
#include "marks.h"
#include "problem.h"
#include "store.h"
#include "source.h"
#include "stored.h"

#include "catalogue.h"
#include "error.h"
#include "model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double NEAREST_OCTAVES = 2;
enum { NEAREST_MAX = 4, TRANSFERRED_MAX = 8, NEAR_ENOUGH = FA_LEADS_MAX - 3 };

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

/* ---- what a lead is worth -------------------------------------------------------------------*/
bool fa_lead_serves(const fa_target *target, const fa_lead *lead)
{
    /* A transferred config has no cubin of this GPU's yet; once it has one, it is stored. */
    bool stored_here = strcmp(lead->scope.silicon, target->scope.silicon) == 0;
    return lead->usable && stored_here;
}

/* ---- one lead -------------------------------------------------------------------------------*/
static void refuse(fa_lead *lead, const char *why)
{
    lead->usable = false;
    snprintf(lead->why, sizeof lead->why, "%.511s", why);
}

/* Geometry of the config for the asked problem on this GPU; a lead that was stored for just that
 * keeps its own and costs nothing. */
static void fit(fa_tuner *tuner, const fa_target *target, fa_lead *lead)
{
    fa_trial *trial = &lead->answer.trial;
    bool stored_here = strcmp(lead->scope.silicon, target->scope.silicon) == 0;
    fa_candidate candidate;
    fa_diag diag = {{0}};
    lead->usable = true;
    if (stored_here && fa_problem_equal(&lead->scope.problem, &target->asked))
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
        refuse(lead, diag.text);
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

/* What this driver is known to make of a cubin that another one proved. */
static void heed_verification(fa_tuner *tuner, const fa_target *target, fa_lead *lead)
{
    fa_verification mark;
    fa_answer *answer = &lead->answer;
    int now = target->gpu.present && tuner->driver != NULL ? fa_driver_version(tuner->driver) : 0;
    if (!lead->usable || now == 0 || answer->driver_version == 0 || answer->driver_version == now ||
        !fa_reproof_mark(tuner, answer->cubin_key, target->scope.silicon, now, &mark))
        return;
    if (mark.passed) {
        answer->driver_version = now;
        return;
    }
    char text[sizeof lead->why];
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
    refuse(lead, text);
}

/* The answer's origin and its sentence, once it is known what is asked. */
static void explain(const fa_target *target, fa_lead *lead)
{
    fa_answer *answer = &lead->answer;
    char length[48], how[96];
    bool same = fa_problem_equal(&lead->scope.problem, &target->asked);
    fa_problem_lengths(&lead->scope.problem, length, sizeof length);
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
    default:
        snprintf(how, sizeof how, "predicted by the model");
    }
    const char *where =
        lead->kind == FA_STEP_NEAREST || same ? "" : ", the bucket of these lengths";
    snprintf(answer->why, sizeof answer->why, "%s for %s%s%s", how, length, where,
             answer->top_few && fa_origin_is_timed(answer->origin) ? ", in a race of the top few"
                                                                   : "");
    if (!same && fa_origin_is_timed(answer->origin))
        answer->origin = FA_ORIGIN_NEAREST;
    answer->problem = target->asked;
}

/* Takes another of the bucket's configs where that promises more at the asked lengths, with its cubin
 * when ret_cubin is not NULL, and says so. What keeps it from being taken leaves the lead as it is. */
static void refine(fa_tuner *tuner, const fa_target *target, fa_lead *lead,
                   fa_cubin_record *ret_cubin)
{
    fa_answer *answer = &lead->answer;
    fa_problem bucket = fa_problem_bucket(&target->asked);
    bool guess =
        lead->kind == FA_STEP_PREDICTED && answer->driver_version == 0 && !target->gpu.present;
    fa_rivals *rivals = NULL;
    if (!lead->usable || !(guess || fa_origin_is_timed(answer->origin)) ||
        fa_problem_equal(&bucket, &target->asked) ||
        !fa_problem_equal(&bucket, &lead->scope.problem) ||
        strcmp(lead->scope.silicon, target->scope.silicon) != 0 ||
        fa_rivals_find(tuner, &lead->scope, &answer->trial, &target->asked, &target->gpu, &rivals,
                       NULL) != 0)
        return;
    for (int i = 0; i < rivals->count; i++) {
        const fa_rival *rival = &rivals->rival[i];
        fa_cubin_record cubin = {0};
        fa_lead other = *lead;
        other.answer.trial = rival->trial;
        other.answer.driver_version = rival->driver_version;
        memcpy(other.answer.cubin_key, rival->cubin_key, sizeof rival->cubin_key);
        memcpy(other.answer.entry, rival->entry, sizeof rival->entry);
        memcpy(other.answer.nvrtc, rival->nvrtc, sizeof rival->nvrtc);
        heed_verification(tuner, target, &other);
        if (!other.usable || fa_records_cubin(tuner, rival->cubin_key, &cubin, NULL) != 0)
            continue;
        size_t said = strlen(answer->why);
        snprintf(other.answer.why + said, sizeof answer->why - said,
                 ", where another config won: scaled by the model this one takes %.1f us here and "
                 "that one %.1f us",
                 rival->us, rivals->winner_us);
        *lead = other;
        if (ret_cubin != NULL) {
            fa_cubin_record_free(ret_cubin);
            *ret_cubin = cubin;
        } else {
            fa_cubin_record_free(&cubin);
        }
        break;
    }
    free(rivals);
}

/* What a winner of the target's own silicon is worth, once its answer is known. */
static void judge_own(fa_tuner *tuner, const fa_target *target, fa_lead *lead,
                      fa_cubin_record *ret_cubin)
{
    const fa_problem *problem = &lead->scope.problem;
    fa_problem bucket = fa_problem_bucket(problem);
    lead->kind = lead->answer.origin == FA_ORIGIN_TRANSFERRED ? FA_STEP_TRANSFERRED
                 : lead->answer.origin == FA_ORIGIN_PREDICTED ? FA_STEP_PREDICTED
                 : fa_problem_equal(problem, &bucket)         ? FA_STEP_BUCKET
                                                              : FA_STEP_EXACT;
    fit(tuner, target, lead);
    explain(target, lead);
    refine(tuner, target, lead, ret_cubin);
    heed_verification(tuner, target, lead);
}

/* A lead from the target's own silicon, by its scope's problem; FA_ENOTFOUND, FA_ECORRUPT… */
static int own_lead(fa_tuner *tuner, const fa_target *target, const fa_problem *problem,
                    fa_lead *ret_lead, fa_cubin_record *ret_cubin, fa_diag *diag)
{
    fa_target own = *target;
    own.problem = own.scope.problem = *problem;
    *ret_lead = (fa_lead){.scope = own.scope};
    int rc = fa_records_lookup(tuner, &own, &ret_lead->answer, ret_cubin, diag);
    if (rc == 0)
        judge_own(tuner, target, ret_lead, ret_cubin);
    return rc;
}

void fa_lookup_of_winner(fa_tuner *tuner, const fa_target *target, const fa_winner_record *winner,
                         fa_answer *ret_answer)
{
    fa_lead lead = {.scope = winner->scope};
    fa_records_answer(winner, &target->gpu, &lead.answer);
    judge_own(tuner, target, &lead, NULL);
    *ret_answer = lead.answer;
}

/* The problems whose winners are the target's own, exact ones first; returns their number. */
static int own_problems(const fa_target *target, fa_problem ret_problem[2])
{
    int count = 0;
    if (!fa_problem_equal(&target->asked, &target->problem))
        ret_problem[count++] = target->asked;
    ret_problem[count++] = target->problem;
    return count;
}

/* ---- the others -----------------------------------------------------------------------------*/
struct collecting {
    fa_tuner *tuner;
    const fa_target *target;
    fa_leads *leads;
};

static int compare_leads(const void *a, const void *b)
{
    const fa_lead *x = a, *y = b;
    if (x->kind != y->kind)
        return (int)x->kind - (int)y->kind;
    if (x->distance != y->distance)
        return x->distance < y->distance ? -1 : 1;
    return (x->answer.unix_time < y->answer.unix_time) -
           (x->answer.unix_time > y->answer.unix_time);
}

/* The facts of the GPU that a winner was measured on: as they were stored, else the catalogue's. */
static bool know_gpu(const fa_winner_record *winner, fa_answer *answer)
{
    return answer->gpu.sm > 0 || fa_catalogue_find(winner->gpu_name, &answer->gpu, NULL) == 0;
}

static int take_other(void *context, const fa_winner_record *winner)
{
    struct collecting *c = context;
    const fa_target *target = c->target;
    fa_problem own[2];
    int own_count = own_problems(target, own);
    bool here = strcmp(winner->scope.silicon, target->scope.silicon) == 0;
    fa_problem bucket = fa_problem_bucket(&target->asked);
    if (!fa_origin_is_timed(winner->origin))
        return 0;
    fa_lead lead = {.scope = winner->scope, .kind = here ? FA_STEP_NEAREST : FA_STEP_TRANSFERRED};
    fa_records_answer(winner, here ? &target->gpu : NULL, &lead.answer);
    for (int i = 0; here && i < own_count; i++)
        if (fa_problem_equal(&winner->scope.problem, &own[i]))
            return 0;
    if (here) {
        lead.distance = fa_problem_distance(&winner->scope.problem, &target->asked);
        if (lead.distance < 0 || lead.distance > NEAREST_OCTAVES)
            return 0;
    } else {
        if ((!fa_problem_equal(&winner->scope.problem, &bucket) &&
             !fa_problem_equal(&winner->scope.problem, &target->problem)) ||
            !know_gpu(winner, &lead.answer))
            return 0;
        lead.distance = fa_gpu_distance(&lead.answer.gpu, &target->gpu);
        snprintf(lead.answer.from_gpu, sizeof lead.answer.from_gpu, "%s", lead.answer.gpu.name);
    }
    fa_leads *leads = c->leads;
    if (leads->count < FA_LEADS_MAX) {
        leads->lead[leads->count++] = lead;
        return 0;
    }
    /* Full: the farthest of what is there gives way. */
    int worst = leads->count - 1;
    for (int i = 0; i < leads->count; i++)
        if (compare_leads(&leads->lead[i], &leads->lead[worst]) > 0)
            worst = i;
    if (compare_leads(&lead, &leads->lead[worst]) < 0)
        leads->lead[worst] = lead;
    return 0;
}

/* Turns what was measured on another GPU into a lead for this one. */
static void transfer(fa_tuner *tuner, const fa_target *target, fa_lead *lead)
{
    fa_answer *answer = &lead->answer;
    answer->origin = FA_ORIGIN_TRANSFERRED;
    answer->gpu = target->gpu;
    answer->driver_version = 0;
    answer->cubin_key[0] = 0;
    answer->default_us = 0;
    answer->ties = answer->space = answer->in_budget = answer->compiled = 0;
    answer->clean = answer->proved = answer->measured = answer->failed = 0;
    answer->promised_us = answer->promised_measured_us = answer->promised_rank = 0;
    answer->top_few = true;
    fit(tuner, target, lead);
}

static int collect_others(struct collecting *c, fa_diag *diag)
{
    fa_leads *leads = c->leads;
    int rc = fa_records_like(c->tuner, c->target, take_other, c, diag);
    if (rc != 0)
        return rc;
    qsort(leads->lead, (size_t)leads->count, sizeof *leads->lead, compare_leads);
    int kept = 0, nearest = 0, transferred = 0;
    for (int i = 0; i < leads->count; i++) {
        fa_lead *lead = &leads->lead[i];
        bool room = lead->kind == FA_STEP_NEAREST ? nearest++ < NEAREST_MAX
                                                  : transferred++ < TRANSFERRED_MAX;
        if (!room || kept >= NEAR_ENOUGH)
            continue;
        if (lead->kind == FA_STEP_TRANSFERRED)
            transfer(c->tuner, c->target, lead);
        else
            fit(c->tuner, c->target, lead);
        explain(c->target, lead);
        refine(c->tuner, c->target, lead, NULL);
        heed_verification(c->tuner, c->target, lead);
        leads->lead[kept++] = *lead;
    }
    leads->count = kept;
    return 0;
}

/* ---- all of them ----------------------------------------------------------------------------*/
int fa_leads_collect(fa_tuner *tuner, const fa_target *target, fa_leads **ret_leads, fa_diag *diag)
{
    fa_leads *leads = calloc(1, sizeof *leads);
    if (leads == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a lookup");
    struct collecting collecting = {tuner, target, leads};
    int rc = collect_others(&collecting, diag);
    fa_problem own[2];
    int own_count = own_problems(target, own);
    for (int i = 0; rc == 0 && i < own_count; i++) {
        fa_lead *lead = &leads->lead[leads->count];
        int own_rc = own_lead(tuner, target, &own[i], lead, NULL, diag);
        leads->count += own_rc == 0;
        if (own_rc != 0 && own_rc != FA_ENOTFOUND && own_rc != FA_ECORRUPT)
            rc = own_rc;
    }
    if (rc != 0) {
        free(leads);
        return rc;
    }
    qsort(leads->lead, (size_t)leads->count, sizeof *leads->lead, compare_leads);
    *ret_leads = leads;
    return 0;
}

/* The first two places: 0 when one of them serves. *ret_rc: FA_ECORRUPT when a cubin is gone. */
static int find_own(fa_tuner *tuner, const fa_target *target, fa_lead *ret_lead,
                    fa_cubin_record *ret_cubin, int *ret_rc, fa_diag *diag)
{
    fa_problem own[2];
    int count = own_problems(target, own);
    *ret_rc = FA_ENOTFOUND;
    for (int i = 0; i < count; i++) {
        int rc = own_lead(tuner, target, &own[i], ret_lead, ret_cubin,
                          *ret_rc == FA_ECORRUPT ? NULL : diag);
        if (rc == 0 && fa_origin_is_timed(ret_lead->answer.origin) && ret_lead->usable)
            return 0;
        if (rc == 0 && ret_cubin != NULL)
            fa_cubin_record_free(ret_cubin);
        if (rc != 0 && rc != FA_ENOTFOUND && rc != FA_ECORRUPT) {
            *ret_rc = rc;
            return rc;
        }
        if (rc == FA_ECORRUPT)
            *ret_rc = rc;
    }
    return FA_ENOTFOUND;
}

/* Why no lead serves: a cubin that is gone, else the first of this silicon's that was refused. */
static int tell_nothing(const fa_target *target, const fa_leads *leads, int nothing,
                        const char *gone, fa_diag *diag)
{
    if (nothing == FA_ECORRUPT)
        return fa_fail(diag, nothing, "%s", gone);
    for (int i = 0; i < leads->count; i++)
        if (!leads->lead[i].usable &&
            strcmp(leads->lead[i].scope.silicon, target->scope.silicon) == 0)
            return fa_fail(diag, FA_ENOTFOUND,
                           "no winner that is stored serves this problem on %s: "
                           "%s",
                           target->gpu.name, leads->lead[i].why);
    return fa_fail(diag, FA_ENOTFOUND, "no winner is stored for this problem on %s",
                   target->gpu.name);
}

int fa_leads_find(fa_tuner *tuner, const fa_target *target, fa_answer *ret_answer,
                  fa_cubin_record *ret_cubin, fa_scope *ret_scope, fa_leads **ret_leads,
                  fa_diag *diag)
{
    fa_lead own;
    fa_leads *leads = NULL;
    fa_diag first = {{0}}; /* why the own winner does not serve */
    int nothing, rc = find_own(tuner, target, &own, ret_cubin, &nothing, &first);
    if (rc == 0) {
        *ret_answer = own.answer;
        if (ret_scope != NULL)
            *ret_scope = own.scope;
        return 0;
    }
    if (nothing != FA_ENOTFOUND && nothing != FA_ECORRUPT)
        return fa_fail(diag, nothing, "%s", first.text);
    rc = fa_leads_collect(tuner, target, &leads, diag);
    if (rc != 0)
        return rc;
    bool found = false;
    for (int i = 0; i < leads->count && !found; i++) {
        const fa_lead *lead = &leads->lead[i];
        fa_cubin_record cubin = {0};
        if (!fa_lead_serves(target, lead))
            continue;
        if (fa_records_cubin(tuner, lead->answer.cubin_key, &cubin, NULL) != 0)
            continue;
        found = true;
        *ret_answer = lead->answer;
        if (ret_scope != NULL)
            *ret_scope = lead->scope;
        if (ret_cubin != NULL)
            *ret_cubin = cubin;
        else
            fa_cubin_record_free(&cubin);
    }
    int none = found ? 0 : tell_nothing(target, leads, nothing, first.text, diag);
    if (ret_leads != NULL)
        *ret_leads = leads;
    else
        free(leads);
    return none;
}

/* Whether an answer was timed for what was asked: nobody else has a better one. */
static bool is_own(const fa_answer *answer, bool exact)
{
    fa_problem bucket = fa_problem_bucket(&answer->problem);
    fa_problem itself = fa_problem_exact(&answer->problem);
    bool own = fa_problem_equal(&answer->from_problem, &itself) ||
               (!exact && fa_problem_equal(&answer->from_problem, &bucket));
    return own && fa_origin_is_timed(answer->origin);
}

int fa_lookup(fa_tuner *tuner, const fa_target *target, bool exact, fa_answer *ret_answer,
              fa_cubin_record *ret_cubin, fa_scope *ret_scope, fa_diag *diag)
{
    int rc = fa_leads_find(tuner, target, ret_answer, ret_cubin, ret_scope, NULL, diag);
    if ((rc == 0 && is_own(ret_answer, exact)) || !fa_sources_look(tuner, target))
        return rc;
    if (rc == 0 && ret_cubin != NULL)
        fa_cubin_record_free(ret_cubin);
    return fa_leads_find(tuner, target, ret_answer, ret_cubin, ret_scope, NULL, diag);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Who is raced. A probe's time holds the clock of its own moment: on a card at its power limit that moves by
 * more than candidates differ, so probes only tell who is out of the question (PROBED). When many are left,
 * a heat of a few rounds compares them at one clock, and those that may be the best by it (HEATED) go into the
 * race that decides.
 *
 * Workload: some forty probes, a heat of up to sixty, a race of a dozen.
 */
#include "job.h"

#include "trial.h"

#include "error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Times the fastest: the interval's low end of a probe, as the clock was seen to move by 16 % in one race, and some
 * noise; of an earlier tune's race; the median of a heat's few rounds. */
static const double PROBED = 1.25, RACED = 1.10, HEATED = 1.08;
/* At least FINALISTS_MIN are raced, more while a race of the shortest length stays short. */
enum { FINALISTS_MIN = 12, FINALISTS_MAX = 24, FINALISTS_ROUND_US = 3000, HEAT_MAX = 32 };

static int compare_index(const void *a, const void *b, void *context)
{
    const fa_job *job = context;
    return fa_trial_compare(&job->space.candidate[*(const int *)a].trial,
                            &job->space.candidate[*(const int *)b].trial);
}

void fa_job_sort(fa_job *job, int *order, int count)
{
    qsort_r(order, (size_t)count, sizeof *order, compare_index, job);
}

int fa_job_sorted(fa_job *job, fa_status status, int *ret_order)
{
    int count = 0;
    for (int i = 0; i < job->space.count; i++)
        if (job->space.candidate[i].trial.status == status)
            ret_order[count++] = i;
    fa_job_sort(job, ret_order, count);
    return count;
}

/* Whether an attempt is what others are compared with: a default config, what was promised, or the
 * bucket's winner at an exact point; or has the code of one that is. */
static bool must_race(const fa_job *job, int index)
{
    for (int i = 0; i < job->space.count; i++) {
        const fa_candidate *candidate = &job->space.candidate[i];
        if ((i == index || job->attempt[i].twin_of == index + 1) &&
            (candidate->is_default ||
             (job->plan.promised &&
              fa_config_equal(&candidate->trial.config, &job->plan.promise.config)) ||
             (job->plan.with_alternative &&
              fa_config_equal(&candidate->trial.config, &job->plan.alternative))))
            return true;
    }
    return false;
}

/* Those of one kind of time that were chosen so far. */
struct chosen {
    double limit, round_us;
    int count;
};

/* Whether one more goes into the race that decides. */
static bool has_room(const struct chosen *chosen)
{
    return chosen->count < FINALISTS_MIN ||
           (chosen->count < FINALISTS_MAX && chosen->round_us < FINALISTS_ROUND_US);
}

/* Whether the next one, slower than all before it, may be the best. */
static bool may_win(struct chosen *chosen, const fa_trial *trial, double us, double within)
{
    if (chosen->limit == 0) /* the fastest of its kind comes first */
        chosen->limit = trial->median_us * within;
    return us <= chosen->limit;
}

static void choose(struct chosen *chosen, const fa_trial *trial)
{
    chosen->round_us += trial->median_us;
    chosen->count++;
}

/* What an earlier race timed, at its own clock, is chosen from apart from what was probed. */
int fa_job_choose_finalists(fa_job *job)
{
    struct chosen kind[2] = {{0}};
    int count = fa_job_sorted(job, FA_STATUS_MEASURED, job->measure.finalist), left = 0;
    for (int i = 0; i < count; i++) {
        int index = job->measure.finalist[i];
        bool raced = job->attempt[index].raced_before;
        const fa_trial *trial = &job->space.candidate[index].trial;
        if (job->attempt[index].twin_of != 0) /* raced as the one that it equals */
            continue;
        bool room = raced ? has_room(&kind[raced]) : kind[raced].count < HEAT_MAX;
        if (!(may_win(&kind[raced], trial, trial->low_us, raced ? RACED : PROBED) && room) &&
            !must_race(job, index))
            continue;
        choose(&kind[raced], trial);
        job->measure.finalist[left++] = index;
    }
    job->measure.finalist_count = left;
    job->measure.finalist_next = 0;
    job->measure.heat = left > FINALISTS_MIN;
    return left;
}

/* Three at least, so that there is a race of which the winner is the fastest. */
void fa_job_cut_finalists(fa_job *job)
{
    enum { LEAST = 3 };
    struct chosen chosen = {0};
    int left = 0;
    fa_job_sort(job, job->measure.finalist, job->measure.finalist_count);
    for (int i = 0; i < job->measure.finalist_count; i++) {
        int index = job->measure.finalist[i];
        const fa_trial *trial = &job->space.candidate[index].trial;
        if (trial->status != FA_STATUS_MEASURED)
            continue;
        bool wins = may_win(&chosen, trial, trial->median_us, HEATED) && has_room(&chosen);
        if (!wins && left >= LEAST && !must_race(job, index))
            continue;
        choose(&chosen, trial);
        job->measure.finalist[left++] = index;
    }
    job->measure.finalist_count = left;
    job->measure.finalist_next = 0;
    job->measure.heat = false;
}

/* They compare by medians that the drift of the race is taken out of; their intervals stay what
 * the race saw, drift and all, as that is how well the time itself is known. */
int fa_job_level_finalists(fa_job *job)
{
    int count = job->measure.finalist_count,
        rounds = job->attempt[job->measure.finalist[0]].sample_count;
    for (int i = 0; i < count; i++)
        if (job->attempt[job->measure.finalist[i]].sample_count != rounds || rounds == 0)
            return 0; /* one has no usable times and is settled; the others stay comparable */
    float *race = calloc((size_t)count * (size_t)rounds + 1, sizeof *race);
    if (race == NULL)
        return fa_fail(&job->diag, FA_ENOMEM, "out of memory for a race");
    for (int i = 0; i < count; i++)
        memcpy(race + (size_t)i * (size_t)rounds, job->attempt[job->measure.finalist[i]].samples_us,
               (size_t)rounds * sizeof *race);
    int rc = fa_race_level(race, count, rounds);
    for (int i = 0; rc == 0 && i < count; i++) {
        fa_trial *trial = &job->space.candidate[job->measure.finalist[i]].trial;
        double low, high;
        rc = fa_samples_summary(race + (size_t)i * (size_t)rounds, rounds, &trial->median_us, &low,
                                &high);
        trial->low_us = fmin(trial->low_us, trial->median_us);
        trial->high_us = fmax(trial->high_us, trial->median_us);
    }
    free(race);
    return rc == 0 ? 0 : fa_fail(&job->diag, rc, "taking a race's drift out of its times");
}

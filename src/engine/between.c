/* SPDX-License-Identifier: Apache-2.0
 *
 * Lengths between buckets. Where the number of tiles jumps, the config that wins at the bucket may
 * waste a row of tiles that another one does not. All of the bucket's were proved and timed there:
 * each one's time, scaled as the model scales it from the bucket to the asked lengths, tells which
 * one to take.
 *
 * Workload: once for each such length in a process; reads the few fastest of the bucket's trials.
 * Invariants: the winner stays unless another promises more than the model's error between two
 * lengths so near to each other; a raced winner is compared with those of its race alone, as the
 * others were probed at another clock.
 */
#include "between.h"

#include "evidence.h"
#include "manifest.h"
#include "store.h"

#include "error.h"
#include "model.h"
#include "problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* SLOWER: how far behind the bucket's fastest a config may be there; MARGIN: how much faster than the
 * winner it must promise to be. */
static const double SLOWER = 1.3, MARGIN = 0.97;

enum { LOOKED_AT = 32 };

/* What is on record of the bucket, the fastest first; all of one family. */
struct finding {
    const fa_trial *winner;
    fa_alternative alternative[LOOKED_AT];
    uint64_t seed[LOOKED_AT];          /* of the tune that timed it */
    fa_candidate candidate[LOOKED_AT]; /* at the asked lengths */
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
static double scale(const fa_trial *trial, fa_candidate *candidate, const fa_problem *bucket,
                    const fa_problem *asked, const fa_gpu *gpu)
{
    if (candidate->trial.status != FA_STATUS_PENDING ||
        candidate->trial.threads != trial->threads ||
        candidate->trial.smem_bytes != trial->smem_bytes)
        return 0;
    fa_candidate there = *candidate;
    /* Of a candidate, only the grid depends on the lengths, and the bucket's is on record. */
    memcpy(there.trial.grid, trial->grid, sizeof there.trial.grid);
    there.trial.registers = candidate->trial.registers = trial->registers;
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

static int find_between(fa_tuner *tuner, const fa_scope *bucket, const fa_problem *asked,
                        const fa_gpu *gpu, struct finding *f, fa_alternatives *found, fa_diag *diag)
{
    const fa_config *config[LOOKED_AT];
    int rc = fa_tuner_families(tuner, diag);
    if (rc == 0)
        rc = fa_store_trials_fastest(tuner->store, bucket, f->winner->status, LOOKED_AT, keep_trial,
                                     f, diag);
    if (rc != 0 || f->count == 0)
        return rc;
    for (int i = 0; i < f->count; i++)
        config[i] = &f->alternative[i].trial.config;
    rc = fa_space_some(&tuner->families, config, f->count, asked, gpu, f->candidate, diag);
    if (rc != 0)
        return rc;
    for (int i = 0; i < f->count; i++)
        f->alternative[i].us =
            scale(&f->alternative[i].trial, &f->candidate[i], &bucket->problem, asked, gpu);
    choose(f, fa_family_entry(tuner->families.family[f->candidate[0].family]), found);
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
        finding->winner = winner;
        rc = find_between(tuner, bucket, asked, gpu, finding, found, diag);
    }
    free(finding);
    if (rc == 0)
        *ret_alternatives = found;
    else
        free(found);
    return rc;
}

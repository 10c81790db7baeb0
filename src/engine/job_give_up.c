/* SPDX-License-Identifier: Apache-2.0
 *
 * When the compiler's errors are the source's own, whatever the tunables are, and the rest of a family is not compiled.
 */
#include "job.h"

#include "family.h"

#include <stdio.h>
#include <string.h>

/* The sources of a family that failed to compile with the same error. */
struct alike {
    int count;
    double compile_ms;
    uint64_t differ; /* bit i: not all have the same value of tunable i */
};

/* None when one of the family's sources ended otherwise, or the default is still to come. */
static struct alike find_alike(const fa_job *job, const fa_candidate *failed)
{
    struct alike alike = {0};
    for (int i = 0; i < job->space.count; i++) {
        const fa_candidate *other = &job->space.candidate[i];
        const fa_trial *trial = &other->trial;
        bool pending = trial->status == FA_STATUS_PENDING && trial->registers == 0;
        bool tried = job->attempt[i].cubin_key[0] != 0;
        if (other->family != failed->family || (!tried && !(pending && other->is_default)))
            continue;
        if (pending && !other->is_default) /* under way */
            continue;
        if (trial->status != failed->trial.status ||
            strcmp(trial->reason, failed->trial.reason) != 0)
            return (struct alike){0};
        alike.count += job->attempt[i].source_of == 0;
        alike.compile_ms += trial->compile_ms;
        for (int t = 0; t < trial->config.count; t++)
            alike.differ |=
                (uint64_t)(trial->config.tunable[t].value != failed->trial.config.tunable[t].value)
                << t;
    }
    return alike;
}

/* Whether the error is the source's own, whatever the tunables are: of sources that take long to compile a few tell, if no
 * value of a tunable can be to blame. */
static bool are_enough(const fa_job *job, const fa_candidate *failed, const struct alike *alike)
{
    enum { ENOUGH = 8, SLOW_MS = 3000 };
    const fa_family *family =
        fa_families_for(job->tuner, &job->target.problem)->family[failed->family];
    bool apart = alike->count > 1;
    const bool cubin = failed->trial.status == FA_STATUS_CUBIN; /* neighbours came first */
    for (int i = 0; i < failed->trial.config.count; i++)
        apart = apart && (family->tunable[i].count == 1 || (alike->differ >> i & 1) != 0);
    return (alike->count >= ENOUGH && (apart || !cubin)) || (apart && alike->compile_ms >= SLOW_MS);
}

void fa_job_give_up_family(fa_job *job, int index, bool known)
{
    const fa_candidate *failed = &job->space.candidate[index];
    const struct alike alike = find_alike(job, failed);
    char reason[sizeof failed->trial.reason];
    if (job->request->effort == FA_EFFORT_PATIENT || (!known && !are_enough(job, failed, &alike)))
        return;
    fa_job_search_give_up(job, failed->family);
    snprintf(reason, sizeof reason, "not compiled, as %d others of its family are not: %.420s",
             alike.count, failed->trial.reason);
    for (int i = 0; i < job->space.count && !job->ended; i++) {
        const fa_candidate *other = &job->space.candidate[i];
        const char *key = job->attempt[i].cubin_key;
        fa_uncompiled *kept = key[0] != 0 ? fa_tuner_uncompiled(job->tuner, key) : NULL;
        if (other->family != failed->family)
            continue;
        if (kept != NULL)
            kept->hopeless = true;
        if (other->trial.status == FA_STATUS_PENDING && key[0] == 0)
            fa_job_settle(job, i, FA_STATUS_COMPILE_FAILED, reason);
    }
    /* Whether some config may still come to a kernel, or has; what is being compiled is not waited for. */
    bool hopeful = job->progress.clean > 0 || (job->search.search != NULL && !job->search.over);
    for (int i = 0; i < job->space.count && !hopeful; i++)
        hopeful = job->space.candidate[i].family != failed->family &&
                  job->space.candidate[i].trial.status == FA_STATUS_PENDING;
    if (!hopeful)
        fa_job_end(job, 0);
}

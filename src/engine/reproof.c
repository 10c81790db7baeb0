/* SPDX-License-Identifier: Apache-2.0
 *
 * The proof that a winner gets once more when the driver is another, and that somebody else's answer
 * gets before it is launched here.
 *
 * Workload: one config, once for each driver. Invariant: nothing here is launched but in the
 * measuring worker.
 */
#include "engine.h"

#include "bundles.h"
#include "error.h"

#include <stdio.h>
#include <string.h>

/* One proof in a worker. 0: passed; FA_ENOKERNEL: not, and ret_end says how; else no proof came about. */
static int prove(fa_tuner *tuner, const fa_target *target, const fa_config *config,
                 const fa_cubin_record *cubin, fa_answer *ret_end, fa_diag *diag)
{
    fa_request request = {.size = sizeof request, .problem = target->asked,
                          .effort = FA_EFFORT_PREDICT};
    fa_plan plan = {.count = 1, .prove_only = true, .verify = true, .cubin = cubin};
    fa_job *job = NULL;
    plan.item[0].config = *config;
    *ret_end = (fa_answer){0};
    int rc = fa_job_new(tuner, &request, &job, diag);
    if (rc == 0)
        rc = fa_job_run(job, target, &plan, ret_end, diag);
    fa_job_free(&job);
    /* What the device had no room for was not proved wrong. */
    if (rc == FA_ENOKERNEL && ret_end->trial.status == FA_STATUS_OUT_OF_MEMORY)
        rc = FA_ENOMEM;
    return rc;
}

/* Whether our own manifest launches a config as an answer says: a proof runs the manifest's entry. */
static bool launched_so(fa_tuner *tuner, const fa_target *target, const fa_answer *answer)
{
    const fa_trial *trial = &answer->trial;
    fa_candidate candidate;
    return fa_tuner_families(tuner, NULL) == 0 &&
           fa_space_one(&tuner->families, &trial->config, &target->asked, &target->gpu, &candidate,
                        NULL) == 0 &&
           candidate.trial.status == FA_STATUS_PENDING &&
           candidate.trial.threads == trial->threads &&
           candidate.trial.smem_bytes == trial->smem_bytes &&
           memcmp(candidate.trial.grid, trial->grid, sizeof trial->grid) == 0 &&
           strcmp(fa_family_entry(tuner->families.family[candidate.family]), answer->entry) == 0;
}

bool fa_contact_is_ours(fa_tuner *tuner, const fa_target *target, const fa_answer *answer)
{
    return launched_so(tuner, target, answer) && fa_record_holds(tuner, answer);
}

int fa_contact_prove(fa_tuner *tuner, const fa_target *target, const fa_answer *answer,
                     const fa_cubin_record *cubin, fa_diag *diag)
{
    fa_lock *gpu_lock = NULL;
    fa_answer end;
    fa_request request = {.size = sizeof request};
    if (!launched_so(tuner, target, answer))
        return fa_fail(diag, FA_ENOKERNEL, "the templates here do not launch %s so: they must be the "
                       "server's (FA_TUNE_TEMPLATES)", answer->trial.config.family);
    int rc = fa_store_is_read_only(tuner->store)
                 ? 0
                 : fa_request_wait(tuner, &request, target->gpu.uuid, &gpu_lock, NULL, diag);
    if (rc == 0)
        rc = prove(tuner, target, &answer->trial.config, cubin, &end, diag);
    fa_lock_release(&gpu_lock);
    return rc;
}

/* The winner's own row gets the cubin that was compiled anew; one that is not in this store keeps. */
static int replace_cubin(fa_tuner *tuner, const fa_scope *scope, const char *old_key,
                         const fa_answer *made, int driver_version, fa_diag *diag)
{
    fa_winner_record winner = {0};
    int rc = fa_store_winner_get(tuner->store, scope, &winner, NULL, diag);
    if (rc != 0)
        return rc == FA_ENOTFOUND ? 0 : rc;
    if (strcmp(winner.cubin_key, old_key) == 0) {
        memcpy(winner.cubin_key, made->cubin_key, sizeof winner.cubin_key);
        memcpy(winner.nvrtc, made->nvrtc, sizeof winner.nvrtc);
        winner.trial.registers = made->trial.registers;
        winner.trial.spill_bytes = made->trial.spill_bytes;
        winner.driver_version = driver_version;
        rc = fa_store_winner_put(tuner->store, &winner, NULL, NULL, diag);
    }
    fa_winner_record_free(&winner);
    return rc;
}

/* The stored bytes do not load under this driver: the same config, compiled by today's NVRTC. */
static int prove_anew(fa_tuner *tuner, const fa_target *target, const fa_scope *scope,
                      fa_answer *answer, fa_cubin_record *cubin, fa_answer *ret_end, fa_diag *diag)
{
    fa_cubin_record made = {0};
    int now = fa_driver_version(tuner->driver);
    int rc = prove(tuner, target, &answer->trial.config, NULL, ret_end, diag);
    if (rc == 0)
        rc = fa_records_cubin(tuner, ret_end->cubin_key, &made, diag);
    if (rc == 0)
        rc = replace_cubin(tuner, scope, answer->cubin_key, ret_end, now, diag);
    if (rc != 0) {
        fa_cubin_record_free(&made);
        return rc;
    }
    fa_cubin_record_free(cubin);
    *cubin = made;
    memcpy(answer->cubin_key, ret_end->cubin_key, sizeof answer->cubin_key);
    memcpy(answer->nvrtc, ret_end->nvrtc, sizeof answer->nvrtc);
    return 0;
}

/* Another config of the bucket, chosen for lengths beside it: no row would hold a new cubin of it. */
static bool is_rival(fa_tuner *tuner, const fa_scope *scope, const char *cubin_key)
{
    fa_winner_record winner = {0};
    bool rival = fa_store_winner_get(tuner->store, scope, &winner, NULL, NULL) == 0 &&
                 strcmp(winner.cubin_key, cubin_key) != 0;
    fa_winner_record_free(&winner);
    return rival;
}

static int verify_locked(fa_tuner *tuner, const fa_target *target, const fa_scope *scope,
                         fa_answer *answer, fa_cubin_record *cubin, fa_diag *diag)
{
    fa_answer end;
    fa_diag why = {{0}};
    int before = answer->driver_version, now = fa_driver_version(tuner->driver);
    fa_verification mark = {.driver_version = now};
    memcpy(mark.cubin_key, answer->cubin_key, sizeof mark.cubin_key);
    memcpy(mark.silicon, target->scope.silicon, sizeof mark.silicon);
    bool read_only = fa_store_is_read_only(tuner->store);
    int rc = prove(tuner, target, &answer->trial.config, cubin, &end, &why);
    if (rc == FA_ENOKERNEL && end.trial.status == FA_STATUS_LOAD_FAILED && !read_only &&
        !is_rival(tuner, scope, answer->cubin_key)) {
        rc = prove_anew(tuner, target, scope, answer, cubin, &end, &why);
        if (rc == 0)
            fa_note(tuner, "driver %d does not load the winner's cubin that driver %d proved: it was "
                           "compiled anew and proved", now, before);
    }
    if (rc != 0 && rc != FA_ENOKERNEL)
        return fa_fail(diag, rc, "the winner was proved under driver %d and must be once more under "
                                 "%d: %s", before, now, why.text);
    mark.passed = rc == 0;
    if (rc == 0)
        memcpy(mark.cubin_key, answer->cubin_key, sizeof mark.cubin_key);
    else
        snprintf(mark.reason, sizeof mark.reason, "%.500s", why.text);
    if (!read_only && fa_store_verification_put(tuner->store, &mark, scope, &why) != 0)
        fa_note(tuner, "that a winner was proved under driver %d could not be kept: %s", now,
                why.text);
    if (rc != 0) {
        fa_note(tuner, "a winner that driver %d proved failed its proof under driver %d and is "
                       "dropped: %s", before, now, mark.reason);
        return fa_fail(diag, rc, "%s", mark.reason);
    }
    answer->driver_version = now;
    return 0;
}

int fa_contact_verify(fa_tuner *tuner, const fa_target *target, const fa_scope *scope,
                      fa_answer *answer, fa_cubin_record *cubin, fa_diag *diag)
{
    fa_lock *key_lock = NULL, *gpu_lock = NULL;
    fa_verification mark;
    char key[FA_HASH_HEX];
    fa_request request = {.size = sizeof request};
    int rc = 0, now = fa_driver_version(tuner->driver);
    fa_scope_key(scope, key);
    if (!fa_store_is_read_only(tuner->store)) {
        rc = fa_request_wait(tuner, &request, key, &key_lock, NULL, diag);
        if (rc == 0)
            rc = fa_request_wait(tuner, &request, target->gpu.uuid, &gpu_lock, NULL, diag);
    }
    /* Another process may have done it while this one waited. */
    bool known = rc == 0 && fa_store_verification_get(tuner->store, answer->cubin_key,
                                                      target->scope.silicon, now, &mark, NULL) == 0;
    if (known && mark.passed)
        answer->driver_version = now;
    else if (known)
        rc = fa_fail(diag, FA_ENOKERNEL, "%s", mark.reason);
    else if (rc == 0)
        rc = verify_locked(tuner, target, scope, answer, cubin, diag);
    fa_lock_release(&gpu_lock);
    fa_lock_release(&key_lock);
    return rc;
}

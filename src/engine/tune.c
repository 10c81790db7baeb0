/* SPDX-License-Identifier: Apache-2.0
 *
 * One request to its answer: look up, wait for whoever tunes the same key, look again where somebody did, tune. And
 * proofs without a tune: of a winner when the driver is another, of somebody else's answer before it is launched here, and
 * of a config that is launched again for a profiler that watches this process's children.
 *
 *   a verdict       is kept: it passed; or a wrong result, a fault of its own launch, a cubin that
 *                   does not load
 *   no time left    may be a kernel that hangs or a GPU that is busy, and nobody can tell. The
 *                   winner stays, and this session passes it over
 *   anything else   (no worker, no memory, a worker that was killed from outside, a device that was
 *                   lost) is told to the caller and not kept: the next ask tries again
 *
 * Workload of proofs: one config, once for each driver. Invariant: nothing here is launched but in the measuring worker.
 */
#include "error.h"
#include "job.h"
#include "problem.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* Whether it tunes anew, whatever is stored. */
static bool is_again(const fa_request *request)
{
    return request->again || request->effort == FA_EFFORT_PATIENT;
}

/* The plan first; when none of the few that it names comes through, the whole space (or the model's
 * first, for effort PREDICT). */
static int run_plan(fa_tuning *tuning, fa_answer *ret_answer, fa_diag *diag)
{
    fa_tuner *tuner = tuning->tuner;
    fa_plan plan;
    fa_diag none = {{0}};
    int rc = 0;
    if (!tuning->known.looked)
        rc = fa_look(tuner, &tuning->target, false, &tuning->known, diag);
    if (rc == 0 || rc == FA_ENOTFOUND || rc == FA_ECORRUPT)
        rc = fa_plan_make(tuner, tuning->request, &tuning->target, &tuning->known, &plan, diag);
    for (;;) {
        if (rc == 0 && tuning->job == NULL)
            rc = fa_job_new(tuner, tuning->request, tuning->target.gpu.sm, &tuning->job, diag);
        if (rc != 0)
            return rc;
        bool few = plan.count > 0;
        plan.data = tuning->data;
        if (!few && tuning->target.gpu.present)
            fa_job_compile_prestart(tuning->job); /* they load while the space is enumerated */
        rc = fa_job_run(tuning->job, &tuning->target, &plan, ret_answer, few ? &none : diag);
        fa_job_free(&tuning->job); /* the workers go before another process's may come */
        if (rc == 0 || !few)
            return rc;
        if (rc != FA_ENOKERNEL || tuning->target.wants_bits)
            return fa_fail(diag, rc, "%s", none.text);
        plan.count = 0;
        plan.prove_only = false;
        rc = 0;
    }
}

/* Whether what is stored by now is enough. since: when the request began, for one that wants a new answer: not all
 * who hold the key's lock tune it. */
static bool find_made(fa_tuning *tuning, bool again, int64_t since, fa_answer *ret_answer)
{
    fa_lookup_free(&tuning->known);
    if (fa_look(tuning->tuner, &tuning->target, false, &tuning->known, NULL) != 0 ||
        !fa_answer_satisfies(&tuning->known.answer, tuning->request) ||
        (again && tuning->known.answer.unix_time < since))
        return false;
    *ret_answer = tuning->known.answer;
    return true;
}

static void end_tuning(fa_tuning **tuning)
{
    fa_lookup_free(&(*tuning)->known);
    fa_job_free(&(*tuning)->job);
    fa_case_data_close(&(*tuning)->data);
}

int fa_tune_target(fa_tuning *tuning, fa_answer *ret_answer, fa_diag *diag)
{
    fa_tuner *tuner = tuning->tuner;
    const fa_request *request = tuning->request;
    const fa_target *target = &tuning->target;
    FA_ENDS(fa_lock_release) fa_lock *key_lock = NULL, *gpu_lock = NULL, *tunes_lock = NULL;
    FA_ENDS(end_tuning) fa_tuning *ended = tuning; /* before the locks are released */
    char key[FA_HASH_HEX];
    bool waited = false;
    bool again = is_again(request);
    int64_t since = (int64_t)time(NULL);
    if (fa_store_is_read_only(tuner->store))
        return fa_fail(diag, FA_EREADONLY,
                       "the store %s cannot be written, so a tune could not be kept: set "
                       "FA_TUNE_STORE to a file that can",
                       tuner->store_path);
    fa_scope_key(&target->scope, key);
    for (bool asked = false;; asked = true) {
        FA_OR_RETURN(fa_request_wait(tuner, request, key, &key_lock, &waited, diag));
        const fa_answer known = tuning->known.answer;
        const bool sure = waited || asked || !tuning->known.looked;
        /* Another host may have tuned it between a look and the lock. */
        if ((waited || (!again && (sure || fa_tuner_is_on_server(tuner)))) &&
            find_made(tuning, again, since, ret_answer) &&
            (sure || known.unix_time != ret_answer->unix_time ||
             strcmp(known.cubin_key, ret_answer->cubin_key) != 0))
            return 0;
        if (asked || !fa_job_asks_caller(target))
            break;
        fa_lock_release(&key_lock); /* the caller's function may tune */
        FA_OR_RETURN(fa_job_ask_caller(tuner, target, false, &tuning->data, diag));
    }
    /* Two tunes on one GPU would time each other. */
    if (target->gpu.present)
        FA_OR_RETURN(fa_request_wait(tuner, request, target->gpu.uuid, &gpu_lock, NULL, diag));
    FA_OR_RETURN(fa_request_wait(tuner, request, FA_TUNES_LOCK, &tunes_lock, NULL, diag));
    FA_OR_RETURN(fa_request_turn(tuner, request, diag));
    const int rc = run_plan(tuning, ret_answer, diag);
    pthread_mutex_unlock(&tuner->tuning);
    return rc;
}

/* Something is going to be compiled for the GPU that is here, unless something fails: the driver takes a
 * while to start, and the compile workers can load meanwhile. Of a server's store others may be about to tune it. */
static bool sure_to_tune(fa_tuner *tuner, const fa_request *request)
{
    if (fa_tuner_is_on_server(tuner) || request->gpu != NULL ||
        request->effort < FA_EFFORT_PREDICT || tuner->driver != NULL ||
        fa_store_is_read_only(tuner->store) || fa_problem_check(&request->problem, NULL) != 0)
        return false;
    fa_problem asked, key;
    fa_target_problems(tuner, request, &asked, &key);
    return is_again(request) ||
           fa_store_winner_any(tuner->store, &key,
                               fa_templates_hash(fa_templates_for(tuner, &key),
                                                 fa_operation_of(&key))) == FA_ENOTFOUND;
}

/* Sets tuning->known to what is stored; *ret_answered: that is enough for the request. FA_ENOTFOUND and FA_ECORRUPT
 * only for one that may not tune. */
static int look_up(fa_tuning *tuning, bool *ret_answered, fa_diag *diag)
{
    const fa_request *request = tuning->request;
    *ret_answered = false;
    if (is_again(request))
        return 0;
    int rc = fa_look(tuning->tuner, &tuning->target, false, &tuning->known, diag);
    *ret_answered = rc == 0 && fa_answer_satisfies(&tuning->known.answer, request);
    bool nothing = rc == FA_ENOTFOUND || rc == FA_ECORRUPT;
    return nothing && request->effort != FA_EFFORT_CACHED ? 0 : rc;
}

/* From the store, else from a tune. */
static int answer_request(fa_tuning *tuning, fa_answer *ret_answer, fa_diag *diag)
{
    fa_tuner *tuner = tuning->tuner;
    bool answered = false;
    if (sure_to_tune(tuner, tuning->request) &&
        fa_job_new(tuner, tuning->request, 0, &tuning->job, NULL) == 0)
        fa_job_compile_prestart(tuning->job);
    int rc = fa_target_resolve(tuner, tuning->request, &tuning->target, diag);
    const bool begun = tuning->job != NULL;
    if (rc == 0 && begun &&
        100 * tuning->job->nvrtc.major + tuning->job->nvrtc.minor <
            fa_nvrtc_since(tuning->target.gpu.sm))
        fa_job_free(&tuning->job); /* another NVRTC may know the GPU */
    if (rc == 0 && !begun)
        rc = look_up(tuning, &answered, diag);
    if (rc != 0)
        return rc;
    if (answered) {
        *ret_answer = tuning->known.answer;
        return 0;
    }
    return fa_tune_target(tuning, ret_answer, diag);
}

int fa_tune(fa_tuner *tuner, const fa_request *request, fa_answer *ret_answer, fa_diag *diag)
{
    fa_request known;
    fa_answer answer;
    FA_OR_RETURN(fa_request_take(
        tuner,
        ret_answer != NULL && ret_answer->size >= sizeof(size_t) && ret_answer->size <= 1 << 20,
        "ret_answer's size is not sizeof(fa_answer), or it", request, &known, diag));
    int rc = tuner->service != NULL ? tuner->service->tune(tuner, &known, &answer, diag)
                                    : FA_SOURCE_NONE;
    bool elsewhere = rc != FA_SOURCE_NONE;
    if (!elsewhere)
        rc = fa_tune_here(tuner, &known, &answer, diag);
    if (rc != 0)
        return rc;
    answer.size = ret_answer->size < sizeof answer ? ret_answer->size : sizeof answer;
    memcpy(ret_answer, &answer, answer.size);
    if (known.ret_ranking == NULL || known.ret_ranked == NULL)
        return 0;
    *known.ret_ranking = NULL;
    *known.ret_ranked = 0;
    if (elsewhere)
        return 0;
    rc = fa_configs_rank(tuner, &known, &answer, false, known.ret_ranking, known.ret_ranked, NULL,
                         diag);
    while (rc == 0 && *known.ret_ranked > 0 &&
           (*known.ret_ranking)[*known.ret_ranked - 1].rank == 0)
        --*known.ret_ranked;
    return rc;
}

int fa_tune_here(fa_tuner *tuner, const fa_request *request, fa_answer *ret_answer, fa_diag *diag)
{
    int rc = FA_EIO;
    FA_HOLDS(&tuner->work);
    for (int tries = 0; tries < 2 && rc == FA_EIO && (tries == 0 || fa_store_is_lost(tuner->store));
         tries++) {
        fa_tuning tuning = {.tuner = tuner, .request = request};
        rc = answer_request(&tuning, ret_answer, diag);
        fa_lookup_free(&tuning.known);
        fa_job_free(&tuning.job);
    }
    return rc;
}

int fa_find(fa_tuner *tuner, const fa_request *request, fa_found *ret_found, fa_diag *diag)
{
    fa_request known;
    FA_OR_RETURN(fa_request_take(tuner, ret_found != NULL && ret_found->size == sizeof *ret_found,
                                 "ret_found's size is not sizeof(fa_found), or it", request, &known,
                                 diag));
    fa_tuning tuning = {.tuner = tuner, .request = &known};
    fa_found found = {.size = sizeof found};
    FA_HOLDS(&tuner->work);
    FA_OR_RETURN(fa_target_resolve(tuner, &known, &tuning.target, diag));
    found.gpu = tuning.target.gpu;
    int rc = look_up(&tuning, &found.answered, diag);
    found.answer = tuning.known.answer;
    found.answer.size = sizeof found.answer;
    fa_lookup_free(&tuning.known);
    if (rc == 0)
        *ret_found = found;
    return rc;
}

/* ---- proofs ---------------------------------------------------------------------------------*/
/* One proof in a worker, and so many launches after it for a profiler. cubin NULL: it is compiled, or stored. 0: passed;
 * FA_ENOKERNEL: not, and ret_end says how; FA_ETIMEOUT: its time ran out; else no proof came about. */
static int prove(fa_tuner *tuner, const fa_request *request, const fa_target *target,
                 const fa_config *config, const fa_cubin_record *cubin, const fa_case_data *data,
                 int32_t launches, fa_answer *ret_end, fa_diag *diag)
{
    fa_request own = *request;
    fa_plan plan = {.item = {*config},
                    .count = 1,
                    .prove_only = true,
                    .verify = true,
                    .cubin = cubin,
                    .data = data,
                    .launches = launches};
    fa_job *job = NULL;
    own.effort = FA_EFFORT_PREDICT;
    *ret_end = (fa_answer){.size = sizeof(fa_answer)};
    int rc = fa_job_new(tuner, &own, target->gpu.sm, &job, diag);
    if (rc == 0)
        rc = fa_job_run(job, target, &plan, ret_end, diag);
    fa_job_free(&job);
    /* A kernel for which the device had no memory or no time was not proved wrong. */
    fa_status status = ret_end->trial.status;
    if (rc == FA_ENOKERNEL && status == FA_STATUS_OUT_OF_MEMORY)
        rc = FA_ENOMEM;
    if (rc == FA_ENOKERNEL && (status == FA_STATUS_TIMEOUT || status == FA_STATUS_COMPILE_TIMEOUT))
        rc = FA_ETIMEOUT;
    return rc;
}

/* What a proof holds. */
struct turn {
    fa_case_data *data;
    fa_lock *key, *gpu;
};

static int is_over(void *until_ns, const fa_progress *progress)
{
    (void)progress;
    return fa_clock_ns() >= *(const uint64_t *)until_ns;
}

/* Asks the program for its data, then waits for the key's lock (NULL: for none) and the GPU's, which another process may
 * hold for minutes while it tunes. Effort CACHED waits as long as another process needs to finish a proof, then answers
 * FA_EBUSY; once the GPU was found busy, later lookups do not wait at all. For end_turn(), also after a failure. */
static int begin_turn(fa_tuner *tuner, const fa_request *request, const fa_target *target,
                      const char *key, struct turn *turn, fa_diag *diag)
{
    static const uint64_t CACHED_WAIT_NS = 5000000000;
    fa_request waiting = *request;
    int rc = fa_job_ask_caller(tuner, target, true, &turn->data, diag);
    if (rc != 0 || fa_store_is_read_only(tuner->store))
        return rc;
    uint64_t until_ns = fa_clock_ns() + (tuner->found_busy ? 0 : CACHED_WAIT_NS);
    if (request->effort == FA_EFFORT_CACHED)
        waiting.progress = is_over, waiting.context = &until_ns;
    if (key != NULL)
        rc = fa_request_wait(tuner, &waiting, key, &turn->key, NULL, diag);
    if (rc == 0)
        rc = fa_request_wait(tuner, &waiting, target->gpu.uuid, &turn->gpu, NULL, diag);
    if (request->effort > FA_EFFORT_CACHED)
        return rc;
    tuner->found_busy = rc == FA_ECANCELED;
    return rc != FA_ECANCELED
               ? rc
               : fa_fail(diag, FA_EBUSY,
                         "a stored winner must be proved under this driver, and another tune is "
                         "measuring on this GPU: ask again when it is done");
}

static void end_turn(struct turn *turn)
{
    fa_lock_release(&turn->gpu);
    fa_lock_release(&turn->key);
    fa_case_data_close(&turn->data);
}

bool fa_reproof_launches_so(fa_tuner *tuner, const fa_target *target, const fa_answer *answer)
{
    const fa_trial *trial = &answer->trial;
    fa_candidate candidate;
    return fa_target_candidate(tuner, target, &trial->config, &candidate, NULL) == 0 &&
           candidate.trial.status == FA_STATUS_PENDING &&
           candidate.trial.threads == trial->threads &&
           candidate.trial.smem_bytes == trial->smem_bytes &&
           memcmp(candidate.trial.grid, trial->grid, sizeof trial->grid) == 0 &&
           strcmp(fa_families_for(tuner, &target->asked)->family[candidate.family]->launch[0].entry,
                  answer->entry) == 0;
}

int fa_reproof_prove(fa_tuner *tuner, const fa_target *target, const fa_request *request,
                     const fa_answer *answer, const fa_cubin_record *cubin, fa_diag *diag)
{
    FA_ENDS(end_turn) struct turn turn = {0};
    fa_answer end;
    if (!fa_reproof_launches_so(tuner, target, answer))
        return fa_fail(diag, FA_ENOKERNEL,
                       "the templates here do not launch %s so: they must be the "
                       "server's (FA_TUNE_TEMPLATES)",
                       answer->trial.config.family);
    FA_OR_RETURN(begin_turn(tuner, request, target, NULL, &turn, diag));
    return prove(tuner, request, target, &answer->trial.config, cubin, turn.data, 0, &end, diag);
}

/* Keeps a mark in the store; in the session where the store cannot be written, or where it is no verdict: then a proof ran
 * out of time, and the next session tries again. */
static void keep_mark(fa_tuner *tuner, const fa_scope *scope, const fa_verification *mark,
                      bool verdict)
{
    fa_diag why = {{0}};
    bool kept = false;
    if (verdict && !fa_store_is_read_only(tuner->store)) {
        kept = fa_store_verification_put(tuner->store, mark, scope, &why) == 0;
        if (!kept)
            fa_note(tuner, "the result of a winner's proof under driver %d could not be kept: %s",
                    mark->driver_version, why.text);
    }
    if (!kept && !mark->passed) /* else every ask would prove it again */
        fa_tuner_keep_failed(tuner, mark->cubin_key, mark->silicon, mark->reason);
}

static int verify_locked(fa_tuner *tuner, const fa_target *target, const fa_request *request,
                         const fa_case_data *data, fa_lookup *found, fa_diag *diag)
{
    fa_answer *answer = &found->answer, end;
    fa_diag why = {{0}};
    int before = answer->driver_version, now = fa_driver_version(tuner->driver);
    fa_verification mark = {.driver_version = now};
    memcpy(mark.cubin_key, answer->cubin_key, sizeof mark.cubin_key);
    memcpy(mark.silicon, target->scope.silicon, sizeof mark.silicon);
    int rc =
        prove(tuner, request, target, &answer->trial.config, &found->cubin, data, 0, &end, &why);
    if (rc != 0 && rc != FA_ENOKERNEL && rc != FA_ETIMEOUT)
        return fa_fail(diag, rc,
                       "the winner was proved under driver %d and must be once more under "
                       "%d: %s",
                       before, now, why.text);
    mark.passed = rc == 0;
    if (rc != 0)
        snprintf(mark.reason, sizeof mark.reason, "%.500s", why.text);
    keep_mark(tuner, &found->scope, &mark, rc != FA_ETIMEOUT);
    if (rc == 0) {
        answer->driver_version = now;
        return 0;
    }
    fa_note(tuner, "a winner that driver %d proved %s under driver %d and is %s: %s", before,
            rc == FA_ETIMEOUT ? "had no time for its proof" : "failed its proof", now,
            rc == FA_ETIMEOUT ? "passed over by this process" : "dropped", mark.reason);
    return fa_fail(diag, rc, "%s", mark.reason);
}

int fa_reproof_verify(fa_tuner *tuner, const fa_target *target, const fa_request *request,
                      fa_lookup *found, fa_diag *diag)
{
    fa_answer *answer = &found->answer;
    FA_ENDS(end_turn) struct turn turn = {0};
    fa_verification mark;
    char key[FA_HASH_HEX];
    int now = fa_driver_version(tuner->driver);
    fa_scope_key(&found->scope, key);
    FA_OR_RETURN(begin_turn(tuner, request, target, key, &turn, diag));
    /* Another process may have done it while this one waited. */
    if (!fa_reproof_mark(tuner, answer->cubin_key, target->scope.silicon, now, &mark))
        return verify_locked(tuner, target, request, turn.data, found, diag);
    if (!mark.passed)
        return fa_fail(diag, FA_ENOKERNEL, "%s", mark.reason);
    answer->driver_version = now;
    return 0;
}

/* ---- for a profiler --------------------------------------------------------------------------*/
int fa_run_config(fa_tuner *tuner, const fa_request *request, int32_t rank, int32_t launches,
                  fa_trial *ret_trial, fa_diag *diag)
{
    enum { LAUNCHES_MAX = 1000000 };
    FA_ENDS(fa_free_at) fa_study_trial *config = NULL;
    size_t count = 0, ranked = 0;
    fa_target target;
    fa_answer end;
    fa_explained space;
    fa_request known;
    FA_OR_RETURN(fa_request_take(tuner, true, "", request, &known, diag));
    if (rank < 1 || launches < 1 || launches > LAUNCHES_MAX)
        return fa_fail(diag, FA_EINVAL, "rank counts from 1, and launches are 1 to %d",
                       LAUNCHES_MAX);
    FA_OR_RETURN(fa_configs_rank(tuner, &known, NULL, false, &config, &count, &space, diag));
    while (ranked < count && config[ranked].rank > 0)
        ranked++;
    const bool found = (size_t)rank <= ranked;
    const fa_config chosen = found ? config[rank - 1].trial.config : (fa_config){.count = 0};
    if (!space.gpu.present)
        return fa_fail(diag, FA_ENODEVICE, "a kernel runs on the GPU itself, and no %s is here",
                       space.gpu.name);
    if (ranked == 0)
        return fa_fail(diag, FA_ENOTFOUND,
                       "nothing is tuned yet for this problem on %s: tune it first",
                       space.gpu.name);
    if (!found)
        return fa_fail(diag, FA_ENOTFOUND, "there is no config %d: `fa-tune explain` lists %zu",
                       rank, ranked);
    known.effort = FA_EFFORT_PREDICT; /* waits for the GPU, however long */
    FA_HOLDS(&tuner->work);
    FA_ENDS(end_turn) struct turn turn = {0};
    FA_OR_RETURN(fa_target_resolve(tuner, &known, &target, diag));
    FA_OR_RETURN(begin_turn(tuner, &known, &target, NULL, &turn, diag));
    FA_OR_RETURN(prove(tuner, &known, &target, &chosen, NULL, turn.data, launches, &end, diag));
    if (ret_trial != NULL)
        *ret_trial = end.trial;
    return 0;
}

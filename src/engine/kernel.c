/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels loaded in the caller's contexts: how a winner becomes one, and its launch by the rules of its operation. And
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
 * Workload: a lookup for every attention layer of every step, from any thread; of proofs: one config, once for each driver.
 * Invariants: a lookup that finds its kernel in the table (kernel_table.h) takes no lock and makes one driver call; nothing
 * that is not proved is launched but in the measuring worker.
 */
#include "job.h"

#include "error.h"
#include "op.h"
#include "problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a caller asks for: a kernel in his thread's context. */
struct asking {
    fa_tuner *tuner;
    const fa_problem *problem;
    fa_effort effort;
    uint64_t context; /* this and what follows: from resolve() on */
    fa_request request;
    fa_target target;
};

/* The kernel that is loaded in this context, if it is as good as the effort asks for; else NULL. */
static inline const fa_kernel *find_loaded(const fa_tuner *tuner, const fa_problem *problem,
                                           uint64_t context, fa_effort effort)
{
    const fa_kernel *kernel = fa_kernel_table_find(&tuner->kernels, problem, context);
    int32_t given = kernel != NULL ? kernel->problem.operation->contents : 0;
    bool enough =
        kernel != NULL && (given == 0 || given == kernel->like->contents) &&
        (effort <= FA_EFFORT_PREDICT || (effort == FA_EFFORT_MEASURE && kernel->measured));
    return enough ? kernel : NULL;
}

/* Finds the context and its device, for which everything else is asked; `work` is held. */
static int resolve(struct asking *asking, fa_diag *diag)
{
    fa_tuner *tuner = asking->tuner;
    asking->request = (fa_request){.size = sizeof asking->request,
                                   .problem = *asking->problem,
                                   .effort = asking->effort,
                                   .first_contact = asking->effort == FA_EFFORT_MEASURE};
    FA_OR_RETURN(fa_tuner_driver(tuner, diag));
    if ((asking->context = fa_driver_context_id(tuner->driver)) == 0)
        return fa_fail(diag, FA_ENODEVICE,
                       "the calling thread has no current CUDA context: make one current first");
    int rc = fa_driver_current_device(tuner->driver, &asking->request.ordinal, diag);
    return rc != 0 ? rc : fa_target_resolve(tuner, &asking->request, &asking->target, diag);
}

/* The family of an answer's config where a call of it has more than one launch or memory, else NULL.
 * Manifests are read whole for such a family alone: that costs more than all else of a hit. */
static int find_composed(fa_tuner *tuner, const fa_problem *problem, const fa_answer *answer,
                         const fa_family **ret_family, fa_diag *diag)
{
    const char *name = answer->trial.config.family;
    bool simple = fa_operation_of(problem)->spec == NULL; /* a specification is read already */
    *ret_family = NULL;
    if (simple && (fa_family_peek(fa_templates_for(tuner, problem), name, &simple) != 0 || simple))
        return 0;
    FA_OR_RETURN(fa_tuner_families(tuner, diag));
    const fa_family_list *families = fa_families_for(tuner, problem);
    for (int i = 0; i < families->count; i++)
        if (strcmp(families->family[i]->name, name) == 0)
            *ret_family = families->family[i];
    return 0;
}

/* Prepares all launches of a call as the manifest lists them, where the answer's one launch is not all of
 * it. */
static int prepare_call(fa_tuner *tuner, const fa_answer *answer, fa_loaded *loaded,
                        fa_kernel *kernel, fa_diag *diag)
{
    const fa_family *family = loaded->composed;
    fa_candidate candidate;
    if (family == NULL)
        return 0;
    fa_task task = fa_task_for(tuner, &kernel->problem, &answer->gpu);
    FA_OR_RETURN(fa_space_one(&task, &answer->trial.config, &candidate, diag));
    fa_call_composed *composed = kernel->call.composed = calloc(1, sizeof *composed);
    FA_OR_RETURN(fa_have(composed != NULL, "a kernel", diag));
    composed->launches = candidate.launches;
    composed->memory = loaded->memory;
    for (int i = 0; i < candidate.launches.count; i++)
        FA_OR_RETURN(fa_module_function(loaded->module, family->launch[i].entry,
                                        candidate.launches.at[i].smem_bytes, &composed->function[i],
                                        diag));
    return 0;
}

/* Loads an answer's cubin in the current context unless it is there: one winner serves all lengths of
 * its bucket. */
static int load_cubin(const struct asking *asking, const fa_answer *answer,
                      const fa_cubin_record *cubin, fa_loaded **ret_loaded, fa_diag *diag)
{
    fa_tuner *tuner = asking->tuner;
    FA_ENDS(fa_loaded_free) fa_loaded *loaded = NULL;
    *ret_loaded = fa_kernel_table_loaded(&tuner->kernels, asking->context, answer);
    if (*ret_loaded != NULL)
        return 0;
    FA_OR_RETURN(fa_have((loaded = calloc(1, sizeof *loaded)) != NULL, "a kernel", diag));
    loaded->call.launcher = fa_op_of(asking->problem)->proof->launcher;
    loaded->call.driver = tuner->driver;
    fa_cubin_entry entry = {cubin->bytes, cubin->size, answer->entry, .workspace = false,
                            .counters = false};
    FA_OR_RETURN(find_composed(tuner, &asking->target.asked, answer, &loaded->composed, diag));
    FA_OR_RETURN(fa_driver_current_device(tuner->driver, &loaded->ordinal, diag));
    FA_OR_RETURN(fa_module_load(tuner->driver, cubin->bytes, cubin->size, &loaded->module, diag));
    FA_OR_RETURN(fa_module_function(loaded->module, answer->entry, answer->trial.smem_bytes,
                                    &loaded->call.function, diag));
    entry.workspace = loaded->composed != NULL && loaded->composed->workspace != NULL;
    entry.counters = loaded->composed != NULL && loaded->composed->counters != NULL;
    FA_OR_RETURN(loaded->call.launcher->load(loaded->module, &asking->target.asked, &entry,
                                             &loaded->call.shared, diag));
    if (loaded->composed != NULL) /* now: a capture may ask for the next length */
        FA_OR_RETURN(fa_kernel_table_memory(&tuner->kernels, tuner->driver, asking->context,
                                            &loaded->memory, diag));
    fa_kernel_table_keep(&tuner->kernels, asking->context, answer, loaded);
    *ret_loaded = loaded;
    loaded = NULL;
    return 0;
}

/* Loads an answer's cubin in the current context and publishes its kernel, unless another thread has done so
 * while this one waited; `work` is held. */
static int load_kernel(const struct asking *asking, const fa_answer *answer,
                       const fa_cubin_record *cubin, const fa_kernel **ret_kernel, fa_diag *diag)
{
    fa_kernel_table *table = &asking->tuner->kernels;
    fa_loaded *loaded = NULL;
    fa_kernel *kernel = NULL;
    const fa_kernel *there = fa_kernel_table_find(table, asking->problem, asking->context);
    if (there != NULL && fa_kernel_table_is_of(there, answer)) {
        *ret_kernel = there;
        return 0;
    }
    FA_OR_RETURN(load_cubin(asking, answer, cubin, &loaded, diag));
    FA_OR_RETURN(fa_kernel_table_add(table, loaded, asking->problem, answer, &kernel, diag));
    kernel->measured = fa_answer_satisfies(
        answer, &(fa_request){.effort = FA_EFFORT_MEASURE, .first_contact = true});
    int rc = prepare_call(asking->tuner, answer, loaded, kernel, diag);
    if (rc == 0)
        rc = fa_kernel_table_publish(table, kernel, diag);
    if (rc == 0)
        *ret_kernel = kernel;
    else
        fa_kernel_table_drop_newest(table);
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
    const bool late = status == FA_STATUS_TIMEOUT || status == FA_STATUS_COMPILE_TIMEOUT;
    if (rc == FA_ENOKERNEL && (late || status == FA_STATUS_OUT_OF_MEMORY))
        rc = late ? FA_ETIMEOUT : FA_ENOMEM;
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

/* Whether our own manifest launches a config as an answer says: a proof runs the manifest's entry. */
static bool launches_so(fa_tuner *tuner, const fa_target *target, const fa_answer *answer)
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

/* Proves a cubin from elsewhere in a worker, launched as its answer says; stores nothing. FA_ENOKERNEL: the proof failed;
 * FA_ETIMEOUT, FA_EBUSY: as below. */
static int prove_foreign(fa_tuner *tuner, const fa_target *target, const fa_request *request,
                         const fa_answer *answer, const fa_cubin_record *cubin, fa_diag *diag)
{
    FA_ENDS(end_turn) struct turn turn = {0};
    fa_answer end;
    if (!launches_so(tuner, target, answer))
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

/* Proves a found winner again in a worker, because it was proved under another driver; updates the mark and the stored
 * winner. On success the answer and cubin of `found` may be launched. FA_ENOKERNEL: the proof failed and the winner is
 * dropped; FA_ETIMEOUT: the proof ran out of time, and this session passes the winner over; a note says so in both
 * cases. After any other error the next lookup finds it again. FA_EBUSY: effort is CACHED, which waits only shortly, and
 * another process measures on this GPU. */
static int verify(fa_tuner *tuner, const fa_target *target, const fa_request *request,
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

/* ---- what is stored, or tuned -----------------------------------------------------------------*/
/* Whether a stored winner may be launched: proved on this silicon under this driver, which is done now where it has not
 * been, and good enough for the effort. FA_ENOTFOUND: it may not; FA_ENOKERNEL: the next look finds another. */
static int admit(const struct asking *asking, fa_lookup *found, fa_diag *diag)
{
    const fa_answer *answer = &found->answer;
    if (answer->driver_version == 0)
        return fa_fail(diag, FA_ENOTFOUND,
                       "all that is stored (origin: %s) is a winner that no GPU has proved yet: "
                       "ask with effort predict or measure",
                       fa_origin_name(answer->origin));
    if (!fa_answer_satisfies(answer, &asking->request))
        return FA_ENOTFOUND;
    if (answer->driver_version == fa_driver_version(asking->tuner->driver))
        return 0;
    int rc = verify(asking->tuner, &asking->target, &asking->request, found, diag);
    /* The sentence says why. Where the proof's time ran out the GPU may be busy, and nothing else is proved now. */
    return rc == FA_ETIMEOUT || (rc == FA_EBUSY && asking->effort == FA_EFFORT_CACHED)
               ? FA_ENOTFOUND
               : rc;
}

/* The first stored winner that may be launched. *found: what the last look found, for fa_lookup_free(). */
static int load_stored(const struct asking *asking, fa_lookup *found, const fa_kernel **ret_kernel,
                       fa_diag *diag)
{
    enum { LOOKS = 4 }; /* each after the first without a winner that failed its proof */
    int rc = FA_ENOKERNEL;
    for (int looks = 0; looks < LOOKS && rc == FA_ENOKERNEL; looks++) {
        fa_lookup_free(found);
        rc = fa_look(asking->tuner, &asking->target, false, found, diag);
        if (rc == 0)
            rc = admit(asking, found, diag);
        if (rc == 0)
            rc = load_kernel(asking, &found->answer, &found->cubin, ret_kernel, diag);
    }
    return rc == FA_ENOKERNEL ? FA_ENOTFOUND : rc;
}

/* Tunes, and loads the winner. */
static int load_tuned(const struct asking *asking, fa_tuning *tuning, const fa_kernel **ret_kernel,
                      fa_diag *diag)
{
    fa_answer answer;
    FA_ENDS(fa_cubin_record_free) fa_cubin_record cubin = {0};
    FA_OR_RETURN(fa_tune_target(tuning, &answer, diag));
    if (answer.driver_version != fa_driver_version(asking->tuner->driver)) /* found meanwhile */
        return load_stored(asking, &tuning->known, ret_kernel, diag);
    FA_OR_RETURN(fa_records_cubin(asking->tuner, answer.cubin_key, &cubin, diag));
    return load_kernel(asking, &answer, &cubin, ret_kernel, diag);
}

static int make_kernel(const struct asking *asking, const fa_kernel **ret_kernel, fa_diag *diag)
{
    fa_tuning tuning = {
        .tuner = asking->tuner, .request = &asking->request, .target = asking->target};
    int rc = FA_ENOTFOUND;
    if (asking->effort != FA_EFFORT_PATIENT) {
        rc = load_stored(asking, &tuning.known, ret_kernel, diag);
        /* FA_ECORRUPT: its cubin is gone from the store, and a tune makes it again. */
        if (asking->effort == FA_EFFORT_CACHED && rc == FA_ECORRUPT)
            rc = FA_ENOTFOUND; /* the sentence says why */
    }
    if ((rc == FA_ENOTFOUND || rc == FA_ECORRUPT) && asking->effort != FA_EFFORT_CACHED)
        rc = load_tuned(asking, &tuning, ret_kernel, diag);
    fa_lookup_free(&tuning.known);
    return rc;
}

/* ---- from a service ---------------------------------------------------------------------------*/
/* Proves a service's kernel where that is necessary and loads it; `work` is held. What it measured on this silicon under
 * this driver need not be proved, if it is believed and the config means the same here: it may be of another version. */
static int load_foreign(const struct asking *asking, fa_answer *answer,
                        const fa_cubin_record *cubin, const fa_kernel **ret_kernel, fa_diag *diag)
{
    fa_tuner *tuner = asking->tuner;
    const int now = fa_driver_version(tuner->driver);
    /* Another thread may have made it meanwhile. */
    *ret_kernel = find_loaded(tuner, asking->problem, asking->context, asking->effort);
    if (*ret_kernel != NULL)
        return 0;
    if (!tuner->service->believed || answer->driver_version != now ||
        !(fa_origin_is_measured(answer->origin) || answer->origin == FA_ORIGIN_NEAREST) ||
        !launches_so(tuner, &asking->target, answer) || !fa_record_holds(tuner, answer)) {
        int rc = prove_foreign(tuner, &asking->target, &asking->request, answer, cubin, diag);
        if (rc != 0)
            return rc == FA_EBUSY ? rc
                                  : fa_fail_in(diag, rc, "its kernel did not pass its proof here");
        answer->driver_version = now;
    }
    return load_kernel(asking, answer, cubin, ret_kernel, diag);
}

static int ask_service(struct asking *asking, const fa_kernel **ret_kernel, fa_diag *diag)
{
    fa_tuner *tuner = asking->tuner;
    fa_answer answer;
    FA_ENDS(fa_cubin_record_free) fa_cubin_record cubin = {0};
    fa_diag why = {{0}};
    if (tuner->service == NULL || FA_HELD(tuner, resolve(asking, &why)) != 0)
        return FA_SOURCE_NONE; /* the local way says what is wrong */
    FA_OR_RETURN(tuner->service->kernel(tuner, &asking->target, asking->problem, asking->effort,
                                        &answer, &cubin, diag));
    const int rc = FA_HELD(tuner, load_foreign(asking, &answer, &cubin, ret_kernel, &why));
    if (rc == FA_EBUSY && asking->effort == FA_EFFORT_CACHED) /* no fault of the service's */
        return fa_fail(diag, FA_ENOTFOUND, "%s", why.text);
    return rc == 0 ? 0 : tuner->service->give_up(tuner, why.text);
}

/* Takes no lock. */
inline __attribute__((always_inline)) int fa_get_loaded_kernel(fa_tuner *tuner,
                                                               const fa_problem *problem,
                                                               fa_effort effort,
                                                               const fa_kernel **ret_kernel,
                                                               fa_diag *diag)
{
    FA_OR_RETURN(fa_tuner_check(tuner, diag));
    if (problem == NULL || ret_kernel == NULL)
        return fa_fail(diag, FA_EINVAL, "problem or ret_kernel is NULL");
    fa_driver *driver = atomic_load_explicit(&tuner->launch_driver, memory_order_acquire);
    uint64_t context = driver != NULL ? fa_driver_context_id(driver) : 0;
    const fa_kernel *kernel = context != 0 ? find_loaded(tuner, problem, context, effort) : NULL;
    if (kernel == NULL)
        return FA_ENOTFOUND;
    *ret_kernel = kernel;
    return 0;
}

int fa_get_near_kernel(fa_tuner *tuner, const fa_problem *problem, const fa_kernel **ret_kernel,
                       fa_diag *diag)
{
    static const fa_cubin_record loaded; /* its bytes are not needed once more */
    fa_answer answer;
    int rc = fa_get_loaded_kernel(tuner, problem, FA_EFFORT_CACHED, ret_kernel, diag);
    if (rc != FA_ENOTFOUND)
        return rc;
    struct asking asking = {.tuner = tuner, .problem = problem, .effort = FA_EFFORT_CACHED};
    FA_HOLDS(&tuner->work);
    FA_OR_RETURN(resolve(&asking, diag));
    FA_OR_RETURN(fa_look_among_loaded(tuner, &asking.target, asking.context, &answer, diag));
    return load_kernel(&asking, &answer, &loaded, ret_kernel, diag);
}

/* The kernel of a problem that is not loaded: a source's, else what is stored or tuned here. */
static int get_kernel(fa_tuner *tuner, const fa_problem *problem, fa_effort effort,
                      const fa_kernel **ret_kernel, fa_diag *diag)
{
    struct asking asking = {.tuner = tuner, .problem = problem, .effort = effort};
    if (effort < FA_EFFORT_CACHED || effort > FA_EFFORT_PATIENT)
        return fa_fail(diag, FA_EINVAL, "effort is %d: use FA_EFFORT_CACHED to FA_EFFORT_PATIENT",
                       (int)effort);
    int rc = fa_problem_check(problem, diag);
    if (rc == 0)
        rc = ask_service(&asking, ret_kernel, diag);
    if (rc != FA_SOURCE_NONE)
        return rc;
    FA_HOLDS(&tuner->work);
    FA_OR_RETURN(resolve(&asking, diag));
    /* Another thread may have made it while this one waited. */
    const fa_kernel *kernel = find_loaded(tuner, problem, asking.context, effort);
    if (kernel == NULL)
        FA_OR_RETURN(make_kernel(&asking, &kernel, diag));
    *ret_kernel = kernel;
    return 0;
}

int fa_get_best_kernel(fa_tuner *tuner, const fa_problem *problem, fa_effort effort,
                       const fa_kernel **ret_kernel, fa_diag *diag)
{
    int rc = fa_get_loaded_kernel(tuner, problem, effort, ret_kernel, diag);
    return rc != FA_ENOTFOUND ? rc : get_kernel(tuner, problem, effort, ret_kernel, diag);
}

const fa_answer *fa_kernel_answer(const fa_kernel *kernel)
{
    return kernel != NULL ? fa_kernel_table_answer(kernel) : NULL;
}

int32_t fa_kernel_device(const fa_kernel *kernel)
{
    return kernel != NULL ? kernel->ordinal : -1;
}

/* ---- launches --------------------------------------------------------------------------------*/
int fa_launch(const fa_kernel *kernel, const fa_attn_args *args, void *stream, fa_diag *diag)
{
    if (kernel == NULL || args == NULL)
        return fa_fail(diag, FA_EINVAL, "kernel or args is NULL");
    if (kernel->call.launcher->argument != NULL)
        return fa_fail(diag, FA_ENOTSUP,
                       "fa_launch is for attention forward: use fa_launch_args for %s",
                       fa_operation_of(&kernel->problem)->name);
    return kernel->call.launcher->launch(&kernel->call, &kernel->problem, args, stream, diag);
}

int fa_launch_args(const fa_kernel *kernel, const fa_args *args, void *stream, fa_diag *diag)
{
    if (kernel == NULL || args == NULL)
        return fa_fail(diag, FA_EINVAL, "kernel or args is NULL");
    if (args->size < sizeof *args || args->count < 0 || (args->count > 0 && args->at == NULL))
        return fa_fail(diag, FA_EINVAL, "args->size is not sizeof(fa_args), or args->at is NULL");
    if (kernel->call.launcher->argument == NULL)
        return fa_fail(diag, FA_ENOTSUP, "fa_launch_args is not for %s: use fa_launch",
                       fa_operation_of(&kernel->problem)->name);
    return kernel->call.launcher->launch(&kernel->call, &kernel->problem, args, stream, diag);
}

int fa_kernel_argument(const fa_kernel *kernel, int32_t index, fa_argument *ret_argument)
{
    fa_argument argument = {0};
    if (kernel == NULL || ret_argument == NULL || ret_argument->size < sizeof argument)
        return FA_EINVAL;
    const fa_launcher *launcher = kernel->call.launcher;
    FA_OR_RETURN(launcher->argument != NULL
                     ? launcher->argument(&kernel->call, &kernel->problem, index, &argument)
                     : FA_ENOTSUP);
    argument.size = sizeof argument;
    *ret_argument = argument;
    return 0;
}

size_t fa_kernel_workspace(const fa_kernel *kernel)
{
    return kernel != NULL && kernel->call.composed != NULL
               ? (size_t)kernel->call.composed->launches.workspace_bytes
               : 0;
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
    if (!space.gpu.present)
        return fa_fail(diag, FA_ENODEVICE, "a kernel runs on the GPU itself, and no %s is here",
                       space.gpu.name);
    if (ranked == 0)
        return fa_fail(diag, FA_ENOTFOUND,
                       "nothing is tuned yet for this problem on %s: tune it first",
                       space.gpu.name);
    if ((size_t)rank > ranked)
        return fa_fail(diag, FA_ENOTFOUND, "there is no config %d: `fa-tune explain` lists %zu",
                       rank, ranked);
    known.effort = FA_EFFORT_PREDICT; /* waits for the GPU, however long */
    FA_HOLDS(&tuner->work);
    FA_ENDS(end_turn) struct turn turn = {0};
    FA_OR_RETURN(fa_target_resolve(tuner, &known, &target, diag));
    FA_OR_RETURN(begin_turn(tuner, &known, &target, NULL, &turn, diag));
    FA_OR_RETURN(prove(tuner, &known, &target, &config[rank - 1].trial.config, NULL, turn.data,
                       launches, &end, diag));
    if (ret_trial != NULL)
        *ret_trial = end.trial;
    return 0;
}

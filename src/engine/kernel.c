/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels loaded in the caller's contexts: how a winner becomes one, and its launch by the rules of its operation.
 *
 * Workload: a lookup for every attention layer of every step, from any thread. Invariant:
 * a lookup that finds its kernel in the table (kernel_table.h) takes no lock and makes one driver call.
 */
#include "job.h"

#include "error.h"
#include "op.h"
#include "problem.h"

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
    bool simple =
        fa_operation_of(problem)->spec == NULL; /* of a specification it is read already */
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
    int rc = fa_reproof_verify(asking->tuner, &asking->target, &asking->request, found, diag);
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
        !fa_reproof_launches_so(tuner, &asking->target, answer) ||
        !fa_record_holds(tuner, answer)) {
        int rc = fa_reproof_prove(tuner, &asking->target, &asking->request, answer, cubin, diag);
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a session: the sources of winners, in the order in which they are asked, and the functions by which the
 * engine uses a service and a fleet. A service is asked before the local store and tuner.
 */
#include "error.h"
#include "fleet.h"
#include "session.h"
#include "problem.h"
#include "remote.h"
#include "request.h"
#include "system_bundles.h"

#include <string.h>

/* ---- a service ------------------------------------------------------------------------------*/
static void close_service(fa_source *source)
{
    fa_remote *remote = (fa_remote *)source;
    fa_remote_free(&remote);
}

static bool service_is_believed(const fa_tuner *tuner)
{
    return fa_http_is_local(fa_remote_of(tuner)->http);
}

static int cubin_of_answer(fa_tuner *tuner, const char *key, void **ret_bytes, size_t *ret_size,
                           fa_diag *diag)
{
    int rc = fa_remote_cubin_get(tuner, key, NULL, ret_bytes, ret_size, diag);
    return rc == FA_ENOTFOUND ? FA_SOURCE_NONE : rc; /* what it has not may be here */
}

/* Why a service's answer may not be launched here at all, or NULL. On return it is about this device,
 * as its origin tells. */
static const char *refuse_answer(const fa_target *target, int driver_version, fa_effort effort,
                                 fa_answer *answer)
{
    const fa_trial *trial = &answer->trial;
    char silicon[FA_SILICON_MAX];
    fa_gpu_silicon(&answer->gpu, silicon);
    if (strcmp(silicon, target->scope.silicon) != 0)
        return "its answer is for other silicon";
    if (trial->threads < 1 || trial->threads > 1024 || trial->grid[0] < 1 || trial->grid[1] < 1 ||
        trial->grid[2] < 1 || trial->grid[1] > 65535 || trial->grid[2] > 65535 ||
        trial->smem_bytes < 0 || trial->smem_bytes > target->gpu.smem_per_block)
        return "its kernel cannot be launched here";
    if (answer->origin == FA_ORIGIN_MEASURED && strcmp(answer->gpu.uuid, target->gpu.uuid) != 0)
        answer->origin = FA_ORIGIN_MEASURED_SAME_SILICON;
    answer->gpu = target->gpu;
    fa_answer proved = *answer;
    proved.driver_version = driver_version; /* as it will be */
    if (!fa_answer_satisfies(&proved, (fa_wanted){.effort = effort}))
        return "it has nothing measured for this GPU";
    return NULL;
}

static int kernel_of_service(fa_tuner *tuner, const fa_target *target, const fa_problem *problem,
                             fa_effort effort, fa_answer *ret_answer, fa_cubin_record *ret_cubin,
                             fa_diag *diag)
{
    fa_remote_cubin where;
    fa_cubin_record cubin = {.sm = target->gpu.sm};
    fa_diag why = {{0}};
    int rc = fa_remote_kernel(tuner, problem, &target->gpu, effort, ret_answer, &where, diag);
    if (rc != 0)
        return rc;
    if (effort == FA_EFFORT_CACHED && ret_answer->driver_version == 0)
        return fa_fail(diag, FA_ENOTFOUND,
                       "all that the server has (origin: %s) is a winner that no GPU has proved "
                       "yet: ask with effort predict or measure",
                       fa_origin_name(ret_answer->origin));
    const char *refused =
        refuse_answer(target, fa_driver_version(tuner->driver), effort, ret_answer);
    if (refused == NULL && where.size == 0)
        refused = "it has no cubin for its answer";
    if (refused != NULL)
        return fa_remote_give_up(tuner, refused);
    rc = fa_remote_cubin_get(tuner, where.key, &where, &cubin.bytes, &cubin.size, &why);
    if (rc == FA_SOURCE_NONE)
        return rc;
    if (rc != 0)
        return fa_remote_give_up(tuner, why.text);
    memcpy(cubin.key, where.key, sizeof cubin.key);
    memcpy(cubin.entry, ret_answer->entry, sizeof cubin.entry);
    *ret_cubin = cubin;
    return 0;
}

int fa_service_make(fa_tuner *tuner, const fa_options *options, fa_source **ret_source,
                    fa_diag *diag)
{
    static const fa_source_class class = {
        .close = close_service,
        .tune = fa_remote_tune,
        .sweep = fa_remote_sweep,
        .winners = fa_remote_winners,
        .answer_cubin = cubin_of_answer,
        .kernel = kernel_of_service,
        .usable = fa_remote_usable,
        .believed = service_is_believed,
        .give_up = fa_remote_give_up,
    };
    fa_remote *remote = NULL;
    (void)tuner;
    int rc = fa_remote_make(options, &remote, diag);
    if (remote != NULL) {
        *ret_source = &remote->source;
        (*ret_source)->is = &class;
    }
    return rc;
}

/* ---- a fleet --------------------------------------------------------------------------------*/
static void close_fleet(fa_source *source)
{
    fa_fleet *fleet = (fa_fleet *)source;
    fa_fleet_free(&fleet);
}

static bool look_in_fleet(fa_tuner *tuner, const fa_target *target)
{
    return fa_fleet_pull(tuner, target, false);
}

static const char *fleet_location(const fa_tuner *tuner)
{
    fa_fleet *fleet = fa_fleet_of(tuner);
    return atomic_load(&fleet->reached) ? fleet->shown : NULL;
}

static const fa_source_class fleet_class = {
    .close = close_fleet,
    .look = look_in_fleet,
    .fetch_cubin = fa_fleet_cubin,
    .store = fa_fleet_store,
    .store_failed = fa_fleet_failed,
    .location = fleet_location,
    .lease_take = fa_fleet_lease_take,
    .lease_end = fa_fleet_lease_end,
    .remember = fa_fleet_remember,
    .publish = fa_fleet_publish,
};

static int make_fleet_source(fa_tuner *tuner, const fa_options *options, fa_source **ret_source,
                             fa_diag *diag)
{
    fa_fleet *fleet = NULL;
    (void)tuner;
    int rc = fa_fleet_new(fa_options_fleet(options), &fleet, diag);
    if (fleet != NULL) {
        fleet->source.is = &fleet_class;
        fleet->connected = fa_fleet_catch_up;
        *ret_source = &fleet->source;
    }
    return rc;
}

/* ---- a session ------------------------------------------------------------------------------*/
int fa_open(const fa_options *options, fa_tuner **ret_tuner, fa_diag *diag)
{
    static fa_source_maker *const makers[] = {fa_service_make, make_fleet_source, fa_system_make};
    return fa_session_open(options, makers, sizeof makers / sizeof *makers, ret_tuner, diag);
}

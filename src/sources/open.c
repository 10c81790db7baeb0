/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a session: the sources of winners, in the order in which they are asked, and the functions by which the
 * engine uses a fleet. A service is asked before the local store and tuner.
 */
#include "error.h"
#include "fleet.h"
#include "session.h"
#include "problem.h"
#include "remote.h"
#include "request.h"
#include "system_bundles.h"

#include <string.h>

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

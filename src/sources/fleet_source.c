/* SPDX-License-Identifier: Apache-2.0
 *
 * The fleet's store as a source of winners.
 */
#include "fleet.h"

#include "options.h"

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

int fa_fleet_make(fa_tuner *tuner, const fa_options *options, fa_source **ret_source, fa_diag *diag)
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * The connection to the fleet's store: made when it is first needed, given up when it fails, tried
 * again after a while that doubles, or is long where every try keeps a caller waiting.
 */
#include "fleet.h"

#include "catalogue.h"
#include "error.h"
#include "pool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { RETRY_FIRST_MS = 1000, RETRY_MOST_MS = 60000, LEASE_S = 30, LEASE_MOST_S = 3600 };
/* A try that failed after so long had no answer at all, as from behind a wall: of the time from then on
 * one part in SLOW_SHARE may go into the next. */
enum { SLOW_MS = 1500, SLOW_SHARE = 30 };
static const char source_id;

/* How long a silent holder is believed to live, from FA_TUNE_LEASE in seconds. */
static int read_lease(int32_t *ret_ms, fa_diag *diag)
{
    const char *text = secure_getenv("FA_TUNE_LEASE");
    char *end;
    if (text == NULL || text[0] == 0) {
        *ret_ms = LEASE_S * 1000;
        return 0;
    }
    long value = strtol(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != 0 || value < 1 || value > LEASE_MOST_S)
        return fa_fail(diag, FA_EINVAL,
                       "FA_TUNE_LEASE is \"%.40s\": use whole seconds from 1 to %d", text,
                       LEASE_MOST_S);
    *ret_ms = (int32_t)value * 1000;
    return 0;
}

int fa_fleet_new(const char *location, fa_fleet **ret_fleet, fa_diag *diag)
{
    char host[64] = "";
    uint64_t number = 0;
    *ret_fleet = NULL;
    if (location[0] == 0)
        return 0;
    if (strlen(location) >= FA_STORE_PATH_MAX)
        return fa_fail(diag, FA_EINVAL, "the location of the fleet's store is longer than %d bytes",
                       FA_STORE_PATH_MAX - 1);
    fa_fleet *fleet = calloc(1, sizeof *fleet);
    if (fleet == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a tuner");
    fleet->source.id = &source_id;
    gethostname(host, sizeof host - 1);
    int rc = fa_fleet_address(fleet, location, diag);
    if (rc == 0)
        rc = read_lease(&fleet->lease_ms, diag);
    if (rc == 0 && getrandom(&number, sizeof number, 0) != sizeof number)
        rc = fa_fail(diag, FA_EIO, "no randomness to be had");
    snprintf(fleet->holder, sizeof fleet->holder, "%s:%d:%08" PRIx64, host, (int)getpid(),
             number & 0xffffffff);
    if (rc != 0)
        fa_fleet_free(&fleet);
    *ret_fleet = fleet;
    return rc;
}

void fa_fleet_free(fa_fleet **fleet)
{
    if (*fleet == NULL)
        return;
    fa_store_close(&(*fleet)->store);
    free(*fleet);
    *fleet = NULL;
}

bool fa_fleet_is_worker(const fa_fleet *fleet)
{
    return fleet->working && pthread_equal(fleet->worker, pthread_self());
}

fa_fleet *fa_fleet_of(const fa_tuner *tuner)
{
    return (fa_fleet *)fa_source_of(tuner, &source_id);
}

/* ---- connection -----------------------------------------------------------------------------*/
static int64_t took_ms(const fa_fleet *fleet)
{
    return (int64_t)(fa_clock_ns() - fleet->asked_ns) / 1000000;
}

bool fa_fleet_is_worth_retry(const fa_tuner *tuner, int rc)
{
    return rc == FA_EIO && took_ms(fa_fleet_of(tuner)) < SLOW_MS;
}

void fa_fleet_failed(fa_tuner *tuner, int rc, const fa_diag *why)
{
    fa_fleet *fleet = fa_fleet_of(tuner);
    if (rc == FA_ENOTFOUND || rc == FA_ECORRUPT || rc == FA_EINVAL || rc == FA_ENOMEM)
        return; /* of one row */
    int64_t wait_ms = RETRY_FIRST_MS;
    for (int i = 0; i < fleet->failures && wait_ms < RETRY_MOST_MS; i++)
        wait_ms *= 2;
    if (rc == FA_EIO && took_ms(fleet) >= SLOW_MS)
        wait_ms = took_ms(fleet) * SLOW_SHARE;
    fleet->failures++;
    fleet->retry_ns = fa_clock_ns() + (uint64_t)wait_ms * 1000000;
    atomic_store(&fleet->reached, false);
    fa_store_close(&fleet->store);
    if (!fleet->noted)
        fa_note(tuner, "the fleet's store %s does not serve: %s; going on with the local store %s",
                fleet->shown, why->text, tuner->store_path);
    fleet->noted = true;
    fleet->why = *why;
}

void fa_fleet_gpu_type(const fa_gpu *gpu, char ret_name[64])
{
    fa_gpu known;
    bool listed = fa_catalogue_match(gpu, &known) == 0;
    snprintf(ret_name, 64, "%s", listed ? known.name : gpu->name);
}

fa_store *fa_fleet_store(fa_tuner *tuner)
{
    fa_fleet *fleet = fa_fleet_of(tuner);
    fa_diag why = {{0}};
    if (fleet == NULL)
        return NULL;
    fleet->asked_ns = fa_clock_ns();
    if (fleet->store != NULL)
        return fleet->store;
    if (fleet->failures > 0 && fa_clock_ns() < fleet->retry_ns)
        return NULL;
    int rc = fa_store_open(fleet->location, FA_STORE_READ_WRITE, &fleet->store, NULL, &why);
    if (rc != 0) {
        fa_fleet_failed(tuner, FA_EIO, &why); /* whatever it is, it is not of one row */
        return NULL;
    }
    fleet->failures = 0;
    atomic_store(&fleet->reached, true);
    if (fleet->connected != NULL)
        fleet->connected(tuner);
    return fleet->store;
}

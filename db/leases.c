/* SPDX-License-Identifier: Apache-2.0
 *
 * Leases: names with one holder at a time, until a moment of the database's clock. A row stays when
 * its lease has ended, so that the next holder's fence is higher than all before it.
 */
#include "statements.h"

#include <string.h>

bool fa_db_holder_ok(const char *holder)
{
    return holder != NULL && holder[0] != 0 && strlen(holder) < FA_HOLDER_MAX;
}

struct leasing {
    const fa_store_lease *lease;
    int64_t lease_ms, fence;
};

static int check_ms(int64_t lease_ms, fa_diag *diag)
{
    if (lease_ms > 0 && lease_ms <= FA_LEASE_MAX_MS)
        return 0;
    return fa_fail(diag, FA_EINVAL, "a lease of %lld ms: use 1 to %d", (long long)lease_ms,
                   FA_LEASE_MAX_MS);
}

/* ---- taking ---------------------------------------------------------------------------------*/
static int take_body(fa_store *store, void *context, fa_diag *diag)
{
    struct leasing *leasing = context;
    fa_binder binder =
        fa_db_prepare(store,
                      "INSERT INTO lease (name, holder, fence, lease_until) "
                      "VALUES (?,?,1,unix_ms() + ?) ON CONFLICT (name) DO UPDATE SET "
                      "holder = excluded.holder, fence = lease.fence + 1, "
                      "lease_until = excluded.lease_until "
                      "WHERE lease.lease_until <= unix_ms() "
                      "OR lease.holder = excluded.holder RETURNING fence",
                      diag);
    fa_bind(&binder, fa_text(leasing->lease->name), fa_text(leasing->lease->holder),
            fa_int(leasing->lease_ms));
    int rc = fa_db_run_id(store, &binder, &leasing->fence, diag);
    if (rc == 0 && leasing->fence <= 0)
        rc = fa_fail(diag, FA_EBUSY, "somebody else holds the lease on %s", leasing->lease->name);
    return rc;
}

int fa_store_lease_take(fa_store *store, const char *name, const char *holder, int64_t lease_ms,
                        fa_store_lease *ret_lease, fa_diag *diag)
{
    if (name == NULL || name[0] == 0 || strlen(name) >= FA_LEASE_NAME_MAX ||
        !fa_db_holder_ok(holder))
        return fa_fail(diag, FA_EINVAL,
                       "a lease needs a name and a holder, of up to %d and %d bytes",
                       FA_LEASE_NAME_MAX - 1, FA_HOLDER_MAX - 1);
    int rc = check_ms(lease_ms, diag);
    if (rc != 0)
        return rc;
    fa_store_lease lease = {0};
    strcpy(lease.name, name);
    strcpy(lease.holder, holder);
    struct leasing leasing = {.lease = &lease, .lease_ms = lease_ms};
    rc = fa_db_change(store, take_body, &leasing, diag);
    if (rc != 0)
        return rc;
    lease.fence = leasing.fence;
    *ret_lease = lease;
    return 0;
}

/* ---- holding and letting go -----------------------------------------------------------------*/
#define OF_TAKING "WHERE name = ? AND holder = ? AND fence = ?"

/* lease_ms 0: lets go. */
static int hold_body(fa_store *store, void *context, fa_diag *diag)
{
    const struct leasing *leasing = context;
    bool ends = leasing->lease_ms == 0;
    fa_binder binder =
        fa_db_prepare(store,
                      ends ? "UPDATE lease SET lease_until = 0, holder = '' " OF_TAKING
                           : "UPDATE lease SET lease_until = unix_ms() + ? " OF_TAKING,
                      diag);
    if (!ends)
        fa_bind(&binder, fa_int(leasing->lease_ms));
    fa_bind(&binder, fa_text(leasing->lease->name), fa_text(leasing->lease->holder),
            fa_int(leasing->lease->fence));
    int rc = fa_db_run(store, &binder, diag);
    if (rc != 0)
        return rc;
    if (ends)
        return fa_db_notify(store, diag);
    return fa_db_changes(store) == 1
               ? 0
               : fa_fail(diag, FA_EBUSY, "the lease on %s ran out and was taken over",
                         leasing->lease->name);
}

int fa_store_lease_renew(fa_store *store, const fa_store_lease *lease, int64_t lease_ms,
                         fa_diag *diag)
{
    struct leasing leasing = {.lease = lease, .lease_ms = lease_ms};
    int rc = check_ms(lease_ms, diag);
    return rc != 0 ? rc : fa_db_change(store, hold_body, &leasing, diag);
}

int fa_store_lease_release(fa_store *store, const fa_store_lease *lease, fa_diag *diag)
{
    struct leasing leasing = {.lease = lease};
    return fa_db_change(store, hold_body, &leasing, diag);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Looking at the queue of a fleet: how far it is, and who holds what.
 */
#include "queue.h"
#include "sweep_item_row.h"

#include <string.h>

/* ---- counting -------------------------------------------------------------------------------*/
#define COUNT(condition) "count(CASE WHEN " condition " THEN 1 END), "

int fa_store_queue_counts(fa_store *store, int64_t id, fa_queue_counts *ret_counts, fa_diag *diag)
{
    fa_reader reader;
    fa_binder binder = fa_db_query(
        store,
        "SELECT " COUNT("i.state = 'pending'") COUNT("i.state = 'running'") COUNT(
            "i.state = 'done'") COUNT("i.state = 'failed'")
            COUNT("i.state = 'running' AND i.lease_until <= unix_ms()") COUNT(
                "i.state IN ('pending', 'running') AND i.ready = 1") "(SELECT CAST(coalesce(sum(refused), 0) AS bigint) FROM sweep "
                                                                     "WHERE fleet = 1 AND (id = ?1 OR ?1 = 0)) "
                                                                     "FROM sweep_item i JOIN sweep ON sweep.id = i.sweep_id "
                                                                     "WHERE sweep.fleet = 1 AND (sweep.id = ?1 OR ?1 = 0)",
        diag);
    fa_bind_int(&binder, id);
    int rc = fa_db_run_row(store, &binder, &reader, diag);
    if (rc < 0)
        return rc;
    fa_queue_counts counts = {0};
    int64_t *const all[] = {&counts.pending, &counts.running,  &counts.done,   &counts.failed,
                            &counts.expired, &counts.compiled, &counts.refused};
    for (size_t i = 0; rc == 1 && i < sizeof all / sizeof *all; i++)
        *all[i] = fa_read_int(&reader, 0, INT64_MAX);
    if (rc == 1)
        rc = fa_read_end(&reader, diag);
    if (rc != 1)
        return rc < 0 ? rc
                      : fa_fail(diag, FA_ECORRUPT,
                                "store %s: the counts of its queue are not valid", store->path);
    *ret_counts = counts;
    return 0;
}

/* ---- holders --------------------------------------------------------------------------------*/
struct visiting {
    fa_queue_holder_visit *visit;
    void *context;
};

/* An item that is no longer held, or whose row is not valid, is left out. */
static int visit_row(fa_store *store, int64_t id, void *context, fa_diag *diag)
{
    const struct visiting *visiting = context;
    fa_queue_holder holder = {0};
    fa_reader reader;
    int rc = fa_db_item_load(store, id, &holder.position, &holder.item, diag);
    if (rc == 1)
        rc = fa_db_row(store,
                       "SELECT holder, stage, lease_until - unix_ms() FROM sweep_item "
                       "WHERE id = ? AND state = 'running'",
                       id, &reader, diag);
    if (rc != 1)
        return rc == FA_EVERSION ? 0 : rc;
    fa_read_copy(&reader, holder.holder, sizeof holder.holder);
    const char *stage = fa_read_text(&reader, false);
    holder.stage = strcmp(stage, fa_db_stage_names[FA_STAGE_COMPILE]) == 0 ? FA_STAGE_COMPILE
                                                                           : FA_STAGE_MEASURE;
    holder.left_ms = fa_read_int(&reader, INT64_MIN, INT64_MAX);
    rc = fa_read_end(&reader, diag);
    return rc == 1 ? visiting->visit(visiting->context, &holder) : rc;
}

int fa_store_queue_holders_each(fa_store *store, int64_t id, fa_queue_holder_visit *visit,
                                void *context, fa_diag *diag)
{
    struct visiting visiting = {visit, context};
    fa_binder ids = fa_db_query(store,
                                "SELECT id FROM sweep_item WHERE sweep_id = ? "
                                "AND state = 'running' ORDER BY position",
                                diag);
    fa_bind_int(&ids, id);
    return fa_db_each(store, &ids, visit_row, &visiting, diag);
}

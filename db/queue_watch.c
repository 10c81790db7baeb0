/* SPDX-License-Identifier: Apache-2.0
 *
 * Looking at the queue of a fleet: how far it is, and who holds what.
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- counting -------------------------------------------------------------------------------*/
#define COUNT(condition) "count(CASE WHEN " condition " THEN 1 END), "

int fa_store_queue_counts(fa_store *store, int64_t id, fa_queue_counts *ret_counts, fa_diag *diag)
{
    fa_statement *statement;
    int rc = fa_db_enter(store, diag);
    if (rc == 0)
        rc = fa_db_statement(
            store, FA_SQL_QUEUE_COUNTS,
            "SELECT " COUNT("i.state = 'pending'") COUNT("i.state = 'running'")
            COUNT("i.state = 'done'") COUNT("i.state = 'failed'")
            COUNT("i.state = 'running' AND i.lease_until <= unix_ms()")
            COUNT("i.state IN ('pending', 'running') AND i.ready = 1")
            "(SELECT CAST(coalesce(sum(refused), 0) AS bigint) FROM sweep "
            "WHERE fleet = 1 AND (id = ?1 OR ?1 = 0)) "
            "FROM sweep_item i JOIN sweep ON sweep.id = i.sweep_id "
            "WHERE sweep.fleet = 1 AND (sweep.id = ?1 OR ?1 = 0)",
            &statement, diag);
    if (rc != 0)
        return rc;
    fa_binder binder = {.statement = statement};
    fa_bind_int(&binder, id);
    rc = fa_db_run(store, &binder, diag);
    if (rc < 0)
        return rc;
    fa_reader reader = {.statement = statement, .ok = rc == 1};
    fa_queue_counts counts = {0};
    int64_t *const all[] = {&counts.pending, &counts.running,  &counts.done,   &counts.failed,
                            &counts.expired, &counts.compiled, &counts.refused};
    for (size_t i = 0; i < sizeof all / sizeof *all && reader.ok; i++)
        *all[i] = fa_read_int(&reader, 0, INT64_MAX);
    fa_db_reset(statement);
    if (!reader.ok)
        return fa_fail(diag, FA_ECORRUPT, "store %s: the counts of its queue are not valid",
                       store->path);
    *ret_counts = counts;
    return 0;
}

/* ---- holders --------------------------------------------------------------------------------*/
/* 1: read; 0: it is held no more, or not valid; or negative. */
static int load_holder(fa_store *store, int64_t id, fa_queue_holder *holder, fa_diag *diag)
{
    fa_reader reader;
    int rc = fa_db_enter(store, diag);
    if (rc == 0)
        rc = fa_db_item_load(store, id, &holder->position, &holder->item, diag);
    if (rc == 1)
        rc = fa_db_row(store, FA_SQL_QUEUE_HOLDER,
                       "SELECT holder, stage, lease_until - unix_ms() FROM sweep_item "
                       "WHERE id = ? AND state = 'running'",
                       id, &reader, diag);
    if (rc != 1)
        return rc;
    fa_read_copy(&reader, holder->holder, sizeof holder->holder);
    const char *stage = fa_read_text(&reader, false);
    holder->stage = stage != NULL && strcmp(stage, fa_db_stage_names[FA_STAGE_COMPILE]) == 0
                        ? FA_STAGE_COMPILE
                        : FA_STAGE_MEASURE;
    holder->left_ms = fa_read_int(&reader, INT64_MIN, INT64_MAX);
    fa_db_reset(reader.statement);
    return reader.ok;
}

int fa_store_queue_holders_each(fa_store *store, int64_t id, fa_queue_holder_visit *visit,
                                void *context, fa_diag *diag)
{
    int64_t *ids = NULL;
    size_t count = 0;
    int rc = fa_db_ids_of(store, FA_SQL_QUEUE_HELD,
                          "SELECT id FROM sweep_item WHERE sweep_id = ? AND state = 'running' "
                          "ORDER BY position",
                          id, &ids, &count, diag);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        fa_queue_holder holder = {0};
        rc = load_holder(store, ids[i], &holder, diag);
        if (rc == 1)
            rc = visit(context, &holder);
    }
    free(ids);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Many hosts with one store on a PostgreSQL server: one winner, one lock, one queue.
 */
#define DB_ON_POSTGRES
#include "db_fixture.h"

static unsigned char bytes[DB_CUBIN_SIZE];
enum { HOSTS = 6, ROUNDS = 10, ITEMS = 45 };

/* Runs body in HOSTS processes; how many did not exit with 0. */
static int hosts(int (*body)(int host))
{
    pid_t child[HOSTS];
    int bad = 0;
    fflush(stdout);
    for (int i = 0; i < HOSTS; i++) {
        child[i] = fork();
        if (child[i] == 0) {
            int rc = body(i);
            if (rc != 0)
                printf("# host %d: %d: %s\n", i, rc, diag.text);
            fflush(stdout);
            _exit(rc != 0);
        }
    }
    for (int i = 0; i < HOSTS; i++) {
        int status = -1;
        bad += child[i] < 0 || waitpid(child[i], &status, 0) != child[i] || status != 0;
    }
    return bad;
}

static int write_one_winner(int host)
{
    fa_store *store = db_open(&diag);
    int rc = store == NULL ? FA_EIO : 0;
    for (int i = 0; i < ROUNDS && rc == 0; i++)
        rc = db_put_winner(store, 1, (uint32_t)(1 + (host + i) % HOSTS),
                           host == 3 && i == 7 ? FA_ORIGIN_MEASURED : FA_ORIGIN_TRANSFERRED, NULL,
                           &diag);
    fa_store_close(&store);
    return rc;
}

DB_TEST(hosts_that_write_one_winner_at_once_leave_one_and_the_best)
{
    CHECK_INT(hosts(write_one_winner), 0);
    fa_store *store = db_open(&diag);
    fa_scope scope = db_scope(1);
    fa_winner_record winner = {0};
    fa_cubin_record cubin = {0};
    CHECK(store != NULL);
    CHECK_OK(fa_store_winner_get(store, &scope, &winner, &cubin, &diag), diag);
    CHECK_INT(winner.origin, FA_ORIGIN_MEASURED);
    CHECK(db_winner_is(store, 1, 1 + (3 + 7) % HOSTS, &diag));
    fa_winner_record_free(&winner);
    fa_cubin_record_free(&cubin);
    fa_store_close(&store);
    CHECK_INT(pg_sql(db_path, "SELECT 1 FROM winner"), 1);
    CHECK_INT(pg_sql(db_path, "SELECT 1 FROM scope"), 1);
    CHECK_INT(pg_sql(db_path, "SELECT 1 FROM cubin"), HOSTS);
}

static const char *sweep_key(void)
{
    static char key[65];
    memset(key, 'a', sizeof key - 1);
    return key;
}

static bool enter_items(fa_store *store)
{
    static fa_sweep_item item[ITEMS];
    fa_sweep sweep = {.plan = "many"};
    strcpy(sweep.key, sweep_key());
    for (int i = 0; i < ITEMS; i++) {
        item[i] = (fa_sweep_item){.problem = db_scope(i + 1).problem};
        strcpy(item[i].gpu, i % 3 == 0 ? "H100" : "L4");
    }
    return fa_store_sweep_enter(store, &(fa_sweep_entry){&sweep, item, ITEMS, false, "{}"},
                                &diag) == 0;
}

static int take(fa_store *store, fa_queue_claim *ret_claim)
{
    const fa_queue_taker taker = {NULL, NULL, FA_WORK_MEASURE, "host"};
    return fa_store_queue_claim(store, &taker, ret_claim, &diag);
}

static int end(fa_store *store, fa_queue_claim *claim, int host)
{
    uint32_t n = (uint32_t)(claim->item.index * 100 + host * 10 + claim->item.attempts);
    fa_cubin_record cubin = db_cubin(n, bytes);
    fa_winner_record winner = db_winner(claim->item.index + 1, n, FA_ORIGIN_MEASURED);
    int rc = fa_store_winner_put(store, &winner, &cubin, false, NULL, &diag);
    return rc != 0
               ? rc
               : fa_store_queue_end(store, claim, &(fa_queue_end){.state = FA_ITEM_DONE}, &diag);
}

static int drain(int host)
{
    fa_store *store = db_open(&diag);
    fa_queue_claim claim;
    int rc = store == NULL ? FA_EIO : 0;
    while (rc == 0) {
        rc = take(store, &claim);
        if (rc == 0)
            rc = end(store, &claim, host);
    }
    fa_store_close(&store);
    return rc == FA_ENOTFOUND ? 0 : rc;
}

DB_STORE_TEST(hosts_drain_a_queue_and_each_item_is_taken_once)
{
    fa_sweep sweep;
    CHECK(enter_items(store));
    while (fa_store_sweep_read(store, sweep_key(), &sweep, &diag) == 0 && sweep.done < ITEMS)
        CHECK_INT(hosts(drain), 0); /* again for those that all were stepped around */
    CHECK_INT(sweep.done, ITEMS);
    CHECK_INT(sweep.state, FA_SWEEP_DONE);
    CHECK_INT(pg_sql(db_path, "SELECT 1 FROM winner"), ITEMS);
    CHECK_INT(pg_sql(db_path, "SELECT 1 FROM sweep_item WHERE attempts = 1"), ITEMS);
}

/* ---- hosts that are killed ------------------------------------------------------------------*/
DB_TEST(a_host_killed_in_the_middle_of_a_change_leaves_nothing_of_it_and_no_lock)
{
    fa_store *store = db_open(&diag);
    CHECK(store != NULL);
    CHECK_OK(db_put_winner(store, 1, 1, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        fa_change change = {.store = db_open(&diag)};
        while (fa_store_change(&change))
            if (db_put_winner(change.store, 1, 2, FA_ORIGIN_MEASURED, NULL, &diag) == 0)
                raise(SIGKILL);
        _exit(1);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    CHECK_OK(db_put_winner(store, 2, 3, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    CHECK_OK(db_put_winner(store, 1, 1, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    CHECK(db_winner_is(store, 1, 1, &diag) && db_winner_is(store, 2, 3, &diag));
    CHECK_INT(pg_sql(db_path, "SELECT 1 FROM cubin"), 2);
    fa_store_close(&store);
}

/* Takes, works for a moment and ends, for ever. */
static void work(int number)
{
    fa_store *store = db_open(&diag);
    fa_queue_claim claim;
    while (store != NULL) {
        if (take(store, &claim) == 0) {
            usleep((useconds_t)(claim.item.index % 5 * 1000));
            end(store, &claim, number % 10);
        }
    }
}

static pid_t start_worker(int number)
{
    pid_t child = fork();
    if (child == 0) {
        work(number);
        _exit(1);
    }
    return child;
}

DB_TEST(workers_killed_at_any_moment_leave_one_winner_for_each_item)
{
    fa_store *store = db_open(&diag);
    fa_sweep sweep = {.items = ITEMS};
    pid_t worker[3];
    int started = 0, rc = 0;
    CHECK(store != NULL && enter_items(store));
    fflush(stdout);
    for (int i = 0; i < 3; i++)
        worker[i] = start_worker(started++);
    for (int i = 0; rc == 0 && sweep.done < ITEMS; i = (i + 1) % 3) {
        int32_t before = sweep.done; /* those that live get something done between two deaths */
        while (rc == 0 && sweep.done < ITEMS && sweep.done < before + 3) {
            usleep(1000);
            rc = fa_store_sweep_read(store, sweep_key(), &sweep, &diag);
        }
        kill(worker[i], SIGKILL);
        waitpid(worker[i], NULL, 0);
        worker[i] = start_worker(started++);
    }
    for (int i = 0; i < 3; i++) {
        kill(worker[i], SIGKILL);
        waitpid(worker[i], NULL, 0);
    }
    CHECK_OK(rc, diag);
    CHECK(started > 3);
    CHECK_INT(pg_sql(db_path, "SELECT 1 FROM winner"), ITEMS);
    for (int32_t seq = 1; seq <= ITEMS; seq++) {
        fa_scope scope = db_scope(seq);
        fa_winner_record winner = {0};
        fa_cubin_record cubin = {0};
        CHECK_OK(fa_store_winner_get(store, &scope, &winner, &cubin, &diag), diag);
        fa_winner_record_free(&winner);
        fa_cubin_record_free(&cubin);
    }
    fa_store_close(&store);
}

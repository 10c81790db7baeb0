/* SPDX-License-Identifier: Apache-2.0
 *
 * Many hosts with one store on a PostgreSQL server: one winner, one lease, one queue, and who waits
 * for them.
 */
#define DB_ON_POSTGRES
#include "db_fixture.h"

static unsigned char bytes[DB_CUBIN_SIZE];
enum { LONG_MS = 600000 };

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

static void hosts_that_write_one_winner_at_once_leave_one_and_the_best(void)
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

static int take_one_lease(int host)
{
    fa_store *store = db_open(&diag);
    char holder[24];
    fa_store_lease lease;
    snprintf(holder, sizeof holder, "host-%d", host);
    int rc = store == NULL ? FA_EIO : 0, got = 0;
    while (rc == 0 && got < ROUNDS) {
        rc = fa_store_lease_take(store, "key", holder, LONG_MS, &lease, &diag);
        if (rc == 0) {
            got++;
            /* Alone: nobody else changes the row meanwhile. */
            rc = fa_db_exec(store, "UPDATE aside SET value = (SELECT value FROM aside) + 1", &diag);
            if (rc == 0)
                rc = fa_store_lease_release(store, &lease, &diag);
        } else if (rc == FA_EBUSY) {
            rc = fa_store_wait(store, 100, &diag);
            rc = rc == FA_ETIMEOUT ? 0 : rc;
        }
    }
    fa_store_close(&store);
    return rc;
}

static void hosts_take_a_lease_in_turn(void)
{
    CHECK_INT(open_rc(FA_STORE_READ_WRITE), 0);
    CHECK(pg_sql(db_path, "CREATE TABLE aside AS SELECT 0 AS value") >= 0);
    CHECK_INT(hosts(take_one_lease), 0);
    char sql[100];
    snprintf(sql, sizeof sql, "UPDATE aside SET value = 0 WHERE value = %d", HOSTS * ROUNDS);
    CHECK_INT(pg_sql(db_path, sql), 1);
    snprintf(sql, sizeof sql, "UPDATE lease SET fence = 0 WHERE fence = %d", HOSTS * ROUNDS);
    CHECK_INT(pg_sql(db_path, sql), 1);
}

static bool enter_items(fa_store *store)
{
    static fa_sweep_item item[ITEMS];
    fa_sweep sweep = {.plan = "many"};
    int64_t id;
    memset(sweep.key, 'a', sizeof sweep.key - 1);
    for (int i = 0; i < ITEMS; i++) {
        item[i] = (fa_sweep_item){.problem = db_scope(i + 1).problem};
        strcpy(item[i].gpu, i % 3 == 0 ? "H100" : "L4");
    }
    return fa_store_sweep_enter(store, &(fa_sweep_entry){&sweep, item, ITEMS, false, "{}"}, &id,
                                &diag) == 0;
}

static int take(fa_store *store, const char *holder, int64_t lease_ms, fa_queue_claim *ret_claim)
{
    const fa_queue_taker taker = {0, NULL, FA_WORK_MEASURE, holder, lease_ms};
    fa_sweep_item item;
    return fa_store_queue_claim(store, &taker, ret_claim, &item, &diag);
}

static int publish(fa_store *store, const fa_queue_claim *claim, int host)
{
    uint32_t n = (uint32_t)(claim->position * 100 + host * 10 + claim->fence);
    fa_cubin_record cubin = db_cubin(n, bytes);
    fa_winner_record winner = db_winner(claim->position + 1, n, FA_ORIGIN_MEASURED);
    const fa_queue_end end = {FA_ITEM_DONE, .winner = &winner, .cubin = &cubin};
    return fa_store_queue_end(store, claim, &end, &diag);
}

static int drain(int host)
{
    fa_store *store = db_open(&diag);
    char holder[24];
    fa_queue_claim claim;
    snprintf(holder, sizeof holder, "host-%d", host);
    int rc = store == NULL ? FA_EIO : 0;
    while (rc == 0) {
        rc = take(store, holder, LONG_MS, &claim);
        if (rc == 0)
            rc = publish(store, &claim, host);
    }
    fa_store_close(&store);
    return rc == FA_ENOTFOUND ? 0 : rc;
}

static void hosts_drain_a_queue_and_each_item_is_taken_once(void)
{
    fa_store *store = db_open(&diag);
    fa_queue counts;
    CHECK(store != NULL && enter_items(store));
    CHECK_INT(hosts(drain), 0);
    CHECK_OK(fa_store_queue_counts(store, 0, &counts, &diag), diag);
    CHECK_INT(counts.sweep.done, ITEMS);
    CHECK_INT(counts.refused, 0);
    CHECK_INT(pg_sql(db_path, "SELECT 1 FROM winner"), ITEMS);
    CHECK_INT(pg_sql(db_path, "SELECT 1 FROM sweep_item WHERE attempts = 1"), ITEMS);
    CHECK_INT(pg_sql(db_path, "SELECT 1 FROM sweep WHERE state = 'done'"), 1);
    fa_store_close(&store);
}

/* Like drain(), but every fourth claim is left to run out, and published after another has it. */
static int drain_late(int host)
{
    fa_store *store = db_open(&diag);
    fa_queue_claim claim, late[ITEMS];
    fa_queue counts = {.pending = 1};
    char holder[24];
    int rc = store == NULL ? FA_EIO : 0, left = 0;
    for (int i = 0; rc == 0 && counts.pending + counts.running > 0; i++) {
        bool leave = i % 4 == 0 && left < 5;
        snprintf(holder, sizeof holder, "host-%d-%d", host, i);
        rc = take(store, holder, leave ? 1 : LONG_MS, &claim);
        if (rc == 0 && leave)
            late[left++] = claim;
        else if (rc == 0)
            rc = publish(store, &claim, host);
        else if (rc == FA_ENOTFOUND)
            rc = 0;
        if (rc == 0)
            rc = fa_store_queue_counts(store, 0, &counts, &diag);
    }
    for (int i = 0; rc == 0 && i < left; i++) /* each is done by now, by somebody else's claim */
        if (publish(store, &late[i], host) != FA_EBUSY)
            rc = FA_EINVAL;
    fa_store_close(&store);
    return rc;
}

static void claims_that_run_out_go_to_others_and_late_ends_are_refused_and_counted(void)
{
    fa_store *store = db_open(&diag);
    fa_queue counts;
    CHECK(store != NULL && enter_items(store));
    CHECK_INT(hosts(drain_late), 0);
    CHECK_OK(fa_store_queue_counts(store, 0, &counts, &diag), diag);
    CHECK_INT(counts.sweep.done, ITEMS);
    CHECK_INT(pg_sql(db_path, "SELECT 1 FROM winner"), ITEMS);
    /* Whoever took an item in vain was refused, once for each time. */
    char sql[160];
    snprintf(sql, sizeof sql,
             "SELECT 1 WHERE (SELECT sum(attempts - 1) FROM sweep_item) = %lld AND %lld > 0",
             (long long)counts.refused, (long long)counts.refused);
    CHECK_INT(pg_sql(db_path, sql), 1);
    fa_store_close(&store);
}

/* ---- hosts that are killed ------------------------------------------------------------------*/
static int put_and_die(void *context, fa_diag *d)
{
    int rc = db_put_winner(context, 1, 2, FA_ORIGIN_MEASURED, NULL, d);
    if (rc == 0)
        raise(SIGKILL);
    return rc;
}

static void a_host_killed_in_the_middle_of_a_change_leaves_nothing_of_it_and_no_lock(void)
{
    fa_store *store = db_open(&diag);
    CHECK(store != NULL);
    CHECK_OK(db_put_winner(store, 1, 1, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        fa_store *own = db_open(&diag);
        if (own != NULL)
            fa_store_batch(own, put_and_die, own, &diag);
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

/* A worker whose claims are short: it takes, works for a moment and publishes, for ever. */
static void work(int number)
{
    fa_store *store = db_open(&diag);
    fa_queue_claim claim;
    char holder[24];
    snprintf(holder, sizeof holder, "worker-%d", number);
    for (;;) {
        if (take(store, holder, 300, &claim) == 0) {
            usleep((useconds_t)(claim.item_id % 5 * 1000));
            publish(store, &claim, number % 10);
        }
    }
}

static pid_t start_worker(int number)
{
    pid_t child = fork();
    if (child == 0)
        work(number);
    return child;
}

static void workers_killed_at_any_moment_leave_one_winner_for_each_item(void)
{
    fa_store *store = db_open(&diag);
    fa_queue counts = {.pending = 1};
    pid_t worker[3];
    int started = 0, rc = 0;
    CHECK(store != NULL && enter_items(store));
    fflush(stdout);
    for (int i = 0; i < 3; i++)
        worker[i] = start_worker(started++);
    for (int i = 0; rc == 0 && counts.pending + counts.running > 0; i = (i + 1) % 3) {
        int64_t before =
            counts.sweep.done; /* those that live get something done between two deaths */
        while (rc == 0 && counts.pending + counts.running > 0 && counts.sweep.done < before + 3) {
            usleep(1000);
            rc = fa_store_queue_counts(store, 0, &counts, &diag);
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
    CHECK_INT(counts.sweep.done, ITEMS);
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

/* ---- waiting --------------------------------------------------------------------------------*/
static int say_when_awake(void)
{
    fa_store *store = db_open(&diag);
    int rc = store == NULL ? FA_EIO : fa_store_wait(store, 0, &diag);
    if (rc == 0)
        rc = fa_store_wait(store, LONG_MS, &diag);
    fa_store_close(&store);
    return rc;
}

static void a_winner_wakes_those_who_wait_for_it(void)
{
    CHECK_INT(open_rc(FA_STORE_READ_WRITE), 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(say_when_awake() != 0);
    fa_store *store = db_open(&diag);
    CHECK(store != NULL);
    for (int i = 0; i < 1000; i++) { /* until it listens and sleeps */
        if (pg_sql(db_path, "SELECT 1 FROM pg_stat_activity WHERE application_name = 'fa-tune' "
                            "AND query LIKE 'LISTEN%' AND state = 'idle'") == 1)
            break;
        usleep(10000);
    }
    int status = -1;
    CHECK_OK(db_put_winner(store, 1, 1, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_INT(status, 0);
    fa_store_close(&store);
}

int main(void)
{
    DB_TEST(hosts_that_write_one_winner_at_once_leave_one_and_the_best);
    DB_TEST(hosts_take_a_lease_in_turn);
    DB_TEST(hosts_drain_a_queue_and_each_item_is_taken_once);
    DB_TEST(claims_that_run_out_go_to_others_and_late_ends_are_refused_and_counted);
    DB_TEST(a_host_killed_in_the_middle_of_a_change_leaves_nothing_of_it_and_no_lock);
    DB_TEST(workers_killed_at_any_moment_leave_one_winner_for_each_item);
    DB_TEST(a_winner_wakes_those_who_wait_for_it);
    return check_done();
}

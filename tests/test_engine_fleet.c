/* SPDX-License-Identifier: Apache-2.0
 *
 * A tuner whose store is shared with other hosts: what the library's callers see of it. The fleet's
 * store is a file here; with a database server it is tests/test_fleet_postgres.py.
 */
#include "engine_fixture.h"

#include "fleet.h"
#include "pool.h"

#include <sqlite3.h>

static fa_diag diag;

static char shared[400]; /* the fleet's file */
static int notes;
static char last_note[1024];

static void take_note(void *context, const char *sentence)
{
    (void)context;
    notes++;
    snprintf(last_note, sizeof last_note, "%s", sentence);
}

/* The fixture's session, once more, as host `board` of the fleet: with a local store of its own that
 * knows the cubins and nothing else. */
static bool open_host(engine_fixture *f, const char *fleet, int board, const char *script)
{
    char text[1024], location[512], local[400];
    fa_close(&f->tuner);
    if (f->driver != NULL)
        fa_driver_release_context(f->driver, 0);
    fa_driver_close(&f->driver);
    snprintf(local, sizeof local, "%s/host-%d.db", f->directory, board);
    if (access(local, F_OK) != 0) {
        snprintf(text, sizeof text, "cp '%s' '%s'", f->store, local);
        if (system(text) != 0)
            return false;
    }
    snprintf(text, sizeof text, "%s board=%d\n%s\n", a_device, board, script);
    snprintf(location, sizeof location, "sqlite://%s", fleet);
    setenv("FA_TUNE_LOCAL_STORE", local, 1);
    fa_options options = fixture_options(f);
    options.store = location;
    options.log = take_note;
    notes = 0;
    return write_text(f->script, text) && fa_open(&options, &f->tuner, NULL) == 0 &&
           fa_driver_open(&f->driver, NULL) == 0 &&
           fa_driver_retain_context(f->driver, 0, NULL) == 0;
}

static bool open_fleet(engine_fixture *f)
{
    if (!fixture_open(f, NULL))
        return false;
    snprintf(shared, sizeof shared, "%s/shared", f->directory);
    if (mkdir(shared, 0700) != 0)
        return false;
    snprintf(shared, sizeof shared, "%s/shared/fleet.db", f->directory);
    return open_host(f, shared, 1, "");
}

static int64_t number_in(const char *file, const char *sql)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *statement = NULL;
    int64_t value = -1;
    if (sqlite3_open(file, &db) == SQLITE_OK && sqlite3_busy_timeout(db, 5000) == SQLITE_OK &&
        sqlite3_prepare_v2(db, sql, -1, &statement, NULL) == SQLITE_OK) {
        int rc = sqlite3_step(statement);
        value = rc == SQLITE_ROW ? sqlite3_column_int64(statement, 0) : rc == SQLITE_DONE ? 0 : -1;
    }
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return value;
}

static const char *local_of(const engine_fixture *f, int board)
{
    static char path[400];
    snprintf(path, sizeof path, "%s/host-%d.db", f->directory, board);
    return path;
}

static void a_kernel_that_another_host_measured_is_loaded_at_once(void)
{
    const fa_kernel *kernel;
    CHECK(open_fleet(&f));
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_MEASURE, &kernel, &diag), diag);
    CHECK_INT(fa_kernel_answer(kernel)->origin, FA_ORIGIN_MEASURED);
    fa_answer made = *fa_kernel_answer(kernel);
    CHECK(open_host(&f, shared, 2, ""));
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_CACHED, &kernel, &diag), diag);
    CHECK_INT(fa_kernel_answer(kernel)->origin, FA_ORIGIN_MEASURED_SAME_SILICON);
    CHECK_TEXT(fa_kernel_answer(kernel)->cubin_key, made.cubin_key);
    CHECK_HAS(fa_kernel_answer(kernel)->why, "another board");
    CHECK_INT(number_in(local_of(&f, 2), "SELECT count(*) FROM trial WHERE status = 'measured'"), 0);
    CHECK_HAS(fa_store_location(f.tuner), "shared/fleet.db");
    CHECK_INT(notes, 0);
}

static void one_that_another_driver_proved_is_proved_once_more_before_it_is_launched(void)
{
    const fa_kernel *kernel;
    fa_answer answer = {.size = sizeof answer};
    fa_request request = {.size = sizeof request, .problem = small_problem,
                          .effort = FA_EFFORT_MEASURE};
    CHECK(open_fleet(&f));
    CHECK_OK(fa_tune(f.tuner, &request, &answer, &diag), diag);
    CHECK_INT(answer.driver_version, 13000);
    CHECK(open_host(&f, shared, 2, "driver 13010"));
    CHECK_OK(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_CACHED, &kernel, &diag), diag);
    CHECK_INT(fa_kernel_answer(kernel)->driver_version, 13010);
    CHECK_INT(number_in(local_of(&f, 2), "SELECT count(*) FROM verification WHERE passed = 1"), 1);
    /* And one that fails there is not launched. */
    CHECK(open_host(&f, shared, 3, "driver 13010\nfault * wrong"));
    CHECK_INT(fa_get_best_kernel(f.tuner, &small_problem, FA_EFFORT_CACHED, &kernel, &diag),
              FA_ENOTFOUND);
    CHECK_HAS(last_note, "dropped");
}

/* Behind a wall that drops what is sent to it every try takes until its time is up. */
static void one_that_keeps_its_callers_waiting_is_asked_seldom(void)
{
    fa_diag why = {.text = "no answer"};
    const uint64_t second = 1000000000;
    CHECK(open_fleet(&f));
    fa_fleet *fleet = fa_fleet_of(f.tuner);
    for (int slow = 0; slow < 2; slow++) {
        fleet->asked_ns = fa_clock_ns() - (slow != 0 ? 10 * second : 0);
        fleet->failures = 0;
        fa_fleet_failed(f.tuner, FA_EIO, &why);
        CHECK((fleet->retry_ns > fa_clock_ns() + 100 * second) == (slow != 0));
        CHECK(fa_fleet_is_worth_retry(f.tuner, FA_EIO) == (slow == 0));
    }
    CHECK(fa_fleet_store(f.tuner) == NULL);
}

static int steal_lease(void *context, const fa_progress *progress)
{
    if (progress->stage == FA_STAGE_TUNE)
        number_in(context, "UPDATE lease SET holder = 'thief', fence = fence + 1");
    return 0;
}

static void a_tune_that_lost_its_lease_keeps_its_result_to_itself(void)
{
    fa_answer answer = {.size = sizeof answer};
    CHECK(open_fleet(&f));
    fa_request request = {.size = sizeof request, .problem = small_problem,
                          .effort = FA_EFFORT_MEASURE, .progress = steal_lease, .context = shared};
    CHECK_OK(fa_tune(f.tuner, &request, &answer, &diag), diag);
    CHECK_HAS(last_note, "another host took this key over");
    CHECK_INT(number_in(shared, "SELECT count(*) FROM winner"), 0);
    CHECK_INT(number_in(local_of(&f, 1), "SELECT count(*) FROM winner WHERE origin = 'measured'"),
              1);
    CHECK_INT(number_in(local_of(&f, 1), "SELECT count(*) FROM outbox"), 0);
}

static int give_up_waiting(void *context, const fa_progress *progress)
{
    *(bool *)context = progress->stage == FA_STAGE_WAIT;
    return progress->stage == FA_STAGE_WAIT;
}

static void who_waits_for_another_host_can_give_up_and_take_over_when_its_lease_ends(void)
{
    fa_answer answer = {.size = sizeof answer};
    bool waited = false;
    char sql[400], key[FA_HASH_HEX];
    fa_target target;
    CHECK(open_fleet(&f));
    CHECK_OK(fa_target_resolve(f.tuner, &(fa_request){.problem = small_problem}, &target, &diag),
             diag);
    fa_scope_key(&target.scope, key);
    fa_store *store = NULL;
    fa_store_lease lease;
    snprintf(sql, sizeof sql, "tune-%s", key);
    CHECK_OK(fa_store_open(shared, FA_STORE_READ_WRITE, &store, NULL, &diag), diag);
    CHECK_OK(fa_store_lease_take(store, sql, "another-host", 600000, &lease, &diag), diag);
    fa_request request = {.size = sizeof request, .problem = small_problem,
                          .effort = FA_EFFORT_MEASURE, .progress = give_up_waiting,
                          .context = &waited};
    CHECK_INT(fa_tune(f.tuner, &request, &answer, &diag), FA_ECANCELED);
    CHECK_HAS(diag.text, "another host");
    CHECK(waited);
    CHECK_OK(fa_store_lease_renew(store, &lease, 1, &diag), diag); /* it dies */
    request.progress = NULL;
    CHECK_OK(fa_tune(f.tuner, &request, &answer, &diag), diag);
    CHECK(!answer.from_store);
    CHECK_INT(number_in(shared, "SELECT count(*) FROM winner"), 1);
    fa_store_close(&store);
}

/* The addresses of a row name one store, and no two rows the same. */
static void a_fleet_is_known_by_what_names_its_store_and_by_no_secret(void)
{
    static const char *const table[][5] = {
        {"postgresql://db/fleet", "postgres://fa@DB:5432/fleet?sslmode=require",
         "postgresql://fa:s3cret@db/fleet?connect_timeout=9&password=s3@cret",
         "postgresql:///fleet?host=db&port=5432", "postgresql://fa:s3?cret@db/%66leet"},
        {"postgresql://db:5433/fleet", "postgresql://db/fleet?port=5433"},
        {"postgresql://db/other", "postgresql://other@db", "postgresql://db?dbname=other"},
        {"postgresql://db,[::1]:5433/fleet", "postgresql:///fleet?host=db,[::1]&port=,5433"},
        {"postgresql:///fleet?host=/run/pg", "postgresql://%2Frun%2Fpg/fleet"},
        {"postgresql://db/fleet?options=-csearch_path%3Dstaging",
         "postgresql://db/fleet?options=-c%20token%3Ds3cret%20--search-path%3Dstaging"},
        {"postgresql://db/fleet?service=a"},
        {"postgresql://db/fleet?hostaddr=10.0.0.1"},
        {"sqlite:///srv/fleet.db"},
        {"postgresql://fa:s3cret@w0rd@h/fleet"}, /* those that are refused */
        {"postgresql://fa:s3cret/w0rd@i/fleet"},
        {"postgresql://fa:12/s3cret?w0rd@j/fleet"},
    };
    enum { ROWS = sizeof table / sizeof *table };
    static char identity[ROWS][FA_STORE_PATH_MAX];
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < 5 && table[i][j] != NULL; j++) {
            fa_fleet *fleet = NULL;
                    CHECK_OK(fa_fleet_new(table[i][j], &fleet, &diag), diag);
            CHECK(strstr(fleet->identity, "s3") == NULL && strstr(fleet->identity, "cret") == NULL);
            CHECK(strstr(fleet->identity, "w0rd") == NULL);
            CHECK(strstr(fleet->shown, "s3") == NULL && strstr(fleet->shown, "cret") == NULL);
            CHECK(strstr(fleet->shown, "w0rd") == NULL);
            if (j > 0)
                CHECK_TEXT(fleet->identity, identity[i]);
            memcpy(identity[i], fleet->identity, sizeof identity[i]);
            fa_fleet_free(&fleet);
        }
        for (int k = 0; k < i; k++)
            CHECK(strcmp(identity[k], identity[i]) != 0);
    }
}

/* libpq takes from there what an address leaves out. */
static void what_an_address_leaves_to_the_environment_names_the_store_too(void)
{
    char before[FA_STORE_PATH_MAX] = "";
    static const char *const hosts[] = {"staging", "production"};
    for (int i = 0; i < 2; i++) {
        fa_fleet *fleet = NULL;
        setenv("PGHOST", hosts[i], 1);
        CHECK_INT(fa_fleet_new("postgresql:///fleet", &fleet, NULL), 0);
        unsetenv("PGHOST");
        CHECK_HAS(fleet->identity, hosts[i]);
        CHECK(strcmp(fleet->identity, before) != 0);
        memcpy(before, fleet->identity, sizeof before);
        fa_fleet_free(&fleet);
    }
}

int main(void)
{
    ENGINE_TEST(a_kernel_that_another_host_measured_is_loaded_at_once);
    ENGINE_TEST(one_that_another_driver_proved_is_proved_once_more_before_it_is_launched);
    ENGINE_TEST(one_that_keeps_its_callers_waiting_is_asked_seldom);
    ENGINE_TEST(a_tune_that_lost_its_lease_keeps_its_result_to_itself);
    ENGINE_TEST(who_waits_for_another_host_can_give_up_and_take_over_when_its_lease_ends);
    TEST(a_fleet_is_known_by_what_names_its_store_and_by_no_secret);
    TEST(what_an_address_leaves_to_the_environment_names_the_store_too);
    return check_done();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Many processes and threads with one store: all write, nothing is lost, and one corrupt file is set
 * aside once.
 */
#include "db_fixture.h"

#include "threads.h"

/* ---- many at once ---------------------------------------------------------------------------*/
enum { WRITERS = 8, WRITES = 12 };

/* 0, or which of its writes failed. */
static int write_as(int writer)
{
    fa_store *store = db_open(&diag);
    int failed = store == NULL ? 1 : 0;
    for (int i = 0; failed == 0 && i < WRITES; i++) {
        float samples[DB_SAMPLES];
        uint32_t n = (uint32_t)(writer * 100 + i);
        fa_study_trial trial = db_trial_record(n, samples);
        fa_scope shared = db_scope(4096);
        if (fa_store_trial_put(store, &shared, &trial, &diag) != 0 ||
            (i % 4 == 0 &&
             db_put_winner(store, writer * 100 + i + 1, n, FA_ORIGIN_MEASURED, NULL, &diag) != 0))
            failed = 2 + i;
    }
    if (failed != 0)
        printf("# writer %d: %s\n", writer, diag.text);
    fa_store_close(&store);
    fflush(stdout);
    return failed;
}

DB_TEST(eight_processes_make_and_write_one_store_and_nothing_is_lost)
{
    pid_t child[WRITERS];
    int bad = 0;
    fflush(stdout);
    for (int i = 0; i < WRITERS; i++) {
        child[i] = fork();
        if (child[i] == 0)
            _exit(write_as(i));
        CHECK(child[i] > 0);
    }
    for (int i = 0; i < WRITERS; i++) {
        int status = -1;
        bad += waitpid(child[i], &status, 0) != child[i] || status != 0;
    }
    CHECK_INT(bad, 0);
    fa_store *store = db_open(&diag);
    CHECK(store != NULL);
    FA_ENDS(fa_free_at) fa_study_trial *trial = NULL;
    size_t trials = 0;
    fa_scope shared = db_scope(4096);
    CHECK_OK(fa_store_trials(store, &shared, &trial, &trials, &diag), diag);
    CHECK_INT(trials, WRITERS * WRITES);
    for (int w = 0; w < WRITERS; w++)
        for (int i = 0; i < WRITES; i += 4)
            CHECK(db_winner_is(store, w * 100 + i + 1, (uint32_t)(w * 100 + i), &diag));
    fa_store_close(&store);
}

static void *thread_writes(void *context)
{
    int writer = *(int *)context;
    fa_store *store = NULL;
    for (int i = 0; i < WRITES; i++) { /* closing one connection must not unlock the others */
        if ((store == NULL &&
             fa_store_open(db_path, FA_STORE_READ_WRITE, NULL, &store, NULL, NULL) != 0) ||
            db_put_winner(store, writer * 100 + i + 1, (uint32_t)(writer * 100 + i),
                          FA_ORIGIN_MEASURED, NULL, NULL) != 0)
            return (void *)1;
        if (i % 3 == 2)
            fa_store_close(&store);
    }
    fa_store_close(&store);
    return NULL;
}

DB_TEST(threads_with_a_store_each_write_one_file_and_nothing_is_lost)
{
    int writer[4] = {0, 1, 2, 3};
    CHECK_INT(run_threads(thread_writes, writer, sizeof *writer, 4), 0);
    fa_store *store = db_open(&diag);
    CHECK(store != NULL);
    for (int w = 0; w < 4; w++)
        for (int i = 0; i < WRITES; i++)
            CHECK(db_winner_is(store, w * 100 + i + 1, (uint32_t)(w * 100 + i), &diag));
    fa_store_close(&store);
}

#ifndef DB_ON_POSTGRES
DB_TEST(eight_processes_that_find_one_corrupt_file_set_it_aside_once)
{
    CHECK(fill_store(1));
    CHECK_INT(truncate(db_path, 6000), 0);
    eight_processes_make_and_write_one_store_and_nothing_is_lost();
    CHECK_INT(db_count_files("store.db.corrupt-"), 1);
}

#endif

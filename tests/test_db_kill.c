/* SPDX-License-Identifier: Apache-2.0
 *
 * kill -9 at random moments: whatever a writer had been told is stored, is stored. A child writes
 * trials and winners as fast as it can and reports each one after the call has returned; it is
 * killed, and the file must then hold every reported record, whole, and at most one more.
 *
 *   test_db_kill [SEED [ROUNDS]]
 */
#define CHECK_OWN_MAIN
#include "db_fixture.h"

#include <poll.h>
#include <time.h>

enum { ROUNDS = 200, RECORDS_MAX = 1 << 20, SEQS = 40, TRIAL_SEQ = 4096 };

static uint32_t seed, rounds = ROUNDS;

/* What has been reported. A record's number says all about it: even ones are trials, odd ones
 * winners of scope seq_of(n). */
static uint32_t hot;                      /* kills that left a journal to play back */
static uint32_t first_of_round, reported; /* numbers below `reported` were reported or lost */
static uint32_t newest[SEQS];             /* by scope, the newest reported winner; 0: none */
static bool stored[RECORDS_MAX];          /* trials that must be there */

static uint32_t seq_of(uint32_t n)
{
    return n / 2 % SEQS;
}

static int put(fa_store *store, uint32_t n)
{
    if (n % 2 == 1)
        return db_put_winner(store, (int32_t)seq_of(n) + 1, n, FA_ORIGIN_MEASURED, NULL, &diag);
    float samples[DB_SAMPLES];
    fa_scope scope = db_scope(TRIAL_SEQ);
    fa_study_trial record = db_trial_record(n, samples);
    return fa_store_trial_put(store, &scope, &record, &diag);
}

/* Writes for ever; only its death ends it. */
static void write_until_killed(uint32_t n, int pipe_end)
{
    fa_store *store = db_open(&diag);
    for (; store != NULL && n < RECORDS_MAX; n++) {
        if (put(store, n) != 0 || write(pipe_end, &n, sizeof n) != (ssize_t)sizeof n)
            break;
    }
    printf("# writer stopped at %u: %s\n", n, diag.text);
    fflush(stdout);
    _exit(1);
}

/* Kills the writer 1 to 30 ms after its start or, in odd rounds, after its first report, so that
 * slow disks see it killed late enough too. False when it ended by itself. */
static bool run_and_kill(uint32_t round)
{
    int ends[2];
    if (pipe(ends) != 0)
        return false;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        write_until_killed(reported, ends[1]);
    }
    close(ends[1]);
    struct timespec nap = {.tv_nsec = 1000000 + (long)(db_mix(seed + round) % 29000000)};
    struct pollfd first = {.fd = ends[0], .events = POLLIN};
    if (round % 2 == 1)
        poll(&first, 1, 30000);
    nanosleep(&nap, NULL);
    int status = 0;
    bool killed = child > 0 && kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child &&
                  WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    uint32_t n;
    first_of_round = reported;
    while (read(ends[0], &n, sizeof n) == (ssize_t)sizeof n) {
        if (n % 2 == 1)
            newest[seq_of(n)] = n;
        else
            stored[n] = true;
        reported = n + 1;
    }
    close(ends[0]);
    char journal[320];
    struct stat st;
    snprintf(journal, sizeof journal, "%s-journal", db_path);
    hot += stat(journal, &st) == 0 && st.st_size > 0;
    return killed;
}

struct census {
    uint32_t from, trials, unreported, wrong;
};

static void count_trial(struct census *census, const fa_study_trial *record)
{
    uint32_t n = (uint32_t)record->trial.config.tunable[1].value;
    float samples[DB_SAMPLES];
    db_trial_record(n, samples);
    if (n >= RECORDS_MAX || record->sample_count != DB_SAMPLES ||
        memcmp(record->samples_us, samples, sizeof samples) != 0)
        census->wrong++;
    else if (stored[n])
        census->trials++;
    else
        census->unreported++;
}

/* Every reported trial, whole; what was stored and not reported is reported from now on. */
static void check_trials(uint32_t killed)
{
    fa_store *store = db_open(&diag);
    CHECK(store != NULL);
    struct census census = {0};
    fa_scope scope = db_scope(TRIAL_SEQ);
    FA_ENDS(fa_free_at) fa_study_trial *record = NULL;
    size_t count = 0;
    CHECK_OK(fa_store_trials(store, &scope, &record, &count, &diag), diag);
    for (size_t i = 0; i < count; i++)
        count_trial(&census, &record[i]);
    uint32_t expected = 0;
    for (uint32_t n = 0; n < reported; n++)
        expected += stored[n];
    CHECK_INT(census.wrong, 0);
    CHECK_INT(census.trials, expected);
    CHECK(census.unreported <= killed);
    fa_store_close(&store);
}

/* Each scope's winner is the newest reported one, or the one that was being written. */
static void check_winners(uint32_t from)
{
    fa_store *store = NULL;
    CHECK_OK(fa_store_open(db_path, FA_STORE_READ_WRITE, NULL, &store, &note, &diag), diag);
    CHECK_TEXT(note.text, "");
    for (uint32_t s = 0; s < SEQS; s++) {
        if (newest[s] < from || newest[s] == 0)
            continue;
        bool good = db_winner_is(store, (int32_t)s + 1, newest[s], &diag);
        if (!good && reported % 2 == 1 && seq_of(reported) == s)
            good = db_winner_is(store, (int32_t)s + 1, reported, &diag);
        if (!good)
            printf("# winner %u of scope %u is not there: %s\n", newest[s], s, diag.text);
        CHECK(good);
    }
    fa_store_close(&store);
}

/* The writer's next record may be stored already; it gets a number of its own. */
static void skip_unreported(void)
{
    if (reported % 2 == 1)
        newest[seq_of(reported)] = 0; /* either of two: no longer known */
    reported++;
}

DB_TEST(every_reported_record_outlives_kill_9)
{
    uint32_t quiet = 0;
    for (uint32_t round = 0; round < rounds; round++) {
        CHECK(run_and_kill(round));
        quiet += reported == first_of_round;
        check_winners(first_of_round);
        if (round % 25 == 24 && !check_state.failed) {
            check_trials(round + 1);
            check_winners(0);
        }
        if (check_state.failed)
            printf("# in round %u\n", round);
        CHECK(!check_state.failed);
        skip_unreported();
    }
    check_trials(rounds);
    CHECK(!check_state.failed);
    CHECK_INT(db_count_files("store.db.corrupt-"), 0);
    printf("# %u kills, %u before the first record, %u inside a transaction; %u records\n", rounds,
           quiet, hot, reported - rounds);
    CHECK(reported - rounds >= rounds / 2); /* one at least in each odd round */
}

/* Opens, and dies up to 15 ms later: before, while and after the file is made. */
DB_TEST(a_store_whose_maker_was_killed_is_made_again)
{
    uint32_t sizes[2] = {0};
    for (uint32_t round = 0; round < rounds / 2; round++) {
        unlink(db_path);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            fa_store *store = db_open(&diag);
            for (;;)
                pause();
            (void)store;
        }
        struct timespec nap = {.tv_nsec = (long)(db_mix(seed ^ round) % 15000000)};
        nanosleep(&nap, NULL);
        CHECK(child > 0 && kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
        struct stat st;
        sizes[stat(db_path, &st) == 0 && st.st_size > 0]++;
        fa_store *store = NULL;
        CHECK_OK(fa_store_open(db_path, FA_STORE_READ_WRITE, NULL, &store, &note, &diag), diag);
        CHECK_TEXT(note.text, "");
        CHECK_OK(db_put_winner(store, 1, 1, FA_ORIGIN_MEASURED, NULL, &diag), diag);
        CHECK(db_winner_is(store, 1, 1, &diag));
        fa_store_close(&store);
    }
    printf("# killed with nothing in the file %u times, later %u times\n", sizes[0], sizes[1]);
}

int main(int argc, char **argv)
{
    seed =
        argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : (uint32_t)time(NULL) ^ (uint32_t)getpid();
    if (argc > 2)
        rounds = (uint32_t)strtoul(argv[2], NULL, 0);
    printf("# seed %u\n", seed);
    check_all();
    return check_done();
}

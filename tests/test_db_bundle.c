/* SPDX-License-Identifier: Apache-2.0
 *
 * The bundle's bytes: one form for one content, and nothing that was changed, cut, made up or made
 * by another version is read. Forgeries here have a right hash, so that each check behind it is
 * reached.
 */
#include "db_fixture.h"

#include "bundle.h"
#include "bundle_files.h"

enum { WINNERS = 3, CUBINS = 2, CUBIN_BYTES = 600 };

static void bundle_path(char path[400], const char *name)
{
    snprintf(path, 400, "%s/%s", db_directory, name);
}

static fa_winner_record winner_of(int i)
{
    fa_winner_record winner = db_winner(100 + i, (uint32_t)(i % CUBINS), FA_ORIGIN_MEASURED);
    winner.unix_time = 1700000000 + i;
    if (i == 1) /* what it was before: not what it is */
        winner.evidence = "{\"space\":612,\"before\":{\"origin\":\"predicted\"}}";
    return winner;
}

static bool write_bundle(const char *path, const fa_secret_key *secret)
{
    fa_store *part = NULL;
    unsigned char bytes[CUBIN_BYTES];
    bool good = fa_portable_new(&part, &diag) == 0;
    for (int i = 0; good && i < WINNERS; i++) {
        fa_winner_record winner = winner_of(i);
        memset(bytes, 'A' + i % CUBINS, sizeof bytes);
        good = fa_bundle_add(part, &winner, bytes, sizeof bytes, &diag) == 0;
    }
    good = good && fa_bundle_write(part, path, secret, NULL, &diag) == 0;
    fa_store_close(&part);
    return good;
}

/* Everything that an import does with the file short of a store. */
static int read_whole(const char *path)
{
    fa_bundle *bundle = NULL;
    FA_ENDS(fa_free_at) fa_winner_record *row = NULL;
    FA_ENDS(fa_cubin_record_free) fa_cubin_record cubin = {0};
    size_t count = 0;
    int rc = fa_bundle_open(path, false, &bundle, &diag);
    if (rc == 0)
        rc = fa_bundle_read(bundle, &diag);
    if (rc == 0)
        rc = fa_bundle_winners(bundle, &row, &count, &diag);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = fa_bundle_cubin_of(bundle, &row[i], &cubin, &diag);
        if (rc == 0 && strcmp(row[i].cubin_key, cubin.key) != 0)
            rc = 1;
    }
    fa_bundle_close(&bundle);
    return rc;
}

/* A good bundle's bytes. */
static bool good_bytes(fa_buf *bytes)
{
    char path[400];
    bundle_path(path, "good.fab");
    return write_bundle(path, NULL) && fa_buf_read_file(bytes, path, 1 << 20) == 0;
}

static int read_bytes(const fa_buf *bytes)
{
    char path[400];
    bundle_path(path, "changed.fab");
    if (!check_write_file(path, bytes->data, bytes->size))
        return 1;
    return read_whole(path);
}

/* ---- forging --------------------------------------------------------------------------------*/
/* Makes the hash right again for what the bytes say now. */
static void reseal(fa_buf *bytes)
{
    bytes->size -= FA_BUNDLE_TRAILER;
    fa_bundle_seal(bytes);
}

/* A good bundle after this SQL, with the hash of what it says now. */
static bool forge(const char *sql, fa_buf *ret_bytes)
{
    char path[400];
    sqlite3 *db = NULL;
    fa_buf bytes;
    bundle_path(path, "forged.db");
    bool good = good_bytes(&bytes) &&
                check_write_file(path, bytes.data, bytes.size - FA_BUNDLE_TRAILER) &&
                sqlite3_open(path, &db) == SQLITE_OK;
    sqlite3_db_config(db, SQLITE_DBCONFIG_WRITABLE_SCHEMA, 1, (int *)NULL);
    sqlite3_exec(db, "PRAGMA synchronous = OFF", NULL, NULL, NULL);
    if (good && sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) {
        printf("# %s: %s\n", sql, sqlite3_errmsg(db));
        good = false;
    }
    sqlite3_close(db);
    fa_buf_free(&bytes);
    if (!good || fa_buf_read_file(ret_bytes, path, (size_t)1 << 30) != 0)
        return false;
    /* SQLite that writes a file notes there by which version it was written; ours, in memory, does not. */
    memcpy(ret_bytes->data + 92, ret_bytes->data + 24, 4);
    fa_bundle_seal(ret_bytes);
    return unlink(path) == 0;
}

/* ---- the tests ------------------------------------------------------------------------------*/
DB_TEST(the_same_content_gives_the_same_bytes)
{
    char one[400], other[400];
    fa_buf bytes;
    bundle_path(one, "one.fab");
    bundle_path(other, "other.fab");
    CHECK(write_bundle(one, NULL));
    CHECK(write_bundle(other, NULL));
    CHECK_INT(fa_buf_read_file(&bytes, one, 1 << 20), 0);
    CHECK(db_same_bytes(other, &bytes));
    fa_buf_free(&bytes);
}

static size_t count_like(fa_bundle *bundle, const fa_problem *like)
{
    FA_ENDS(fa_free_at) fa_winner_record *row = NULL;
    size_t count = 0;
    int rc = fa_bundle_winners_like(bundle, like, &row, &count);
    return rc == 0 ? count : SIZE_MAX;
}

static void check_put_in(fa_bundle *bundle, int i)
{
    fa_winner_record put = winner_of(i), got;
    fa_cubin_record cubin, same;
    CHECK_OK(fa_bundle_find(bundle, &put.scope, &got, &cubin, &diag), diag);
    CHECK(fa_problem_equal(&got.scope.problem, &put.scope.problem));
    CHECK(fa_config_equal(&got.trial.config, &put.trial.config));
    CHECK_INT(got.origin, put.origin);
    CHECK_INT(got.unix_time, put.unix_time);
    CHECK_TEXT(got.evidence, put.evidence);
    CHECK_INT(cubin.size, CUBIN_BYTES);
    CHECK(((char *)cubin.bytes)[CUBIN_BYTES - 1] == 'A' + i % CUBINS);
    CHECK_OK(fa_bundle_cubin(bundle, got.cubin_key, &same, &diag), diag);
    CHECK_INT(same.size, CUBIN_BYTES);
    fa_cubin_record_free(&same);
    fa_cubin_record_free(&cubin);
    fa_winner_record_free(&got);
    fa_problem like = put.scope.problem;
    like.seq_q = 4;
    CHECK_INT(count_like(bundle, &like), WINNERS);
    like.batch++;
    CHECK_INT(count_like(bundle, &like), 0);
}

DB_TEST(what_was_put_in_comes_out)
{
    char path[400];
    bundle_path(path, "odd %41?#name.fab");
    CHECK(write_bundle(path, NULL));
    for (int owned = 0; owned <= 1; owned++) {
        fa_bundle *bundle = NULL;
        fa_scope other = db_scope(999);
        fa_winner_record none;
        fa_cubin_record cubin;
        CHECK_OK(fa_bundle_open(path, owned, &bundle, &diag), diag);
        CHECK_OK(fa_bundle_read(bundle, &diag), diag);
        CHECK_INT(fa_bundle_get_info(bundle)->winners, WINNERS);
        CHECK_INT(fa_bundle_get_info(bundle)->cubins, CUBINS);
        CHECK(!fa_bundle_get_info(bundle)->is_signed);
        for (int i = 0; i < WINNERS; i++)
            check_put_in(bundle, i);
        CHECK_INT(fa_bundle_find(bundle, &other, &none, &cubin, &diag), FA_ENOTFOUND);
        fa_bundle_close(&bundle);
    }
    CHECK_OK(read_whole(path), diag);
}

DB_TEST(a_change_of_any_byte_is_refused)
{
    fa_buf bytes;
    CHECK(good_bytes(&bytes));
    for (size_t at = 0; at < bytes.size; at += at < 200 || at + 200 > bytes.size ? 1 : 37) {
        for (int bit = (int)(at % 3); bit < 8; bit += 3) {
            bytes.data[at] = (char)(bytes.data[at] ^ (1 << bit));
            int rc = read_bytes(&bytes);
            if (rc == 0 || diag.text[0] == 0)
                printf("# byte %zu, bit %d\n", at, bit);
            CHECK(rc == FA_ECORRUPT || rc == FA_EVERSION);
            bytes.data[at] = (char)(bytes.data[at] ^ (1 << bit));
        }
    }
    CHECK_OK(read_bytes(&bytes), diag);
    fa_buf_free(&bytes);
}

DB_TEST(a_file_cut_short_or_made_longer_is_refused)
{
    fa_buf bytes;
    CHECK(good_bytes(&bytes));
    size_t whole = bytes.size;
    for (size_t size = 0; size < whole; size += size < 700 ? 13 : 97) {
        bytes.size = size;
        CHECK_FAILS(read_bytes(&bytes), FA_ECORRUPT, "is no bundle");
    }
    bytes.size = whole;
    fa_buf_append(&bytes, "", 1);
    CHECK_INT(read_bytes(&bytes), FA_ECORRUPT);
    fa_buf_free(&bytes);
}

DB_TEST(another_version_has_its_own_sentence)
{
    fa_buf bytes;
    CHECK(good_bytes(&bytes));
    for (int version = FA_STORE_SCHEMA - 1; version <= FA_STORE_SCHEMA + 1; version += 2) {
        char sentence[32];
        bytes.data[63] = (char)version; /* user_version */
        reseal(&bytes);
        CHECK_INT(read_bytes(&bytes), FA_EVERSION);
        snprintf(sentence, sizeof sentence, "of version %d", version);
        CHECK_HAS(diag.text, sentence);
    }
    fa_buf_free(&bytes);
}

/* ---- signatures -----------------------------------------------------------------------------*/
#define LAB_KEY "RWRND5+51GytVgnPopX0CRmgQqmqR9AjT+GYuc7XUDjoD7QdZajxLx1v"
/* By minisign 0.11, of "hello": `minisign -Sm`, and with -l. */
static const char *const by_minisign[] = {
    "untrusted comment: signature from minisign secret key\n"
    "RURND5+51GytVm/6GvR/DfJAsYtwqvQlTyRqxqAGyqmmF9xyCqK9+AXhS0vTczdnUAZT1jqwOJjjGYp7kdZxU7LUqFEvEus3NAY=\n"
    "trusted comment: timestamp:1795941823\tfile:hello\thashed\n"
    "ngTaQaZ2Zk59LFsp1YblDr8HxCqTJM9sVnsih+YpAqvSu+/H9lttMN7urKrP1v0brmWupraIqGhirBeASJBWDg==\n",
    "untrusted comment: signature from minisign secret key\n"
    "RWRND5+51GytVuE3NKzaI2qrPeEzcDy68gIBdOqKC2Jtar7rXl45DMOxDmpd5SfnGEBXZVEAIc0YDHAC4hxnQaH9uma9zNr9zgw=\n"
    "trusted comment: timestamp:1795941823\tfile:hello\n"
    "jzEfPnXdP/QpENNlOHOSqTOyQ181bJ4WdPOUDpInK20DEhdarZ08DXjOtbXnFhms+b6OuKnnIGMPp/2MbbicBg==\n"};

/* This user's key, and with it the folder of trusted keys. */
static bool make_key(fa_secret_key *ret_secret)
{
    char config[400], key[FA_KEY_TEXT_MAX];
    bundle_path(config, "config");
    setenv("XDG_CONFIG_HOME", config, 1);
    return fa_keygen(key, NULL, 0, &diag) == 0 && fa_keys_secret(NULL, ret_secret, &diag) == 0;
}

static bool trust(const char *name, const char *text)
{
    char path[400];
    bundle_path(path, "config/fa-tune/trusted/");
    return strlen(path) + strlen(name) < sizeof path &&
           check_write_file(strcat(path, name), text, strlen(text));
}

static int verify(const char *text, const char *bytes, fa_bundle_info *ret_info)
{
    char copy[1024];
    snprintf(copy, sizeof copy, "%s", text);
    *ret_info = (fa_bundle_info){0};
    diag.text[0] = 0;
    return fa_verify(copy, bytes, strlen(bytes), ret_info, &diag);
}

DB_TEST(signatures_of_minisign_are_verified)
{
    fa_secret_key secret;
    fa_bundle_info info;
    CHECK(make_key(&secret));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(verify(by_minisign[i], "hello", &info), diag);
        CHECK(info.is_signed && !info.trusted);
        CHECK_TEXT(info.key, "56AD6CD4B99F0F4D");
    }
    CHECK(trust("lab.pub", "untrusted comment: minisign public key\r\n" LAB_KEY "\r\n"));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(verify(by_minisign[i], "hello", &info), diag);
        CHECK(info.is_signed && info.trusted);
        CHECK_TEXT(info.key, LAB_KEY);
        CHECK_TEXT(info.name, "lab");
        CHECK_INT(verify(by_minisign[i], "hellO", &info), FA_EUNTRUSTED);
        CHECK_FAILS(verify(by_minisign[i], "", &info), FA_EUNTRUSTED,
                    "changed after it was signed");
    }
}

DB_TEST(a_change_of_any_byte_of_a_signature_is_refused)
{
    fa_secret_key secret;
    fa_bundle_info info;
    CHECK(make_key(&secret));
    CHECK(trust("lab.pub", LAB_KEY));
    for (int i = 0; i < 2; i++) {
        char text[1024];
        snprintf(text, sizeof text, "%s", by_minisign[i]);
        size_t size = strlen(text), first = (size_t)(strchr(text, '\n') - text);
        for (size_t at = first + 1; at < size - 1; at++) {
            text[at] ^= 1;
            int rc = verify(text, "hello", &info);
            if (rc == 0 && info.trusted)
                printf("# byte %zu\n", at);
            CHECK(rc == FA_ECORRUPT || rc == FA_EUNTRUSTED || (rc == 0 && !info.trusted));
            text[at] ^= 1;
        }
        for (size_t left = 0; left < size - 1; left++) {
            snprintf(text, left + 1, "%s", by_minisign[i]);
            CHECK_INT(verify(text, "hello", &info), FA_ECORRUPT);
        }
    }
}

DB_TEST(keys_that_cannot_be_believed_are_named)
{
    fa_secret_key secret;
    fa_bundle_info info;
    char path[400];
    CHECK(make_key(&secret));
    CHECK(trust("a.txt", "no key, and no business of ours"));
    CHECK(trust("lab.pub", "untrusted comment: none\nRWRND5\n"));
    CHECK_FAILS(verify(by_minisign[0], "hello", &info), FA_ECORRUPT, "lab.pub is no public key");
    CHECK(trust("lab.pub", LAB_KEY "\n"));
    bundle_path(path, "config/fa-tune/trusted/lab.pub");
    CHECK_INT(chmod(path, 0666), 0);
    CHECK_FAILS(verify(by_minisign[0], "hello", &info), FA_ESTORE,
                "other users can write the file");
    CHECK_INT(chmod(path, 0644), 0);
    bundle_path(path, "config/fa-tune/trusted");
    CHECK_INT(chmod(path, 0777), 0);
    CHECK_INT(verify(by_minisign[0], "hello", &info), FA_ESTORE);
    CHECK_INT(chmod(path, 0700), 0);
    CHECK_OK(verify(by_minisign[0], "hello", &info), diag);
}

DB_TEST(a_signed_bundle_is_held_to_its_signature)
{
    char path[400], signature[420];
    fa_secret_key secret;
    fa_bundle *bundle = NULL;
    fa_buf bytes;
    CHECK(make_key(&secret));
    bundle_path(path, "signed.fab");
    snprintf(signature, sizeof signature, "%s.minisig", path);
    CHECK(write_bundle(path, &secret));
    CHECK_OK(fa_bundle_open(path, false, &bundle, &diag), diag);
    CHECK(fa_bundle_get_info(bundle)->is_signed && fa_bundle_get_info(bundle)->trusted);
    CHECK_TEXT(fa_bundle_get_info(bundle)->name, "own");
    fa_bundle_close(&bundle);
    CHECK_INT(fa_buf_read_file(&bytes, path, 1 << 20), 0);
    bytes.data[bytes.size - 2000] ^= 1;
    reseal(&bytes);
    CHECK(check_write_file(path, bytes.data, bytes.size));
    CHECK_INT(fa_bundle_open(path, false, &bundle, &diag), FA_EUNTRUSTED);
    CHECK_INT(fa_bundle_open(path, true, &bundle, &diag), 0); /* its owner is believed */
    fa_bundle_close(&bundle);
    CHECK(check_write_file(signature, "", 0));
    CHECK_INT(fa_bundle_open(path, false, &bundle, &diag), FA_ECORRUPT);
    CHECK(write_bundle(path, NULL));
    CHECK_INT(access(signature, F_OK), -1); /* it was of another file */
    CHECK_OK(read_whole(path), diag);
    fa_buf_free(&bytes);
}

/* ---- what has its hash and cannot be --------------------------------------------------------*/
static void check_forgery(const char *sql, const char *sentence)
{
    FA_ENDS(fa_buf_free) fa_buf bytes = {0};
    CHECK(forge(sql, &bytes));
    diag.text[0] = 0;
    int rc = read_bytes(&bytes);
    if (rc != FA_ECORRUPT)
        printf("# %s: %d\n", sql, rc);
    CHECK_FAILS(rc, FA_ECORRUPT, sentence);
}

DB_TEST(other_tables_than_ours_are_refused_though_their_hash_is_right)
{
    static const char *const forgeries[] = {
        "CREATE TABLE other (x)",
        "CREATE VIEW other AS SELECT * FROM winner",
        "CREATE TRIGGER other AFTER INSERT ON winner BEGIN DELETE FROM winner; END",
        "CREATE INDEX other ON winner(entry)",
        "DROP INDEX scope_by_shape",
        "ALTER TABLE winner ADD COLUMN other TEXT",
        "ALTER TABLE winner ADD COLUMN other AS (upper(entry))",
        "ALTER TABLE cubin RENAME TO other; CREATE VIEW cubin AS SELECT * FROM other",
        "UPDATE sqlite_schema SET sql = replace(sql, 'STRICT', '') WHERE name = 'winner'",
        "UPDATE sqlite_schema SET sql = replace(sql, 'entry TEXT', 'entry ANY') WHERE name = 'cubin'",
        "UPDATE sqlite_schema SET type = 'view' WHERE name = 'cubin'",
        "DELETE FROM sqlite_schema WHERE name = 'scope_by_problem'",
        "DELETE FROM sqlite_schema",
        "ANALYZE",
        /* Pages that do not fit together. */
        "UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = 'scope') "
        "WHERE name = 'cubin'",
        "UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = 'scope_by_shape') "
        "WHERE name = 'scope_by_problem'",
        "UPDATE sqlite_schema SET rootpage = 99999 WHERE name = 'winner'",
    };
    for (size_t i = 0; i < sizeof forgeries / sizeof *forgeries; i++)
        check_forgery(forgeries[i], "is not valid");
    check_forgery("UPDATE sqlite_schema SET rootpage = 0 WHERE name = 'winner'", "");
    check_forgery("PRAGMA page_size = 8192; VACUUM", "is no bundle");
    check_forgery("PRAGMA journal_mode = WAL", "is no bundle");
    check_forgery("PRAGMA application_id = 0x4641746e", "is no bundle"); /* a store */
}

DB_TEST(rows_that_lie_are_refused_though_their_hash_is_right)
{
    static const struct {
        const char *sql, *sentence;
    } lies[] = {
        {"UPDATE winner SET threads = 0", "cannot be launched"},
        {"UPDATE winner SET grid_x = 0", "cannot be launched"},
        {"UPDATE winner SET median_us = 9e999", "not valid"},
        {"UPDATE winner SET median_us = 99.5", "no median with its interval"},
        {"UPDATE winner SET median_us = NULL", ""},
        {"UPDATE winner SET status = 'crashed'", "which no winner does"},
        {"UPDATE winner SET origin = 'nearest'", "no winner is stored as"},
        {"UPDATE winner SET entry = ''", "no name"},
        {"UPDATE winner SET entry = printf('%.999c', 'x')", "not valid"},
        {"UPDATE winner SET gpu_name = char(27) || '[1m'", "control byte"},
        {"UPDATE winner SET nvrtc = 'a' || char(0) || 'b'", "not valid"},
        {"UPDATE winner SET cubin_key = 'x'; UPDATE cubin SET key = 'x' WHERE id = 1", ""},
        {"UPDATE winner SET config = '{}'", "not valid"},
        {"UPDATE winner SET unix_time = 9000000000000000", "in no calendar"},
        {"UPDATE winner SET evidence = '[1]'", "must be an object"},
        {"UPDATE winner SET evidence = '{\"a\":\"' || printf('%.1100000c', 'x') || '\"}'",
         "is the most"},
        {"UPDATE scope SET problem = replace(problem, '\"batch\":', '\"batch\":9')", "not valid"},
        {"UPDATE scope SET key = 'x' || id", "not valid"},
        {"UPDATE cubin SET bytes = zeroblob(600)", "does not match its hash"},
        {"DELETE FROM cubin WHERE id = 1", "cubin of a winner is missing"},
        {"DELETE FROM winner; DELETE FROM scope; DELETE FROM cubin", "0 winners"},
        {"DELETE FROM scope WHERE id = 1", ""},
        {"DELETE FROM winner WHERE scope_id = 1", "of no winner"},
        {"INSERT INTO cubin SELECT 99, 'x', entry, sm, compile_ms, log, hash, 0, bytes FROM cubin "
         "LIMIT 1",
         "of no winner"},
        {"WITH n(i) AS (SELECT 1000 UNION ALL SELECT i + 1 FROM n WHERE i < 21000) INSERT INTO scope "
         "SELECT i, i, '', '', '', '', '', '' FROM n; CREATE TEMP TABLE one AS SELECT * FROM winner LIMIT 1; "
         "CREATE TEMP TABLE many AS SELECT scope.id AS n, one.* FROM scope, one WHERE scope.id >= 1000; "
         "UPDATE many SET scope_id = n; ALTER TABLE many DROP COLUMN n; "
         "INSERT INTO winner SELECT * FROM many",
         "1 to 20000 of each can be"},
    };
    FA_ENDS(fa_buf_free) fa_buf bytes = {0}; /* one that changes nothing is taken */
    CHECK(forge("UPDATE winner SET driver_version = driver_version + 1", &bytes));
    CHECK_OK(read_bytes(&bytes), diag);
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++)
        check_forgery(lies[i].sql, lies[i].sentence);
    char key[FA_HASH_HEX], sql[200];
    fa_scope nowhere = db_scope(100);
    nowhere.policy[0] = 0;
    fa_scope_key(&nowhere, key);
    snprintf(sql, sizeof sql, "UPDATE scope SET policy = '', key = '%s' WHERE id = 1", key);
    check_forgery(sql, "1 of its");
}

DB_TEST(an_owned_bundle_must_be_a_file_writable_by_its_owner_only)
{
    char path[400];
    fa_bundle *bundle = NULL;
    bundle_path(path, "good.fab");
    CHECK(write_bundle(path, NULL));
    CHECK_INT(chmod(path, 0666), 0);
    CHECK_FAILS(fa_bundle_open(path, true, &bundle, &diag), FA_ESTORE,
                "other users can write the file");
    CHECK_OK(fa_bundle_open(path, false, &bundle, &diag), diag);
    fa_bundle_close(&bundle);
    CHECK_INT(chmod(path, 0644), 0);
    CHECK_INT(chmod(db_directory, 0777), 0);
    CHECK_FAILS(fa_bundle_open(path, true, &bundle, &diag), FA_ESTORE, "its directory");
    CHECK_INT(chmod(db_directory, 0700), 0);
    char link_path[400];
    bundle_path(link_path, "link.fab");
    CHECK_INT(symlink(path, link_path), 0);
    CHECK_FAILS(fa_bundle_open(link_path, true, &bundle, &diag), FA_EIO, "symbolic link");
    bundle_path(path, "fifo.fab");
    CHECK_INT(mkfifo(path, 0600), 0);
    CHECK_INT(fa_bundle_open(path, false, &bundle, &diag), FA_ECORRUPT);
    CHECK_INT(fa_bundle_open(db_directory, false, &bundle, &diag), FA_ECORRUPT);
}

DB_TEST(the_writer_refuses_what_no_reader_would_take)
{
    fa_store *part = NULL;
    fa_winner_record winner = winner_of(0), other = winner_of(1);
    char path[400];
    bundle_path(path, "none.fab");
    CHECK_OK(fa_portable_new(&part, &diag), diag);
    CHECK_INT(fa_bundle_write(part, path, NULL, NULL, &diag), FA_ENOTFOUND);
    CHECK_INT(fa_bundle_add(part, &winner, NULL, 0, &diag), FA_EINVAL);
    CHECK_OK(fa_bundle_add(part, &winner, "cubin", 5, &diag), diag);
    CHECK_INT(fa_bundle_add(part, &winner, "cubin", 5, &diag), 1);
    strcpy(other.cubin_key, "no hash");
    CHECK_INT(fa_bundle_add(part, &other, "cubin", 5, &diag), FA_EINVAL);
    bundle_path(path, "no/such/place.fab");
    CHECK_INT(fa_bundle_write(part, path, NULL, NULL, &diag), FA_EINVAL);
    CHECK_INT(db_count_files(""), 2); /* . and .. : nothing is left behind */
    fa_store_close(&part);
}

static bool another_process_sees_a_lock(void)
{
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        int fd = open(db_path, O_RDWR | O_CLOEXEC);
        _exit(fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK ? 0 : 1);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static void look_at_outputs(void)
{
    char hard[DB_PATH_MAX + 8];
    snprintf(hard, sizeof hard, "%s.hard", db_path);
    CHECK_INT(link(db_path, hard), 0);
    CHECK(another_process_sees_a_lock());
    CHECK_INT(fa_output_check(db_path, false, &diag), FA_EINVAL);
    CHECK_INT(fa_output_write(hard, "x", 1, &diag), FA_EINVAL);
    CHECK(another_process_sees_a_lock());
}

DB_STORE_TEST(a_store_that_an_output_names_keeps_its_locks)
{
    fa_change change = {.store = store, .diag = &diag};
    while (fa_store_change(&change))
        look_at_outputs();
    CHECK(change.rc == 0 && change.tries == 1);
}

DB_STORE_TEST(a_trial_in_the_evidence_keeps_every_digit_of_its_seed)
{
    float samples[DB_SAMPLES];
    fa_scope scope = db_scope(512);
    fa_study_trial trial = db_trial_record(9, samples);
    fa_winner_record winner = {.scope = scope, .evidence = strdup("{\"space\":612}")};
    trial.trial.status = FA_STATUS_MEASURED;
    trial.seed = UINT64_MAX;
    CHECK_OK(fa_store_trial_put(store, &scope, &trial, &diag), diag);
    CHECK_OK(fa_bundle_add_trials(store, &winner, &diag), diag);
    CHECK_HAS(winner.evidence, "\"seed\":\"18446744073709551615\"");
    fa_winner_record_free(&winner);
}

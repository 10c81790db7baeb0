/* SPDX-License-Identifier: Apache-2.0
 *
 * The bundle's bytes: one form for one content, and nothing that was changed, cut, made up or made
 * by another version is read. Forgeries here have right hashes and a good signature, so that each
 * check behind those is reached.
 */
#include "db_fixture.h"

#include "bundle_format.h"
#include "bundle_work.h"

enum { WINNERS = 3, CUBINS = 2, CUBIN_BYTES = 600 };

static fa_sign_secret secret;

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

/* Adds the winners in this order. */
static bool write_bundle(const char *path, const int order[WINNERS], bool sign)
{
    fa_bundle_writer *writer = NULL;
    unsigned char bytes[CUBIN_BYTES];
    bool good = fa_bundle_writer_new(&writer, &diag) == 0;
    for (int i = 0; good && i < WINNERS; i++) {
        fa_winner_record winner = winner_of(order[i]);
        memset(bytes, 'A' + order[i] % CUBINS, sizeof bytes);
        good = fa_bundle_add(writer, &winner, bytes, sizeof bytes, &diag) == 0;
    }
    good = good && fa_bundle_write(writer, path, sign ? &secret : NULL, NULL, &diag) == 0;
    fa_bundle_writer_free(&writer);
    return good;
}

/* Everything that an import does with the file short of a store. */
static int read_whole(const char *path)
{
    fa_bundle *bundle = NULL;
    int rc = fa_bundle_open(path, false, &bundle, &diag);
    if (rc == 0)
        rc = fa_bundle_read_index(bundle, &diag);
    if (rc == 0)
        rc = fa_bundle_check_parts(bundle, &diag);
    for (int32_t i = 0; rc == 0 && i < fa_bundle_get_head(bundle)->winners; i++) {
        fa_winner_record winner;
        void *cubin = NULL;
        size_t size;
        int32_t row;
        rc = fa_bundle_winner(bundle, i, &winner, &row, &diag);
        if (rc == 0) {
            fa_winner_record_free(&winner);
            rc = fa_bundle_cubin(bundle, row, &cubin, &size, &diag);
            free(cubin);
        }
    }
    fa_bundle_close(&bundle);
    return rc;
}

static const int in_order[WINNERS] = {0, 1, 2};

/* A good signed bundle's bytes. */
static bool good_bytes(fa_buf *bytes)
{
    char path[400];
    bundle_path(path, "good.fab");
    return write_bundle(path, in_order, true) && fa_buf_read_file(bytes, path, 1 << 20) == 0;
}

static int read_bytes(const fa_buf *bytes)
{
    char path[400];
    bundle_path(path, "changed.fab");
    if (!db_write_file(path, bytes->data, bytes->size))
        return 1;
    return read_whole(path);
}

/* ---- forging --------------------------------------------------------------------------------*/
static unsigned char *row_of(fa_buf *bytes, int row)
{
    return (unsigned char *)bytes->data + FA_BUNDLE_HEADER + row * FA_BUNDLE_ROW;
}

/* Makes hashes and signature right again for what the bytes say now. */
static void reseal(fa_buf *bytes)
{
    unsigned char *front = (unsigned char *)bytes->data;
    int rows = (int)(fa_get_le(front + 24, 4) + fa_get_le(front + 28, 4));
    for (int i = 0; i < rows; i++) {
        unsigned char *row = row_of(bytes, i);
        uint64_t offset = fa_get_le(row + 64, 8), size = fa_get_le(row + 72, 4);
        if (offset <= bytes->size && size <= bytes->size - offset)
            fa_hash_raw(bytes->data + offset, size, row + 32);
    }
    unsigned char *seal = row_of(bytes, rows), text[FA_BUNDLE_SIGNED_BYTES];
    fa_hash_raw(front, (size_t)(seal - front), seal);
    memcpy(text, FA_BUNDLE_SIGNED_TEXT, sizeof text - FA_HASH_BYTES);
    memcpy(text + sizeof text - FA_HASH_BYTES, seal, FA_HASH_BYTES);
    fa_sign_public(&secret, seal + 32);
    fa_sign(&secret, text, sizeof text, seal + 64);
}

/* Writes `text` over the first place where `what` stands; both are as long. */
static bool overwrite(fa_buf *bytes, const char *what, const char *text)
{
    char *at = memmem(bytes->data, bytes->size, what, strlen(what));
    if (at == NULL || strlen(what) != strlen(text))
        return false;
    memcpy(at, text, strlen(text));
    return true;
}

/* ---- the tests ------------------------------------------------------------------------------*/
static void the_same_content_gives_the_same_bytes_in_any_order(void)
{
    char one[400], other[400];
    fa_buf bytes;
    bundle_path(one, "one.fab");
    bundle_path(other, "other.fab");
    CHECK(write_bundle(one, in_order, true));
    CHECK(write_bundle(other, (const int[]){2, 0, 1}, true));
    CHECK_INT(fa_buf_read_file(&bytes, one, 1 << 20), 0);
    CHECK(db_same_bytes(other, &bytes));
    fa_buf_free(&bytes);
}

static void what_was_put_in_comes_out(void)
{
    char path[400];
    fa_bundle *bundle = NULL;
    bundle_path(path, "good.fab");
    CHECK(write_bundle(path, in_order, true));
    CHECK_OK(fa_bundle_open(path, true, &bundle, &diag), diag);
    CHECK_OK(fa_bundle_read_index(bundle, &diag), diag);
    CHECK_INT(fa_bundle_get_head(bundle)->winners, WINNERS);
    CHECK_INT(fa_bundle_get_head(bundle)->cubins, CUBINS);
    CHECK(fa_bundle_get_head(bundle)->is_signed);
    for (int i = 0; i < WINNERS; i++) {
        fa_winner_record put = winner_of(i), got;
        int32_t at, row, same;
        void *cubin;
        size_t size;
        CHECK_INT(fa_bundle_find(bundle, &put.scope, &at), 0);
        CHECK_OK(fa_bundle_winner(bundle, at, &got, &row, &diag), diag);
        CHECK(fa_problem_equal(&got.scope.problem, &put.scope.problem));
        CHECK(fa_config_equal(&got.trial.config, &put.trial.config));
        CHECK_INT(got.origin, put.origin);
        CHECK_INT(got.unix_time, put.unix_time);
        CHECK_INT(got.driver_version, put.driver_version);
        CHECK_INT(got.trial.registers, put.trial.registers);
        CHECK(got.trial.grid[2] == put.trial.grid[2]);
        CHECK(got.trial.median_us == put.trial.median_us && got.trial.high_us == put.trial.high_us);
        CHECK_TEXT(got.evidence, put.evidence);
        CHECK_INT(fa_bundle_find_cubin(bundle, got.cubin_key, &same), 0);
        CHECK_INT(same, row);
        CHECK_OK(fa_bundle_cubin(bundle, row, &cubin, &size, &diag), diag);
        CHECK_INT(size, CUBIN_BYTES);
        CHECK(((char *)cubin)[CUBIN_BYTES - 1] == 'A' + i % CUBINS);
        free(cubin);
        fa_winner_record_free(&got);
        fa_problem like = put.scope.problem;
        like.seq_q = 4;
        CHECK(fa_bundle_may_be_like(bundle, at, &like));
        like.batch++;
        CHECK(!fa_bundle_may_be_like(bundle, at, &like));
    }
    fa_scope other = db_scope(999);
    int32_t at;
    CHECK_INT(fa_bundle_find(bundle, &other, &at), FA_ENOTFOUND);
    fa_bundle_close(&bundle);
}

static void a_change_of_any_byte_is_refused(void)
{
    fa_buf bytes;
    CHECK(good_bytes(&bytes));
    size_t front = (size_t)(row_of(&bytes, WINNERS + CUBINS) - row_of(&bytes, 0)) + 200;
    for (size_t at = 0; at < bytes.size; at += at < front ? 1 : 5) {
        for (int bit = (int)(at % 3); bit < 8; bit += 3) {
            bytes.data[at] = (char)(bytes.data[at] ^ (1 << bit));
            int rc = read_bytes(&bytes);
            if (rc == 0 || diag.text[0] == 0)
                printf("# byte %zu, bit %d\n", at, bit);
            CHECK(rc == FA_ECORRUPT || rc == FA_EVERSION || rc == FA_EUNTRUSTED);
            bytes.data[at] = (char)(bytes.data[at] ^ (1 << bit));
        }
    }
    CHECK_OK(read_bytes(&bytes), diag);
    fa_buf_free(&bytes);
}

static void a_file_cut_short_or_made_longer_is_refused(void)
{
    fa_buf bytes;
    CHECK(good_bytes(&bytes));
    size_t whole = bytes.size;
    for (size_t size = 0; size < whole; size += size < 700 ? 13 : 97) {
        bytes.size = size;
        CHECK_INT(read_bytes(&bytes), FA_ECORRUPT);
        CHECK_HAS(diag.text, size < FA_BUNDLE_HEADER ? "is no bundle" : "is cut short");
    }
    bytes.size = whole;
    fa_buf_append(&bytes, "", 1);
    CHECK_INT(read_bytes(&bytes), FA_ECORRUPT);
    fa_buf_free(&bytes);
}

static void another_version_has_its_own_sentence(void)
{
    fa_buf bytes;
    CHECK(good_bytes(&bytes));
    for (uint32_t version = 0; version <= 2; version += 2) {
        fa_put_le((unsigned char *)bytes.data + 8, version, 4);
        reseal(&bytes);
        CHECK_INT(read_bytes(&bytes), FA_EVERSION);
        CHECK_HAS(diag.text, version == 0 ? "version 0" : "version 2");
    }
    fa_buf_free(&bytes);
}

static void a_key_that_did_not_make_the_signature_is_refused(void)
{
    fa_buf bytes, other;
    fa_sign_secret kept = secret;
    CHECK(good_bytes(&bytes));
    CHECK_INT(fa_sign_make(&secret), 0);
    CHECK(good_bytes(&other));
    secret = kept;
    unsigned char *seal = row_of(&bytes, WINNERS + CUBINS), *foreign = row_of(&other, WINNERS + CUBINS);
    CHECK(memcmp(seal + 32, foreign + 32, 32) != 0);
    memcpy(seal + 32, foreign + 32, 32); /* the key alone */
    CHECK_INT(read_bytes(&bytes), FA_EUNTRUSTED);
    CHECK_HAS(diag.text, "changed after it was signed");
    memcpy(seal + 64, foreign + 64, 64); /* with its own signature of the same content */
    CHECK_OK(read_bytes(&bytes), diag);
    fa_buf_free(&bytes);
    fa_buf_free(&other);
}

static void an_unsigned_bundle_says_so_and_a_flag_alone_does_not_unsign(void)
{
    char path[400];
    fa_bundle *bundle = NULL;
    fa_buf bytes;
    bundle_path(path, "unsigned.fab");
    CHECK(write_bundle(path, in_order, false));
    CHECK_OK(fa_bundle_open(path, false, &bundle, &diag), diag);
    CHECK(!fa_bundle_get_head(bundle)->is_signed);
    fa_bundle_close(&bundle);
    CHECK(good_bytes(&bytes));
    fa_put_le((unsigned char *)bytes.data + 12, 0, 4);
    reseal(&bytes);
    CHECK_INT(read_bytes(&bytes), FA_ECORRUPT);
    CHECK_HAS(diag.text, "says that it has none");
    fa_buf_free(&bytes);
}

static void counts_and_sizes_beyond_the_limits_are_refused_before_memory_is_asked_for(void)
{
    static const uint64_t counts[] = {0, FA_BUNDLE_WINNERS_MAX + 1, 0x7fffffff, 0xffffffff};
    fa_buf bytes;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        for (int at = 24; at <= 28; at += 4) {
            CHECK(good_bytes(&bytes));
            fa_put_le((unsigned char *)bytes.data + at, counts[i], 4);
            CHECK_INT(read_bytes(&bytes), FA_ECORRUPT);
            CHECK_HAS(diag.text, "winners and");
            fa_buf_free(&bytes);
        }
    }
    CHECK(good_bytes(&bytes));
    fa_put_le((unsigned char *)bytes.data + 28, FA_BUNDLE_CUBINS_MAX, 4);
    CHECK_INT(read_bytes(&bytes), FA_ECORRUPT);
    CHECK_HAS(diag.text, "does not fit");
    fa_buf_free(&bytes);
}

/* Each forgery of the index is caught by its own rule. */
static void an_index_that_lies_is_refused_though_it_is_signed(void)
{
    static const struct {
        int row, field, bytes;
        uint64_t value;
        const char *sentence;
    } lies[] = {
        {0, 64, 8, 0, "one behind another"},
        {1, 64, 8, UINT64_MAX - 8, "one behind another"},
        {0, 72, 4, 0, "empty or too large"},
        {0, 72, 4, FA_BUNDLE_RECORD_MAX + 1, "empty or too large"},
        {WINNERS, 72, 4, 0xffffffff, "empty or too large"},
        {WINNERS + CUBINS - 1, 72, 4, CUBIN_BYTES - 1, "do not fill it"},
        {0, 76, 4, CUBINS, "names a cubin that is not there"},
        {WINNERS, 76, 4, 1, "names a cubin that is not there"},
        {1, 0, 8, 0, "not in order"},
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        fa_buf bytes;
        CHECK(good_bytes(&bytes));
        fa_put_le(row_of(&bytes, lies[i].row) + lies[i].field, lies[i].value, lies[i].bytes);
        reseal(&bytes);
        CHECK_INT(read_bytes(&bytes), FA_ECORRUPT);
        CHECK_HAS(diag.text, lies[i].sentence);
        fa_buf_free(&bytes);
    }
}

static void a_key_that_stands_twice_and_a_cubin_of_nobody_are_refused(void)
{
    fa_buf bytes;
    CHECK(good_bytes(&bytes));
    memcpy(row_of(&bytes, 1), row_of(&bytes, 0), 32);
    reseal(&bytes);
    CHECK_INT(read_bytes(&bytes), FA_ECORRUPT);
    CHECK_HAS(diag.text, "stands in it twice");
    fa_buf_free(&bytes);
    CHECK(good_bytes(&bytes));
    for (int i = 0; i < WINNERS; i++)
        fa_put_le(row_of(&bytes, i) + 76, 0, 4);
    reseal(&bytes);
    CHECK_INT(read_bytes(&bytes), FA_ECORRUPT);
    CHECK_HAS(diag.text, "a cubin of no winner");
    fa_buf_free(&bytes);
}

static void records_that_lie_are_refused_though_they_are_signed(void)
{
    static const struct {
        const char *what, *text, *sentence;
    } lies[] = {
        {"\"head_dim\":128", "\"head_dim\":120", "not the one that the index names"},
        {"\"head_dim\":128", "\"head_dim\":127", "multiple of 8"},
        {"\"heads_kv\":2", "\"heads_kv\":3", "must divide heads_q"},
        {"\"origin\":\"measured\"", "\"origin\":\"believed\"", "no origin"},
        {"\"origin\":\"measured\"", "\"origin\":\"nearest\" ", "no winner is stored as"},
        {"\"threads\":128", "\"threads\":-28", "must be 0 to"},
        {"\"threads\":128", "\"threads\":1.8", "must be a whole number"},
        {"\"threads\":128", "\"threads\":  0", "cannot be launched"},
        {"\"registers\":168", "\"registers\":1e9", ""},
        {"\"median_us\":40.5", "\"median_us\":-1.5", "times that cannot be"},
        {"\"median_us\":40.5", "\"median_us\":99.5", "no median with its interval"},
        {"\"median_us\":40.5", "\"median_us\":null", ""},
        {"\"grid\":[4,8", "\"grid\":[0,8", "cannot be launched"},
        {"\"grid\":[4,8", "\"grid\":[-,8", "not valid JSON"},
        {"\"entry\":\"attn_fwd\"", "\"entry\":\"\"        ", "no name"},
        {"\"status\":\"measured\"", "\"status\":\"crashed\" ", "which no winner does"},
        {"\"evidence\":{\"space\":612}", "\"evidence\":[\"space\",612]", "must be an object"},
        {"\"driver\":13000", "\"driver\":\"xxx\"", "must be a number"},
        {"\"policy\":\"measure-1\"", "\"policy\":\"\\u001b[1m\"", "control byte"},
        {"\"nvrtc\"", "\"nvrtd\"", "\"nvrtc\" is missing"},
        {"\"raced\":false", "\"raced\":  nul", "not valid JSON"},
        {"{\"problem\":", "[\"problem\",", ""},
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        fa_buf bytes;
        CHECK(good_bytes(&bytes));
        CHECK(overwrite(&bytes, lies[i].what, lies[i].text));
        reseal(&bytes);
        int rc = read_bytes(&bytes);
        if (rc == 0 && strcmp(lies[i].text, "\"registers\":1e9") != 0)
            printf("# lie %zu\n", i);
        if (strcmp(lies[i].text, "\"registers\":1e9") != 0) /* the cubin's to tell */
            CHECK_INT(rc, FA_ECORRUPT);
        CHECK_HAS(diag.text, lies[i].sentence);
        fa_buf_free(&bytes);
    }
}

static void a_part_that_is_no_json_or_nests_too_deep_is_refused(void)
{
    fa_buf bytes;
    CHECK(good_bytes(&bytes));
    unsigned char *row = row_of(&bytes, 0);
    size_t offset = fa_get_le(row + 64, 8), size = fa_get_le(row + 72, 4);
    memset(bytes.data + offset, '[', size);
    reseal(&bytes);
    CHECK_INT(read_bytes(&bytes), FA_ECORRUPT);
    CHECK_HAS(diag.text, "nested deeper");
    memset(bytes.data + offset, 0, size);
    reseal(&bytes);
    CHECK_INT(read_bytes(&bytes), FA_ECORRUPT);
    fa_buf_free(&bytes);
}

/* A fuzzer's loop with a fixed seed: signed forgeries of bytes, runs and sizes must end in a code and
 * a sentence; what still passes must be wholly readable. */
static void random_forgeries_end_in_a_sentence(void)
{
    fa_buf good, bytes = {0};
    uint32_t state = 20261120;
    int passed = 0;
    CHECK(good_bytes(&good));
    for (int round = 0; round < 1500; round++) {
        fa_buf_clear(&bytes);
        fa_buf_append(&bytes, good.data, good.size);
        int changes = 1 + (int)((state = db_mix(state + 1)) % 4);
        for (int i = 0; i < changes; i++) {
            state = db_mix(state + 1);
            size_t at = state % bytes.size, run = 1 + (state >> 20) % 8;
            for (size_t b = at; b < at + run && b < bytes.size; b++)
                bytes.data[b] = (char)((state = db_mix(state + 1)) % 3 == 0 ? '0' + state % 80
                                                                            : state >> 9);
        }
        /* Most keep their counts, so that the seal can be put back in its place. */
        memcpy(bytes.data + 24, good.data + 24, 8);
        reseal(&bytes);
        diag.text[0] = 0;
        int rc = read_bytes(&bytes);
        CHECK(rc <= 0);
        CHECK(rc == 0 || diag.text[0] != 0);
        passed += rc == 0;
    }
    CHECK(passed < 900); /* cubins are half of the file, and anything may stand in one */
    fa_buf_free(&bytes);
    fa_buf_free(&good);
}

static void an_owned_bundle_must_be_writable_by_its_owner_only(void)
{
    char path[400];
    fa_bundle *bundle = NULL;
    bundle_path(path, "good.fab");
    CHECK(write_bundle(path, in_order, true));
    CHECK_INT(chmod(path, 0666), 0);
    CHECK_INT(fa_bundle_open(path, true, &bundle, &diag), FA_ESTORE);
    CHECK_HAS(diag.text, "other users can write the file");
    CHECK_OK(fa_bundle_open(path, false, &bundle, &diag), diag);
    fa_bundle_close(&bundle);
    CHECK_INT(chmod(path, 0644), 0);
    CHECK_INT(chmod(db_directory, 0777), 0);
    CHECK_INT(fa_bundle_open(path, true, &bundle, &diag), FA_ESTORE);
    CHECK_HAS(diag.text, "its directory");
    CHECK_INT(chmod(db_directory, 0700), 0);
    char link_path[400];
    bundle_path(link_path, "link.fab");
    CHECK_INT(symlink(path, link_path), 0);
    CHECK_INT(fa_bundle_open(link_path, true, &bundle, &diag), FA_EIO);
    CHECK_HAS(diag.text, "symbolic link");
}

static void what_is_no_regular_file_is_refused(void)
{
    char path[400];
    fa_bundle *bundle = NULL;
    bundle_path(path, "fifo.fab");
    CHECK_INT(mkfifo(path, 0600), 0);
    CHECK_INT(fa_bundle_open(path, false, &bundle, &diag), FA_EINVAL);
    CHECK_INT(fa_bundle_open(db_directory, false, &bundle, &diag), FA_EINVAL);
    bundle_path(path, "absent.fab");
    CHECK_INT(fa_bundle_open(path, false, &bundle, &diag), FA_ENOTFOUND);
}

static void the_writer_refuses_what_no_reader_would_take(void)
{
    fa_bundle_writer *writer = NULL;
    fa_winner_record winner = winner_of(0);
    char path[400];
    bundle_path(path, "none.fab");
    CHECK_OK(fa_bundle_writer_new(&writer, &diag), diag);
    CHECK_INT(fa_bundle_write(writer, path, NULL, NULL, &diag), FA_ENOTFOUND);
    CHECK_INT(fa_bundle_add(writer, &winner, NULL, 0, &diag), FA_EINVAL);
    CHECK_OK(fa_bundle_add(writer, &winner, "cubin", 5, &diag), diag);
    CHECK_INT(fa_bundle_add(writer, &winner, "cubin", 5, &diag), FA_EINVAL);
    CHECK_HAS(diag.text, "two winners");
    strcpy(winner.cubin_key, "no hash");
    CHECK_INT(fa_bundle_add(writer, &winner, "cubin", 5, &diag), FA_EINVAL);
    bundle_path(path, "no/such/place.fab");
    CHECK_INT(fa_bundle_write(writer, path, NULL, NULL, &diag), FA_EINVAL);
    CHECK_INT(db_count_files(""), 2); /* . and .. : nothing is left behind */
    fa_bundle_writer_free(&writer);
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
    CHECK_INT(fa_output_check(db_path, &diag), FA_EINVAL);
    CHECK_INT(fa_output_write(hard, "x", 1, &diag), FA_EINVAL);
    CHECK(another_process_sees_a_lock());
}

static int in_a_change(void *looked, fa_diag *unused)
{
    (void)unused;
    look_at_outputs();
    *(bool *)looked = true;
    return 0;
}

static void a_store_that_an_output_names_keeps_its_locks(void)
{
    fa_store *store = db_open(&diag);
    bool looked = false;
    CHECK(store != NULL);
    CHECK_OK(fa_store_batch(store, in_a_change, &looked, &diag), diag);
    CHECK(looked);
    fa_store_close(&store);
}

static void a_trial_in_the_evidence_keeps_every_digit_of_its_seed(void)
{
    float samples[DB_SAMPLES];
    fa_store *store = db_open(&diag);
    fa_scope scope = db_scope(512);
    fa_trial_record trial = db_trial_record(9, samples);
    fa_winner_record winner = {.scope = scope, .evidence = strdup("{\"space\":612}")};
    CHECK(store != NULL);
    trial.trial.status = FA_STATUS_MEASURED;
    trial.seed = UINT64_MAX;
    CHECK_OK(fa_store_trial_put(store, &scope, &trial, &diag), diag);
    CHECK_OK(fa_bundle_add_trials(store, &winner, &diag), diag);
    CHECK_HAS(winner.evidence, "\"seed\":\"18446744073709551615\"");
    fa_winner_record_free(&winner);
    fa_store_close(&store);
}

int main(void)
{
    if (fa_sign_make(&secret) != 0)
        return 1;
    DB_TEST(the_same_content_gives_the_same_bytes_in_any_order);
    DB_TEST(what_was_put_in_comes_out);
    DB_TEST(a_change_of_any_byte_is_refused);
    DB_TEST(a_file_cut_short_or_made_longer_is_refused);
    DB_TEST(another_version_has_its_own_sentence);
    DB_TEST(a_key_that_did_not_make_the_signature_is_refused);
    DB_TEST(an_unsigned_bundle_says_so_and_a_flag_alone_does_not_unsign);
    DB_TEST(counts_and_sizes_beyond_the_limits_are_refused_before_memory_is_asked_for);
    DB_TEST(an_index_that_lies_is_refused_though_it_is_signed);
    DB_TEST(a_key_that_stands_twice_and_a_cubin_of_nobody_are_refused);
    DB_TEST(records_that_lie_are_refused_though_they_are_signed);
    DB_TEST(a_part_that_is_no_json_or_nests_too_deep_is_refused);
    DB_TEST(random_forgeries_end_in_a_sentence);
    DB_TEST(an_owned_bundle_must_be_writable_by_its_owner_only);
    DB_TEST(what_is_no_regular_file_is_refused);
    DB_TEST(the_writer_refuses_what_no_reader_would_take);
    DB_TEST(a_store_that_an_output_names_keeps_its_locks);
    DB_TEST(a_trial_in_the_evidence_keeps_every_digit_of_its_seed);
    return check_done();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Source that is compiled in the worker's sandbox: what it asks the compiler to read is not there, and what it
 * makes the compiler do ends.
 */
#include "check.h"

#include "buf.h"
#include "fa_tune.h"
#include "trial.h"

#include <sys/stat.h>
#include <unistd.h>

#define SECRET "Tr0ub4dor"

/* On a T4 no family of ours serves it: nothing but a test's own is compiled. */
static const fa_problem wide_problem = {
    .head_dim = 512, .batch = 1, .heads_q = 2, .heads_kv = 2, .seq_q = 128, .seq_k = 128};

/* One config for each of these; DIRECTORY stands for the test's own. */
static const struct hostile {
    const char *text; /* before the kernel, or in it */
    bool inside;
    fa_status status;
    const char *reason; /* what its sentence says */
} hostile[] = {
    {"/* nothing but a kernel */", false, FA_STATUS_COMPILED, ""},
    {"#include \"/proc/self/environ\"", false, FA_STATUS_COMPILE_FAILED, "not open source file"},
    {"#include </etc/passwd>", false, FA_STATUS_COMPILE_FAILED, "not open source file"},
    {"#include \"DIRECTORY/secret\"", false, FA_STATUS_COMPILE_FAILED, "not open source file"},
    {"#include \"DIRECTORY/link\"", false, FA_STATUS_COMPILE_FAILED, "not open source file"},
    {"#include \"DIRECTORY/fifo\"", false, FA_STATUS_COMPILE_FAILED, "not open source file"},
    {"#include \"DIRECTORY/device\"", false, FA_STATUS_COMPILE_FAILED, "not open source file"},
    {"#include \"/proc/self/fd/3\"", false, FA_STATUS_COMPILE_FAILED, "not open source file"},
    {"#include \"/dev/zero\"", false, FA_STATUS_COMPILE_FAILED, "not open source file"},
    {"#include \"secret\"", false, FA_STATUS_COMPILE_FAILED, "not open source file"},
    {"#include \"../../../../../../../../../../etc/passwd\"", false, FA_STATUS_COMPILE_FAILED,
     "not open source file"},
    {"%:include \"DIRECTORY/secret\"", false, FA_STATUS_COMPILE_FAILED, "not open source file"},
    {"#inc\\\nlude \"DIRECTORY/secret\"", false, FA_STATUS_COMPILE_FAILED, "not open source file"},
    {"# /* a */ include \"DIRECTORY/secret\"", false, FA_STATUS_COMPILE_FAILED,
     "not open source file"},
    {"#define WHERE \"DIRECTORY/secret\"\n#include WHERE", false, FA_STATUS_COMPILE_FAILED,
     "not open source file"},
    {"#line 1 \"DIRECTORY/secret\"\n#include __FILE__", false, FA_STATUS_COMPILE_FAILED,
     "not open source file"},
    {"#line 1 \"DIRECTORY/secret\"\n#error shown", false, FA_STATUS_COMPILE_FAILED, "shown"},
    {"#include_next \"DIRECTORY/secret\"", false, FA_STATUS_COMPILE_FAILED, "not open source file"},
    {"#import \"DIRECTORY/secret\"", false, FA_STATUS_COMPILE_FAILED, ""},
    {"#embed \"DIRECTORY/secret\"", false, FA_STATUS_COMPILE_FAILED, "directive"},
    {"#pragma nvrtc --include-path=DIRECTORY\n#include <secret>", false, FA_STATUS_COMPILE_FAILED,
     "not open source file"},
    {"// --include-path=DIRECTORY --pre-include=secret\n#include <secret>", false,
     FA_STATUS_COMPILE_FAILED, "not open source file"},
    {"asm volatile(\".incbin \\\"DIRECTORY/secret\\\";\");", true, FA_STATUS_COMPILE_FAILED,
     "ptxas"},
    {"asm volatile(\".include \\\"DIRECTORY/secret\\\";\");", true, FA_STATUS_COMPILE_FAILED,
     "ptxas"},
};
enum { HOSTILE = sizeof hostile / sizeof *hostile };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { ENDLESS = 2 }; /* a sanitizer's worker has no bounds in memory */
#else
enum { ENDLESS = 3 };
#endif

/* The first goes on for minutes, the second takes all the memory that it gets. */
static const char endless[] =
    "#if WHICH == 1\n"
    "__device__ constexpr unsigned spin(unsigned n)\n"
    "{ unsigned s = 0; for (unsigned i = 0; i < 100000; i++) s += i ^ n; return s; }\n"
    "#define A0 static_assert(spin(1) != 77, \"\");\n"
    "#define A1 A0 A0 A0 A0 A0 A0 A0 A0 A0 A0\n"
    "#define A2 A1 A1 A1 A1 A1 A1 A1 A1 A1 A1\n"
    "#define A3 A2 A2 A2 A2 A2 A2 A2 A2 A2 A2\n"
    "#define A4 A3 A3 A3 A3 A3 A3 A3 A3 A3 A3\n"
    "A4 A4 A4 A4 A4 A4 A4 A4 A4 A4\n"
    "#elif WHICH == 2\n"
    "__device__ char huge[4000u << 20] = {1};\n"
    "#endif\n";

static struct {
    char directory[300];
    fa_buf source, notes;
    fa_tuner *tuner;
    fa_diag diag;
    fa_answer answer;
    fa_trial trial[HOSTILE]; /* by WHICH */
    int trials;
    int32_t timeout_ms; /* 0: as ever */
} t;

static void keep_note(void *context, const char *sentence)
{
    (void)context;
    fa_buf_printf(&t.notes, "%s\n", sentence);
}

static bool write_file(const char *name, const char *text, size_t size)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", t.directory, name);
    FILE *file = fopen(path, "w");
    bool ok = file != NULL && fwrite(text, 1, size, file) == size;
    return file != NULL && fclose(file) == 0 && ok;
}

/* `text` with the directory's path in its place. */
static void put_text(const char *text)
{
    static const char mark[] = "DIRECTORY";
    for (const char *at; (at = strstr(text, mark)) != NULL; text = at + sizeof mark - 1)
        fa_buf_printf(&t.source, "%.*s%s", (int)(at - text), text, t.directory);
    fa_buf_printf(&t.source, "%s\n", text);
}

static void put_cases(bool inside)
{
    for (int i = 0; i < HOSTILE; i++) {
        if (hostile[i].inside != inside)
            continue;
        fa_buf_printf(&t.source, "#if WHICH == %d\n", i);
        put_text(hostile[i].text);
        fa_buf_text(&t.source, "#endif\n");
    }
}

/* A family of so many configs in templates/. */
static bool write_family(const char *name, int cases)
{
    fa_buf text = {0};
    char path[64];
    fa_buf_printf(&text,
                  "{\"name\": \"%s\", \"operation\": \"attn_fwd\", \"kernel\": \"attn_fwd\", "
                  "\"sm\": {\"min\": 75, \"max\": 121}, \"tune\": {\"WHICH\": [0",
                  name);
    for (int i = 1; i < cases; i++)
        fa_buf_printf(&text, ",%d", i);
    fa_buf_text(&text, "]}, \"block\": \"128\", \"shared_memory\": {\"q\": \"0\"}, "
                       "\"registers\": \"32\", \"grid\": [\"1\", \"1\", \"1\"], "
                       "\"default\": {\"WHICH\": 0}}");
    snprintf(path, sizeof path, "templates/%s.json", name);
    bool ok = !text.failed && write_file(path, text.data, text.size);
    fa_buf_free(&text);
    snprintf(path, sizeof path, "templates/%s.cu", name);
    return ok && write_file(path, t.source.data, t.source.size);
}

static bool make_place(void)
{
    char path[400], there[400];
    struct stat st;
    memset(&t, 0, sizeof t);
    snprintf(t.directory, sizeof t.directory, "%s/sandbox-XXXXXX", getenv("FA_TEST_BUILD"));
    if (mkdtemp(t.directory) == NULL)
        return false;
    snprintf(path, sizeof path, "%s/templates", t.directory);
    if (mkdir(path, 0700) != 0 || !write_file("secret", SECRET "\n", sizeof SECRET))
        return false;
    snprintf(there, sizeof there, "%s/secret", t.directory);
    snprintf(path, sizeof path, "%s/link", t.directory);
    if (symlink(there, path) != 0)
        return false;
    snprintf(path, sizeof path, "%s/device", t.directory);
    if (symlink("/dev/tty", path) != 0)
        return false;
    snprintf(path, sizeof path, "%s/fifo", t.directory);
    return mkfifo(path, 0600) == 0 && stat(path, &st) == 0;
}

static void remove_place(void)
{
    char command[400];
    fa_close(&t.tuner);
    fa_buf_free(&t.source);
    fa_buf_free(&t.notes);
    snprintf(command, sizeof command, "rm -rf '%s'", t.directory);
    if (t.directory[0] != 0 && system(command) != 0)
        printf("# %s was not removed\n", t.directory);
}

static int open_tuner(const char *worker)
{
    char store[400], folder[400];
    snprintf(store, sizeof store, "%s/store.db", t.directory);
    snprintf(folder, sizeof folder, "%s/templates", t.directory);
    fa_options options = {.size = sizeof options,
                          .store = store,
                          .templates = folder,
                          .worker = worker,
                          .compile_timeout_ms = t.timeout_ms,
                          .log = keep_note,
                          .seed = 1}; /* of what is drawn */
    return fa_open(&options, &t.tuner, &t.diag);
}

static int tune(void)
{
    fa_request request = {
        .size = sizeof request, .problem = wide_problem, .gpu = "T4", .effort = FA_EFFORT_PATIENT};
    t.answer.size = sizeof t.answer;
    return fa_tune(t.tuner, &request, &t.answer, &t.diag);
}

static int explain(void)
{
    fa_request request = {.size = sizeof request, .problem = wide_problem, .gpu = "T4"};
    fa_ranked *row = NULL;
    size_t count = 0;
    int rc = fa_explain(t.tuner, &request, &row, &count, NULL, &t.diag);
    t.trials = (int)count;
    for (size_t i = 0; i < count; i++) {
        int32_t at = row[i].trial.config.tunable[0].value;
        if (at >= 0 && at < HOSTILE)
            t.trial[at] = row[i].trial;
    }
    free(row);
    return rc;
}

/* Whether any file of the store holds the secret. */
static bool store_leaks(void)
{
    char command[400];
    snprintf(command, sizeof command, "grep -qr '" SECRET "' '%s'/store.db*", t.directory);
    return system(command) == 0;
}

static void nothing_that_source_asks_for_is_there(void)
{
    CHECK(make_place());
    fa_buf_text(&t.source, "#include \"attn_params.h\"\n");
    put_cases(false);
    fa_buf_text(&t.source, "extern \"C\" __global__ void attn_fwd(fa_attn_params p)\n{\n");
    put_cases(true);
    fa_buf_text(&t.source, "}\n");
    CHECK(write_family("mine", HOSTILE));
    CHECK_OK(open_tuner(NULL), t.diag);
    CHECK_OK(tune(), t.diag);
    CHECK_OK(explain(), t.diag);
    CHECK_INT(t.trials, HOSTILE);
    for (int i = 0; i < HOSTILE; i++) {
        if (t.trial[i].status != hostile[i].status ||
            strstr(t.trial[i].reason, hostile[i].reason) == NULL)
            printf("# %s\n#   ended as %s: %s\n", hostile[i].text,
                   fa_status_name(t.trial[i].status), t.trial[i].reason);
        CHECK_INT(t.trial[i].status, hostile[i].status);
        CHECK_HAS(t.trial[i].reason, hostile[i].reason);
        CHECK(strstr(t.trial[i].reason, SECRET) == NULL);
    }
    CHECK(t.notes.size == 0);
    CHECK(!store_leaks());
    remove_place();
}

static void meet_endless_source(int32_t timeout_ms)
{
    CHECK(make_place());
    fa_buf_printf(&t.source,
                  "#include \"attn_params.h\"\n%s"
                  "extern \"C\" __global__ void attn_fwd(fa_attn_params p) {}\n",
                  endless);
    CHECK(write_family("mine", ENDLESS));
    t.timeout_ms = timeout_ms;
    CHECK_OK(open_tuner(NULL), t.diag);
    int rc = tune();
    CHECK(rc == 0 || rc == FA_ENOKERNEL); /* not even the harmless one was done in time */
    CHECK_OK(explain(), t.diag);
}

static void source_that_never_ends_or_eats_memory_costs_its_own_trial(void)
{
    char within[64];
    int32_t timeout_ms = 1200;
    meet_endless_source(timeout_ms);
    /* On a busy machine even the harmless one takes longer: it is given more time. */
    while (t.trial[0].status == FA_STATUS_COMPILE_TIMEOUT && timeout_ms < 30000) {
        remove_place();
        timeout_ms *= 4;
        meet_endless_source(timeout_ms);
    }
    CHECK_INT(t.trial[0].status, FA_STATUS_COMPILED);
    CHECK_INT(t.trial[1].status, FA_STATUS_COMPILE_TIMEOUT);
    snprintf(within, sizeof within, "did not answer within %d ms", timeout_ms);
    CHECK_HAS(t.trial[1].reason, within);
    CHECK_INT(t.trials, ENDLESS);
    if (ENDLESS > 2) {
        CHECK(t.trial[2].status == FA_STATUS_COMPILE_FAILED ||
              t.trial[2].status == FA_STATUS_COMPILE_TIMEOUT);
    }
    remove_place();
}

static void without_landlock_it_is_compiled_and_said(void)
{
    CHECK(make_place());
    fa_buf_text(&t.source, "extern \"C\" __global__ void attn_fwd() {}\n");
    CHECK(write_family("mine", 1));
    CHECK_OK(open_tuner(getenv("FA_TEST_NO_LANDLOCK")), t.diag);
    CHECK_OK(tune(), t.diag);
    CHECK_HAS(t.notes.data, "this kernel has no Landlock");
    remove_place();
}

int main(void)
{
    setenv("FA_TUNE_LIBCUDA", "/nowhere/libcuda.so.1", 1);
    setenv("A_SECRET", SECRET, 1);
    TEST(nothing_that_source_asks_for_is_there);
    TEST(source_that_never_ends_or_eats_memory_costs_its_own_trial);
    TEST(without_landlock_it_is_compiled_and_said);
    return check_done();
}

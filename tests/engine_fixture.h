/* SPDX-License-Identifier: Apache-2.0
 *
 * A session against the fake driver: a directory of its own with a store, a script and templates
 * whose space is cut down to a dozen configs, so that a tune takes a second and not a minute.
 */
#ifndef FA_TESTS_ENGINE_FIXTURE_H
#define FA_TESTS_ENGINE_FIXTURE_H

#include "device_context.h"
#include "check.h"

#include "buf.h"
#include "driver.h"
#include "fa_tune.h"
#include "json.h"

#include <dirent.h>
#include <signal.h>
#include <spawn.h>
#include <sqlite3.h>
#include <sys/wait.h>

typedef struct engine_fixture {
    char directory[256], store[320], script[320], templates[320], log[320];
    fa_driver *driver;
    int ordinal; /* of the device whose context is current */
    fa_tuner *tuner;
} engine_fixture;

static inline bool write_text(const char *path, const char *text)
{
    return check_write_file(path, text, strlen(text));
}

/* Tunables get these small domains. */
static inline void cut_domains(cJSON *manifest)
{
    static const char *const small[][2] = {{"BLOCK_M", "[64, 128]"},
                                           {"BLOCK_N", "[32, 64]"},
                                           {"STAGES", "[1, 2]"},
                                           {"WARPS", "[4]"},
                                           {"MIN_BLOCKS", "[2]"}};
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        cJSON_ReplaceItemInObject(cJSON_GetObjectItem(manifest, "tune"), small[i][0],
                                  cJSON_Parse(small[i][1]));
}

/* The source of a kernel to take the place of attn_fwd_sm80.cu; NULL: that one itself. */
static const char *fixture_kernel;

/* The kernel in the place of attn_fwd_sm80.cu. */
static inline bool fixture_write_kernel(const engine_fixture *f, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/attn_fwd_sm80.cu", f->templates);
    return write_text(path, text);
}

/* The family's manifest, changed: that of the folder `from`. */
static inline bool fixture_change_manifest(const engine_fixture *f, const char *from,
                                           void (*change)(cJSON *manifest))
{
    char path[512];
    fa_buf text = {0};
    snprintf(path, sizeof path, "%s/attn_fwd_sm80.json", from);
    if (fa_buf_read_file(&text, path, 1 << 20) != 0)
        return false;
    FA_ENDS(fa_json_end) cJSON *manifest = cJSON_Parse(text.data);
    fa_buf_free(&text);
    change(manifest);
    FA_ENDS(fa_free_at) char *changed = cJSON_Print(manifest);
    snprintf(path, sizeof path, "%s/attn_fwd_sm80.json", f->templates);
    return changed != NULL && write_text(path, changed);
}

static inline fa_options fixture_options(const engine_fixture *f)
{
    return (fa_options){.size = sizeof(fa_options),
                        .store = f->store,
                        .templates = f->templates,
                        .trial_timeout_ms = 4000};
}

static inline int fixture_session(engine_fixture *f, fa_diag *diag)
{
    fa_options options = fixture_options(f);
    return fa_open(&options, &f->tuner, diag);
}

static const fa_problem small_problem = {.head_dim = 64, .batch = 1, .heads_q = 2, .heads_kv = 2,
                                         .seq_q = 128, .seq_k = 128};

/* gpu NULL: the one that is here. */
static inline fa_request small_request(const char *gpu, fa_effort effort)
{
    return (fa_request){
        .size = sizeof(fa_request), .problem = small_problem, .gpu = gpu, .effort = effort};
}

static inline int tune_for(const engine_fixture *f, const char *gpu, fa_problem problem,
                           fa_effort effort, fa_answer *answer, fa_diag *diag)
{
    fa_request request = {.size = sizeof request, .problem = problem, .gpu = gpu, .effort = effort};
    return fa_tune(f->tuner, &request, answer, diag);
}

/* Compiling is slow and not what most tests are about: the space is compiled once, for an L4 that
 * is not there, and every store begins as a copy of that one. Its cubins serve the fake device,
 * which has fewer SMs, so that no winner and no trial does. */
static inline bool seed_store(const engine_fixture *f)
{
    static char seed[320];
    char command[700];
    if (seed[0] == 0) {
        engine_fixture maker = *f;
        fa_answer answer = {.size = sizeof answer};
        snprintf(maker.store, sizeof maker.store, "%s/seed-%d.db", getenv("FA_TEST_BUILD"),
                 (int)getpid());
        unlink(maker.store); /* of an earlier process that had this number */
        if (!write_text(f->script, "no_device\n") || fixture_session(&maker, NULL) != 0)
            return false;
        int rc = tune_for(&maker, "L4", small_problem, FA_EFFORT_PATIENT, &answer, NULL);
        fa_close(&maker.tuner);
        if (rc != 0)
            return false;
        memcpy(seed, maker.store, sizeof seed);
    }
    snprintf(command, sizeof command, "cp '%s' '%s'", seed, f->store);
    return system(command) == 0;
}

static const char a_device[] = "device name=NVIDIA_L4 sms=56";

/* Directives for the fake device, from now on; NULL: no GPU at all. */
static inline bool fixture_script(const engine_fixture *f, const char *script)
{
    char text[4096];
    snprintf(text, sizeof text, "log %s\n%s\n%s\n", f->log, script != NULL ? a_device : "no_device",
             script != NULL ? script : "");
    return write_text(f->script, text);
}

/* The driver, and device 0's context. */
static inline bool fixture_device(engine_fixture *f)
{
    f->ordinal = 0;
    return fa_driver_open(&f->driver, NULL) == 0 && hold_context(f->driver, 0, NULL) == 0;
}

/* Another device's context in the place of the current one. */
static inline bool fixture_use_device(engine_fixture *f, int ordinal)
{
    drop_context(f->driver, f->ordinal);
    f->ordinal = ordinal;
    return hold_context(f->driver, ordinal, NULL) == 0;
}

/* Closes what fixture_device() and fixture_session() opened. */
static inline void fixture_leave(engine_fixture *f)
{
    fa_close(&f->tuner);
    if (f->driver != NULL)
        drop_context(f->driver, f->ordinal);
    fa_driver_close(&f->driver);
}

/* script: of the fake driver; NULL: no GPU at all. False when something could not be made. */
static inline bool fixture_open(engine_fixture *f, const char *script)
{
    *f = (engine_fixture){0};
    const char *memory = getenv("FA_TEST_SCRATCH"); /* a folder in memory, where ./dev made one */
    check_make_folder(f->directory, memory != NULL ? memory : getenv("FA_TEST_BUILD"));
    if (getenv("FA_TEST_FAKE_CUDA") == NULL)
        return false;
    snprintf(f->store, sizeof f->store, "%s/store.db", f->directory);
    snprintf(f->script, sizeof f->script, "%s/script", f->directory);
    snprintf(f->templates, sizeof f->templates, "%s/templates", f->directory);
    snprintf(f->log, sizeof f->log, "%s/log", f->directory);
    setenv("FA_TUNE_LIBCUDA", getenv("FA_TEST_FAKE_CUDA"), 1);
    setenv("FAKE_CUDA_SCRIPT", f->script, 1);
    if (mkdir(f->templates, 0700) != 0 ||
        !fixture_change_manifest(f, getenv("FA_TEST_TEMPLATES"), cut_domains) ||
        (fixture_kernel != NULL && !fixture_write_kernel(f, fixture_kernel)) || !seed_store(f) ||
        !fixture_script(f, script) || fixture_session(f, NULL) != 0)
        return false;
    return script == NULL || fixture_device(f);
}

/* A new session on the same store, under another script. */
static inline bool fixture_restart(engine_fixture *f, const char *script)
{
    fixture_leave(f);
    return fixture_script(f, script) && fixture_session(f, NULL) == 0 &&
           (script == NULL || fixture_device(f));
}

static inline void fixture_close(engine_fixture *f)
{
    fixture_leave(f);
    check_remove_folder(f->directory);
    *f = (engine_fixture){0};
}

/* Of a test that runs by ENGINE_TEST: closed behind it, also where a check has failed. */
static engine_fixture f;

static inline void fixture_within(void (*test)(void))
{
    test();
    fixture_close(&f);
}

#define ENGINE_TEST(name) TEST_WITHIN(fixture_within, name)

/* ---- the store, behind the library's back ----------------------------------------------------*/
/* The first number that a query gives; 0: it gives none, -1: it failed. */
static inline int64_t fixture_number(const engine_fixture *f, const char *sql)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *statement = NULL;
    int64_t value = -1;
    if (sqlite3_open(f->store, &db) == SQLITE_OK && sqlite3_busy_timeout(db, 5000) == SQLITE_OK &&
        sqlite3_prepare_v2(db, sql, -1, &statement, NULL) == SQLITE_OK) {
        int step = sqlite3_step(statement);
        value = step == SQLITE_ROW    ? sqlite3_column_int64(statement, 0)
                : step == SQLITE_DONE ? 0
                                      : -1;
    }
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return value;
}

/* False: it failed, or changed nothing. */
static inline bool fixture_sql(const engine_fixture *f, const char *sql)
{
    sqlite3 *db = NULL;
    bool ok = sqlite3_open(f->store, &db) == SQLITE_OK &&
              sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK && sqlite3_changes(db) > 0;
    sqlite3_close(db);
    return ok;
}

/* How often the fake driver's log has this text. */
static inline int fixture_logged(const engine_fixture *f, const char *part)
{
    fa_buf log = {0};
    int count = 0;
    if (fa_buf_read_file(&log, f->log, 64 << 20) != 0)
        return -1;
    for (const char *at = log.data; at != NULL && (at = strstr(at, part)) != NULL; at++)
        count++;
    fa_buf_free(&log);
    return count;
}

/* ---- a launch -----------------------------------------------------------------------------------*/
/* Tensors of `size` bytes, every element 1.0 in fp16: rows of V that are all equal make the output equal to them, whatever
 * the scores are. */
static inline int fixture_tensors(const engine_fixture *f, size_t size, fa_device_ptr ret_tensor[4],
                                  fa_attn_args *ret_args, fa_diag *diag)
{
    int rc = 0;
    for (int i = 0; rc == 0 && i < 4; i++) {
        rc = fa_device_alloc(f->driver, size, &ret_tensor[i], diag);
        if (rc == 0)
            rc = fa_fill16(f->driver, ret_tensor[i], 0x3c00, size / 2, NULL, diag);
    }
    *ret_args = (fa_attn_args){.size = sizeof(fa_attn_args),
                               .q = (void *)(uintptr_t)ret_tensor[0],
                               .k = (void *)(uintptr_t)ret_tensor[1],
                               .v = (void *)(uintptr_t)ret_tensor[2],
                               .o = (void *)(uintptr_t)ret_tensor[3]};
    return rc;
}

static inline void fixture_free_tensors(const engine_fixture *f, fa_device_ptr tensor[4])
{
    for (int i = 0; i < 4; i++)
        fa_device_free(f->driver, &tensor[i]);
}

/* The first `ones` elements of the output are 1.0, and the others of `size` bytes are as 0xff made them. */
static inline bool fixture_output(const engine_fixture *f, fa_device_ptr output, size_t size,
                                  size_t ones, fa_diag *diag)
{
    FA_ENDS(fa_free_at) uint16_t *out = malloc(size);
    bool right = out != NULL && fa_copy_from_device(f->driver, out, output, size, diag) == 0;
    for (size_t i = 0; right && i < size / 2; i++)
        right = out[i] == (i < ones ? 0x3c00 : 0xffff);
    return right;
}

/* ---- a process that asks ----------------------------------------------------------------------*/
/* What a test's main() does when it was started with "child" and these. */
static inline int fixture_child(const char *store, const char *templates)
{
    fa_options options = {.size = sizeof options, .store = store, .templates = templates};
    fa_driver *driver = NULL;
    const fa_kernel *kernel;
    fa_tuner *tuner;
    if (fa_driver_open(&driver, NULL) != 0 || hold_context(driver, 0, NULL) != 0 ||
        fa_open(&options, &tuner, NULL) != 0)
        return 1;
    return fa_get_best_kernel(tuner, &small_problem, FA_EFFORT_MEASURE, &kernel, NULL) != 0;
}

/* Starts a process that asks for the kernel, and kills it after that time. */
static inline bool fixture_kill_asking(const engine_fixture *f, useconds_t after_us)
{
    char *const arguments[] = {"/proc/self/exe", "child", (char *)f->store, (char *)f->templates,
                               NULL};
    pid_t pid;
    fflush(stdout);
    if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environ) != 0)
        return false;
    usleep(after_us);
    kill(pid, SIGKILL);
    return waitpid(pid, NULL, 0) == pid;
}

/* Kills one worker of this process with that role ("measure", "compile"); false: none runs. */
static inline bool kill_worker(const char *role)
{
    DIR *proc = opendir("/proc");
    bool killed = false;
    for (struct dirent *entry; proc != NULL && !killed && (entry = readdir(proc)) != NULL;) {
        char path[300], stat[512], command[512];
        int parent = 0;
        snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file == NULL)
            continue;
        size_t n = fread(stat, 1, sizeof stat - 1, file);
        fclose(file);
        stat[n] = 0;
        const char *after = strrchr(stat, ')');
        if (after == NULL || sscanf(after, ") %*c %d", &parent) != 1 || parent != getpid())
            continue;
        snprintf(path, sizeof path, "/proc/%s/cmdline", entry->d_name);
        if ((file = fopen(path, "r")) == NULL)
            continue;
        n = fread(command, 1, sizeof command - 1, file);
        fclose(file);
        command[n] = 0;
        if (strstr(command, "fa-tune-worker") != NULL &&
            strcmp(command + strlen(command) + 1, role) == 0)
            killed = kill((pid_t)atoi(entry->d_name), SIGKILL) == 0;
    }
    if (proc != NULL)
        closedir(proc);
    return killed;
}

/* The configs of fa_explain(), the caller's to free; *ret_count is -1 after a failure. */
static inline fa_study_trial *fixture_explain(fa_tuner *tuner, const fa_request *request,
                                              int *ret_count)
{
    fa_study_trial *row = NULL;
    size_t count = 0;
    *ret_count = fa_explain(tuner, request, &row, &count, NULL, NULL) == 0 ? (int)count : -1;
    return row;
}

/* How many of them ended so; -1 after a failure. */
static inline int fixture_ended(fa_tuner *tuner, const fa_request *request, fa_status status)
{
    int count;
    FA_ENDS(fa_free_at) fa_study_trial *row = fixture_explain(tuner, request, &count);
    int found = count < 0 ? -1 : 0;
    for (int i = 0; i < count; i++)
        found += row[i].trial.status == status;
    return found;
}

/* How many of them have a reason with this text. */
static inline int fixture_reasons(fa_tuner *tuner, const fa_request *request, const char *part)
{
    int count, found = 0;
    FA_ENDS(fa_free_at) fa_study_trial *row = fixture_explain(tuner, request, &count);
    for (int i = 0; i < count; i++)
        found += strstr(row[i].trial.reason, part) != NULL;
    return found;
}

#endif

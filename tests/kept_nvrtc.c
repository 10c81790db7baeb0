/* SPDX-License-Identifier: Apache-2.0
 *
 * A libnvrtc for tests that keeps what the real one compiled, so that one cubin serves every test, build and clone.
 *
 * Workload: some thousand compile workers a run, each with a few compiles of 30 to 400 ms; most of the sources
 * were compiled before. A worker can open no file once it is confined, so the file KEPT is mapped when the
 * library is loaded: a table of slots by the hash of source, headers, options and the real library,
 * then the bytes. What is not in it the program COMPILER compiles (kept_compiler.c), which the first program of a process starts, before
 * it is confined. Without the file, or when it is full, everything is compiled.
 *
 * Invariants: a slot is filled by the process that took it and is read only when it says READY; a process that
 * is killed in between leaves it TAKEN for good, which costs one slot. A worker's first compile, which makes NVRTC
 * open what it loads lazily, is kept like any other: it takes 60 ms in each worker, and NVRTC compiles
 * in a confined worker without it. Tests of the compiler itself run with the real library (meson.build).
 */
#include "kept_nvrtc.h"

#include <fcntl.h>
#include <pthread.h>
#include <sodium.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define EXPORT __attribute__((visibility("default")))

enum { SLOTS = 1 << 15, PROBES = 64, KEY = 32 };
enum { FREE, TAKEN, READY };
enum { RESULT_OK = 0, RESULT_COMPILATION = 6 };

struct slot {
    _Atomic uint32_t state;
    int32_t result;
    unsigned char key[KEY];
    uint64_t at, log_size,
        cubin_size; /* the log's bytes, then the cubin's, from `at` of the file */
};

struct file {
    _Atomic uint64_t used; /* bytes taken behind the table */
    struct slot slot[SLOTS];
};

struct program_state {
    struct kept_request request;
    char *texts; /* of the request, without the options */
    crypto_generichash_state hash;
    const char *log, *cubin; /* of a slot, or of `made` */
    size_t log_size, cubin_size;
    char *made;
};

static struct file *file;
static uint64_t file_size;

/* Of one process: the socket of its compiler, and what its last result was called. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int compiler = -1;
static char error_text[64];

static const int version[] = {REAL_VERSION};

static void map_file(void)
{
    struct stat st;
    int fd = open(KEPT, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0 && (uint64_t)st.st_size > sizeof *file) {
        void *map = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        file = map == MAP_FAILED ? NULL : map;
        file_size = (uint64_t)st.st_size;
    }
    close(fd);
}

__attribute__((constructor)) static void load(void)
{
    if (sodium_init() >= 0)
        map_file();
}

static void start_compiler(void)
{
    char *const arguments[] = {COMPILER, NULL}, *const nothing[] = {NULL};
    posix_spawn_file_actions_t actions;
    int pair[2];
    pid_t pid;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pair[1], 0);
    posix_spawn_file_actions_addclosefrom_np(&actions, 1);
    if (posix_spawn(&pid, COMPILER, &actions, NULL, arguments, nothing) == 0)
        compiler = pair[0];
    posix_spawn_file_actions_destroy(&actions);
    close(pair[1]);
}

/* To the texts, for which there is room, and the hash. */
static void add(struct program_state *program, const char *text)
{
    size_t size = strlen(text) + 1;
    memcpy(program->texts + program->request.size, text, size);
    program->request.size += size;
    crypto_generichash_update(&program->hash, (const unsigned char *)text, size);
}

/* Place.compiles_slowly: its kernel is else the one without this line, which is compiled and kept for both. */
static void add_source(struct program_state *program, const char *source)
{
    static const char slowly[] = "#define SLOWLY 1\n";
    char *const text = strdup(source);
    if (text == NULL)
        abort();
    char *const line = strstr(text, slowly);
    if (line != NULL) {
        memmove(line, line + sizeof slowly - 1, strlen(line + sizeof slowly - 1) + 1);
        usleep(200 * 1000);
    }
    add(program, text);
    free(text);
}

EXPORT int nvrtcCreateProgram(struct program_state **ret, const char *source, const char *name,
                              int count, const char *const *headers, const char *const *names)
{
    struct program_state *program = calloc(1, sizeof *program);
    size_t size = strlen(source) + 1 + strlen(name) + 1;
    for (int i = 0; i < count; i++)
        size += strlen(names[i]) + 1 + strlen(headers[i]) + 1;
    if (program == NULL || (program->texts = malloc(size)) == NULL)
        abort(); /* a test's library: its worker ends, and the test says so */
    pthread_mutex_lock(&lock);
    if (compiler < 0)
        start_compiler();
    pthread_mutex_unlock(&lock);
    crypto_generichash_init(&program->hash, NULL, 0, KEY);
    crypto_generichash_update(&program->hash, (const unsigned char *)REAL_HASH, sizeof REAL_HASH);
    add_source(program, source);
    add(program, name);
    for (int i = 0; i < count; i++) {
        add(program, names[i]);
        add(program, headers[i]);
    }
    program->request.headers = (uint32_t)count;
    *ret = program;
    return RESULT_OK;
}

EXPORT int nvrtcDestroyProgram(struct program_state **program)
{
    free((*program)->texts);
    free((*program)->made);
    free(*program);
    *program = NULL;
    return RESULT_OK;
}

/* The slot of the key: one that is READY with it, else a free one when `take`, else NULL. */
static struct slot *find(const unsigned char key[KEY], bool take)
{
    uint64_t first;
    memcpy(&first, key, sizeof first);
    for (uint64_t i = 0; file != NULL && i < PROBES; i++) {
        struct slot *slot = &file->slot[(first + i) % SLOTS];
        uint32_t state = atomic_load_explicit(&slot->state, memory_order_acquire);
        if (state == READY && memcmp(slot->key, key, KEY) == 0)
            return slot;
        if (state == FREE && !take)
            return NULL;
        if (state == FREE && atomic_compare_exchange_strong(&slot->state, &state, TAKEN))
            return slot;
    }
    return NULL;
}

static char *bytes_of(const struct slot *slot)
{
    return (char *)file + slot->at;
}

/* Keeps what was made of the program. */
static void keep(const struct program_state *program, const unsigned char key[KEY], int result)
{
    const size_t size = program->log_size + program->cubin_size;
    if (file == NULL)
        return;
    uint64_t at = sizeof *file + atomic_fetch_add(&file->used, size);
    struct slot *slot = at + size > file_size ? NULL : find(key, true);
    if (slot == NULL || atomic_load(&slot->state) == READY)
        return;
    slot->result = result;
    slot->at = at;
    slot->log_size = program->log_size;
    slot->cubin_size = program->cubin_size;
    memcpy(slot->key, key, KEY);
    memcpy(bytes_of(slot), program->made, size);
    atomic_store_explicit(&slot->state, READY, memory_order_release);
}

/* Has the program compiled; its result. */
static int compile(struct program_state *program, const char *const *options)
{
    const size_t texts = program->request.size;
    struct kept_answer answer;
    for (uint32_t i = 0; i < program->request.options; i++)
        program->request.size += strlen(options[i]) + 1;
    pthread_mutex_lock(&lock);
    bool sent = kept_write(compiler, &program->request, sizeof program->request) &&
                kept_write(compiler, program->texts, texts);
    for (uint32_t i = 0; i < program->request.options && sent; i++)
        sent = kept_write(compiler, options[i], strlen(options[i]) + 1);
    if (!sent || !kept_read(compiler, &answer, sizeof answer) ||
        (program->made = malloc(answer.log_size + answer.cubin_size + 1)) == NULL ||
        !kept_read(compiler, program->made, answer.log_size + answer.cubin_size))
        abort();
    memcpy(error_text, answer.error, sizeof error_text);
    pthread_mutex_unlock(&lock);
    program->log = program->made;
    program->log_size = answer.log_size;
    program->cubin = program->made + answer.log_size;
    program->cubin_size = answer.cubin_size;
    return answer.result;
}

EXPORT int nvrtcCompileProgram(struct program_state *program, int count, const char *const *options)
{
    unsigned char key[KEY];
    for (int i = 0; i < count; i++)
        crypto_generichash_update(&program->hash, (const unsigned char *)options[i],
                                  strlen(options[i]) + 1);
    program->request.options = (uint32_t)count;
    crypto_generichash_final(&program->hash, key, KEY);
    const struct slot *kept = find(key, false);
    if (kept != NULL) {
        program->log = bytes_of(kept);
        program->log_size = kept->log_size;
        program->cubin = program->log + kept->log_size;
        program->cubin_size = kept->cubin_size;
        return kept->result;
    }
    int result = compile(program, options);
    if (result == RESULT_OK || result == RESULT_COMPILATION)
        keep(program, key, result);
    return result;
}

#define GETS(Name, member)                                                           \
    EXPORT int nvrtcGet##Name##Size(struct program_state *program, size_t *ret_size) \
    {                                                                                \
        *ret_size = program->member##_size;                                          \
        return RESULT_OK;                                                            \
    }                                                                                \
    EXPORT int nvrtcGet##Name(struct program_state *program, char *ret)              \
    {                                                                                \
        memcpy(ret, program->member, program->member##_size);                        \
        return RESULT_OK;                                                            \
    }
GETS(ProgramLog, log)
GETS(CUBIN, cubin)

EXPORT int nvrtcVersion(int *ret_major, int *ret_minor)
{
    *ret_major = version[0];
    *ret_minor = version[1];
    return RESULT_OK;
}
EXPORT const char *nvrtcGetErrorString(int result)
{
    (void)result; /* of the last compile */
    return error_text;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * A libnvrtc for tests that keeps what the real one compiled, so that one cubin serves every test, build and clone.
 *
 * Workload: some hundred compile workers a run, each with a few compiles of 30 to 400 ms; most of the sources
 * were compiled before. A worker can open no file once it is confined, so the file KEPT is mapped when the
 * library is loaded: a table of slots by the hash of source, headers, options and the real library,
 * then the bytes. Without the file, or when it is full, every call goes through to the real library.
 *
 * Invariants: a slot is filled by the process that took it and is read only when it says READY; a process that
 * is killed in between leaves it TAKEN for good, which costs one slot. A worker's first compile, which makes NVRTC
 * open what it loads lazily, is kept like any other: it takes 60 ms in each worker, and NVRTC compiles
 * in a confined worker without it. Tests of the compiler itself run with the real library (meson.build).
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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
    void *real;
    crypto_generichash_state hash;
    const struct slot *kept; /* NULL: ask the real library */
};

static struct file *file;
static uint64_t file_size;

static struct {
    int (*version)(int *, int *);
    int (*sm_count)(int *);
    int (*sms)(int *);
    int (*create)(void **, const char *, const char *, int, const char *const *,
                  const char *const *);
    int (*destroy)(void **);
    int (*compile)(void *, int, const char *const *);
    int (*log_size)(void *, size_t *);
    int (*log)(void *, char *);
    int (*cubin_size)(void *, size_t *);
    int (*cubin)(void *, char *);
    const char *(*error_text)(int);
} real;

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
    static const struct {
        void *function;
        const char *name;
    } names[] = {
        {&real.version, "nvrtcVersion"},
        {&real.sm_count, "nvrtcGetNumSupportedArchs"},
        {&real.sms, "nvrtcGetSupportedArchs"},
        {&real.create, "nvrtcCreateProgram"},
        {&real.destroy, "nvrtcDestroyProgram"},
        {&real.compile, "nvrtcCompileProgram"},
        {&real.log_size, "nvrtcGetProgramLogSize"},
        {&real.log, "nvrtcGetProgramLog"},
        {&real.cubin_size, "nvrtcGetCUBINSize"},
        {&real.cubin, "nvrtcGetCUBIN"},
        {&real.error_text, "nvrtcGetErrorString"},
    };
    void *library = dlopen(REAL_NVRTC, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *function = library == NULL ? NULL : dlsym(library, names[i].name);
        if (function == NULL)
            abort(); /* a test's library: its worker ends, and the test says so */
        memcpy(names[i].function, &function, sizeof function);
    }
    if (sodium_init() >= 0)
        map_file();
}

static void add(crypto_generichash_state *hash, const char *text)
{
    crypto_generichash_update(hash, (const unsigned char *)text, strlen(text) + 1);
}

EXPORT int nvrtcCreateProgram(struct program_state **ret, const char *source, const char *name,
                              int count, const char *const *headers, const char *const *names)
{
    struct program_state *program = calloc(1, sizeof *program);
    if (program == NULL)
        return 1; /* NVRTC_ERROR_OUT_OF_MEMORY */
    int rc = real.create(&program->real, source, name, count, headers, names);
    if (rc != RESULT_OK) {
        free(program);
        return rc;
    }
    crypto_generichash_init(&program->hash, NULL, 0, KEY);
    add(&program->hash, REAL_HASH);
    add(&program->hash, source);
    if (strstr(source, "#define SLOWLY ") != NULL) /* Place.compiles_slowly */
        usleep(200 * 1000);
    add(&program->hash, name == NULL ? "" : name);
    for (int i = 0; i < count; i++) {
        add(&program->hash, names[i]);
        add(&program->hash, headers[i]);
    }
    *ret = program;
    return RESULT_OK;
}

EXPORT int nvrtcDestroyProgram(struct program_state **program)
{
    int rc = real.destroy(&(*program)->real);
    free(*program);
    *program = NULL;
    return rc;
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

/* Keeps what the real library made of the program. */
static void keep(struct program_state *program, const unsigned char key[KEY], int result)
{
    size_t log_size = 0, cubin_size = 0;
    if (file == NULL || real.log_size(program->real, &log_size) != RESULT_OK ||
        (result == RESULT_OK && real.cubin_size(program->real, &cubin_size) != RESULT_OK))
        return;
    uint64_t at = sizeof *file + atomic_fetch_add(&file->used, log_size + cubin_size);
    struct slot *slot = at + log_size + cubin_size > file_size ? NULL : find(key, true);
    if (slot == NULL || atomic_load(&slot->state) == READY)
        return;
    slot->result = result;
    slot->at = at;
    slot->log_size = log_size;
    slot->cubin_size = cubin_size;
    memcpy(slot->key, key, KEY);
    if (real.log(program->real, bytes_of(slot)) == RESULT_OK &&
        (result != RESULT_OK || real.cubin(program->real, bytes_of(slot) + log_size) == RESULT_OK))
        atomic_store_explicit(&slot->state, READY, memory_order_release);
}

EXPORT int nvrtcCompileProgram(struct program_state *program, int count, const char *const *options)
{
    unsigned char key[KEY];
    for (int i = 0; i < count; i++)
        add(&program->hash, options[i]);
    crypto_generichash_final(&program->hash, key, KEY);
    program->kept = find(key, false);
    if (program->kept != NULL)
        return program->kept->result;
    int result = real.compile(program->real, count, options);
    if (result == RESULT_OK || result == RESULT_COMPILATION)
        keep(program, key, result);
    return result;
}

EXPORT int nvrtcGetProgramLogSize(struct program_state *program, size_t *ret_size)
{
    if (program->kept == NULL)
        return real.log_size(program->real, ret_size);
    *ret_size = program->kept->log_size;
    return RESULT_OK;
}

EXPORT int nvrtcGetProgramLog(struct program_state *program, char *ret)
{
    if (program->kept == NULL)
        return real.log(program->real, ret);
    memcpy(ret, bytes_of(program->kept), program->kept->log_size);
    return RESULT_OK;
}

EXPORT int nvrtcGetCUBINSize(struct program_state *program, size_t *ret_size)
{
    if (program->kept == NULL)
        return real.cubin_size(program->real, ret_size);
    *ret_size = program->kept->cubin_size;
    return RESULT_OK;
}

EXPORT int nvrtcGetCUBIN(struct program_state *program, char *ret)
{
    if (program->kept == NULL)
        return real.cubin(program->real, ret);
    memcpy(ret, bytes_of(program->kept) + program->kept->log_size, program->kept->cubin_size);
    return RESULT_OK;
}

EXPORT int nvrtcVersion(int *ret_major, int *ret_minor)
{
    return real.version(ret_major, ret_minor);
}
EXPORT int nvrtcGetNumSupportedArchs(int *ret_count)
{
    return real.sm_count(ret_count);
}
EXPORT int nvrtcGetSupportedArchs(int *ret_sms)
{
    return real.sms(ret_sms);
}
EXPORT const char *nvrtcGetErrorString(int result)
{
    return real.error_text(result);
}

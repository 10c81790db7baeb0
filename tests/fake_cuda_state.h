/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of the fake CUDA driver, private to its files.
 */
#ifndef FA_TESTS_FAKE_CUDA_STATE_H
#define FA_TESTS_FAKE_CUDA_STATE_H

#include "fake_cuda.h"

#include "cubin.h"

#include <pthread.h>
#include <sys/types.h>

/* The exported functions have no header: NVIDIA's binary interface is their declaration. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#define CUDA __attribute__((visibility("default"))) int

enum { MARKER = 1024, ENTRY = 64, FUNCTIONS = 16, VARIABLES = 4 };

struct block {
    struct block *next;
    uint64_t address, version;
    size_t size;
    uint8_t *host;
    int device;
    bool pending; /* a fill of the whole block that nobody has looked at yet */
    uint32_t fill;
};

struct function {
    struct function *next; /* of those whose modules are gone: a handle is given out once */
    struct module *module;
    char entry[ENTRY];
    fa_cubin_info info;
    int allowed_smem;
};

struct module {
    struct module *next;
    void *image;
    size_t size;
    int device;
    char marker[MARKER];
    bool built; /* the marker says what for */
    struct fake_build build;
    struct function *functions[FUNCTIONS];
    int function_count;
    struct {
        char name[ENTRY];
        struct block *block;
    } variables[VARIABLES]; /* that somebody asked for */
    int variable_count;
    uint64_t launches;
};

struct handle { /* a stream or an event */
    struct handle *next;
    bool event, recorded;
    uint64_t id; /* of no other handle before or after it; 1 is the default stream's */
    double at_us;
    uint64_t stream,
        uses; /* of an event: the stream that it was recorded on, after so many launches that count */
};

struct context {
    int device, retained;
    uint64_t id; /* another one whenever it is made anew */
};

extern struct fake_state {
    pthread_mutex_t lock;
    pid_t pid; /* 0: cuInit has not succeeded */
    struct fake_script script;
    struct context primary[FAKE_DEVICES];
    struct block *blocks;
    struct module *modules;
    struct function *dead;
    struct handle *handles;
    size_t used[FAKE_DEVICES];
    uint64_t next_address, next_version, last_context, last_handle, uses;
    double clock_us;
    int sticky; /* what every call answers from now on */
    bool hanging, capturing, busy;
    const struct handle *captured; /* the stream, while capturing */
} fake;

/* Appends a line to the log of the script. */
void fake_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
struct context *fake_current(void);
/* What a call that needs a context answers before it does anything. */
int fake_check(void);
void fake_unlock(int *locked);
void fake_hang_if_told(void);
/* Zeros; NULL: no memory. */
struct block *fake_make_block(size_t size);
void fake_free_block(struct block **link);
void fake_free_module(struct module **link);
/* 0: there is no such stream. */
uint64_t fake_stream_id(const struct handle *stream);
/* Whether a capture that is under way allows it to this thread. */
bool fake_may_allocate(void);
/* Whether a kernel that counts finds zeros in counters that serve this stream alone. */
bool fake_counters_are_zero(const struct function *f, const struct handle *stream,
                            void **arguments);
/* Graphs' counters serve nobody any more, nor do those `of_streams`. */
void fake_forget_counters(bool of_streams);
/* Counters of launches that lie before the event may be used on this stream from now on; 0: on any. */
void fake_pass_counters(const struct handle *event, uint64_t stream);
/* FAKE_OK, or what a launch with these arguments answers for the tensor maps among them. */
int fake_check_maps(const struct function *f, void **arguments);

/* Holds the lock to the end of the function; ENTER returns what fake_check answers if not ok. */
#define ENTER_UNCHECKED                                    \
    pthread_mutex_lock(&fake.lock);                        \
    __attribute__((cleanup(fake_unlock))) int locked_ = 1; \
    (void)locked_
#define ENTER                   \
    ENTER_UNCHECKED;            \
    int check_ = fake_check();  \
    if (check_ != FAKE_OK)      \
    return check_

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Which call of a program is to fail (tests/failing_calls.c): one point is the n-th call from one place.
 *
 * A place is the stack of a call with each return address counted once, so that recursion adds none, and with
 * addresses that are relative to their library: the same in each run, whatever other threads do meanwhile.
 */
#include "failing_point.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PLACES = 1 << 15, DEPTH = 96 };

struct told {
    atomic_uint failed;
    uint32_t unused;
    struct place {
        _Atomic uint64_t hash;   /* its lower half is of the innermost function alone; 0: none */
        atomic_uint first, last; /* among all calls of a process */
        atomic_uint most;        /* calls from here, of the process with the most of them */
    } place[PLACES];
};

static struct {
    enum failing_kind kind;
    uint64_t place; /* 0: any */
    unsigned at, after;
    bool on, stack;
    struct told *told;
    atomic_bool failing; /* for good */
    atomic_uint seen, calls, calls_of_place[PLACES];
} state;

static _Thread_local bool inside; /* this library's own calls are not counted */

enum { MULTIPLIER = 0x01000193 };

/* The same in each run: an address within its library, with that library's name. 0: of this library. */
static uint32_t hash_of(const void *address)
{
    static const char own;
    struct dl_find_object found, here;
    if (_dl_find_object((void *)(uintptr_t)address, &found) != 0)
        return 1;
    if (_dl_find_object((void *)(uintptr_t)&own, &here) == 0 &&
        here.dlfo_link_map == found.dlfo_link_map)
        return 0;
    uint32_t hash = (uint32_t)((uintptr_t)address - found.dlfo_link_map->l_addr) * MULTIPLIER;
    for (const char *c = found.dlfo_link_map->l_name; *c != 0; c++)
        hash = (hash ^ (unsigned char)*c) * MULTIPLIER;
    return hash | 1;
}

static uint64_t place_of(uint32_t innermost)
{
    void *frame[DEPTH];
    uint32_t hash = 0x811c9dc5, frames[DEPTH];
    int depth = backtrace(frame, DEPTH), count = 0;
    for (int i = 0; i < depth; i++) {
        bool known = false;
        frames[count] = hash_of(frame[i]);
        for (int j = 0; j < count && !known; j++)
            known = frames[j] == frames[count];
        if (known || frames[count] == 0)
            continue;
        hash = (hash ^ frames[count++]) * MULTIPLIER;
        hash ^= hash >> 15;
    }
    return (uint64_t)hash << 32 | innermost;
}

static void note_place(uint64_t hash, unsigned n)
{
    for (size_t i = (hash >> 32) % PLACES, tries = 0; tries < PLACES;
         i = (i + 1) % PLACES, tries++) {
        struct place *place = &state.told->place[i];
        uint64_t none = 0;
        if (!atomic_compare_exchange_strong(&place->hash, &none, hash) && none != hash)
            continue;
        unsigned calls = 1 + atomic_fetch_add(&state.calls_of_place[i], 1), zero = 0;
        atomic_compare_exchange_strong(&place->first, &zero, n);
        if (calls > place->most) {
            place->most = calls;
            place->last = n;
        }
        return;
    }
}

static void show_stack(void)
{
    void *frame[DEPTH];
    backtrace_symbols_fd(frame, backtrace(frame, DEPTH), 2);
}

static bool is_of(const void *caller, const char *library)
{
    struct dl_find_object found;
    return _dl_find_object((void *)(uintptr_t)caller, &found) == 0 &&
           strstr(found.dlfo_link_map->l_name, library) != NULL;
}

/* Whether the call is the one that is to fail. */
static bool is_reached(const void *caller)
{
    if (state.calls >= state.at || atomic_fetch_add(&state.seen, 1) < state.after)
        return false; /* it has been, or is still far */
    uint32_t innermost = state.place != 0 ? hash_of(caller) : 0;
    if (state.place != 0 &&
        ((uint32_t)state.place != innermost || state.place != place_of(innermost)))
        return false;
    if (1 + atomic_fetch_add(&state.calls, 1) != state.at)
        return false;
    return atomic_exchange(&state.told->failed, 1) == 0 || state.on;
}

bool failing_refuse(enum failing_kind kind, const void *caller, const char *but_of)
{
    if (state.kind != kind || inside || (but_of != NULL && is_of(caller, but_of)))
        return false;
    if (state.failing)
        return true;
    int saved = errno;
    bool refused = false;
    inside = true;
    if (state.at == 0) {
        note_place(place_of(hash_of(caller)), 1 + atomic_fetch_add(&state.calls, 1));
    } else if (is_reached(caller)) {
        refused = true;
        state.failing = state.on;
        if (state.stack)
            show_stack();
    }
    inside = false;
    errno = saved;
    return refused;
}

bool failing_set_inside(bool now)
{
    bool before = inside;
    inside = now;
    return before;
}

static void show_end(int signal)
{
    inside = true;
    show_stack();
    raise(signal); /* as it would have ended: the handler was for once */
}

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value != NULL ? value : "";
}

/* By the kernel's calls alone: this program's are not there yet. */
static struct told *map_told(const char *path)
{
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    void *map = (void *)syscall(SYS_mmap, NULL, sizeof(struct told), PROT_READ | PROT_WRITE,
                                MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    return map == MAP_FAILED ? NULL : map;
}

__attribute__((constructor)) static void begin(void)
{
    static const char *const kinds[] = {
        [NONE] = "none", [MEMORY] = "memory", [IO] = "io", [LOCKS] = "locks"};
    void *frame[4];
    if (strcmp(variable("FAIL_IN"), program_invocation_short_name) != 0)
        return;
    state.place = strtoull(variable("FAIL_PLACE"), NULL, 16);
    state.at = (unsigned)strtoul(variable("FAIL_AT"), NULL, 10);
    state.after = (unsigned)strtoul(variable("FAIL_AFTER"), NULL, 10);
    state.on = *variable("FAIL_ON") == '1';
    state.stack = *variable("FAIL_STACK") == '1';
    state.told = map_told(variable("FAIL_TOLD"));
    backtrace(frame, 4); /* loads the unwinder */
    if (state.stack)
        sigaction(SIGSEGV,
                  &(struct sigaction){.sa_handler = show_end, .sa_flags = (int)SA_RESETHAND}, NULL);
    if (state.told == NULL || (state.at != 0 && !state.on && state.told->failed != 0))
        return;
    for (enum failing_kind kind = NONE; kind <= LOCKS; kind++)
        if (strcmp(variable("FAIL_KIND"), kinds[kind]) == 0)
            state.kind = kind;
}

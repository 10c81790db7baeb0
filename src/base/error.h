/* SPDX-License-Identifier: Apache-2.0
 *
 * Failing with a sentence, and the names of codes, statuses and origins.
 * Usage: return fa_fail(diag, FA_EINVAL, "head_dim is %d: use a multiple of 8", d);
 */
#ifndef FA_BASE_ERROR_H
#define FA_BASE_ERROR_H

#include "fa_types.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The size of the character that `text` begins with, as UTF-8, and its code; 0: it is none, or is overlong, a surrogate
 * or beyond the last. Reads no byte behind one that does not belong to the character. */
size_t fa_utf8_at(const char *text, size_t left, uint32_t *ret_code);
/* Bytes of the control character that the text begins with, or of one that is not seen and reorders or breaks
 * what stands around it (as U+202E does); 0: it begins with neither. */
int fa_control_at(const char *text, unsigned *ret_code);

/* Writes the sentence (control characters escaped, truncated to fit) when diag is not NULL; returns
 * code, so that a failing function ends in one line. Cold: the code that leads to a failure lies apart from the
 * way of a launch. */
int fa_fail(fa_diag *diag, int code, const char *format, ...)
    __attribute__((cold, format(printf, 3, 4)));

/* 0; without memory FA_ENOMEM, with a sentence that says what for. */
int fa_have(bool memory, const char *what, fa_diag *diag);
/* 0; FA_EINVAL, "NAMES is NULL", where one of the arguments with these names is. */
int fa_expect(bool all, const char *names, fa_diag *diag);

/* Puts a prefix before the sentence already in diag and returns code. */
int fa_fail_in(fa_diag *diag, int code, const char *format, ...)
    __attribute__((cold, format(printf, 3, 4)));

/* Calls what has not failed before, and remembers its failure. */
#define FA_TRY(of, call) ((of)->rc = (of)->rc != 0 ? (of)->rc : (call))

/* Returns a call's code from the function where it is not 0: what is to be undone then ends with its scope. */
#define FA_OR_RETURN(call)               \
    do {                                 \
        const int code_of_call = (call); \
        if (code_of_call != 0)           \
            return code_of_call;         \
    } while (0)

/* A local that the destructor, which takes its address, ends with its scope: FA_ENDS(fa_buf_free) fa_buf text = {0}. What is
 * given away is first made what the destructor leaves alone. */
#define FA_ENDS(destructor) __attribute__((cleanup(destructor), unused))
static inline void fa_free_at(void *pointer) /* what the pointer at this address points to */
{
    void *at;
    memcpy(&at, pointer, sizeof at);
    free(at);
}
static inline void fa_close_at(int *fd) /* -1: there is none */
{
    if (*fd >= 0)
        close(*fd);
}
/* The mutex, from here to the end of the scope. */
#define FA_HOLDS(mutex) \
    FA_ENDS(fa_unlock_at) pthread_mutex_t *held = (pthread_mutex_lock(mutex), (mutex))
static inline void fa_unlock_at(pthread_mutex_t **mutex)
{
    pthread_mutex_unlock(*mutex);
}

const char *fa_error_text(int code);
/* "FA_EINVAL"; NULL for a number that is no code. */
const char *fa_error_name(int code);
/* Lists of an enum's names, by value from 0 on, ended by NULL. */
extern const char *const fa_status_names[],
    *const fa_origin_names[], *const fa_sweep_state_names[], *const fa_item_state_names[];
/* "unknown" for a value that has none. */
const char *fa_name_at(const char *const *names, int value);
/* FA_ENOTFOUND leaves *ret_value alone. */
int fa_name_find(const char *const *names, const char *name, int *ret_value);
const char *fa_status_name(fa_status status);
const char *fa_origin_name(fa_origin origin);
/* The order of trust: 0 is trusted most. */
int fa_origin_trust(fa_origin origin);
/* Whether a time of this origin was taken from this very problem on this silicon by the store's own
 * tunes: what alone may be compared with other measurements. */
bool fa_origin_is_measured(fa_origin origin);
/* How a winner is known that nobody timed: by a model, or not at all. */
fa_origin fa_origin_untimed(const fa_trial *trial);
const char *fa_sweep_state_name(fa_sweep_state state);
const char *fa_item_state_name(fa_item_state state);

/* The inverse; each returns 0, or FA_ENOTFOUND and leaves the output alone. */
int fa_error_parse(const char *name, int *ret_code);
int fa_status_parse(const char *name, fa_status *ret);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of tunables that are no numbers of their own: a table that only grows.
 *
 * Workload: a few of a specification, or of a store that is read; each is looked up once a trial.
 * Invariant: readers need no lock: an entry is whole before the count says that it is there, and stays.
 */
#include "trial.h"

#include "buf.h"
#include "error.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ENTRIES_MAX = 4096, TEXT_MAX = FA_DIGITS_MAX, LONGEST = 400 };

struct entry {
    bool is_text;
    double number;
    char text[LONGEST]; /* kept without what lies behind its end */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct entry *entry[ENTRIES_MAX];
static atomic_int entry_count;

static int find(const struct entry *wanted)
{
    int count = atomic_load_explicit(&entry_count, memory_order_acquire);
    for (int i = 0; i < count; i++)
        if (entry[i]->is_text == wanted->is_text && strcmp(entry[i]->text, wanted->text) == 0)
            return i;
    return -1;
}

static int keep(const struct entry *wanted, int32_t *ret_value, fa_diag *diag)
{
    int rc = 0;
    pthread_mutex_lock(&mutex);
    int index = find(wanted), count = atomic_load_explicit(&entry_count, memory_order_relaxed);
    const size_t size = offsetof(struct entry, text) + strlen(wanted->text) + 1;
    struct entry *kept = index < 0 && count < ENTRIES_MAX ? malloc(size) : NULL;
    if (kept != NULL) {
        memcpy(kept, wanted, size);
        entry[index = count] = kept;
        atomic_store_explicit(&entry_count, count + 1, memory_order_release);
    } else if (index < 0) {
        rc = count < ENTRIES_MAX
                 ? fa_fail(diag, FA_ENOMEM, "out of memory for a value")
                 : fa_fail(diag, FA_EINVAL,
                           "this process knows %d texts and fractions already: use whole numbers, "
                           "or start it anew",
                           count);
    }
    pthread_mutex_unlock(&mutex);
    if (rc == 0)
        *ret_value = -1 - index;
    return rc;
}

static int keep_text(const char *text, int size, int32_t *ret_value, fa_diag *diag)
{
    struct entry wanted = {.is_text = true};
    bool right = text[0] != 0 && strlen(text) < (size_t)size;
    for (const char *at = text; right && *at != 0; at++)
        right = *at >= ' ' && *at <= '~' && strchr("\"'\\;", *at) == NULL;
    if (!right)
        return fa_fail(diag, FA_EINVAL,
                       "\"%.40s\" is no value: use 1 to %d bytes, no quotes, backslashes or "
                       "semicolons",
                       text, size - 1);
    memcpy(wanted.text, text, strlen(text));
    return keep(&wanted, ret_value, diag);
}

int fa_value_of_text(const char *text, int32_t *ret_value, fa_diag *diag)
{
    return keep_text(text, TEXT_MAX, ret_value, diag);
}

int fa_value_of_line(const char *text, int32_t *ret_value, fa_diag *diag)
{
    *ret_value = 0;
    return text[0] == 0 ? 0 : keep_text(text, LONGEST, ret_value, diag);
}

int fa_value_of_number(double number, int32_t *ret_value, fa_diag *diag)
{
    struct entry wanted = {.number = number};
    if (!isfinite(number))
        return fa_fail(diag, FA_EINVAL, "a value must be a finite number");
    if (number >= 0 && number <= FA_VALUE_MAX && number == floor(number)) {
        *ret_value = (int32_t)number;
        return 0;
    }
    fa_digits(number, wanted.text);
    char *end = wanted.text + strspn(wanted.text, "-0123456789");
    if (*end == 'e') { /* 1e-05: expressions and people know fractions by their point */
        memmove(end + 2, end, strlen(end) + 1);
        memcpy(end, ".0", 2);
    }
    return keep(&wanted, ret_value, diag);
}

int fa_value_of_json(const cJSON *item, int32_t *ret_value, fa_diag *diag)
{
    if (cJSON_IsString(item))
        return fa_value_of_text(item->valuestring, ret_value, diag);
    if (cJSON_IsNumber(item))
        return fa_value_of_number(item->valuedouble, ret_value, diag);
    if (!cJSON_IsBool(item))
        return fa_fail(diag, FA_EINVAL, "a value must be a number, a text, true or false");
    *ret_value = cJSON_IsTrue(item);
    return 0;
}

/* NULL: it is a number of its own. */
static const struct entry *entry_of(int32_t value)
{
    static const struct entry unknown = {.text = "?", .is_text = true};
    if (value >= 0)
        return NULL;
    int index = -1 - value;
    return index < atomic_load_explicit(&entry_count, memory_order_acquire) ? entry[index]
                                                                            : &unknown;
}

bool fa_value_is_text(int32_t value)
{
    const struct entry *is = entry_of(value);
    return is != NULL && is->is_text;
}

double fa_value_number(int32_t value)
{
    const struct entry *is = entry_of(value);
    return is != NULL ? is->number : value;
}

const char *fa_value_words(int32_t value, char room[FA_VALUE_TEXT_MAX])
{
    const struct entry *is = entry_of(value);
    if (is != NULL)
        return is->text;
    snprintf(room, FA_VALUE_TEXT_MAX, "%d", value);
    return room;
}

cJSON *fa_value_to_json(int32_t value)
{
    char room[FA_VALUE_TEXT_MAX];
    return fa_value_is_text(value) ? cJSON_CreateString(fa_value_words(value, room))
                                   : cJSON_CreateNumber(fa_value_number(value));
}

const char *fa_value_json(int32_t value, char room[FA_VALUE_TEXT_MAX])
{
    if (!fa_value_is_text(value))
        return fa_value_words(value, room);
    snprintf(room, FA_VALUE_TEXT_MAX, "\"%.31s\"", fa_value_words(value, room));
    return room;
}

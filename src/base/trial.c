/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of tunables that are no numbers of their own, in a table that only grows; and a trial as JSON, there and back, and
 * the order of trials.
 *
 * Workload: a few values of a specification, or of a store that is read; each is looked up once a trial.
 * Invariant: readers of the table need no lock: an entry is whole before the count says that it is there, and stays.
 */
#include "trial.h"

#include "problem.h"
#include "words.h"

#include <ctype.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ---------------------------------------------------------------------------------*/
enum { ENTRIES_MAX = 4096, TEXT_MAX = FA_DIGITS_MAX, LONGEST = FA_EXPR_TEXT_MAX };

struct entry {
    bool is_text;
    double number;
    char text[LONGEST]; /* kept without what lies behind its end */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct entry *entry[ENTRIES_MAX];
static atomic_int entry_count;

static int keep(const struct entry *wanted, int32_t *ret_value, fa_diag *diag)
{
    FA_HOLDS(&mutex);
    const int count = atomic_load_explicit(&entry_count, memory_order_relaxed);
    int index = 0;
    while (index < count && (entry[index]->is_text != wanted->is_text ||
                             strcmp(entry[index]->text, wanted->text) != 0))
        index++;
    if (index == ENTRIES_MAX)
        return fa_fail(diag, FA_EINVAL,
                       "this process knows %d texts and fractions already: use whole numbers, or "
                       "start it anew",
                       count);
    if (index == count) {
        const size_t size = offsetof(struct entry, text) + strlen(wanted->text) + 1;
        struct entry *kept = malloc(size);
        FA_OR_RETURN(fa_have(kept != NULL, "a value", diag));
        entry[index] = memcpy(kept, wanted, size);
        atomic_store_explicit(&entry_count, count + 1, memory_order_release);
    }
    *ret_value = -1 - index;
    return 0;
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

const char *fa_value_json(int32_t value, char room[FA_VALUE_TEXT_MAX])
{
    if (!fa_value_is_text(value))
        return fa_value_words(value, room);
    snprintf(room, FA_VALUE_TEXT_MAX, "\"%.31s\"", fa_value_words(value, room));
    return room;
}

/* ---- trials ---------------------------------------------------------------------------------*/
#define ROW(kind, name, member, ...) FA_MEMBER(name, kind, fa_trial, member, __VA_ARGS__),
#define THREE(name, member) FA_MEMBER(name, THREE, fa_trial, member),
const fa_member fa_trial_members[] = {
    FA_CONFIG_MEMBER(fa_trial, config),
    FA_TRIAL_FIELDS(ROW, THREE){.key = NULL},
};
#undef ROW
#undef THREE

void fa_trial_take_times(fa_trial *trial, const fa_trial *from)
{
    trial->median_us = from->median_us;
    trial->low_us = from->low_us;
    trial->high_us = from->high_us;
    trial->sample_count = from->sample_count;
    trial->max_error = from->max_error;
    trial->tolerance = from->tolerance;
    trial->raced = from->raced;
}

/* Configs and GPUs as text and JSON. Values are kept by name, never by position. */
void fa_config_text(const fa_config *config, char ret_text[FA_CONFIG_TEXT_MAX])
{
    size_t n = 0;
    char room[FA_VALUE_TEXT_MAX];
    ret_text[n++] = '{';
    for (int i = 0; i < config->count && i < FA_MAX_TUNABLES; i++)
        n += (size_t)snprintf(ret_text + n, FA_CONFIG_TEXT_MAX - n, "%s\"%.31s\":%s",
                              i == 0 ? "" : ",", config->tunable[i].name,
                              fa_value_json(config->tunable[i].value, room));
    snprintf(ret_text + n, FA_CONFIG_TEXT_MAX - n, "}");
}

void fa_words_config(fa_buf *out, const fa_config *config)
{
    char room[FA_VALUE_TEXT_MAX];
    fa_buf_text(out, config->family);
    for (int i = 0; i < config->count; i++)
        fa_buf_printf(out, " %s=%s", config->tunable[i].name,
                      fa_value_words(config->tunable[i].value, room));
}

bool fa_config_get(const fa_config *config, const char *name, int32_t *ret_value)
{
    for (int i = 0; i < config->count; i++)
        if (strcmp(config->tunable[i].name, name) == 0) {
            *ret_value = config->tunable[i].value;
            return true;
        }
    return false;
}

bool fa_config_equal(const fa_config *a, const fa_config *b)
{
    if (strcmp(a->family, b->family) != 0 || a->count != b->count)
        return false;
    for (int i = 0; i < a->count; i++) {
        int32_t value;
        if (!fa_config_get(b, a->tunable[i].name, &value) || value != a->tunable[i].value)
            return false;
    }
    return true;
}

cJSON *fa_config_to_json(const void *of)
{
    const fa_config *config = of;
    cJSON *json = cJSON_CreateObject();
    fa_json_add_text(json, "family", config->family);
    cJSON *tunables = fa_json_add_object(json, "tunables");
    for (int i = 0; i < config->count; i++) {
        char room[FA_VALUE_TEXT_MAX];
        const fa_tunable *tunable = &config->tunable[i];
        if (fa_value_is_text(tunable->value))
            fa_json_add_text(tunables, tunable->name, fa_value_words(tunable->value, room));
        else
            fa_json_add_number(tunables, tunable->name, fa_value_number(tunable->value));
    }
    return json;
}

bool fa_is_identifier(const char *name)
{
    size_t size = 0;
    while (fa_is_word(name[size]))
        size++;
    return isalpha((unsigned char)name[0]) && name[size] == 0 && size < FA_NAME_MAX;
}

int fa_config_from_json(const cJSON *json, void *ret_config, fa_diag *diag)
{
    fa_config config = {0};
    int rc = fa_json_copy(json, "family", config.family, sizeof config.family, "config", diag);
    const cJSON *tunables = fa_json_member(json, "tunables");
    if (rc == FA_ENOTFOUND || !fa_is_identifier(config.family) || !cJSON_IsObject(tunables))
        return fa_fail(diag, FA_EINVAL, "config: needs a family name and an object of tunables");
    if (rc != 0)
        return rc;
    for (const cJSON *item = tunables->child; item != NULL; item = item->next) {
        int32_t value = 0;
        if (config.count == FA_MAX_TUNABLES)
            return fa_fail(diag, FA_EINVAL, "config: more than %d tunables", FA_MAX_TUNABLES);
        if (!fa_is_identifier(item->string))
            return fa_fail(diag, FA_EINVAL, "config: \"%s\" is not a tunable's name", item->string);
        if (fa_config_get(&config, item->string, &value))
            return fa_fail(diag, FA_EINVAL, "config: \"%s\" appears twice", item->string);
        rc = fa_value_of_json(item, &value, diag);
        if (rc != 0)
            return fa_fail_in(diag, rc, "config: %s", item->string);
        fa_tunable *tunable = &config.tunable[config.count++];
        snprintf(tunable->name, sizeof tunable->name, "%s", item->string);
        tunable->value = value;
    }
    *(fa_config *)ret_config = config;
    return 0;
}

void fa_gpu_silicon(const fa_gpu *gpu, char ret_silicon[FA_SILICON_MAX])
{
    /* Clocks and L2 are rounded, because boards of one silicon report them a little differently. */
    snprintf(ret_silicon, FA_SILICON_MAX, "sm_%d x%d smem=%d/%d l2=%lldM bus=%d clock=%d", gpu->sm,
             gpu->sm_count, gpu->smem_per_block, gpu->smem_per_sm, (long long)(gpu->l2_bytes >> 20),
             gpu->memory_bus_bits, (gpu->clock_mhz + 50) / 100 * 100);
}

#define ROW(member) FA_MEMBER(#member, STRING, fa_kept, member)
const fa_member fa_kept_members[] = {
    ROW(key),
    ROW(made),
    ROW(tuner),
    ROW(name),
    ROW(gpu),
    FA_MEMBER("unix_time", COUNT64, fa_kept, unix_time),
    FA_MEMBER("bytes", COUNT64, fa_kept, size),
    {.key = NULL},
};
#undef ROW

const fa_member fa_sweep_spent_members[] = {
    FA_MEMBER("seconds", REAL, fa_sweep_spent, seconds),
    FA_MEMBER("trials", COUNT64, fa_sweep_spent, trials),
    FA_MEMBER("cubins_compiled", COUNT64, fa_sweep_spent, compiled),
    FA_MEMBER("cubins_reused", COUNT64, fa_sweep_spent, reused),
    {.key = NULL},
};

#define ROW(member, kind, ...) FA_MEMBER(#member, kind, fa_gpu, member, __VA_ARGS__)
const fa_member fa_gpu_members[] = {
    ROW(name, TEXT),           ROW(sm, COUNT),
    ROW(sm_count, COUNT),      ROW(smem_per_block, COUNT),
    ROW(smem_per_sm, COUNT),   ROW(smem_reserved, COUNT),
    ROW(regs_per_sm, COUNT),   ROW(threads_per_sm, COUNT),
    ROW(blocks_per_sm, COUNT), ROW(memory_bus_bits, COUNT),
    ROW(clock_mhz, COUNT),     ROW(l2_bytes, COUNT64, .most = (int64_t)1 << 40),
    ROW(bandwidth_gbs, REAL),  ROW(tensor_tflops, REAL),
    ROW(present, FLAG),        ROW(ordinal, COUNT, .least = -1, .most = 1024),
    ROW(uuid, TEXT),           {.key = NULL},
};
#undef ROW

cJSON *fa_gpu_to_json(const fa_gpu *gpu)
{
    return fa_struct_to_json(fa_gpu_members, gpu);
}

/* ---- order ----------------------------------------------------------------------------------*/
static int compare_double(double a, double b)
{
    return (a > b) - (a < b);
}

/* What has no prediction comes behind what has one. */
static double known_or_endless(double us)
{
    return us > 0 ? us : INFINITY;
}

static int compare_configs(const fa_config *a, const fa_config *b)
{
    for (int i = 0; i < a->count && i < b->count; i++) {
        const fa_tunable *x = &a->tunable[i], *y = &b->tunable[i];
        char room[2][FA_VALUE_TEXT_MAX];
        int order = strcmp(x->name, y->name);
        if (order == 0 && x->value != y->value)
            order = strcmp(fa_value_json(x->value, room[0]), fa_value_json(y->value, room[1]));
        if (order != 0)
            return order;
    }
    return a->count - b->count;
}

/* The gate reached last comes first; what was not tried comes right after what finished. */
static int rank(fa_status status)
{
    return status == FA_STATUS_MEASURED   ? 0
           : status == FA_STATUS_COMPILED ? 1
           : status == FA_STATUS_PENDING  ? 2
                                          : 3 + FA_STATUS_OTHER_BITS - (int)status;
}

int fa_trial_compare(const fa_trial *a, const fa_trial *b)
{
    const bool measured = a->status == FA_STATUS_MEASURED;
    if (a->status != b->status)
        return rank(a->status) - rank(b->status);
    if (measured && a->raced != b->raced) /* the raced hold the best of the rest, too */
        return a->raced ? -1 : 1;
    int order = measured ? compare_double(a->median_us, b->median_us)
                         : compare_double(known_or_endless(a->predicted_us),
                                          known_or_endless(b->predicted_us));
    if (order == 0)
        order = strcmp(a->config.family, b->config.family);
    return order != 0 ? order : compare_configs(&a->config, &b->config);
}

bool fa_trial_finished(const fa_trial *trial)
{
    return trial->status == FA_STATUS_MEASURED || trial->status == FA_STATUS_COMPILED;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * How well each way of searching does, without a GPU, on a space that somebody measured whole: a cache file of Kernel Tuner,
 * also one that was never closed, or a result in the T4 format (examples/t4.py writes such files).
 *
 *     search_replay FILE [--strategy NAME|all] [--evaluations 100] [--repeats 100] [--batch 1] [--seed 0]
 *
 * Prints the median and the tenth percentile of optimum / found: 1 is the best config on record. Each repeat is one search
 * with the next seed; configs that violate a restriction or do not compile are not counted.
 */
#include "buf.h"
#include "error.h"
#include "json.h"
#include "search.h"
#include "walk.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { FILE_MAX = 1 << 29, ENTRIES_MAX = 10 * 1000 * 1000, BATCH_MAX = 1024 };

/* The values of its parameters are those that occur. */
struct recorded {
    char kernel[128], device[128]; /* as the file has them; may be empty */
    char objective[64]; /* what is looked for; a rate ("GFLOP/s") is looked for from above */
    int parameters;     /* that have more than one value */
    long points, unbuilt, failed;
    double optimum;
    fa_walk walk;                      /* knows every point with its cost */
    uint8_t *twos[FA_SEARCH_DIMS_MAX]; /* of each value of a parameter, for fa_search_space */
};

/* A config of the file, and what became of it. */
struct entry {
    const cJSON *config;
    double cost;
};

struct reader {
    const char *where;
    fa_diag *diag;
    struct recorded *recorded;
    const char *key[FA_SEARCH_DIMS_MAX];
    int keys;
    struct entry *entry;
    int32_t entries;
    const cJSON **value; /* of one parameter, in each entry */
    const cJSON **sorted;
    int32_t *index; /* of each entry's values, parameter after parameter */
};

/* ---- what became of a config ----------------------------------------------------------------*/
/* A restriction forbids it: it is no point of the space. */
static const double no_point = -3;

/* A cost from a number; a rate is better the higher it is. */
static double cost_of(const char *objective, double number)
{
    bool rate = strchr(objective, '/') != NULL;
    bool usable = isfinite(number) && number > 0 && number < 1e19; /* 1e20 meant a failure once */
    return usable ? (rate ? 1 / number : number) : FA_SEARCH_FAILED;
}

/* What is meant by the names of failures in either format. */
static double cost_of_failure(const char *text)
{
    return strcasecmp(text, "InvalidConfig") == 0 || strcasecmp(text, "constraints") == 0 ? no_point
           : strncasecmp(text, "compil", 6) == 0 ? FA_SEARCH_UNBUILT
                                                 : FA_SEARCH_FAILED;
}

static const cJSON *get(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static double cost_in_cache(const char *objective, const cJSON *entry)
{
    const cJSON *error = get(entry, "__error__"), *value = get(entry, objective);
    if (cJSON_IsString(error))
        return cost_of_failure(error->valuestring);
    if (cJSON_IsString(value))
        return cost_of_failure(value->valuestring);
    return cJSON_IsNumber(value) ? cost_of(objective, value->valuedouble) : FA_SEARCH_FAILED;
}

static double cost_in_t4(const char *objective, const cJSON *result)
{
    const cJSON *invalidity = get(result, "invalidity"), *at;
    if (cJSON_IsString(invalidity) && strcasecmp(invalidity->valuestring, "correct") != 0)
        return cost_of_failure(invalidity->valuestring);
    cJSON_ArrayForEach (at, get(result, "measurements")) {
        const cJSON *name = get(at, "name"), *value = get(at, "value");
        if (cJSON_IsString(name) && strcmp(name->valuestring, objective) == 0 &&
            cJSON_IsNumber(value))
            return cost_of(objective, value->valuedouble);
    }
    double sum = 0;
    int count = 0;
    cJSON_ArrayForEach (at, get(get(result, "times"), "runtimes")) {
        sum += cJSON_IsNumber(at) ? at->valuedouble : NAN;
        count++;
    }
    return count > 0 && strcmp(objective, "time") == 0 ? cost_of(objective, sum / count)
                                                       : FA_SEARCH_FAILED;
}

/* ---- parameters -----------------------------------------------------------------------------*/
static int add_key(struct reader *r, const char *key)
{
    for (int i = 0; i < r->keys; i++)
        if (strcmp(r->key[i], key) == 0)
            return 0;
    if (r->keys == FA_SEARCH_DIMS_MAX)
        return fa_fail(r->diag, FA_EINVAL, "%s: has more than %d parameters", r->where,
                       FA_SEARCH_DIMS_MAX);
    r->key[r->keys++] = key;
    return 0;
}

/* What lacks a parameter comes first, then flags, numbers and texts, each in their order. */
static int kind_of(const cJSON *value)
{
    return value == NULL ? 0 : cJSON_IsBool(value) ? 1 : cJSON_IsNumber(value) ? 2 : 3;
}

static int compare_values(const void *a, const void *b)
{
    const cJSON *x = *(const cJSON *const *)a, *y = *(const cJSON *const *)b;
    int kind = kind_of(x);
    if (kind != kind_of(y))
        return kind - kind_of(y);
    if (kind == 1)
        return cJSON_IsTrue(x) - cJSON_IsTrue(y);
    if (kind == 2)
        return (x->valuedouble > y->valuedouble) - (x->valuedouble < y->valuedouble);
    return kind == 3 ? strcmp(x->valuestring, y->valuestring) : 0;
}

/* Gives each entry the number of its value among those that occur. */
static int index_parameter(struct reader *r, int d)
{
    fa_search_space *space = &r->recorded->walk.space;
    for (int32_t i = 0; i < r->entries; i++) {
        const cJSON *value = get(r->entry[i].config, r->key[d]);
        bool plain = value == NULL || cJSON_IsBool(value) || cJSON_IsString(value) ||
                     (cJSON_IsNumber(value) && isfinite(value->valuedouble));
        if (!plain)
            return fa_fail(r->diag, FA_EINVAL,
                           "%s: a config's \"%s\" is no number, text, true or false", r->where,
                           r->key[d]);
        r->value[i] = r->sorted[i] = value;
    }
    qsort(r->sorted, (size_t)r->entries, sizeof *r->sorted, compare_values);
    int32_t count = 0;
    for (int32_t i = 0; i < r->entries; i++)
        if (count == 0 || compare_values(&r->sorted[count - 1], &r->sorted[i]) != 0)
            r->sorted[count++] = r->sorted[i];
    uint8_t *twos = r->recorded->twos[d] = malloc((size_t)count);
    if (twos == NULL)
        return fa_fail(r->diag, FA_ENOMEM, "out of memory for %s", r->where);
    for (int32_t i = 0; i < count; i++)
        twos[i] =
            (uint8_t)fa_search_twos(cJSON_IsNumber(r->sorted[i]) ? r->sorted[i]->valuedouble : 0);
    for (int32_t i = 0; i < r->entries; i++) {
        const cJSON **at =
            bsearch(&r->value[i], r->sorted, (size_t)count, sizeof *r->sorted, compare_values);
        r->index[(size_t)i * (size_t)r->keys + (size_t)d] = (int32_t)(at - r->sorted);
    }
    space->values[d] = count;
    r->recorded->parameters += count > 1;
    return 0;
}

/* ---- the two formats ------------------------------------------------------------------------*/
static const char *first_text(const cJSON *json, const char *otherwise)
{
    if (cJSON_IsArray(json))
        json = json->child;
    return cJSON_IsString(json) && json->valuestring[0] != 0 ? json->valuestring : otherwise;
}

static void copy(char *ret, size_t size, const cJSON *json)
{
    snprintf(ret, size, "%s", cJSON_IsString(json) ? json->valuestring : "");
}

static int make_room(struct reader *r, const cJSON *list)
{
    size_t count = 0;
    const cJSON *at;
    cJSON_ArrayForEach (at, list)
        count++;
    if (count == 0 || count > ENTRIES_MAX)
        return fa_fail(r->diag, FA_EINVAL, "%s: has %zu configs: 1 to %d can be replayed", r->where,
                       count, ENTRIES_MAX);
    r->entry = calloc(count, sizeof *r->entry);
    r->value = calloc(count, sizeof *r->value);
    r->sorted = calloc(count, sizeof *r->sorted);
    return r->entry != NULL && r->value != NULL && r->sorted != NULL
               ? 0
               : fa_fail(r->diag, FA_ENOMEM, "out of memory for %s", r->where);
}

static int read_cache(struct reader *r, const cJSON *document)
{
    struct recorded *about = r->recorded;
    const cJSON *cache = get(document, "cache"), *keys = get(document, "tune_params_keys"), *at;
    const char *objective = first_text(get(document, "objective"), "time");
    int rc = 0;
    if (!cJSON_IsObject(cache) || !cJSON_IsArray(keys))
        return fa_fail(r->diag, FA_EINVAL,
                       "%s: it is neither a cache file (\"cache\" and \"tune_params_keys\") nor T4 "
                       "(\"results\")",
                       r->where);
    copy(about->kernel, sizeof about->kernel, get(document, "kernel_name"));
    copy(about->device, sizeof about->device, get(document, "device_name"));
    snprintf(about->objective, sizeof about->objective, "%s", objective);
    rc = make_room(r, cache);
    cJSON_ArrayForEach (at, keys) {
        if (rc == 0 && !cJSON_IsString(at))
            rc = fa_fail(r->diag, FA_EINVAL, "%s: a name in \"tune_params_keys\" is no text",
                         r->where);
        if (rc == 0)
            rc = add_key(r, at->valuestring);
    }
    if (rc != 0)
        return rc;
    cJSON_ArrayForEach (at, cache) {
        if (!cJSON_IsObject(at))
            return fa_fail(r->diag, FA_EINVAL, "%s: an entry of \"cache\" is no object", r->where);
        r->entry[r->entries] = (struct entry){at, cost_in_cache(objective, at)};
        r->entries += r->entry[r->entries].cost != no_point;
    }
    return 0;
}

static int read_t4(struct reader *r, const cJSON *document)
{
    const cJSON *results = get(document, "results"), *result, *at;
    struct recorded *about = r->recorded;
    int rc = make_room(r, results);
    if (rc != 0)
        return rc;
    const char *objective = first_text(get(results->child, "objectives"), "time");
    snprintf(about->objective, sizeof about->objective, "%s", objective);
    copy(about->kernel, sizeof about->kernel, get(get(document, "metadata"), "kernel"));
    copy(about->device, sizeof about->device, get(get(document, "metadata"), "device"));
    cJSON_ArrayForEach (result, results) {
        const cJSON *config = get(result, "configuration");
        if (!cJSON_IsObject(config))
            return fa_fail(r->diag, FA_EINVAL, "%s: a result has no \"configuration\"", r->where);
        cJSON_ArrayForEach (at, config) {
            rc = add_key(r, at->string);
            if (rc != 0)
                return rc;
        }
        r->entry[r->entries] = (struct entry){config, cost_in_t4(objective, result)};
        r->entries += r->entry[r->entries].cost != no_point;
    }
    return 0;
}

/* ---- the space ------------------------------------------------------------------------------*/
/* Of a config that is there twice, the first counts. */
static int make_space(struct reader *r)
{
    struct recorded *recorded = r->recorded;
    fa_search_space space = {.dims = r->keys};
    uint64_t size = 1;
    if (r->keys == 0 || r->entries == 0)
        return fa_fail(r->diag, FA_EINVAL, "%s: has no %s", r->where,
                       r->keys == 0 ? "parameters" : "config that its restrictions allow");
    r->index = calloc((size_t)r->entries * (size_t)r->keys, sizeof *r->index);
    if (r->index == NULL)
        return fa_fail(r->diag, FA_ENOMEM, "out of memory for %s", r->where);
    for (int d = 0; d < r->keys; d++) {
        int rc = index_parameter(r, d);
        if (rc != 0)
            return rc;
        space.values[d] = recorded->walk.space.values[d];
        if (space.values[d] > FA_SEARCH_VALUES_MAX ||
            size > (UINT64_C(1) << 62) / (uint64_t)space.values[d])
            return fa_fail(r->diag, FA_EINVAL, "%s: has too many combinations of values", r->where);
        size *= (uint64_t)space.values[d];
    }
    int rc = fa_walk_init(&recorded->walk, &space, &(fa_search_options){.evaluations = 1});
    for (int32_t i = 0; i < r->entries && rc == 0; i++) {
        uint64_t rank = fa_walk_rank(&recorded->walk, r->index + (size_t)i * (size_t)r->keys);
        if (fa_walk_find(&recorded->walk, rank) != NULL)
            continue;
        fa_known *known = fa_walk_add(&recorded->walk, rank);
        if (known == NULL) {
            rc = FA_ENOMEM;
            break;
        }
        known->cost = r->entry[i].cost;
        recorded->points++;
        recorded->unbuilt += known->cost == FA_SEARCH_UNBUILT;
        recorded->failed += known->cost == FA_SEARCH_FAILED;
        if (known->cost > 0 && !(recorded->optimum <= known->cost))
            recorded->optimum = known->cost;
    }
    if (rc != 0)
        return fa_fail(r->diag, rc, "out of memory for %s", r->where);
    return isfinite(recorded->optimum)
               ? 0
               : fa_fail(r->diag, FA_EINVAL, "%s: no config of it has a usable \"%s\"", r->where,
                         recorded->objective);
}

static int parse(const char *text, size_t size, const char *where, struct recorded *recorded,
                 fa_diag *diag)
{
    struct reader reader = {.where = where, .diag = diag, .recorded = recorded};
    cJSON *document = NULL;
    int rc = fa_json_parse(text, size, where, &document, diag);
    if (rc == 0)
        rc = cJSON_IsArray(get(document, "results")) ? read_t4(&reader, document)
                                                     : read_cache(&reader, document);
    if (rc == 0)
        rc = make_space(&reader);
    cJSON_Delete(document);
    free(reader.entry);
    free((void *)reader.value);
    free((void *)reader.sorted);
    free(reader.index);
    return rc;
}

/* A cache file is closed by who reads it last; until then its last entry ends with a comma. */
static void close_cache(fa_buf *text)
{
    size_t size = text->size;
    while (size > 0 && strchr(" \t\r\n", text->data[size - 1]) != NULL)
        size--;
    if (size > 0 && text->data[size - 1] == ',') {
        text->size = size - 1;
        fa_buf_text(text, "}}");
    }
}

static int read_file(const char *path, struct recorded *recorded, fa_diag *diag)
{
    fa_buf text = {0};
    int rc = fa_input_read(&text, path, FILE_MAX, diag);
    if (rc != 0)
        return fa_fail_in(diag, rc, "%s", path);
    close_cache(&text);
    rc = text.failed ? fa_fail(diag, FA_ENOMEM, "out of memory for %s", path)
                     : parse(text.data != NULL ? text.data : "", text.size, path, recorded, diag);
    fa_buf_free(&text);
    return rc;
}

/* ---- searches of it -------------------------------------------------------------------------*/
static const fa_known *find(void *recorded, const int32_t *point)
{
    const fa_walk *walk = &((struct recorded *)recorded)->walk;
    return fa_walk_find(walk, fa_walk_rank(walk, point));
}

static bool is_valid(void *recorded, const int32_t *point)
{
    return find(recorded, point) != NULL;
}

static int twos_of(void *recorded, int dim, int32_t value)
{
    return ((struct recorded *)recorded)->twos[dim][value];
}

/* Optimum over found; 0: nothing was found. Negative: no memory, or no such strategy. */
static double search(struct recorded *recorded, const fa_search_options *how, int batch,
                     const char **ret_name, double *evaluations, fa_diag *diag)
{
    static int32_t points[BATCH_MAX * FA_SEARCH_DIMS_MAX];
    fa_search_space space = recorded->walk.space;
    space.valid = is_valid;
    space.twos = twos_of;
    space.context = recorded;
    fa_search *search;
    double cost;
    int count;
    if (fa_search_open(&space, how, &search, diag) != 0)
        return -1;
    while ((count = fa_search_propose(search, batch, points)) > 0)
        for (int i = 0; i < count; i++)
            fa_search_tell(search, points + i * space.dims,
                           find(recorded, points + i * space.dims)->cost);
    double share = fa_search_best(search, NULL, &cost) ? recorded->optimum / cost : 0;
    *ret_name = fa_search_name(search);
    *evaluations += (double)fa_search_spent(search);
    fa_search_close(search);
    return share;
}

static int compare_shares(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int run_strategy(struct recorded *recorded, fa_search_options how, int repeats, int batch)
{
    const uint64_t seed = how.seed;
    const char *chosen = "";
    double *share = calloc((size_t)repeats, sizeof *share), evaluations = 0;
    fa_diag diag = {{0}};
    for (int i = 0; i < repeats; i++) {
        how.seed = seed + (uint64_t)i;
        share[i] = search(recorded, &how, batch, &chosen, &evaluations, &diag);
        if (share[i] < 0) {
            fprintf(stderr, "search_replay: %s\n", diag.text);
            free(share);
            return 1;
        }
    }
    qsort(share, (size_t)repeats, sizeof *share, compare_shares);
    printf("%-10s  %6.3f  %16.3f  %11.0f  %s\n", how.strategy,
           (share[(repeats - 1) / 2] + share[repeats / 2]) / 2, share[(repeats - 1) / 10],
           evaluations / repeats, strcmp(chosen, how.strategy) != 0 ? chosen : "");
    free(share);
    return 0;
}

int main(int count, char **arguments)
{
    static struct recorded recorded = {.optimum = NAN};
    fa_search_options how = {.strategy = "auto", .evaluations = 100};
    int repeats = 100, batch = 1, rc = 0;
    fa_diag diag = {{0}};
    for (int i = 2; i + 1 < count; i += 2) {
        const char *name = arguments[i], *value = arguments[i + 1];
        int number = atoi(value) > 0 ? atoi(value) : 0;
        if (strcmp(name, "--strategy") == 0)
            how.strategy = value;
        else if (strcmp(name, "--evaluations") == 0)
            how.evaluations = number;
        else if (strcmp(name, "--repeats") == 0)
            repeats = number;
        else if (strcmp(name, "--batch") == 0)
            batch = number;
        else if (strcmp(name, "--seed") == 0)
            how.seed = (uint64_t)number;
        else
            rc = 2;
    }
    if (count % 2 != 0 || rc != 0 || repeats < 1 || batch < 1 || batch > BATCH_MAX) {
        fputs(
            "search_replay FILE [--strategy NAME|all] [--evaluations N] [--repeats N] [--batch N] [--seed N]\n",
            stderr);
        return 2;
    }
    if (read_file(arguments[1], &recorded, &diag) != 0) {
        fprintf(stderr, "search_replay: %s\n", diag.text);
        return 2;
    }
    printf("%s on %s: %ld configs of %d parameters, %ld did not compile, %ld failed\n",
           recorded.kernel, recorded.device, recorded.points, recorded.parameters, recorded.unbuilt,
           recorded.failed);
    puts("strategy    median  tenth percentile  evaluations");
    bool all = strcmp(how.strategy, "all") == 0;
    for (int i = 0; rc == 0 && (all ? fa_search_strategy(i) != NULL : i == 0); i++) {
        how.strategy = all ? fa_search_strategy(i) : how.strategy;
        rc = run_strategy(&recorded, how, repeats, batch);
    }
    fa_walk_free(&recorded.walk);
    for (int d = 0; d < FA_SEARCH_DIMS_MAX; d++)
        free(recorded.twos[d]);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * fa_replay(): searches of a recorded space.
 */
#include "error.h"
#include "fa_replay.h"
#include "recorded.h"
#include "search.h"

#include <stdlib.h>
#include <string.h>

enum { BATCH_MAX = 1024 };

const char *fa_replay_strategy(int32_t i, const char **ret_summary)
{
    return fa_search_strategy(i, ret_summary);
}

/* One search to its end. */
static int run_once(const fa_recorded *recorded, const fa_search_options *how, int batch,
                    int32_t *points, fa_replay_result *result, double *ret_share, fa_diag *diag)
{
    fa_search_space space = recorded->walk.space;
    space.valid = fa_recorded_valid;
    space.twos = fa_recorded_twos;
    space.context = (void *)(uintptr_t)recorded;
    fa_search *search;
    double cost;
    int count, rc = fa_search_open(&space, how, &search, diag);
    if (rc != 0)
        return rc;
    while (rc == 0 && (count = fa_search_propose(search, batch, points)) != 0) {
        rc = count < 0 ? count : 0;
        for (int i = 0; i < count && rc == 0; i++)
            rc = fa_search_tell(search, points + i * space.dims,
                                fa_recorded_cost(recorded, points + i * space.dims));
    }
    if (rc != 0)
        fa_fail(diag, rc, "out of memory for a search");
    *ret_share = fa_search_best(search, NULL, &cost) ? recorded->about.optimum / cost : 0;
    result->chosen = fa_search_name(search);
    result->evaluations += (double)fa_search_spent(search);
    fa_search_close(search);
    return rc;
}

static int compare_shares(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int run_strategy(const fa_recorded *recorded, const fa_replay_options *options,
                        const char *name, fa_diag *diag)
{
    fa_replay_result result = {.strategy = name};
    int32_t repeats = options->repeats;
    double *share = malloc((size_t)repeats * sizeof *share);
    int32_t *points = malloc((size_t)options->batch * FA_SEARCH_DIMS_MAX * sizeof *points);
    fa_search_options how = {.strategy = name, .evaluations = options->evaluations};
    int rc = share != NULL && points != NULL ? 0 : fa_fail(diag, FA_ENOMEM, "out of memory");
    for (int32_t i = 0; i < repeats && rc == 0; i++) {
        how.seed = options->seed + (uint64_t)i;
        rc = run_once(recorded, &how, options->batch, points, &result, &share[i], diag);
    }
    if (rc == 0) {
        qsort(share, (size_t)repeats, sizeof *share, compare_shares);
        result.median = (share[(repeats - 1) / 2] + share[repeats / 2]) / 2;
        result.tenth = share[(repeats - 1) / 10];
        result.evaluations /= repeats;
        rc = options->visit != NULL ? options->visit(options->context, &result) : 0;
    }
    free(share);
    free(points);
    return rc;
}

/* The strategy of that name as it is spelled for good; NULL: there is none. */
static const char *find_strategy(const char *name)
{
    const char *is, *summary;
    for (int i = 0; (is = fa_search_strategy(i, &summary)) != NULL; i++)
        if (strcmp(is, name) == 0)
            return is;
    return NULL;
}

int fa_replay(const fa_replay_options *given, fa_replay_space *ret_space, fa_diag *diag)
{
    fa_replay_options options = {0};
    if (given == NULL || given->size < offsetof(fa_replay_options, visit) || given->file == NULL)
        return fa_fail(diag, FA_EINVAL, "fa_replay() needs options with their size and a file");
    memcpy(&options, given, given->size < sizeof options ? given->size : sizeof options);
    options.evaluations = options.evaluations != 0 ? options.evaluations : 100;
    options.repeats = options.repeats != 0 ? options.repeats : 100;
    options.batch = options.batch != 0 ? options.batch : 1;
    if (options.evaluations < 1 || options.repeats < 1 || options.batch < 1 ||
        options.batch > BATCH_MAX)
        return fa_fail(diag, FA_EINVAL,
                       "evaluations and repeats are at least 1, and a batch has 1 to %d points",
                       BATCH_MAX);
    const char *name = options.strategy != NULL ? options.strategy : "auto", *summary;
    bool all = strcmp(name, "all") == 0;
    if (!all && find_strategy(name) == NULL)
        return fa_fail(diag, FA_EINVAL,
                       "there is no strategy \"%s\": all, auto, exhaustive, random, greedy, "
                       "annealing, evolution and surrogate can be replayed",
                       name);
    fa_recorded recorded;
    int rc = fa_recorded_read(options.file, &recorded, diag);
    if (rc != 0)
        return rc;
    if (ret_space != NULL)
        *ret_space = recorded.about;
    if (!all)
        rc = run_strategy(&recorded, &options, find_strategy(name), diag);
    for (int i = 0; all && rc == 0 && (name = fa_search_strategy(i, &summary)) != NULL; i++)
        rc = run_strategy(&recorded, &options, name, diag);
    fa_recorded_free(&recorded);
    return rc;
}

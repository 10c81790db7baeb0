/* SPDX-License-Identifier: Apache-2.0
 *
 * Searches a space of which every point's cost is known: what tests/bench/search_replay.py runs, and where its input comes from.
 *
 *     search_replay STRATEGY EVALUATIONS REPEATS BATCH SEED     STRATEGY: or "all"
 *
 * Input: how many parameters and how many points; for each parameter how many values and these, 0 for what is no number; for
 * each point the places of its values and its cost, FA_SEARCH_UNBUILT or FA_SEARCH_FAILED. Prints a line for each search: the
 * strategy, what it came to ("auto"), the evaluations that it spent and the cost that it found, 0 for none.
 */
#include "error.h"
#include "search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH_MAX = 1024 };

static fa_search *walk; /* knows every point with its cost */
static uint8_t *twos[FA_SEARCH_DIMS_MAX];

static const fa_known *find(const int32_t *point)
{
    return fa_walk_find(walk, fa_walk_rank(walk, point));
}

static bool is_valid(void *context, const int32_t *point)
{
    (void)context;
    return find(point) != NULL;
}

static int twos_of(void *context, int dim, int32_t value)
{
    (void)context;
    return twos[dim][value];
}

static bool anywhere(void *context, const int32_t *point)
{
    (void)context, (void)point;
    return true;
}

/* 0: the input is not as it must be. */
static int read_space(fa_search_space *space)
{
    fa_search_space whole;
    int32_t point[FA_SEARCH_DIMS_MAX];
    long points = 0;
    double number;
    if (scanf("%d %ld", &space->dims, &points) != 2 || space->dims < 1 ||
        space->dims > FA_SEARCH_DIMS_MAX)
        return 0;
    for (int d = 0; d < space->dims; d++) {
        if (scanf("%d", &space->values[d]) != 1 || space->values[d] < 1 ||
            space->values[d] > FA_SEARCH_VALUES_MAX ||
            (twos[d] = malloc((size_t)space->values[d])) == NULL)
            return 0;
        for (int32_t i = 0; i < space->values[d]; i++) {
            if (scanf("%lf", &number) != 1)
                return 0;
            twos[d][i] = (uint8_t)fa_search_twos(number);
        }
    }
    whole = *space;
    whole.valid = anywhere;
    if (fa_search_open(&whole, &(fa_search_options){"random", .evaluations = 1}, &walk, NULL) != 0)
        return 0;
    for (long i = 0; i < points; i++) {
        for (int d = 0; d < space->dims; d++)
            if (scanf("%d", &point[d]) != 1 || point[d] < 0 || point[d] >= space->values[d])
                return 0;
        if (scanf("%lf", &number) != 1 || fa_search_tell(walk, point, number) != 0)
            return 0;
    }
    return 1;
}

static int search_once(const fa_search_space *space, const fa_search_options *how, int batch)
{
    static int32_t points[BATCH_MAX * FA_SEARCH_DIMS_MAX];
    fa_search *search;
    fa_diag diag = {{0}};
    double least = 0;
    int count;
    if (fa_search_open(space, how, &search, &diag) != 0)
        return fprintf(stderr, "search_replay: %s\n", diag.text), 1;
    while ((count = fa_search_propose(search, batch, points)) > 0)
        for (int i = 0; i < count; i++) {
            const double cost = find(points + i * space->dims)->cost;
            fa_search_tell(search, points + i * space->dims, cost);
            least = cost > 0 && (!(least > 0) || cost < least) ? cost : least;
        }
    printf("%s %s %ld %.17g\n", how->strategy, search->strategy->name, (long)search->spent, least);
    fa_search_close(search);
    return 0;
}

int main(int count, char **arguments)
{
    static fa_search_space space = {.valid = is_valid, .twos = twos_of};
    fa_search_options how = {.evaluations = count == 6 ? atoi(arguments[2]) : 0};
    const int repeats = count == 6 ? atoi(arguments[3]) : 0,
              batch = count == 6 ? atoi(arguments[4]) : 0;
    int rc = 0;
    if (batch < 1 || batch > BATCH_MAX || !read_space(&space))
        return fputs("search_replay: tests/bench/search_replay.py runs it\n", stderr), 2;
    const bool all = strcmp(arguments[1], "all") == 0;
    fa_diag diag = {{0}};
    const char *strategy = all ? NULL : arguments[1];
    if (fa_search_check(&strategy, (int32_t)how.evaluations, 0, &diag) != 0)
        return fprintf(stderr, "search_replay: %s\n", diag.text), 1;
    for (int i = 0; rc == 0 && (all ? fa_search_strategy(i) != NULL : i == 0); i++)
        for (int r = 0; rc == 0 && r < repeats; r++) {
            how.strategy = all ? fa_search_strategy(i) : arguments[1];
            how.seed = (uint64_t)atoi(arguments[5]) + (uint64_t)r;
            rc = search_once(&space, &how, batch);
        }
    return rc;
}

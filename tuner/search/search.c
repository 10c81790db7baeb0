/* SPDX-License-Identifier: Apache-2.0 */
#include "search.h"

#include "error.h"
#include "manifest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* NULL: "auto". */
static const fa_strategy *const strategies[] = {
    NULL,
    &fa_strategy_exhaustive,
    &fa_strategy_random,
    &fa_strategy_surrogate,
};
enum { STRATEGIES = sizeof strategies / sizeof *strategies };

const char *fa_search_strategy(int i)
{
    return i < 0 || i >= STRATEGIES ? NULL : strategies[i] == NULL ? "auto" : strategies[i]->name;
}

/* -1: there is none of that name. */
static int find_strategy(const char *name)
{
    int i = STRATEGIES - 1;
    while (i >= 0 && strcmp(fa_search_strategy(i), name) != 0)
        i--;
    return i;
}

int fa_search_check(const char **strategy, int32_t evaluations, double seconds, fa_diag *diag)
{
    if (evaluations < 0 || evaluations > FA_SPACE_MAX)
        return fa_fail(diag, FA_EINVAL, "evaluations is %d: use 1 to %d, or 0 for the default",
                       evaluations, FA_SPACE_MAX);
    if (!(seconds >= 0 && seconds <= 1e9))
        return fa_fail(diag, FA_EINVAL, "seconds must be 0 to 10^9");
    if (*strategy == NULL)
        return 0;
    int at = find_strategy(*strategy);
    if (at < 0)
        return fa_fail(diag, FA_EINVAL,
                       "there is no strategy \"%.60s\": use auto, exhaustive, random or surrogate",
                       *strategy);
    *strategy = fa_search_strategy(at);
    return 0;
}

int fa_search_twos(double number)
{
    int count = 0;
    for (; number >= 2 && number <= INT32_MAX && fmod(number, 2) == 0; number /= 2)
        count++;
    return count;
}

/* ---- which one ------------------------------------------------------------------------------*/
enum { COUNTED_MAX = 1 << 17 /* combinations of a space that is counted */ };

/* Whether all points can be tried. */
static bool is_affordable(const fa_search *walk)
{
    int64_t count = 0;
    if (walk->size > COUNTED_MAX)
        return false;
    for (uint64_t rank = 0; rank < walk->size && count <= walk->expected; rank++)
        count += fa_walk_valid(walk, rank);
    return count <= walk->expected;
}

int fa_search_open(const fa_search_space *space, const fa_search_options *options,
                   fa_search **ret_search, fa_diag *diag)
{
    const char *name = options->strategy;
    fa_search *search = calloc(1, sizeof *search);
    int rc = search != NULL ? fa_walk_init(search, space, options) : FA_ENOMEM;
    if (rc == 0) {
        search->strategy = name != NULL ? strategies[find_strategy(name)] : NULL;
        if (search->strategy == NULL)
            search->strategy =
                is_affordable(search) ? &fa_strategy_exhaustive : &fa_strategy_surrogate;
        search->state = calloc(1, search->strategy->size + 1);
        rc = search->state != NULL ? 0 : FA_ENOMEM;
    }
    if (rc == 0) {
        *ret_search = search;
        return 0;
    }
    fa_search_close(search);
    return fa_fail(diag, rc,
                   rc == FA_ENOMEM ? "out of memory for a search"
                                   : "the space has more than 2^62 combinations");
}

void fa_search_close(fa_search *search)
{
    if (search == NULL)
        return;
    free(search->known);
    free(search->slot);
    free(search->state);
    free(search);
}

/* ---- asking and telling ---------------------------------------------------------------------*/
int fa_search_propose(fa_search *walk, int count, int32_t *ret_points)
{
    int found = 0;
    while (found < count && walk->spent + walk->pending < walk->evaluations) {
        uint64_t rank = walk->strategy->next(walk);
        if (walk->no_memory)
            return FA_ENOMEM;
        if (rank == FA_NO_POINT)
            break;
        if (fa_walk_add(walk, rank) == NULL)
            return found > 0 ? found : FA_ENOMEM;
        fa_walk_point(walk, rank, ret_points + found++ * walk->space.dims);
    }
    return found;
}

static bool is_point(const fa_search *walk, const int32_t *point)
{
    for (int d = 0; d < walk->space.dims; d++)
        if (point[d] < 0 || point[d] >= walk->space.values[d])
            return false;
    return true;
}

int fa_search_join(fa_search *walk, const int32_t *point)
{
    if (!is_point(walk, point) || !walk->space.valid(walk->space.context, point) ||
        fa_walk_find(walk, fa_walk_rank(walk, point)) != NULL)
        return FA_EINVAL;
    return fa_walk_add(walk, fa_walk_rank(walk, point)) != NULL ? 0 : FA_ENOMEM;
}

int fa_search_tell(fa_search *walk, const int32_t *point, double cost)
{
    if (!is_point(walk, point))
        return FA_EINVAL;
    uint64_t rank = fa_walk_rank(walk, point);
    fa_known *known = fa_walk_find(walk, rank);
    if (known != NULL && known->cost != 0)
        return 0;
    if (known == NULL && !walk->space.valid(walk->space.context, point))
        return FA_EINVAL;
    known = known != NULL ? known : fa_walk_add(walk, rank);
    if (known == NULL)
        return FA_ENOMEM;
    known->cost =
        (cost > 0 && isfinite(cost)) || cost == FA_SEARCH_UNBUILT ? cost : FA_SEARCH_FAILED;
    walk->pending--;
    walk->spent += known->cost != FA_SEARCH_UNBUILT;
    return 0;
}

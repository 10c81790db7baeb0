/* SPDX-License-Identifier: Apache-2.0
 *
 * Workload: some hundred thousand points asked about in one search, of which few exist; a microsecond each.
 */
#include "search.h"

#include "error.h"
#include "family.h"
#include "problem.h"

#include <stdlib.h>
#include <string.h>

_Static_assert((int)FA_FAMILIES_MAX <= (int)FA_SEARCH_VALUES_MAX &&
                   (int)FA_MAX_DOMAIN <= (int)FA_SEARCH_VALUES_MAX,
               "values of a search's parameters");

/* Sets the tunables of the point's first values; false: there is no such point, or it breaks a constraint already. */
static bool begins(void *context, const int32_t *at, int count)
{
    fa_points *points = context;
    const int first = points->count > 1;
    const int of = first != 0 ? at[0] : 0;
    fa_point *point = &points->family[of].point;
    const fa_family *f = point->family;
    int64_t steps = 0;
    for (int i = 0; i < count - first && !points->family[of].empty; i++) {
        int32_t value = at[first + i];
        if (value >= (i < f->tunable_count ? f->tunable[i].count : 1))
            return false;
        if (i >= f->tunable_count)
            continue;
        fa_point_set(point, i, f->tunable[i].value[value]);
        if (fa_point_breaks(point, i + 1, &steps))
            return false;
    }
    return !points->family[of].empty;
}

static bool exists(void *context, const int32_t *at)
{
    fa_points *points = context;
    fa_point *point = &points->family[points->count > 1 ? at[0] : 0].point;
    if (!begins(points, at, points->space.dims))
        return false;
    points->judged = (fa_candidate){.family = 0};
    point->rc = 0;
    point->diag = points->rc == 0 ? &points->diag : NULL;
    int rc = fa_point_judge(point, &points->judged);
    points->rc = points->rc != 0 ? points->rc : rc;
    return rc == 0 && points->judged.trial.status == FA_STATUS_PENDING;
}

/* Of several families a value is a number of each, so they have none. */
static int twos(void *context, int dim, int32_t value)
{
    const fa_points *points = context;
    const fa_family *f = points->family[0].point.family;
    return points->count == 1 && dim < f->tunable_count
               ? fa_search_twos(f->tunable[dim].value[value])
               : 0;
}

/* The parameters: each has as many values as the family that has the most. */
static void add_parameters(fa_points *points)
{
    fa_search_space *space = &points->space;
    const int first = points->count > 1;
    space->dims = first;
    space->values[0] = points->count;
    for (int k = 0; k < points->count; k++) {
        const fa_family *f = points->family[k].point.family;
        for (int i = 0; i < f->tunable_count; i++) {
            int d = first + i;
            if (d >= space->dims)
                space->values[space->dims++] = 1;
            if (f->tunable[i].count > space->values[d])
                space->values[d] = f->tunable[i].count;
        }
    }
    if (space->dims == 0) /* one family without tunables */
        space->dims = 1;
    space->valid = exists;
    space->begins = begins;
    space->twos = twos;
    space->context = points;
}

int fa_points_open(const fa_task *task, fa_points **ret_points, fa_diag *diag)
{
    const fa_family_list *families = task->families;
    int64_t all;
    bool serves[FA_FAMILIES_MAX];
    fa_points *points =
        calloc(1, sizeof *points + (size_t)families->count * sizeof *points->family);
    int rc = points == NULL ? fa_fail(diag, FA_ENOMEM, "out of memory for a space")
                            : fa_families_choose(task, serves, &all, diag);
    for (int i = 0; rc == 0 && i < families->count; i++) {
        if (!serves[i])
            continue;
        fa_point *point = &points->family[points->count++].point;
        int64_t steps = 0;
        rc = fa_point_open(point, task, i, diag);
        points->family[points->count - 1].empty = fa_point_breaks(point, 0, &steps);
    }
    if (rc != 0) {
        fa_points_close(&points);
        return rc;
    }
    add_parameters(points);
    *ret_points = points;
    return 0;
}

void fa_points_close(fa_points **points)
{
    if (points == NULL)
        return;
    free(*points);
    *points = NULL;
}

void fa_points_candidate(fa_points *points, const int32_t *point, fa_candidate *ret_candidate)
{
    exists(points, point);
    *ret_candidate = points->judged;
}

bool fa_points_find(fa_points *points, const fa_config *config, int32_t *ret_point)
{
    const int first = points->count > 1;
    int k = 0;
    while (k < points->count && strcmp(points->family[k].point.preset.family, config->family) != 0)
        k++;
    if (k == points->count || config->count != points->family[k].point.preset.count)
        return false;
    const fa_family *f = points->family[k].point.family;
    memset(ret_point, 0, (size_t)points->space.dims * sizeof *ret_point);
    ret_point[0] = k; /* or the first tunable's */
    for (int i = 0; i < f->tunable_count; i++) {
        int32_t value = 0;
        if (!fa_config_get(config, f->tunable[i].name, &value) ||
            (ret_point[first + i] = fa_domain_index(&f->tunable[i], value)) < 0)
            return false;
    }
    return exists(points, ret_point);
}

bool fa_points_give_up(fa_points *points, int family)
{
    bool left = false;
    for (int i = 0; i < points->count; i++) {
        points->family[i].empty =
            points->family[i].empty || points->family[i].point.index == family;
        left = left || !points->family[i].empty;
    }
    return left;
}

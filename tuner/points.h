/* SPDX-License-Identifier: Apache-2.0
 *
 * The space of a problem on a GPU as points to be searched: never built, each config judged when it is asked about.
 *
 * A point has the family where several serve (the first parameter), then an index into the domain of each tunable;
 * families with fewer tunables or values than others leave the rest at 0.
 * May be used by: engine. Not for several threads at once.
 */
#ifndef FA_TUNER_POINTS_H
#define FA_TUNER_POINTS_H

#include "family.h"
#include "search.h"

typedef struct fa_points {
    fa_search_space space; /* points exist where a config holds to the constraints and the budget */
    int rc; /* FA_EMANIFEST: an expression had no value where a point was asked about */
    fa_diag diag;
    fa_candidate judged; /* the point that was last asked about */
    int count;
    struct {
        fa_point point; /* whose preset is the default config, which may not exist */
        bool empty;     /* whatever the tunables are */
    } family[];         /* those that serve */
} fa_points;

/* The families, which must outlive it, as fa_space_enumerate() chooses them. */
int fa_points_open(const fa_task *task, fa_points **ret_points, fa_diag *diag);
void fa_points_close(fa_points **points); /* NULL and pointer to NULL are allowed */

/* The config of a point that exists, as fa_space_one() judges it. */
void fa_points_candidate(fa_points *points, const int32_t *point, fa_candidate *ret_candidate);
/* The point of a config; false: it is none of the space. */
bool fa_points_find(fa_points *points, const fa_config *config, int32_t *ret_point);
/* From now on no point of the family, of that index in the list, exists; false: none of another family does either. */
bool fa_points_give_up(fa_points *points, int family);

#endif

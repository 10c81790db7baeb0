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

#include "manifest.h"
#include "search.h"

typedef struct fa_points fa_points;

/* The families, which must outlive it, as fa_space_enumerate() chooses them. */
int fa_points_open(const fa_task *task, fa_points **ret_points, fa_diag *diag);
void fa_points_close(fa_points **points); /* NULL and pointer to NULL are allowed */

/* Points exist where a config holds to the constraints and the budget. */
const fa_search_space *fa_points_space(const fa_points *points);
/* FA_EMANIFEST: an expression had no value where a point was asked about. */
int fa_points_check(const fa_points *points, fa_diag *diag);

/* The config of a point that exists, as fa_space_one() judges it. */
void fa_points_candidate(fa_points *points, const int32_t *point, fa_candidate *ret_candidate);
/* The point of a config; false: it is none of the space. */
bool fa_points_find(fa_points *points, const fa_config *config, int32_t *ret_point);
/* A point that shares no value with another, of tunables that have several; false: none was found. */
bool fa_points_opposite(fa_points *points, const int32_t *point, int32_t *ret_point);
/* From now on no point of the family, of that index in the list, exists; false: none of another family does either. */
bool fa_points_give_up(fa_points *points, int family);
/* The default config of the i-th family that serves, from 0 on; false past the last. It may not exist. */
bool fa_points_default(const fa_points *points, int i, fa_config *ret_config);

#endif

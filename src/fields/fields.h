/* SPDX-License-Identifier: Apache-2.0
 *
 * What a user's texts say that a problem's fields say, too: then kernels of the fields serve them, and nothing is compiled.
 *
 * Workload: a text for each request; a hit in a process asks for none.
 */
#ifndef FA_FIELDS_FIELDS_H
#define FA_FIELDS_FIELDS_H

#include "fa_types.h"

/* The same problem. A mask of attention that is comparisons of q - k with whole numbers, joined by "and", is gone, and
 * causal and window say it; any other problem is as it was. */
fa_problem fa_fields_settle(const fa_problem *problem);

#endif

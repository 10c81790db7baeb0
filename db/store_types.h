/* SPDX-License-Identifier: Apache-2.0
 *
 * What every header about the store speaks of.
 */
#ifndef FA_DB_STORE_TYPES_H
#define FA_DB_STORE_TYPES_H

#include "fa_types.h"
#include "hash.h"
#include "problem.h"

typedef struct fa_store fa_store;

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What a lease and a claim of the queue have in common.
 */
#ifndef FA_DB_LEASES_H
#define FA_DB_LEASES_H

#include "statements.h"

bool fa_db_holder_ok(const char *holder);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables, as steps from each version to the next.
 */
#ifndef FA_DB_SCHEMA_H
#define FA_DB_SCHEMA_H

#include "store.h"

/* steps[i] takes a store from version i to i + 1; one text for all databases. */
extern const char *const fa_db_schema_steps[FA_STORE_SCHEMA];

#endif

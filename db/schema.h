/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables, and what is said of a store that has others.
 */
#ifndef FA_DB_SCHEMA_H
#define FA_DB_SCHEMA_H

#include "database.h"

/* Makes the tables of version FA_STORE_SCHEMA; one text for all databases. */
extern const char fa_db_schema[];

/* FA_EVERSION, with its sentence: the store is of another version than this library's. `instead`: what
 * else the user may do. */
int fa_db_refuse_version(const fa_store *store, int64_t version, const char *instead,
                         fa_diag *diag);

#endif

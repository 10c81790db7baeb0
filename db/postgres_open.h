/* SPDX-License-Identifier: Apache-2.0
 *
 * A store on a PostgreSQL server.
 */
#ifndef FA_DB_POSTGRES_OPEN_H
#define FA_DB_POSTGRES_OPEN_H

#include "database.h"

bool fa_postgres_is_address(const char *path);
int fa_postgres_open(fa_store *store, const char *url, fa_diag *diag);

#endif

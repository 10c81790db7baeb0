/* SPDX-License-Identifier: Apache-2.0
 *
 * PostgreSQL as a backend.
 */
#ifndef FA_DB_POSTGRES_STATEMENTS_H
#define FA_DB_POSTGRES_STATEMENTS_H

#include "postgres_connection.h"

extern const fa_backend fa_postgres_backend;
/* Takes the notifications that have come, and keeps in mind whether some are from others. */
void fa_postgres_take_notes(struct fa_postgres *postgres);

#endif

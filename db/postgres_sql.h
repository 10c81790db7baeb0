/* SPDX-License-Identifier: Apache-2.0
 *
 * One text of SQL for both databases.
 */
#ifndef FA_DB_POSTGRES_SQL_H
#define FA_DB_POSTGRES_SQL_H

/* SQL as it is written for SQLite in PostgreSQL's words; malloced. Places ? and ?1 become $1; what
 * stands in a comment that begins with an exclamation mark is meant for PostgreSQL alone; unix_ms()
 * and the types of columns are its own. */
char *fa_postgres_sql(const char *sql);

#endif

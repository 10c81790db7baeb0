/* SPDX-License-Identifier: Apache-2.0
 *
 * Values into a prepared statement of PostgreSQL's and out of its rows.
 */
#ifndef FA_DB_POSTGRES_VALUES_H
#define FA_DB_POSTGRES_VALUES_H

#include "database.h"
#include "libpq.h"

enum { FA_POSTGRES_PLACES = 48, FA_POSTGRES_NUMBER = 24 };
/* fa_statement's handle. */
struct fa_prepared {
    const fa_pq *pq;
    char name[16];
    int bound; /* how many places have a value */
    const char *values[FA_POSTGRES_PLACES];
    int sizes[FA_POSTGRES_PLACES];
    int formats[FA_POSTGRES_PLACES]; /* 0: text; 1: the bytes as they are */
    char numbers[FA_POSTGRES_PLACES][FA_POSTGRES_NUMBER];
    char *copies[FA_POSTGRES_PLACES];
    PGresult *result; /* after the first step */
    int row;
};
/* A copy, with a question mark for every byte that is no part of UTF-8, which is all that the server takes. Caller
 * frees. */
char *fa_postgres_utf8(const char *text, size_t size);
int fa_postgres_bind(fa_statement *statement, int place, const fa_value *value);
void fa_postgres_column(fa_statement *statement, int index, fa_value *ret_value);

#endif

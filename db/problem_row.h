/* SPDX-License-Identifier: Apache-2.0
 *
 * A problem as two columns of a row, both text: its key and its JSON, which must agree when they are read.
 */
#ifndef FA_DB_PROBLEM_ROW_H
#define FA_DB_PROBLEM_ROW_H

#include "values.h"

#include "problem.h"

void fa_db_problem_bind(fa_binder *binder, const fa_problem *problem);
void fa_db_problem_read(fa_reader *reader, fa_problem *ret_problem);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A trial as columns of a row, the same in tables trial and winner.
 */
#ifndef FA_DB_TRIAL_ROW_H
#define FA_DB_TRIAL_ROW_H

#include "values.h"

#include "trial.h"

#define FA_TRIAL_COLUMNS "config_key, config" FA_TRIAL_FIELDS(FA_COLUMN_NAME, FA_COLUMN_NAME3)
#define FA_TRIAL_PLACES "?,?" FA_TRIAL_FIELDS(FA_COLUMN_PLACE, FA_COLUMN_PLACE3)

int fa_db_trial_check(const fa_trial *trial, fa_diag *diag);
void fa_db_trial_bind(fa_binder *binder, const fa_trial *trial);
void fa_db_trial_read(fa_reader *reader, fa_trial *ret_trial);

/* A config alone, as text of JSON. */
enum { FA_CONFIG_JSON_MAX = 1280 };
void fa_db_config_print(const fa_config *config, char ret_json[FA_CONFIG_JSON_MAX]);
void fa_db_config_read(fa_reader *reader, fa_config *ret_config);

#endif

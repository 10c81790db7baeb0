/* SPDX-License-Identifier: Apache-2.0
 *
 * A trial as columns of a row, the same in tables trial and winner.
 */
#ifndef FA_DB_TRIAL_ROW_H
#define FA_DB_TRIAL_ROW_H

#include "values.h"

#define FA_TRIAL_FIELDS(X)                                                     \
    X(STATUS, "status", status)                                                \
    X(TEXT, "reason", reason)                                                  \
    X(SIGNED, "threads", threads)                                              \
    X(SIGNED, "smem_bytes", smem_bytes)                                        \
    X(SIGNED, "registers", registers)                                          \
    X(SIGNED, "spill_bytes", spill_bytes)                                      \
    X(SIGNED, "blocks_per_sm", blocks_per_sm)                                  \
    X(UINT32, "grid_x", grid[0])                                               \
    X(UINT32, "grid_y", grid[1])                                               \
    X(UINT32, "grid_z", grid[2])                                               \
    X(TIME, "compile_ms", compile_ms)                                          \
    X(TIME, "predicted_us", predicted_us)                                      \
    X(TIME, "median_us", median_us)                                            \
    X(TIME, "low_us", low_us)                                                  \
    X(TIME, "high_us", high_us)                                                \
    X(INT32, "sample_count", sample_count)                                     \
    X(REAL, "max_error", max_error) /* may be NaN: that is how it was wrong */ \
    X(REAL, "tolerance", tolerance)                                            \
    X(BOOL, "raced", raced)
#define FA_TRIAL_COLUMNS "config_key, config" FA_TRIAL_FIELDS(FA_COLUMN_NAME)
#define FA_TRIAL_PLACES "?,?" FA_TRIAL_FIELDS(FA_COLUMN_PLACE)

int fa_db_trial_check(const fa_trial *trial, fa_diag *diag);
void fa_db_trial_bind(fa_binder *binder, const fa_trial *trial);
void fa_db_trial_read(fa_reader *reader, fa_trial *ret_trial);

/* A config alone, as text of JSON. */
enum { FA_CONFIG_JSON_MAX = 1024 };
void fa_db_config_print(const fa_config *config, char ret_json[FA_CONFIG_JSON_MAX]);
void fa_db_config_read(fa_reader *reader, fa_config *ret_config);

#endif

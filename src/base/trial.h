/* SPDX-License-Identifier: Apache-2.0
 *
 * A trial's fields, from which its JSON and its columns in the store (db/statements.h) both come, and the order of trials;
 * and the values of tunables.
 */
#ifndef FA_BASE_TRIAL_H
#define FA_BASE_TRIAL_H

#include "buf.h"
#include "error.h"
#include "json.h"

#include <cJSON.h>

/* ---- the value of a tunable ------------------------------------------------------------------*/
/* A whole number from 0 to FA_VALUE_MAX is itself, and what is none of these, a text or another number,
 * has a negative value of its own for as long as the process lives. Equal values are equal numbers; what leaves the process
 * says what they are.
 *
 * Thread-safety: any thread. What comes from outside cannot fill more than a bounded table. */
enum { FA_VALUE_MAX = INT32_MAX, FA_VALUE_TEXT_MAX = 40 };

/* A text of 1 to 31 printable bytes without quotes, backslashes and semicolons, or a finite number. FA_EINVAL: it is
 * neither, or a process has too many; FA_ENOMEM. */
int fa_value_of_text(const char *text, int32_t *ret_value, fa_diag *diag);
/* The same, of a field of a problem and of less than FA_EXPR_TEXT_MAX bytes; "" is 0. */
int fa_value_of_line(const char *text, int32_t *ret_value, fa_diag *diag);
int fa_value_of_number(double number, int32_t *ret_value, fa_diag *diag);
int fa_value_of_json(const cJSON *item, int32_t *ret_value, fa_diag *diag);

bool fa_value_is_text(int32_t value);
double fa_value_number(int32_t value); /* of what is no text */

/* As people read it, and as JSON has it, a text in quotes; in `room` where it is made. */
const char *fa_value_words(int32_t value, char room[FA_VALUE_TEXT_MAX]);
const char *fa_value_json(int32_t value, char room[FA_VALUE_TEXT_MAX]);

/* ---- trials ---------------------------------------------------------------------------------*/
#define FA_US_MAX 1e12 /* eleven days: no time that is read is as long */
/* In bytes: more than any GPU has, so that its sum with a block's dynamic shared memory is an int32_t. */
enum { FA_STATIC_SMEM_MAX = 1 << 20 };

/* X(KIND, "name", member, rules), and THREE("name", member) for the grid. All but the config. */
#define FA_TRIAL_FIELDS(X, THREE)                                                            \
    X(CHOICE, "status", status, .names = fa_status_names)                                    \
    X(TEXT, "reason", reason)                                                                \
    X(COUNT, "threads", threads, .rules = FA_MEMBER_UNKNOWN)                                 \
    X(COUNT, "smem_bytes", smem_bytes, .rules = FA_MEMBER_NULL, .known_by = "threads")       \
    X(COUNT, "static_smem_bytes", static_smem_bytes, .rules = FA_MEMBER_NULL,                \
      .known_by = "registers", .most = FA_STATIC_SMEM_MAX)                                   \
    X(COUNT, "registers", registers, .rules = FA_MEMBER_UNKNOWN)                             \
    X(COUNT, "spill_bytes", spill_bytes, .rules = FA_MEMBER_NULL, .known_by = "registers")   \
    X(COUNT, "blocks_per_sm", blocks_per_sm, .rules = FA_MEMBER_UNKNOWN)                     \
    THREE("grid", grid)                                                                      \
    X(REAL, "compile_ms", compile_ms, .rules = FA_MEMBER_UNKNOWN)                            \
    X(REAL, "predicted_us", predicted_us, .rules = FA_MEMBER_UNKNOWN)                        \
    X(REAL, "median_us", median_us, .rules = FA_MEMBER_UNKNOWN)                              \
    X(REAL, "low_us", low_us, .rules = FA_MEMBER_NULL, .known_by = "median_us")              \
    X(REAL, "high_us", high_us, .rules = FA_MEMBER_NULL, .known_by = "median_us")            \
    X(COUNT, "sample_count", sample_count, .rules = FA_MEMBER_NULL, .known_by = "median_us") \
    X(REAL, "max_error", max_error, .rules = FA_MEMBER_NAN,                                  \
      .known_by = "tolerance") /* of wrong output */                                         \
    X(REAL, "tolerance", tolerance, .rules = FA_MEMBER_UNKNOWN)                              \
    X(FLAG, "raced", raced)                                                                  \
    X(FLAG, "spilled", spilled, .rules = FA_MEMBER_LEFT_OUT)

/* A config as a row of a struct's table. */
#define FA_CONFIG_MEMBER(type, member)                                   \
    FA_MEMBER("config", OTHER, type, member, .write = fa_config_to_json, \
              .read = fa_config_from_json)

/* The config and all fields. */
extern const fa_member fa_trial_members[];
extern const fa_member fa_gpu_members[];
/* Of a value of another tuner, whose two first are for programs alone. */
extern const fa_member fa_kept_members[];
extern const fa_member fa_sweep_spent_members[];

void fa_words_config(fa_buf *out, const fa_config *config); /* family BLOCK_M=128 … */
/* What was measured of another one: times, samples and error. */
void fa_trial_take_times(fa_trial *trial, const fa_trial *from);

/* Orders trials wherever they ended: measured by time, then compiled by prediction, ties by the values, as text; then what
 * was not tried, then by gate, the one reached last first. */
int fa_trial_compare(const fa_trial *a, const fa_trial *b);
bool fa_trial_finished(const fa_trial *trial); /* measured or compiled */

#endif

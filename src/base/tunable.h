/* SPDX-License-Identifier: Apache-2.0
 *
 * The value of a tunable: a whole number from 0 to FA_VALUE_MAX is itself, and what is none of these, a text or another number,
 * has a negative value of its own for as long as the process lives. Equal values are equal numbers; what leaves the process
 * says what they are.
 *
 * Thread-safety: any thread. What comes from outside cannot fill more than a bounded table.
 */
#ifndef FA_BASE_TUNABLE_H
#define FA_BASE_TUNABLE_H

#include "fa_types.h"

#include <cJSON.h>

enum { FA_VALUE_MAX = INT32_MAX, FA_VALUE_TEXT_MAX = 40 };

/* A text of 1 to 31 printable bytes without quotes, backslashes and semicolons, or a finite number. FA_EINVAL: it is
 * neither, or a process has too many; FA_ENOMEM. */
int fa_value_of_text(const char *text, int32_t *ret_value, fa_diag *diag);
int fa_value_of_number(double number, int32_t *ret_value, fa_diag *diag);
int fa_value_of_json(const cJSON *item, int32_t *ret_value, fa_diag *diag);

/* From now on, or no longer, what this thread makes known comes from people who are not trusted. Half of the table is for
 * them at most, so that they cannot take the rest's room. */
void fa_values_untrusted(bool begins);

cJSON *fa_value_to_json(int32_t value);

bool fa_value_is_text(int32_t value);
double fa_value_number(int32_t value); /* of what is no text */

/* As people read it, and as JSON has it, a text in quotes; in `room` where it is made. */
const char *fa_value_words(int32_t value, char room[FA_VALUE_TEXT_MAX]);
const char *fa_value_json(int32_t value, char room[FA_VALUE_TEXT_MAX]);

#endif

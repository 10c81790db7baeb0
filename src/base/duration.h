/* SPDX-License-Identifier: Apache-2.0
 *
 * Decimal numbers and durations as people type them, whatever the process's locale.
 */
#ifndef FA_BASE_DURATION_H
#define FA_BASE_DURATION_H

#include <stdbool.h>
#include <stddef.h>

/* strtod() of C's own locale. */
double fa_strtod(const char *text, char **ret_end);

/* Digits with at most one point among or before them, from 0 to `high`; anything else is false and leaves *ret
 * alone: signs, spaces, exponents, "nan". */
bool fa_decimal_parse(const char *text, size_t length, double high, double *ret);

/* Seconds above 0 and at most `high`, from a number and its unit, s, m, h or d. A number alone is of seconds, as for
 * sleep and timeout. */
bool fa_duration_parse(const char *text, double high, double *ret_seconds);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers, times, names and sentences as people read and type them, whatever the locale.
 */
#ifndef FA_BASE_WORDS_H
#define FA_BASE_WORDS_H

#include "buf.h"

enum { FA_DIGITS_MAX = 32, FA_COMMAS_MAX = 32 };
/* The fewest digits, from 15 on, that read back as the same double, with a point in any locale. */
void fa_digits(double number, char ret_text[FA_DIGITS_MAX]);
const char *fa_commas(int64_t number, char buffer[FA_COMMAS_MAX]); /* 229376 -> "229,376" */
void fa_words_grouped(fa_buf *out, int64_t value);
/* 41.3 µs, and a model's ~41 µs */
void fa_words_us(fa_buf *out, double us);
void fa_words_about(fa_buf *out, double us);
void fa_words_time(fa_buf *out, int64_t unix_time); /* 2026-11-20 16:23, of the process's zone */
void fa_words_day(fa_buf *out, int64_t unix_time);  /* 2026-11-20, of UTC */

/* The gates at which a config may end, in the order in which it passes them, and what one means for those that ended
 * there: "did not launch". */
enum { FA_GATES = FA_STATUS_OTHER_BITS + 1 };
extern const struct fa_gate {
    fa_status status;
    const char *meaning;
} fa_gates[FA_GATES];

/* The columns that `size` bytes of text take on a terminal; escapes take none. */
size_t fa_columns_of(const char *text, size_t size);
/* The columns of the terminal behind a descriptor; 0: it is no terminal, or does not say. */
size_t fa_terminal_columns(int descriptor);
/* As in "a, b or c"; NULL ends the words. */
void fa_words_or(fa_buf *out, const char *const *words);
/* Appends one paragraph, broken at spaces so that no line has more than 80 columns. It begins at `column` of a line, and
 * further lines begin with `indent` spaces. */
void fa_wrap(fa_buf *out, const char *text, size_t size, size_t column, size_t indent);

/* The name in `names` (NULL-terminated) nearest to a mistyped one, whose case counts for little; NULL: none is near. */
const char *fa_nearest(const char *typed, const char *const *names);

double fa_strtod(const char *text, char **ret_end); /* strtod() of C's own locale */

/* Digits with at most one point among or before them, from 0 to `high`; anything else is false and leaves *ret
 * alone: signs, spaces, exponents, "nan". */
bool fa_decimal_parse(const char *text, size_t length, double high, double *ret);

/* Seconds above 0 and at most `high`, from a number and its unit, s, m, h or d. A number alone is of seconds, as for
 * sleep and timeout. */
bool fa_duration_parse(const char *text, double high, double *ret_seconds);

#endif

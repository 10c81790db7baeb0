/* SPDX-License-Identifier: Apache-2.0
 *
 * The value of one option: from its text to its field, or a sentence that says what it takes.
 */
#include "options_table.h"

#include "error.h"
#include "nearest.h"
#include "text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool cli_parse_digits(const char *text, uint64_t *ret)
{
    if (text[0] == 0 || strspn(text, "0123456789") != strlen(text))
        return false;
    errno = 0;
    unsigned long long value = strtoull(text, NULL, 10);
    if (errno != 0)
        return false;
    *ret = value;
    return true;
}

static int set_integer(const cli_option_spec *spec, const char *text, int32_t *ret, fa_diag *diag)
{
    uint64_t value = 0;
    char typed[CLI_SHORT_SIZE];
    bool eights = spec->offset == CLI_AT(problem.head_dim);
    if (!cli_parse_digits(text, &value) || value < (uint64_t)spec->low ||
        value > (uint64_t)spec->high || (eights && value % 8 != 0))
        return fa_fail(diag, FA_EINVAL, "%s \"%s\": use a %s from %lld to %lld%s", spec->name,
                       cli_text_short(text, typed), eights ? "multiple of 8" : "whole number",
                       (long long)spec->low, (long long)spec->high,
                       eights ? " (pad the tensors)" : "");
    *ret = (int32_t)value;
    return 0;
}

static int set_seed(const cli_option_spec *spec, const char *text, uint64_t *ret, fa_diag *diag)
{
    uint64_t value = 0;
    char typed[CLI_SHORT_SIZE];
    if (!cli_parse_digits(text, &value) || value > (uint64_t)spec->high)
        return fa_fail(diag, FA_EINVAL, "%s \"%s\": use a whole number from 0 to %lld", spec->name,
                       cli_text_short(text, typed), (long long)spec->high);
    *ret = value;
    return 0;
}

/* Digits with at most one point among or before them, as money is written. */
static bool parse_decimal(const char *text, size_t length, double high, double *ret)
{
    char copy[32];
    size_t digits = 0, points = 0;
    for (size_t i = 0; i < length; i++) {
        digits += text[i] >= '0' && text[i] <= '9';
        points += text[i] == '.';
    }
    if (digits == 0 || points > 1 || digits + points != length || length >= sizeof copy)
        return false;
    snprintf(copy, sizeof copy, "%.*s", (int)length, text);
    double value = strtod(copy, NULL); /* the locale of numbers is C's */
    if (!(value >= 0 && value <= high))
        return false;
    *ret = value;
    return true;
}

static int set_decimal(const cli_option_spec *spec, const char *text, double *ret, fa_diag *diag)
{
    char typed[CLI_SHORT_SIZE];
    size_t length = strlen(text);
    bool percent = spec->group == CLI_GROUP_COMPARE, zero = percent;
    double value = 0;
    if (percent && length > 0 && text[length - 1] == '%')
        length--;
    if (!parse_decimal(text, length, (double)spec->high, &value) || (!zero && !(value > 0)))
        return fa_fail(diag, FA_EINVAL, "%s \"%s\": use a number %s %lld, as in %s", spec->name,
                       cli_text_short(text, typed), zero ? "from 0 to" : "above 0 up to",
                       (long long)spec->high, percent ? "5%" : "0.50");
    *ret = value;
    return 0;
}

static int set_seconds(const cli_option_spec *spec, const char *text, double *ret, fa_diag *diag)
{
    char typed[CLI_SHORT_SIZE];
    size_t length = strlen(text);
    char unit = length > 0 ? text[length - 1] : 0;
    double value = 0, scale = unit == 's' ? 1 : unit == 'm' ? 60 : unit == 'h' ? 3600 : 0;
    if (!(scale > 0) || !parse_decimal(text, length - 1, (double)spec->high / scale, &value) ||
        !(value > 0))
        return fa_fail(diag, FA_EINVAL,
                       "%s \"%s\": use a time of at most a year with its unit, as in 90s, 30m or 2h",
                       spec->name, cli_text_short(text, typed));
    *ret = value * scale;
    return 0;
}

static int set_choice(const cli_option_spec *spec, const char *text, void *ret, fa_diag *diag)
{
    for (int i = 0; spec->choices[i] != NULL; i++) {
        if (text[0] != 0 && strcmp(spec->choices[i], text) == 0) {
            unsigned value = (unsigned)i; /* every enum of the API is stored as an unsigned */
            memcpy(ret, &value, sizeof value);
            return 0;
        }
    }
    fa_buf list = {0};
    int first = spec->choices[0][0] == 0; /* the value of what is not given has no name */
    for (int i = first; spec->choices[i] != NULL; i++)
        fa_buf_printf(&list, "%s%s",
                      i == first                     ? ""
                      : spec->choices[i + 1] != NULL ? ", "
                                                     : " or ",
                      spec->choices[i]);
    const char *near = cli_nearest(text, spec->choices + first);
    char typed[CLI_SHORT_SIZE];
    cli_text_short(text, typed);
    int rc = near != NULL
                 ? fa_fail(diag, FA_EINVAL, "%s \"%s\" is not known: did you mean %s? It takes %s",
                           spec->name, typed, near, list.data != NULL ? list.data : "")
                 : fa_fail(diag, FA_EINVAL, "%s \"%s\" is not known: use %s", spec->name, typed,
                           list.data != NULL ? list.data : "");
    fa_buf_free(&list);
    return rc;
}

_Static_assert(sizeof(fa_dtype) == sizeof(unsigned) && sizeof(fa_causal) == sizeof(unsigned) &&
                   sizeof(fa_layout) == sizeof(unsigned) && sizeof(fa_effort) == sizeof(unsigned),
               "set_choice stores an unsigned");

int cli_option_set(const cli_option_spec *spec, const char *text, cli_options *options,
                   fa_diag *diag)
{
    char *field = (char *)options + spec->offset;
    switch (spec->kind) {
    case KIND_FLAG:
        *(bool *)field = true;
        return 0;
    case KIND_INTEGER:
        return set_integer(spec, text, (int32_t *)(void *)field, diag);
    case KIND_SEED:
        return set_seed(spec, text, (uint64_t *)(void *)field, diag);
    case KIND_DECIMAL:
        return set_decimal(spec, text, (double *)(void *)field, diag);
    case KIND_SECONDS:
        return set_seconds(spec, text, (double *)(void *)field, diag);
    case KIND_TEXT:
        if (text[0] == 0)
            return fa_fail(diag, FA_EINVAL, "%s is empty: give it a %s", spec->name, spec->value);
        *(const char **)(void *)field = text;
        return 0;
    case KIND_CHOICE:
    case KIND_CAUSAL:
        return set_choice(spec, text, field, diag);
    }
    return FA_EINVAL;
}

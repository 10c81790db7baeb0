/* SPDX-License-Identifier: Apache-2.0
 *
 * The value of one option: from its text to its field, or a sentence that says what it takes.
 */
#include "options_table.h"

#include "error.h"
#include "wording.h"
#include "text.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

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

int cli_integer_set(const cli_option_spec *spec, const fa_field *field, const char *text,
                    int32_t *ret, fa_diag *diag)
{
    uint64_t value = 0;
    int64_t low = field != NULL ? field->min : spec->low,
            high = field != NULL ? field->max : spec->high;
    char typed[CLI_SHORT_SIZE], kind[40] = "whole number";
    bool steps = field != NULL && field->multiple > 1, hint = field != NULL && field->hint[0] != 0;
    if (steps)
        snprintf(kind, sizeof kind, "multiple of %d", field->multiple);
    if (!cli_parse_digits(text, &value) || value > INT32_MAX || (int64_t)value < low ||
        (int64_t)value > high || (steps && value % (uint64_t)field->multiple != 0))
        return fa_fail(diag, FA_EINVAL, "%s \"%s\": use a %s from %lld to %lld%s%s%s", spec->name,
                       cli_text_short(text, typed), kind, (long long)low, (long long)high,
                       hint ? " (" : "", hint ? field->hint : "", hint ? ")" : "");
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

static int set_decimal(const cli_option_spec *spec, const char *text, double *ret, fa_diag *diag)
{
    char typed[CLI_SHORT_SIZE];
    size_t length = strlen(text);
    bool percent = spec->group == CLI_GROUP_COMPARE, zero = percent;
    double value = 0;
    if (percent && length > 0 && text[length - 1] == '%')
        length--;
    if (!fa_decimal_parse(text, length, (double)spec->high, &value) || (!zero && !(value > 0)))
        return fa_fail(diag, FA_EINVAL, "%s \"%s\": use a number %s %lld, as in %s", spec->name,
                       cli_text_short(text, typed), zero ? "from 0 to" : "above 0 up to",
                       (long long)spec->high, percent ? "5%" : "0.50");
    *ret = value;
    return 0;
}

static int set_seconds(const cli_option_spec *spec, const char *text, double *ret, fa_diag *diag)
{
    char typed[CLI_SHORT_SIZE];
    bool year = spec->high > 86400;
    if (fa_duration_parse(text, (double)spec->high, ret))
        return 0;
    return fa_fail(diag, FA_EINVAL,
                   "%s \"%s\": use a time above 0 and of at most %s, as in 90s, 30m%s", spec->name,
                   cli_text_short(text, typed), year ? "a year" : "an hour",
                   year ? ", 2h or 3d" : " or 1h");
}

/* Seconds since 1970 of a day's beginning, local; false: it is no such date, or still to come. */
static bool parse_date(const char *text, int64_t now, int64_t *ret)
{
    struct tm asked = {0}, day;
    const char *end = strptime(text, "%Y-%m-%d", &asked);
    day = asked;
    day.tm_isdst = -1;
    time_t begins = end != NULL && *end == 0 ? mktime(&day) : -1;
    if (begins <= 0 || begins > now || day.tm_mday != asked.tm_mday)
        return false;
    *ret = begins;
    return true;
}

static int set_past(const cli_option_spec *spec, const char *text, int64_t *ret, fa_diag *diag)
{
    static const double longest_s = 100.0 * 365 * 86400;
    char typed[CLI_SHORT_SIZE];
    size_t length = strlen(text);
    int64_t now = (int64_t)time(NULL);
    double age = 0;
    if (parse_date(text, now, ret))
        return 0;
    /* What is forgotten is gone: an age says its unit. */
    if (length == 0 || isdigit((unsigned char)text[length - 1]) ||
        !fa_duration_parse(text, longest_s, &age))
        return fa_fail(
            diag, FA_EINVAL,
            "%s \"%s\": use an age with its unit, as in 30d, 12h or 90m, or a date that has been, "
            "as in 2026-01-31",
            spec->name, cli_text_short(text, typed));
    *ret = now - (int64_t)age;
    return 0;
}

/* Other names of choices, as other programs have them. */
static const char *also_called(const char *text)
{
    static const struct {
        const char *other, *name;
    } also[] = {{"float16", "fp16"}, {"half", "fp16"}, {"bfloat16", "bf16"}};
    for (size_t i = 0; i < sizeof also / sizeof *also; i++)
        if (strcasecmp(also[i].other, text) == 0)
            return also[i].name;
    return text;
}

/* Every enum of the API is stored as 32 bits. `bare`: what the option is without a value; "": it needs one. */
static int set_choice(const cli_option_spec *spec, const char *const *choices, const char *bare,
                      const char *text, void *ret, fa_diag *diag)
{
    for (int32_t i = 0; choices[i] != NULL; i++) {
        if (text[0] != 0 && strcasecmp(choices[i], also_called(text)) == 0) {
            memcpy(ret, &i, sizeof i);
            return 0;
        }
    }
    fa_buf list = {0};
    int first = choices[0][0] == 0; /* the value of what is not given has no name */
    fa_words_or(&list, choices + first);
    const char *near = fa_nearest(text, choices + first);
    char typed[CLI_SHORT_SIZE];
    cli_text_short(text, typed);
    const char *names = list.data != NULL ? list.data : "";
    int rc;
    if (near != NULL)
        rc = fa_fail(diag, FA_EINVAL, "%s \"%s\" is not known: did you mean %s? It takes %s",
                     spec->name, typed, near, names);
    else if (bare[0] != 0)
        rc = fa_fail(diag, FA_EINVAL, "%s \"%s\" is not known: leave it out for %s, or use %s",
                     spec->name, typed, bare, names);
    else
        rc = fa_fail(diag, FA_EINVAL, "%s \"%s\" is not known: use %s", spec->name, typed, names);
    fa_buf_free(&list);
    return rc;
}

_Static_assert(sizeof(fa_effort) == sizeof(int32_t), "set_choice stores 32 bits");

static int set_field(const cli_option_spec *spec, const char *text, cli_options *options,
                     fa_diag *diag)
{
    int index = cli_option_field(spec);
    const fa_field *field = &fa_operation_of(&options->problem)->field[index];
    int32_t *value = &options->problem.value[index];
    options->given |= 1u << index;
    if (field->kind == FA_FIELD_INTEGER)
        return cli_integer_set(spec, field, text, value, diag);
    if (field->kind == FA_FIELD_CHOICE)
        return set_choice(spec, field->choice, field->bare, text, value, diag);
    *value = (int32_t)spec->low;
    return 0;
}

/* Sets every field that names this option and that no option of its own has set. */
static int set_also(const cli_option_spec *spec, const char *text, cli_options *options,
                    fa_diag *diag)
{
    const fa_operation *operation = fa_operation_of(&options->problem);
    int32_t value = 0;
    int rc = cli_integer_set(spec, &operation->field[cli_option_field(spec)], text, &value, diag);
    for (int i = 0; rc == 0 && i < operation->field_count; i++) {
        if (strcmp(operation->field[i].also, spec->name) != 0)
            continue;
        options->given_also |= 1u << i;
        if (!(options->given >> i & 1))
            options->problem.value[i] = value;
    }
    return rc;
}

int cli_option_set(const cli_option_spec *spec, const char *text, cli_options *options,
                   fa_diag *diag)
{
    char *field = (char *)options + spec->offset;
    switch (spec->kind) {
    case KIND_FLAG:
        *(bool *)field = true;
        return 0;
    case KIND_INTEGER:
        return cli_integer_set(spec, NULL, text, (int32_t *)(void *)field, diag);
    case KIND_SEED:
        return set_seed(spec, text, (uint64_t *)(void *)field, diag);
    case KIND_DECIMAL:
        return set_decimal(spec, text, (double *)(void *)field, diag);
    case KIND_SECONDS:
        return set_seconds(spec, text, (double *)(void *)field, diag);
    case KIND_PAST:
        return set_past(spec, text, (int64_t *)(void *)field, diag);
    case KIND_TEXT:
        if (text[0] == 0)
            return fa_fail(diag, FA_EINVAL, "%s is empty: give it a %s", spec->name, spec->value);
        *(const char **)(void *)field = text;
        return 0;
    case KIND_CHOICE:
        return set_choice(spec, spec->choices, "", text, field, diag);
    case KIND_FIELD:
        return set_field(spec, text, options, diag);
    case KIND_ALSO:
        return set_also(spec, text, options, diag);
    case KIND_SHORTHAND:
        return cli_shorthand_set((int)spec->low, text, options, diag);
    case KIND_HEADING:
    case KIND_HERE_VALUES:
    case KIND_HERE_FLAGS:
        break;
    }
    return FA_EINVAL;
}

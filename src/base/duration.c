/* SPDX-License-Identifier: Apache-2.0 */
#include "duration.h"

#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static locale_t c_locale;

static void make_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

double fa_strtod(const char *text, char **ret_end)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_locale);
    return c_locale != (locale_t)0 ? strtod_l(text, ret_end, c_locale) : strtod(text, ret_end);
}

bool fa_decimal_parse(const char *text, size_t length, double high, double *ret)
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
    double value = fa_strtod(copy, NULL);
    if (!(value >= 0 && value <= high))
        return false;
    *ret = value;
    return true;
}

bool fa_duration_parse(const char *text, double high, double *ret_seconds)
{
    static const struct {
        char name;
        double seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
    size_t length = strlen(text);
    double value = 0, scale = 1;
    for (size_t i = 0; length > 0 && i < sizeof units / sizeof *units; i++)
        if (text[length - 1] == units[i].name) {
            scale = units[i].seconds;
            length--;
            break;
        }
    if (!fa_decimal_parse(text, length, high / scale, &value) || !(value > 0))
        return false;
    *ret_seconds = value * scale;
    return true;
}

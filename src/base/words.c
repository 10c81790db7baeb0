/* SPDX-License-Identifier: Apache-2.0 */
#include "words.h"

#include <inttypes.h>
#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

/* ---- numbers and times ----------------------------------------------------------------------*/
void fa_digits(double number, char ret_text[FA_DIGITS_MAX])
{
    char text[FA_DIGITS_MAX];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, number);
        if (strtod(text, NULL) == number)
            break;
    }
    /* the locale's decimal point, of whatever bytes */
    int whole = (int)strspn(text, "-0123456789"), point = (int)strcspn(text + whole, "0123456789e");
    snprintf(ret_text, FA_DIGITS_MAX, "%.*s%s%s", whole, text, point > 0 ? "." : "",
             text + whole + point);
}

const char *fa_commas(int64_t number, char buffer[FA_COMMAS_MAX])
{
    char digits[24];
    uint64_t magnitude = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    int size = snprintf(digits, sizeof digits, "%llu", (unsigned long long)magnitude);
    char *out = buffer;
    if (number < 0)
        *out++ = '-';
    for (int i = 0; i < size; i++) {
        if (i > 0 && (size - i) % 3 == 0)
            *out++ = ',';
        *out++ = digits[i];
    }
    *out = 0;
    return buffer;
}

void fa_words_grouped(fa_buf *out, int64_t value)
{
    char buffer[FA_COMMAS_MAX];
    fa_buf_text(out, fa_commas(value, buffer));
}

/* With so many digits after the point; from 10,000 on whole, in groups of three. */
static void put_us(fa_buf *out, double us, int digits)
{
    if (us >= 9999.5 && us < 1e15)
        fa_words_grouped(out, (int64_t)(us + 0.5));
    else
        fa_buf_printf(out, "%.*f", digits, us);
    fa_buf_text(out, " µs");
}

void fa_words_us(fa_buf *out, double us)
{
    put_us(out, us, us < 9.995 ? 2 : us < 999.95 ? 1 : 0);
}

void fa_words_about(fa_buf *out, double us)
{
    fa_buf_text(out, "~");
    put_us(out, us, us < 99.95 ? 1 : 0);
}

static void put_time(fa_buf *out, int64_t unix_time, bool utc, const char *format)
{
    time_t seconds = (time_t)unix_time;
    struct tm tm;
    char text[40];
    if ((utc ? gmtime_r(&seconds, &tm) : localtime_r(&seconds, &tm)) == NULL ||
        strftime(text, sizeof text, format, &tm) == 0)
        snprintf(text, sizeof text, "time %" PRId64, unix_time);
    fa_buf_text(out, text);
}

void fa_words_time(fa_buf *out, int64_t unix_time)
{
    put_time(out, unix_time, false, "%Y-%m-%d %H:%M");
}

void fa_words_day(fa_buf *out, int64_t unix_time)
{
    put_time(out, unix_time, true, "%Y-%m-%d");
}

/* ---- gates ----------------------------------------------------------------------------------*/
const struct fa_gate fa_gates[FA_GATES] = {
    {FA_STATUS_CONSTRAINT, "impossible"},
    {FA_STATUS_BUDGET, "do not fit the shared memory"},
    {FA_STATUS_REGISTERS, "do not fit the registers, by an estimate"},
    {FA_STATUS_DOES_NOT_PAY, "possible, but known to be slower"},
    {FA_STATUS_PENDING, "fit the budget and were not tried yet"},
    {FA_STATUS_COMPILE_TIMEOUT, "compile too long"},
    {FA_STATUS_COMPILE_FAILED, "do not compile"},
    {FA_STATUS_CUBIN, "contradict their budget"},
    {FA_STATUS_SPILLS, "spill registers to local memory"},
    {FA_STATUS_LOAD_FAILED, "did not load"},
    {FA_STATUS_LAUNCH_FAILED, "did not launch"},
    {FA_STATUS_OUT_OF_MEMORY, "did not fit the device's memory"},
    {FA_STATUS_TIMEOUT, "ran past their time limit"},
    {FA_STATUS_CRASHED, "took their worker down"},
    {FA_STATUS_WRONG, "gave wrong results"},
    {FA_STATUS_OTHER_BITS, "gave right results in other bits"},
    {FA_STATUS_COMPILED, "compiled clean, not timed"},
    {FA_STATUS_MEASURED, "proved and timed"},
};

/* Optimal string alignment distance: insertions, deletions, replacements and swaps of neighbours,
 * each of cost 1. Names here are short; the time is their lengths' product. */
enum { LONGEST = 63 };

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    if (n > LONGEST || m > LONGEST)
        return n + m;
    /* cost[i][j]: from the first i of a to the first j of b */
    size_t cost[LONGEST + 1][LONGEST + 1];
    for (size_t i = 0; i <= n; i++) {
        for (size_t j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                cost[i][j] = i + j;
                continue;
            }
            size_t best = smaller(cost[i - 1][j], cost[i][j - 1]) + 1;
            best = smaller(best, cost[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                best = smaller(best, cost[i - 2][j - 2] + 1);
            cost[i][j] = best;
        }
    }
    return cost[n][m];
}

/* One starts with the other, "--sequence" for "--seq", "--eff" for "--effort", or ends with its words: "--is-causal". */
static int extends(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b), least = smaller(n, m);
    const char *longer = n > m ? a : b, *words = n > m ? b : a;
    words += strspn(words, "-");
    const char *end = longer + strlen(longer) - smaller(strlen(words), strlen(longer));
    return (least >= 3 && strspn(a, "-") < least && strncmp(a, b, least) == 0) ||
           (strlen(words) >= 3 && end > longer && strchr("-_", end[-1]) != NULL &&
            strcmp(end, words) == 0);
}

const char *fa_nearest(const char *typed, const char *const *names)
{
    const char *nearest = NULL;
    size_t size = strlen(typed), least = size == 3 ? 2 : 3 < size / 2 ? 3 : size / 2;
    least *= 2; /* in halves; farther is not near */
    for (; *names != NULL; names++) {
        size_t d = strcasecmp(typed, *names) == 0 ? 0 : 2 * distance(typed, *names);
        if (d > 3 && extends(typed, *names))
            d = 3; /* between one slip and two */
        if (d < least) {
            least = d;
            nearest = *names;
        }
    }
    return nearest;
}

/* ---- columns ---------------------------------------------------------------------------------*/
size_t fa_terminal_columns(int descriptor)
{
    struct winsize size;
    bool known =
        isatty(descriptor) == 1 && ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    return known ? size.ws_col : 0;
}

size_t fa_columns_of(const char *text, size_t size)
{
    size_t columns = 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '\033')
            while (i < size && text[i] != 'm')
                i++;
        else
            columns += ((unsigned char)text[i] & 0xc0) != 0x80; /* continuation bytes take none */
    }
    return columns;
}

void fa_wrap(fa_buf *out, const char *text, size_t size, size_t column, size_t indent)
{
    const char *end = text + size;
    bool first = true;
    while (text < end) {
        size_t spaces = strspn(text, " "), left = (size_t)(end - text);
        spaces = spaces < left ? spaces : left;
        text += spaces;
        const char *space = memchr(text, ' ', (size_t)(end - text));
        size_t length = (size_t)((space != NULL ? space : end) - text);
        size_t columns = fa_columns_of(text, length);
        if (!first && length > 0 && column + spaces + columns > 80) {
            fa_buf_printf(out, "\n%*s", (int)indent, "");
            column = indent;
        } else {
            fa_buf_printf(out, "%*s", (int)spaces, "");
            column += spaces;
        }
        fa_buf_append(out, text, length);
        column += columns;
        text += length;
        first = false;
    }
}

/* ---- decimals and durations -------------------------------------------------------------------*/
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
    char copy[32], *end;
    if (length == 0 || length >= sizeof copy || strspn(text, "0123456789.") < length)
        return false;
    snprintf(copy, sizeof copy, "%.*s", (int)length, text);
    double value = fa_strtod(copy, &end); /* stops at a second point */
    if (end != copy + length || !(value >= 0 && value <= high))
        return false;
    *ret = value;
    return true;
}

bool fa_duration_parse(const char *text, double high, double *ret_seconds)
{
    static const char units[] = "smhd";
    static const double seconds[] = {1, 60, 3600, 86400};
    const size_t length = strlen(text);
    const char *unit = length > 0 ? strchr(units, text[length - 1]) : NULL;
    const double scale = unit != NULL ? seconds[unit - units] : 1;
    double value = 0;
    if (!fa_decimal_parse(text, length - (unit != NULL), high / scale, &value) || !(value > 0))
        return false;
    *ret_seconds = value * scale;
    return true;
}

void fa_words_or(fa_buf *out, const char *const *words)
{
    for (int i = 0; words[i] != NULL; i++)
        fa_buf_printf(out, "%s%s", i == 0 ? "" : words[i + 1] != NULL ? ", " : " or ", words[i]);
}

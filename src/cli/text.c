/* SPDX-License-Identifier: Apache-2.0 */
#include "text.h"

#include "error.h"
#include "json.h"
#include "problem.h"
#include "wording.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

static const cli_symbols ascii = {"us", "-", "->", "+-", "x", "...", "p"};
static const cli_symbols utf8 = {"µs", "·", "→", "±", "×", "…", "ᵖ"};
static const cli_symbols *symbols = &ascii;

void cli_symbols_init(void)
{
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") == 0)
        symbols = &utf8;
}

const cli_symbols *cli_sym(void)
{
    return symbols;
}

void cli_text_safe(fa_buf *out, const char *text)
{
    int length;
    for (; *text != 0; text += length > 0 ? length : 1) {
        unsigned code = 0;
        length = fa_control_at(text, &code);
        if (length == 0)
            fa_buf_append(out, text, 1);
        else
            fa_buf_printf(out, length == 1 ? "\\x%02x" : "\\u%04x", code);
    }
}

const char *cli_text_short(const char *text, char ret[CLI_SHORT_SIZE])
{
    size_t length = strlen(text), most = CLI_SHORT_SIZE - 4; /* "..." and its NUL */
    const bool cut = length > most;
    length = cut ? most : length;
    while (cut && length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80)
        length--; /* not within a code point */
    snprintf(ret, CLI_SHORT_SIZE, "%.*s%s", (int)length, text, cut ? "..." : "");
    return ret;
}

void cli_text_word(fa_buf *out, const char *word)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=@+,";
    if (word[strspn(word, plain)] == 0) {
        fa_buf_text(out, word);
        return;
    }
    fa_buf_text(out, "'");
    for (; *word != 0; word++) {
        if (*word == '\'')
            fa_buf_text(out, "'\\''");
        else
            fa_buf_append(out, word, 1);
    }
    fa_buf_text(out, "'");
}

int cli_refuse(const char *option, const char *text, const char *what, const char *const *names,
               fa_diag *diag)
{
    const char *near = names != NULL ? fa_nearest(text, names) : NULL;
    char typed[CLI_SHORT_SIZE];
    return fa_fail(diag, FA_EINVAL, "%s%s\"%s\" is not %s%s%s%s", option != NULL ? option : "",
                   option != NULL ? ": " : "", cli_text_short(text, typed), what,
                   near != NULL ? ": did you mean " : "", near != NULL ? near : "",
                   near != NULL ? "?" : "");
}

void cli_text_us(fa_buf *out, double us)
{
    fa_words_us(out, us, symbols->micro);
}

void cli_text_about(fa_buf *out, double us)
{
    fa_words_about(out, us, symbols->micro);
}

bool cli_text_known_time(fa_buf *out, const fa_trial *trial, bool elsewhere)
{
    if (trial->median_us > 0)
        (elsewhere ? cli_text_about : cli_text_us)(out, trial->median_us);
    else if (trial->predicted_us > 0)
        cli_text_about(out, trial->predicted_us);
    return trial->median_us > 0 || trial->predicted_us > 0;
}

void cli_text_trial_time(fa_buf *out, const fa_trial *trial, bool elsewhere)
{
    if (!cli_text_known_time(out, trial, elsewhere))
        fa_buf_text(out, "unranked");
}

void cli_text_interval(fa_buf *out, const fa_trial *trial)
{
    if (trial->high_us > trial->low_us) /* a single launch has none */
        fa_buf_printf(out, "%s%.*f", symbols->plus_minus, trial->median_us < 9.995 ? 2 : 1,
                      (trial->high_us - trial->low_us) / 2);
}

void cli_text_count(fa_buf *out, int64_t count, const char *what)
{
    fa_words_grouped(out, count);
    fa_buf_printf(out, " %s%s", what, count == 1 ? "" : "s");
}

void cli_text_seconds(fa_buf *out, double seconds)
{
    if (seconds > 0 && seconds < 0.995)
        fa_buf_printf(out, "%.2g s", seconds);
    else if (seconds < 100)
        fa_buf_printf(out, "%.0f s", seconds);
    else if (seconds < 6000)
        fa_buf_printf(out, "%.0f min", seconds / 60);
    else
        fa_buf_printf(out, "%.1f h", seconds / 3600);
}

void cli_text_left(fa_buf *out, double seconds)
{
    if (seconds < 0)
        return;
    fa_buf_printf(out, " %s ", symbols->dot);
    cli_text_seconds(out, seconds);
    fa_buf_text(out, " left");
}

void cli_text_problem(fa_buf *out, const fa_problem *p)
{
    fa_buf_printf(out, "%s %s ", fa_operation_of(p)->title, symbols->dot);
    cli_text_problem_short(out, p);
}

void cli_text_problem_short(fa_buf *out, const fa_problem *p)
{
    char separator[8];
    snprintf(separator, sizeof separator, " %s ", symbols->dot);
    fa_problem_words(out, p, separator, false);
}

void cli_text_heading(fa_buf *out, const fa_problem *problem, const fa_gpu *gpu)
{
    cli_text_problem(out, problem);
    fa_buf_printf(out, " %s on ", symbols->dot);
    cli_text_safe(out, gpu->name);
    fa_buf_printf(out, " (sm_%d, %d SMs, ", gpu->sm, gpu->sm_count);
    if (gpu->present)
        fa_buf_printf(out, "device %d)\n", gpu->ordinal);
    else
        fa_buf_text(out, "not present here)\n");
}

bool cli_text_too_large(fa_buf *out, const fa_problem *p)
{
    const double largest = 288e9, gib = 1 << 30; /* no GPU of the catalogue has more, a B300 has that */
    double bytes = fa_problem_bytes(p);
    if (!(bytes > largest))
        return false;
    fa_buf_text(out, "its tensors take ");
    if (bytes / gib < 1e15)
        fa_words_grouped(out, (int64_t)(bytes / gib + 0.5));
    else
        fa_buf_printf(out, "%.0e", bytes / gib);
    fa_buf_text(out, " GiB: no GPU has so much memory");
    return true;
}

void cli_text_config(fa_buf *out, const fa_config *config)
{
    fa_buf words = {0};
    fa_words_config(&words, config);
    cli_text_safe(out, words.data != NULL ? words.data : "");
    out->failed |= words.failed;
    fa_buf_free(&words);
}

void cli_text_path(fa_buf *out, const char *path)
{
    const char *home = getenv("HOME");
    size_t length = home != NULL ? strlen(home) : 0;
    if (length > 1 && strncmp(path, home, length) == 0 && path[length] == '/') {
        fa_buf_text(out, "~");
        path += length;
    }
    cli_text_safe(out, path);
}

void cli_text_age(fa_buf *out, int64_t unix_time)
{
    const int64_t age = (int64_t)time(NULL) - unix_time;
    if (age < 1)
        fa_buf_text(out, "now");
    else if (age < 60)
        cli_text_count(out, age, "second");
    else if (age < 3600)
        cli_text_count(out, age / 60, "minute");
    else if (age < 86400)
        cli_text_count(out, age / 3600, "hour");
    else
        cli_text_count(out, age / 86400, "day");
    fa_buf_text(out, age < 1 ? "" : " ago");
}

/* Writes text; "`fa-tune …`" is said as it is to be typed here, where ./dev says that it was called. */
static bool put_called(const char *text, size_t size, FILE *file)
{
    static const char hint[] = "`fa-tune ";
    const char *called = getenv("FA_TUNE_CALLED"), *end = text + size;
    while (called != NULL && text < end) {
        const char *at = memmem(text, (size_t)(end - text), hint, sizeof hint - 1);
        size_t before = at == NULL ? 0 : (size_t)(at - text) + 1; /* with the quote */
        if (at == NULL)
            break;
        if (fwrite(text, 1, before, file) != before || fputs(called, file) < 0)
            return false;
        text = at + sizeof hint - 2; /* from the space on */
    }
    return text == end || fwrite(text, 1, (size_t)(end - text), file) == (size_t)(end - text);
}

static bool result_written;

int cli_write(const fa_buf *out)
{
    fa_diag diag;
    int rc = 0;
    result_written = result_written || out->size > 0;
    if (out->failed)
        rc = fa_fail(&diag, FA_ENOMEM, "out of memory while wording the result");
    else if ((out->size > 0 && !put_called(out->data, out->size, stdout)) || fflush(stdout) != 0)
        rc = fa_fail(&diag, FA_EIO, "cannot write the result to standard output: %s",
                     strerror(errno));
    return rc == 0 ? 0 : cli_error(1, &diag);
}

/* ---- failures -------------------------------------------------------------------------------*/
static cJSON *errors; /* the sentences so far */

cJSON *cli_errors_take(void)
{
    cJSON *taken = result_written ? NULL : errors;
    if (result_written)
        cJSON_Delete(errors);
    errors = NULL;
    return taken;
}

int cli_error(int status, const fa_diag *diag)
{
    if (errors == NULL)
        errors = cJSON_CreateArray();
    fa_json_push(errors, cJSON_CreateString(diag->text));
    fprintf(stderr, "%sfa-tune:%s ", cli_style_begin(STDERR_FILENO, CLI_RED),
            cli_style_end(STDERR_FILENO));
    put_called(diag->text, strlen(diag->text), stderr);
    fputs("\n", stderr);
    return status;
}

void cli_tell(const char *format, ...)
{
    fa_diag diag;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(diag.text, sizeof diag.text, format, arguments);
    va_end(arguments);
    cli_error(0, &diag);
}

/* ---- colour ---------------------------------------------------------------------------------*/
const char *const cli_colour_names[] = {"auto", "always", "never", NULL};

static int choice; /* by these names */

void cli_colour_choose(const char *name)
{
    for (int i = 0; cli_colour_names[i] != NULL; i++)
        choice = strcasecmp(cli_colour_names[i], name) == 0 ? i : choice;
}

/* Whether this descriptor's output is coloured. */
static bool is_coloured(int descriptor)
{
    const char *none = getenv("NO_COLOR"), *term = getenv("TERM");
    if (choice != 0)
        return choice == 1;
    return isatty(descriptor) == 1 && (none == NULL || none[0] == 0) && term != NULL &&
           strcmp(term, "dumb") != 0;
}

const char *cli_style_begin(int descriptor, cli_style style)
{
    static const char *const escapes[] = {[CLI_BOLD] = "\033[1m",
                                          [CLI_RED] = "\033[1;31m",
                                          [CLI_GREEN] = "\033[32m",
                                          [CLI_YELLOW] = "\033[33m"};
    return is_coloured(descriptor) ? escapes[style] : "";
}

const char *cli_style_end(int descriptor)
{
    return is_coloured(descriptor) ? "\033[0m" : "";
}

void cli_styled(fa_buf *out, cli_style style, const char *text)
{
    fa_buf_printf(out, "%s%s%s", cli_style_begin(STDOUT_FILENO, style), text,
                  cli_style_end(STDOUT_FILENO));
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "text.h"

#include "error.h"
#include "json.h"
#include "problem.h"
#include "trial.h"
#include "wording.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void cli_text_safe(fa_buf *out, const char *text)
{
    for (size_t length; *text != 0; text += length) {
        unsigned code = 0;
        for (length = 0; text[length] >= ' ' && text[length] <= '~';)
            length++;
        const int control = length == 0 ? fa_control_at(text, &code) : 0;
        if (control > 0) {
            length = (size_t)control;
            fa_buf_printf(out, control == 1 ? "\\x%02x" : "\\u%04x", code);
        } else {
            length = length > 0 ? length : 1; /* a byte of UTF-8 */
            fa_buf_append(out, text, length);
        }
    }
}

enum { SHORT_SIZE = 84 };
/* What was typed, cut so that the rest of a sentence about it fits a fa_diag; returns ret. */
static const char *shortened(const char *text, char ret[SHORT_SIZE])
{
    size_t length = strlen(text), most = SHORT_SIZE - 4; /* "..." and its NUL */
    const bool cut = length > most;
    length = cut ? most : length;
    while (cut && length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80)
        length--; /* not within a code point */
    snprintf(ret, SHORT_SIZE, "%.*s%s", (int)length, text, cut ? "..." : "");
    return ret;
}

int cli_refuse(const char *option, const char *text, const char *what, const char *const *names,
               fa_diag *diag)
{
    const char *near = names != NULL ? fa_nearest(text, names) : NULL;
    char typed[SHORT_SIZE];
    return fa_fail(diag, FA_EINVAL, "%s%s\"%s\" is not %s%s%s%s", option != NULL ? option : "",
                   option != NULL ? ": " : "", shortened(text, typed), what,
                   near != NULL ? ": did you mean " : "", near != NULL ? near : "",
                   near != NULL ? "?" : "");
}

bool cli_text_known_time(fa_buf *out, const fa_trial *trial, bool elsewhere)
{
    if (trial->median_us > 0)
        (elsewhere ? fa_words_about : fa_words_us)(out, trial->median_us);
    else if (trial->predicted_us > 0)
        fa_words_about(out, trial->predicted_us);
    return trial->median_us > 0 || trial->predicted_us > 0;
}

void cli_text_origin(fa_buf *out, const fa_answer *answer)
{
    fa_buf_printf(out, "%s%s", fa_origin_name(answer->origin),
                  answer->same_bits[0] != 0 ? ", same bits as " : "");
    cli_text_safe(out, answer->same_bits);
}

void cli_text_trial_time(fa_buf *out, const fa_trial *trial, bool elsewhere)
{
    if (!cli_text_known_time(out, trial, elsewhere))
        fa_buf_text(out, "unranked");
}

void cli_text_interval(fa_buf *out, const fa_trial *trial)
{
    if (trial->high_us > trial->low_us) /* a single launch has none */
        fa_buf_printf(out, "±%.*f", trial->median_us < 9.995 ? 2 : 1,
                      (trial->high_us - trial->low_us) / 2);
}

void cli_text_count(fa_buf *out, const char *before, int64_t count, const char *what)
{
    fa_buf_text(out, before);
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

void cli_text_problem(fa_buf *out, const fa_problem *p)
{
    fa_buf_printf(out, "%s · ", fa_operation_of(p)->title);
    fa_problem_words(out, p, " · ", false);
}

void cli_text_heading(fa_buf *out, const fa_problem *problem, const fa_gpu *gpu)
{
    cli_text_problem(out, problem);
    fa_buf_text(out, " · on ");
    cli_text_safe(out, gpu->name);
    fa_buf_printf(out, " (sm_%d, %d SMs, ", gpu->sm, gpu->sm_count);
    if (gpu->present)
        fa_buf_printf(out, "device %d)\n", gpu->ordinal);
    else
        fa_buf_text(out, "not present here)\n");
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

static bool result_written;

int cli_write(const fa_buf *out)
{
    fa_diag diag;
    int rc = 0;
    result_written = result_written || out->size > 0;
    if (out->failed)
        rc = fa_fail(&diag, FA_ENOMEM, "out of memory while wording the result");
    else if ((out->size > 0 && fwrite(out->data, 1, out->size, stdout) != out->size) ||
             fflush(stdout) != 0)
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
    fprintf(stderr, "fa-tune: %s\n", diag->text);
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor: what would keep a tune from working here, each with what to do about it.
 */
#include "json.h"
#include "run.h"
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const levels[] = {"ok", "warn", "fail"};
static const cli_style styles[] = {CLI_GREEN, CLI_YELLOW, CLI_RED};

struct findings {
    int count[3]; /* by level */
    fa_buf *out;
    cJSON *checks;
};

enum { TEXT_COLUMN = 17 };

static void put_text(fa_buf *out, const char *text, size_t column)
{
    fa_buf safe = {0};
    cli_text_safe(&safe, text);
    cli_wrap_here(out, safe.data != NULL ? safe.data : "", column, column);
    fa_buf_text(out, "\n");
    out->failed |= safe.failed;
    fa_buf_free(&safe);
}

/* Paths in the home folder as `show` and `config` print them. */
static void put_found(fa_buf *out, const char *text)
{
    const char *home = getenv("HOME"), *at = text;
    size_t length = home != NULL ? strlen(home) : 0;
    fa_buf words = {0};
    for (const char *found; length > 1 && (found = strstr(at, home)) != NULL; at = found + length) {
        bool whole = strchr("/ ", found[length]) != NULL && (found == text || found[-1] == ' ');
        fa_buf_printf(&words, "%.*s%s", (int)(found - at), at, whole ? "~" : home);
    }
    fa_buf_text(&words, at);
    put_text(out, words.data != NULL ? words.data : "", TEXT_COLUMN);
    out->failed |= words.failed;
    fa_buf_free(&words);
}

static int visit(void *context, const fa_check *check)
{
    struct findings *found = context;
    int level = check->level >= FA_CHECK_OK && check->level <= FA_CHECK_FAIL ? (int)check->level
                                                                             : FA_CHECK_FAIL;
    found->count[level]++;
    cJSON *item = cJSON_CreateObject();
    fa_json_add_text(item, "level", levels[level]);
    fa_json_add_text(item, "name", check->name);
    fa_json_add_text(item, "text", check->text);
    fa_json_add_text(item, "advice", check->advice);
    fa_json_push(found->checks, item);
    cli_styled(found->out, styles[level], levels[level]);
    fa_buf_printf(found->out, "%*s  %-9s  ", 4 - (int)strlen(levels[level]), "", check->name);
    put_found(found->out, check->text);
    if (check->advice[0] != 0) {
        fa_buf_printf(found->out, "%*s%s ", TEXT_COLUMN, "", cli_sym()->arrow);
        put_text(found->out, check->advice, TEXT_COLUMN + 2);
    }
    return 0;
}

int cli_doctor(cli_run *run)
{
    struct findings found = {.out = &run->out,
                             .checks = fa_json_add_array(run->document, "checks")};
    fa_diag fault;
    if (cli_settings_check(run->options->files, &fault) != 0) {
        fa_check check = {FA_CHECK_FAIL, "settings", "", "mend that line, or move the file away"};
        snprintf(check.text, sizeof check.text, "%.511s", fault.text);
        visit(&found, &check);
    }
    fa_options library = cli_library_options(run->options);
    int rc = fa_doctor(&library, visit, &found, &run->diag);
    if (rc != 0)
        return rc;
    for (int i = 0; i < 3; i++)
        fa_json_add_number(run->document, levels[i], found.count[i]);
    int warnings = found.count[FA_CHECK_WARN], failures = found.count[FA_CHECK_FAIL];
    fa_buf_printf(&run->out, "%d ok, %d warning%s, %d failure%s\n", found.count[FA_CHECK_OK], warnings,
                  warnings == 1 ? "" : "s", failures, failures == 1 ? "" : "s");
    int status = cli_print(run);
    return status != 0 ? status : found.count[FA_CHECK_FAIL] > 0;
}

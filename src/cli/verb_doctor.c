/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor: what would keep a tune from working here, each with what to do about it.
 */
#include "json_make.h"
#include "run.h"
#include "terminal.h"
#include "text.h"

#include <string.h>

static const char *const levels[] = {"ok", "warn", "fail"};
static const cli_style styles[] = {CLI_GREEN, CLI_YELLOW, CLI_RED};

struct findings {
    int count[3]; /* by level */
    fa_buf *out;
    cJSON *checks;
};

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
    cli_text_safe(found->out, check->text);
    fa_buf_text(found->out, "\n");
    if (check->advice[0] != 0) {
        fa_buf_printf(found->out, "%17s%s ", "", cli_sym()->arrow);
        cli_text_safe(found->out, check->advice);
        fa_buf_text(found->out, "\n");
    }
    return 0;
}

int cli_doctor(cli_run *run)
{
    struct findings found = {.out = &run->out,
                             .checks = fa_json_add_array(run->document, "checks")};
    fa_options library = cli_library_options(run->options);
    int rc = fa_doctor(&library, visit, &found, &run->diag);
    if (rc != 0)
        return rc;
    for (int i = 0; i < 3; i++)
        fa_json_add_number(run->document, levels[i], found.count[i]);
    fa_buf_printf(&run->out, "%d ok, %d to mind, %d to mend\n", found.count[FA_CHECK_OK],
                  found.count[FA_CHECK_WARN], found.count[FA_CHECK_FAIL]);
    int status = cli_print(run);
    return status != 0 ? status : found.count[FA_CHECK_FAIL] > 0;
}

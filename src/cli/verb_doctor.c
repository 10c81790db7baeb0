/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor: what would keep a tune from working here, each with what to do about it.
 */
#include "text.h"
#include "rows.h"
#include "json_make.h"
#include "verbs.h"

static const char *const levels[] = {"ok", "warn", "fail"};

typedef struct findings {
    int count[3]; /* by level */
    fa_buf out;
    cJSON *checks; /* NULL: lines into `out` instead */
} findings;

static int visit(void *context, const fa_check *check)
{
    findings *found = context;
    int level = check->level >= FA_CHECK_OK && check->level <= FA_CHECK_FAIL ? (int)check->level
                                                                             : FA_CHECK_FAIL;
    found->count[level]++;
    if (found->checks != NULL) {
        cJSON *item = cJSON_CreateObject();
        fa_json_add_text(item, "level", levels[level]);
        fa_json_add_text(item, "name", check->name);
        fa_json_add_text(item, "text", check->text);
        fa_json_add_text(item, "advice", check->advice);
        fa_json_push(found->checks, item);
        return 0;
    }
    fa_buf_printf(&found->out, "%-4s  %-9s  ", levels[level], check->name);
    cli_text_safe(&found->out, check->text);
    fa_buf_text(&found->out, "\n");
    if (check->advice[0] != 0) {
        fa_buf_printf(&found->out, "%17s%s ", "", cli_sym()->arrow);
        cli_text_safe(&found->out, check->advice);
        fa_buf_text(&found->out, "\n");
    }
    return 0;
}

int cli_doctor(const cli_options *options)
{
    findings found = {.checks = options->json ? cJSON_CreateArray() : NULL};
    fa_options library = cli_library_options(options);
    fa_diag diag = {{0}};
    int rc = fa_doctor(&library, visit, &found, &diag), status;
    if (rc != 0) {
        cJSON_Delete(found.checks);
        status = cli_fail(rc, options, &diag);
    } else if (options->json) {
        cJSON *document = cJSON_CreateObject();
        fa_json_add_text(document, "fa_tune", fa_version());
        fa_json_add(document, "checks", found.checks);
        for (int i = 0; i < 3; i++)
            fa_json_add_number(document, levels[i], found.count[i]);
        status = cli_json_write(document);
    } else {
        fa_buf_printf(&found.out, "%d ok, %d to mind, %d to mend\n", found.count[FA_CHECK_OK],
                      found.count[FA_CHECK_WARN], found.count[FA_CHECK_FAIL]);
        status = cli_write(&found.out);
    }
    fa_buf_free(&found.out);
    return status != 0 ? status : found.count[FA_CHECK_FAIL] > 0;
}

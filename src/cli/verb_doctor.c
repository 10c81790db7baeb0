/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor: what would keep a tune from working here, each with what to do about it.
 */
#include "text.h"
#include "rows.h"
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
        cJSON_AddStringToObject(item, "level", levels[level]);
        cJSON_AddStringToObject(item, "name", check->name);
        cJSON_AddStringToObject(item, "text", check->text);
        cJSON_AddStringToObject(item, "advice", check->advice);
        cJSON_AddItemToArray(found->checks, item);
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
        cJSON_AddStringToObject(document, "fa_tune", fa_version());
        cJSON_AddItemToObject(document, "checks", found.checks);
        for (int i = 0; i < 3; i++)
            cJSON_AddNumberToObject(document, levels[i], found.count[i]);
        status = cli_json_write(document);
    } else {
        fa_buf_printf(&found.out, "%d ok, %d to mind, %d to mend\n", found.count[FA_CHECK_OK],
                      found.count[FA_CHECK_WARN], found.count[FA_CHECK_FAIL]);
        status = cli_write(&found.out);
    }
    fa_buf_free(&found.out);
    return status != 0 ? status : found.count[FA_CHECK_FAIL] > 0;
}

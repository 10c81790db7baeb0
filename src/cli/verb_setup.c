/* SPDX-License-Identifier: Apache-2.0
 *
 * What can be asked before a tune.
 * gpus: the GPU types that can be tuned for, whether or not one is here; with options of a problem, those that a
 * kernel family serves it on.
 * doctor: what would keep a tune from working here, each with what to do about it.
 * config: what each setting is where no option says it, and where that comes from.
 */
#include "json.h"

#include "options_table.h"
#include "problem.h"
#include "run.h"
#include "text.h"
#include "wording.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ANY_LENGTH = 512 }; /* for a length that was not given: families serve all of them alike */

static int visit_nothing(void *context, int32_t rank, const fa_trial *trial)
{
    (void)context, (void)rank, (void)trial;
    return 0;
}

/* Whether the problem is served on this type; FA_ENOTSUP: it is not. */
static int check_served(cli_run *run, const cli_options *options, const fa_gpu *gpu)
{
    fa_request request = cli_request(options);
    fa_gpu found;
    request.gpu = gpu->name;
    return fa_explain(run->tuner, &request, visit_nothing, NULL, &found, &run->diag);
}

static void put_row(cli_table *table, const fa_gpu *gpu)
{
    cli_cell(table, "%s", gpu->name);
    cli_cell(table, "sm_%d", gpu->sm);
    cli_cell(table, "%d", gpu->sm_count);
    fa_words_grouped(&table->cell, gpu->smem_per_block);
    cli_cell_end(table);
    cli_cell(table, "%lld", (long long)(gpu->l2_bytes >> 20));
    cli_cell(table, "%.0f", gpu->bandwidth_gbs);
    cli_cell(table, "%.0f", gpu->tensor_tflops);
    cli_row_end(table);
}

/* Opens the tuner, whose families say what they serve, where options of a problem were given. */
static int prepare(cli_run *run, cli_options *filled, bool *ret_asks)
{
    fa_options library = cli_library_options(run->options);
    fa_problem *problem = &filled->problem;
    const fa_operation *operation = fa_operation_of(problem);
    uint32_t given = filled->given | filled->given_also;
    library.existing_store = true;
    *ret_asks = given != 0 || filled->operation != NULL;
    for (int i = 0; i < operation->field_count; i++)
        if (operation->field[i].required && !(given >> i & 1)) {
            problem->value[i] = ANY_LENGTH;
            given |= 1u << i;
        }
    fa_problem_fill(problem, given);
    int rc = *ret_asks ? cli_problem_check(problem, &run->diag) : 0;
    return rc == 0 && *ret_asks ? fa_open(&library, &run->tuner, &run->diag) : rc;
}

int cli_gpus(cli_run *run)
{
    cJSON *array = fa_json_add_array(run->document, "gpus");
    cli_options filled = *run->options;
    const char *asked = filled.gpu, *refused;
    cli_table table = {0};
    fa_buf lines = {0};
    fa_gpu gpu;
    bool asks = false;
    int rc = cli_check_gpu(run);
    if (rc == 0)
        rc = prepare(run, &filled, &asks);
    for (int32_t i = 0; rc == 0 && fa_gpu_type(i, &gpu, &refused) == 0; i++) {
        if (asked != NULL && !cli_gpu_is(asked, gpu.name) && !cli_gpu_is_like(asked, gpu.name))
            continue;
        rc = asks && refused == NULL ? check_served(run, &filled, &gpu) : 0;
        if (rc == FA_ENOTSUP)
            refused = run->diag.text;
        else if (rc != 0)
            break;
        rc = 0;
        cJSON *item = fa_gpu_to_json(&gpu);
        fa_json_add(item, "refused",
                    refused != NULL ? cJSON_CreateString(refused) : cJSON_CreateNull());
        fa_json_push(array, item);
        if (refused != NULL)
            fa_buf_printf(&lines, "%s: %s\n", gpu.name, refused);
        else
            put_row(&table, &gpu);
    }
    cli_table_put(&table, "GPU|arch|>SMs|~>shared B|~>L2 MiB|~>GB/s|~>TFLOP/s", &run->out);
    fa_buf_text(&run->out, lines.data != NULL ? lines.data : "");
    fa_buf_text(&run->out, "shared B: dynamic shared memory of one block. TFLOP/s: dense fp16 with "
                           "fp32 sums.\n");
    run->out.failed |= lines.failed;
    fa_buf_free(&lines);
    return rc;
}

/* ---- doctor ---------------------------------------------------------------------------------*/
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
    fa_buf_printf(&run->out, "%d ok, %d warning%s, %d failure%s\n", found.count[FA_CHECK_OK],
                  warnings, warnings == 1 ? "" : "s", failures, failures == 1 ? "" : "s");
    int status = cli_print(run);
    return status != 0 ? status : found.count[FA_CHECK_FAIL] > 0;
}

/* ---- config ---------------------------------------------------------------------------------*/
/* By key: what holds where nothing says otherwise. The store's place is the library's to tell. */
static const char *const defaults[CLI_SETTINGS] = {"the device here",
                                                   "the whole space, once",
                                                   "one per core",
                                                   "no limit",
                                                   "no limit",
                                                   "no limit",
                                                   "not known",
                                                   NULL,
                                                   "none"};

/* The store that is used where nobody names one; "": there is none. */
static void find_store(cli_run *run, fa_buf *ret)
{
    fa_options library = {.size = sizeof library, .existing_store = true, .server = ""};
    if (fa_open(&library, &run->tuner, NULL) == 0)
        fa_buf_text(ret, fa_store_location(run->tuner));
}

static void add_setting(cli_run *run, cJSON *array, cli_table *table, int index)
{
    const cli_settings *files = run->options->files;
    const cli_setting *setting = &files->setting[index];
    const char *variable = cli_setting_keys[index].variable, *path = files->path[setting->file];
    const char *environment = setting->exported ? NULL : cli_setting_variable(index);
    bool by_variable = environment != NULL;
    bool by_file = setting->value[0] != 0 && !by_variable;
    fa_buf preset = {0};
    if (!by_variable && !by_file && defaults[index] == NULL)
        find_store(run, &preset);
    else if (!by_variable && !by_file)
        fa_buf_text(&preset, defaults[index]);
    const char *value = by_variable ? environment : by_file ? setting->value : preset.data;
    const char *origin = by_variable ? "environment" : by_file ? "file" : "default";
    cJSON *item = cJSON_CreateObject();
    fa_json_add_text(item, "setting", cli_setting_keys[index].name);
    if (by_variable || by_file || defaults[index] == NULL)
        fa_json_add_text(item, "value", value != NULL ? value : "");
    else
        fa_json_add_null(item, "value");
    fa_json_add_text(item, "origin", origin);
    if (by_variable)
        fa_json_add_text(item, "variable", variable);
    if (by_file) {
        fa_json_add_text(item, "file", path);
        fa_json_add_number(item, "line", setting->line);
    }
    fa_json_push(array, item);
    cli_cell(table, "%s", cli_setting_keys[index].name);
    cli_text_path(&table->cell, by_variable && value[0] == 0 ? "none" : value != NULL ? value : "");
    cli_cell_end(table);
    if (by_variable) {
        fa_buf_text(&table->cell, variable);
    } else if (by_file) {
        cli_text_path(&table->cell, path);
        fa_buf_printf(&table->cell, ", line %d", setting->line);
    } else {
        fa_buf_text(&table->cell, "default");
    }
    cli_cell_end(table);
    cli_row_end(table);
    fa_buf_free(&preset);
}

/* `what` in the text, `name` in the document; path is "" where there is none. */
static void put_file(cli_run *run, const char *what, const char *name, const char *path, bool found)
{
    fa_buf *out = &run->out;
    if (path[0] != 0)
        fa_json_add_text(run->document, name, path);
    else
        fa_json_add_null(run->document, name);
    fa_buf_text(out, what);
    if (path[0] != 0)
        cli_text_path(out, path);
    fa_buf_text(out, path[0] == 0 ? "none" : found ? "" : ", which is not there");
    fa_buf_text(out, "\n");
}

int cli_config(cli_run *run)
{
    const cli_settings *files = run->options->files;
    if (cli_settings_check(files, &run->diag) != 0)
        return cli_error(EXIT_USAGE, &run->diag);
    cJSON *array = fa_json_add_array(run->document, "settings");
    const char *project = files->path[CLI_FILE_PROJECT], *user = files->path[CLI_FILE_USER];
    cli_table table = {0};
    for (int i = 0; i < CLI_SETTINGS; i++)
        add_setting(run, array, &table, i);
    cli_table_put(&table, "setting|value|from", &run->out);
    put_file(run, "the project's file: ", "project_file", project, files->found[CLI_FILE_PROJECT]);
    if (files->foreign[0] != 0) {
        cli_text_path(&run->out, files->foreign);
        fa_buf_text(&run->out, " is not read: it belongs to another user\n");
    }
    put_file(run, "your own file: ", "user_file", user, files->found[CLI_FILE_USER]);
    fa_buf_text(
        &run->out,
        "Options take precedence over all of these. Python, the C library and a service that is not "
        "started by fa-tune read no file: for them set FA_TUNE_STORE and FA_TUNE_SERVER.\n");
    return 0;
}

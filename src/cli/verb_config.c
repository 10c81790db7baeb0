/* SPDX-License-Identifier: Apache-2.0
 *
 * config: what each setting is where no option says it, and where that comes from.
 */
#include "json.h"
#include "run.h"
#include "text.h"

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

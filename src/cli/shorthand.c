/* SPDX-License-Identifier: Apache-2.0
 *
 * Options that set several fields of a problem: "shorthands" of an operation's file, each an option, what it sets,
 * and the fields that take its value's numbers; and "models", by name what their layers ask for.
 */
#include "shorthand.h"

#include "error.h"
#include "fa_tune.h"
#include "nearest.h"
#include "options_table.h"
#include "text.h"

#include <cJSON.h>
#include <stdio.h>
#include <string.h>

static const cJSON *member(const fa_operation *operation, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(operation->document, key);
}

static const char *text_of(const cJSON *json, const char *key)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, key));
}

/* The i-th shorthand; NULL: there are no more. */
static const cJSON *shorthand_at(const fa_operation *operation, int index)
{
    return cJSON_GetArrayItem(member(operation, "shorthands"), index);
}

/* Sets one field, in a sweep its list too; one that was given stays where `keep` says so. */
static int set_field(cli_options *options, const char *name, const char *text, bool keep,
                     const char *option, fa_diag *diag)
{
    const fa_operation *operation = fa_operation_of(&options->problem);
    int field = fa_operation_field_index(operation, name);
    if (field < 0)
        return fa_fail(diag, FA_EINVAL, "%s: %s has no field \"%s\"", option, operation->name,
                       name);
    if (keep && ((options->given >> field & 1) || options->sweep.values[field] != NULL))
        return 0;
    bool several = strchr(text, ',') != NULL; /* of a sweep alone */
    int rc = several ? 0 : fa_set_field(&options->problem, name, text, diag);
    if (rc != 0)
        return fa_fail_in(diag, rc, "%s", option);
    options->given |= (uint32_t)1 << field;
    if (cli_sweep_option(operation, field) != NULL)
        options->sweep.values[field] = text;
    return 0;
}

static int set_all(cli_options *options, const cJSON *set, bool keep, const char *option,
                   fa_diag *diag)
{
    const cJSON *item;
    int rc = 0;
    cJSON_ArrayForEach (item, set)
        if (rc == 0)
            rc = set_field(options, item->string, cJSON_GetStringValue(item), keep, option, diag);
    return rc;
}

int cli_shorthand_set(int index, const char *text, cli_options *options, fa_diag *diag)
{
    const cJSON *item = shorthand_at(fa_operation_of(&options->problem), index);
    const cJSON *values = cJSON_GetObjectItemCaseSensitive(item, "values");
    const char *option = text_of(item, "option");
    options->shorthand[index] = text != NULL ? text : "";
    int rc = set_all(options, cJSON_GetObjectItemCaseSensitive(item, "set"), false, option, diag);
    for (int i = 0; rc == 0 && text != NULL && text[0] != 0; i++) {
        char word[24], typed[CLI_SHORT_SIZE];
        size_t length = strcspn(text, ",");
        const char *field = cJSON_GetStringValue(cJSON_GetArrayItem(values, i));
        snprintf(word, sizeof word, "%.*s", (int)(length < 23 ? length : 23), text);
        bool more = text[length] == ',';
        if (field == NULL || length == 0 || (more && text[length + 1] == 0))
            return fa_fail(diag, FA_EINVAL, "%s \"%s\": use %s", option,
                           cli_text_short(options->shorthand[index], typed),
                           text_of(item, "value"));
        rc = set_field(options, field, word, false, option, diag);
        text += length + more;
    }
    return rc;
}

void cli_shorthand_words(const cli_options *options, fa_buf *out)
{
    const char *option, *value, *help;
    const fa_operation *operation = fa_operation_of(&options->problem);
    for (int i = 0; cli_shorthand(operation, i, &option, &value, &help); i++)
        if (options->shorthand[i] != NULL)
            fa_buf_printf(out, " %s%s%s", option, options->shorthand[i][0] != 0 ? " " : "",
                          options->shorthand[i]);
}

/* Whether all that a shorthand sets is so in the problem, and a field without an option is among it. */
static bool is_needed(const fa_problem *problem, const cJSON *set)
{
    const fa_operation *operation = fa_operation_of(problem);
    const cJSON *item;
    bool holds = true, hidden = false;
    cJSON_ArrayForEach (item, set) {
        int field = fa_operation_field_index(operation, item->string);
        const char *text = cJSON_GetStringValue(item);
        char room[16];
        if (field < 0 || text == NULL)
            return false;
        const fa_field *f = &operation->field[field];
        holds = holds && strcmp(fa_field_text(f, problem->value[field], room), text) == 0;
        hidden = hidden || f->option[0] == 0;
    }
    return holds && hidden;
}

void cli_shorthand_hint(const fa_problem *problem, fa_buf *out)
{
    const fa_operation *operation = fa_operation_of(problem);
    for (int i = 0; shorthand_at(operation, i) != NULL; i++) {
        const cJSON *shorthand = shorthand_at(operation, i), *item;
        const char *before = " ";
        if (!is_needed(problem, cJSON_GetObjectItemCaseSensitive(shorthand, "set")))
            continue;
        fa_buf_printf(out, " %s", text_of(shorthand, "option"));
        cJSON_ArrayForEach (item, cJSON_GetObjectItemCaseSensitive(shorthand, "values")) {
            int field = fa_operation_field_index(operation, item->valuestring);
            fa_buf_printf(out, "%s%d", before, field >= 0 ? problem->value[field] : 0);
            before = ",";
        }
    }
}

bool cli_shorthand_lists(const cli_options *options, int field)
{
    const fa_operation *operation = fa_operation_of(&options->problem);
    for (int i = 0; i < CLI_SHORTHANDS_MAX; i++) {
        const cJSON *set = cJSON_GetObjectItemCaseSensitive(shorthand_at(operation, i), "set");
        const char *text = text_of(set, operation->field[field].name);
        if (options->shorthand[i] != NULL && text != NULL && text == options->sweep.values[field])
            return true;
    }
    return false;
}

/* ---- models ---------------------------------------------------------------------------------*/
static int fail_model(const cJSON *models, const char *name, fa_diag *diag)
{
    const char *names[64];
    const cJSON *item;
    char typed[CLI_SHORT_SIZE];
    fa_buf list = {0};
    int count = 0;
    cJSON_ArrayForEach (item, models)
        if (count < 63) {
            names[count++] = item->string;
            fa_buf_printf(&list, "%s%s", count > 1 ? ", " : "", item->string);
        }
    names[count] = NULL;
    const char *near = fa_nearest(name, names);
    cli_text_short(name, typed);
    int rc = near != NULL ? fa_fail(diag, FA_EINVAL,
                                    "--model \"%s\" is not known: did you mean %s?", typed, near)
                          : fa_fail(diag, FA_EINVAL, "--model \"%s\" is not known: it takes %s",
                                    typed, list.data != NULL ? list.data : "no names");
    fa_buf_free(&list);
    return rc;
}

/* A model's layers: objects of fields; then the work that is asked of each, prefill and decode. */
int cli_model_variant(const cli_options *options, int index, cli_options *ret_options,
                      fa_diag *diag)
{
    const fa_operation *operation = fa_operation_of(&options->problem);
    const cJSON *models = member(operation, "models"), *works = member(operation, "model_work");
    const cJSON *model = cJSON_GetObjectItemCaseSensitive(models, options->sweep.model);
    int kinds = cJSON_GetArraySize(works);
    int lengths_given = 0;
    if (model == NULL)
        return fail_model(models, options->sweep.model, diag);
    for (int i = 0; i < operation->field_count; i++)
        lengths_given += operation->field[i].length && options->sweep.values[i] != NULL;
    if (lengths_given > 0)
        kinds = 1; /* the work is what was asked for */
    const cJSON *layer = kinds > 0 ? cJSON_GetArrayItem(model, index / kinds) : NULL;
    if (layer == NULL)
        return FA_ENOTFOUND;
    *ret_options = *options;
    int rc = set_all(ret_options, layer, true, "--model", diag);
    if (rc == 0 && lengths_given == 0)
        rc = set_all(ret_options, cJSON_GetArrayItem(works, index % kinds), true, "--model", diag);
    return rc;
}

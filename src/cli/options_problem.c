/* SPDX-License-Identifier: Apache-2.0
 *
 * The options that come from an operation's file: one for each field, lists of values for sweeps, shorthands
 * of several fields; what must be given, and a problem as options again.
 */

#include "options.h"
#include "error.h"
#include "json.h"
#include "problem.h"
#include "text.h"

#include <stdio.h>
#include <string.h>

/* Whether the field is the first of those that its option of several fields sets. */
static bool leads_also(const fa_operation *operation, int field)
{
    for (int i = 0; i < field; i++)
        if (strcmp(operation->field[i].also, operation->field[field].also) == 0)
            return false;
    return operation->field[field].also[0] != 0;
}

static bool is_list(const fa_field *f)
{
    return f->kind != FA_FIELD_BOOLEAN && f->option[0] != 0;
}

const char *cli_sweep_option(const fa_operation *operation, int field)
{
    const fa_field *f = &operation->field[field];
    return !is_list(f) ? NULL : leads_also(operation, field) ? f->also : f->option;
}

int cli_option_field(const cli_option_spec *spec)
{
    size_t values = CLI_AT(request.problem.value), lists = CLI_AT(sweep.values);
    if (spec->kind == KIND_FIELD || spec->kind == KIND_ALSO)
        return (int)((spec->offset - values) / sizeof(int32_t));
    if (spec->offset >= lists && spec->offset < lists + FA_PROBLEM_VALUES * sizeof(char *))
        return (int)((spec->offset - lists) / sizeof(char *));
    return -1;
}

/* ---- shorthands, as an operation's file lists them ------------------------------------------*/
/* The i-th shorthand; NULL: there are no more. */
static const cJSON *shorthand_at(const fa_operation *operation, int index)
{
    return index < CLI_SHORTHANDS_MAX
               ? cJSON_GetArrayItem(fa_json_member(operation->document, "shorthands"), index)
               : NULL;
}

/* ---- rows -----------------------------------------------------------------------------------*/
enum { OF_PROBLEM = CLI_GROUP_PROBLEM | CLI_GROUP_FILTER | CLI_GROUP_SWEEP };

/* The next row, of a field; its value and help are those of the field. As a text it is a sweep's list of values. */
static void add_option(cli_problem_options *options, const char *name, cli_option_kind kind,
                       const fa_field *f, const char *help, size_t offset)
{
    enum { SIZE = sizeof options->row[0].value };
    char *value = options->row[options->count].value, *words = options->row[options->count].help;
    char room[16]; /* for a default that the text does not tell */
    const bool told = f->required || f->follows >= 0 || f->kind >= FA_FIELD_BOOLEAN;
    const bool list = kind == KIND_TEXT, bare = fa_field_may_be_bare(f), left_out = bare && !list;
    const char *number = list ? "LIST" : "N", *between = "";
    const char *any = f->kind == FA_FIELD_INTEGER ? number : f->kind == FA_FIELD_TEXT ? "EXPR" : "";
    snprintf(value, SIZE, "%s", left_out ? "[" : any);
    for (int i = left_out; f->choice[i] != NULL; i++, between = list ? "," : "|")
        snprintf(value + strlen(value), SIZE - strlen(value), "%s%s", between, f->choice[i]);
    if (bare)
        snprintf(value + strlen(value), SIZE - strlen(value), "%s", list ? ",both" : "]");
    snprintf(words, sizeof options->row[0].help, told ? "%s" : "%s (%s)", help,
             fa_field_text(f, f->preset, room));
    options->row[options->count++].spec =
        (cli_option_spec){.name = name,
                          .group = OF_PROBLEM,
                          .kind = kind,
                          .offset = offset,
                          .value = f->kind == FA_FIELD_BOOLEAN ? NULL : value,
                          .help = words};
}

static void add_field(cli_problem_options *options, const fa_operation *operation, int field)
{
    const fa_field *f = &operation->field[field];
    const bool list = options->sweeps && is_list(f), leads = leads_also(operation, field);
    const size_t offset = list ? CLI_AT(sweep.values) + (size_t)field * sizeof(char *)
                               : CLI_AT(request.problem.value) + (size_t)field * sizeof(int32_t);
    const char *words = f->words[0] != 0 ? f->words : "size of the kernel's arguments";
    char lead[FA_NAME_MAX]; /* "sequence length" of "sequence length, of the queries" */
    snprintf(lead, sizeof lead, "%.*s", (int)strcspn(words, ",;:("), words);
    if (leads)
        add_option(options, f->also, list ? KIND_TEXT : KIND_ALSO, f, lead, offset);
    if (!leads || !list)
        add_option(options, f->option, list ? KIND_TEXT : KIND_FIELD, f, words, offset);
    for (int i = 0; list && i < operation->product_count; i++) {
        const fa_product *product = &operation->product[i];
        if (product->field == field)
            options->row[options->count++].spec =
                (cli_option_spec){.name = product->option,
                                  .group = CLI_GROUP_SWEEP,
                                  .kind = KIND_INTEGER,
                                  .offset = CLI_AT(sweep.product) + (size_t)i * sizeof(int32_t),
                                  .low = 1,
                                  .high = INT32_MAX,
                                  .value = "N",
                                  .help = product->help};
    }
}

void cli_problem_options_make(const fa_operation *operation, bool sweeps,
                              cli_problem_options *ret_options)
{
    const cJSON *item;
    ret_options->count = 0;
    ret_options->sweeps = sweeps;
    for (int i = 0; i < operation->field_count; i++)
        if (is_list(&operation->field[i]))
            add_field(ret_options, operation, i);
    for (int i = 0; i < operation->field_count; i++)
        if (!is_list(&operation->field[i]) && operation->field[i].option[0] != 0)
            add_field(ret_options, operation, i);
    for (int i = 0; (item = shorthand_at(operation, i)) != NULL; i++)
        ret_options->row[ret_options->count++].spec =
            (cli_option_spec){.name = fa_json_string(item, "option"),
                              .group = OF_PROBLEM,
                              .kind = KIND_SHORTHAND,
                              .low = i,
                              .value = fa_json_string(item, "value"),
                              .help = fa_json_string(item, "help")};
}

/* ---- what must be given ---------------------------------------------------------------------*/
int cli_problem_complete(cli_options *options, fa_diag *diag)
{
    const fa_operation *operation = fa_operation_of(&options->request.problem);
    uint32_t given = cli_given(options);
    for (int i = 0; i < operation->field_count; i++) {
        const fa_field *f = &operation->field[i];
        if ((f->required || f->also[0] != 0) && !(given >> i & 1))
            return fa_fail(
                diag, FA_EINVAL, "%s N is missing%s%s", f->also[0] != 0 ? f->also : f->option,
                operation->example[0] != 0 ? ", as in fa-tune " : "", operation->example);
    }
    fa_problem_fill(&options->request.problem, given);
    return fa_problem_check(&options->request.problem, diag);
}

/* ---- options that set several fields ---------------------------------------------------------*/
/* Sets fields that were not given from an object of texts, which must outlive the options. */
static int set_fields(cli_options *options, const cJSON *set, const char *option, fa_diag *diag)
{
    const fa_operation *operation = fa_operation_of(&options->request.problem);
    const cJSON *item;
    cJSON_ArrayForEach (item, set) {
        const char *text = cJSON_GetStringValue(item);
        int field = fa_operation_field_index(operation, item->string);
        if (field < 0)
            return fa_fail(diag, FA_EINVAL, "%s: %s has no field \"%s\"", option, operation->name,
                           item->string);
        if ((options->given >> field & 1) || options->sweep.values[field] != NULL)
            continue;
        int rc = fa_set_field(&options->request.problem, item->string, text, diag);
        if (rc != 0)
            return fa_fail_in(diag, rc, "%s", option);
        options->given |= (uint32_t)1 << field;
        if (cli_sweep_option(operation, field) != NULL)
            options->sweep.values[field] = text;
    }
    return 0;
}

/* What an option of its own says of a field goes before a shorthand, whichever stands first. */
int cli_shorthand_set(int index, const char *text, cli_options *options, fa_diag *diag)
{
    const fa_operation *operation = fa_operation_of(&options->request.problem);
    const cJSON *item = shorthand_at(operation, index);
    const char *option = fa_json_string(item, "option");
    options->shorthand[index] = text != NULL ? text : "";
    int rc = set_fields(options, fa_json_member(item, "set"), option, diag);
    for (int i = 0; rc == 0 && text != NULL && (i == 0 || text[0] != 0); i++) {
        char word[24];
        size_t length = strcspn(text, ",");
        const char *field =
            cJSON_GetStringValue(cJSON_GetArrayItem(fa_json_member(item, "values"), i));
        int index_of = field == NULL ? -1 : fa_operation_field_index(operation, field);
        snprintf(word, sizeof word, "%.*s", (int)(length < 23 ? length : 23), text);
        bool more = text[length] == ',';
        if (index_of < 0 || length == 0 || (more && text[length + 1] == 0) ||
            fa_set_field(&options->request.problem, field, word, diag) != 0)
            return cli_refuse(option, options->shorthand[index], fa_json_string(item, "value"),
                              NULL, diag);
        options->given |= (uint32_t)1 << index_of;
        text += length + more;
    }
    return rc;
}

int cli_shorthand_check(const cli_options *options, fa_diag *diag)
{
    const fa_operation *operation = fa_operation_of(&options->request.problem);
    const cJSON *shorthand, *item;
    for (int i = 0; (shorthand = shorthand_at(operation, i)) != NULL; i++)
        cJSON_ArrayForEach (item, fa_json_member(shorthand, "set")) {
            int field = fa_operation_field_index(operation, item->string);
            const char *list = field >= 0 ? options->sweep.values[field] : NULL;
            if (options->shorthand[i] != NULL && list != NULL &&
                strcmp(list, item->valuestring) != 0)
                return fa_fail(diag, FA_EINVAL, "%s: does not go with %s",
                               fa_json_string(shorthand, "option"),
                               cli_sweep_option(operation, field));
        }
    return 0;
}

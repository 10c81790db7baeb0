/* SPDX-License-Identifier: Apache-2.0
 *
 * The options that come from an operation's file: one for each field, lists of values for sweeps, shorthands
 * of several fields; what must be given, and a problem as options again.
 */
#include "options_table.h"

#include "error.h"
#include "json.h"
#include "fa_tune.h"
#include "wording.h"
#include "problem.h"
#include "text.h"

#include <cJSON.h>
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
    return f->kind != FA_FIELD_BOOLEAN && !f->single && f->option[0] != 0;
}

const char *cli_sweep_option(const fa_operation *operation, int field)
{
    const fa_field *f = &operation->field[field];
    return !is_list(f) ? NULL : leads_also(operation, field) ? f->also : f->option;
}

int cli_option_field(const cli_option_spec *spec)
{
    size_t values = CLI_AT(problem.value), lists = CLI_AT(sweep.values);
    if (spec->kind == KIND_FIELD || spec->kind == KIND_ALSO)
        return (int)((spec->offset - values) / sizeof(int32_t));
    if (spec->offset >= lists && spec->offset < lists + FA_PROBLEM_VALUES * sizeof(char *))
        return (int)((spec->offset - lists) / sizeof(char *));
    return -1;
}

/* A field as it is typed; a field without an option of its own is set by a shorthand of its name. */
static const char *typed_name(const fa_field *f, char room[FA_NAME_MAX + 2])
{
    if (f->option[0] != 0)
        return f->option;
    snprintf(room, FA_NAME_MAX + 2, "--%s", f->name);
    for (char *at = room; *at != 0; at++)
        *at = *at == '_' ? '-' : *at;
    return room;
}

/* ---- rows -----------------------------------------------------------------------------------*/
/* "TEXT (DEFAULT)" where the field has a default that its text does not tell. */
static void word_help(const fa_field *f, const char *text, char *ret, size_t size)
{
    char room[16];
    bool told = f->required || f->follows >= 0 || f->kind == FA_FIELD_BOOLEAN;
    snprintf(ret, size, told ? "%s" : "%s (%s)", text, fa_field_text(f, f->preset, room));
}

static void word_value(const fa_field *f, char *ret, size_t size)
{
    int n = snprintf(ret, size, "%s",
                     f->option_value[0] != 0       ? f->option_value
                     : f->kind == FA_FIELD_INTEGER ? "N"
                                                   : "");
    for (int i = 0; n == 0 && i < FA_CHOICES_MAX && f->choice[i] != NULL; i++)
        snprintf(ret + strlen(ret), size - strlen(ret), "%s%s", i > 0 ? "|" : "", f->choice[i]);
}

/* The next row; its value and help are buffers that the caller fills. */
static cli_option_spec *add_option(cli_problem_options *options, const char *name, unsigned group,
                                   cli_option_kind kind, int field)
{
    cli_option_spec *spec = &options->row[options->count].spec;
    *spec = (cli_option_spec){.name = name,
                              .group = group,
                              .kind = kind,
                              .offset = CLI_AT(problem.value) + (size_t)field * sizeof(int32_t),
                              .value = options->row[options->count].value,
                              .help = options->row[options->count].help};
    options->count++;
    return spec;
}

static void add_field(cli_problem_options *options, const fa_operation *operation, int field)
{
    enum { PROBLEM = CLI_GROUP_PROBLEM | CLI_GROUP_FILTER };
    const fa_field *f = &operation->field[field];
    size_t at = options->count;
    if (leads_also(operation, field)) {
        add_option(options, f->also, PROBLEM, KIND_ALSO, field);
        word_value(f, options->row[at].value, sizeof options->row[at].value);
        word_help(f, f->also_help, options->row[at].help, sizeof options->row[at].help);
        at++;
    }
    cli_option_spec *spec = add_option(
        options, f->option, is_list(f) ? PROBLEM : PROBLEM | CLI_GROUP_SWEEP, KIND_FIELD, field);
    spec->low = 1; /* of a flag */
    if (f->kind == FA_FIELD_BOOLEAN)
        spec->value = NULL;
    else
        word_value(f, options->row[at].value, sizeof options->row[at].value);
    word_help(f, f->option_help, options->row[at].help, sizeof options->row[at].help);
}

/* A filter keeps problems without a flag, too. */
static void add_without(cli_problem_options *options, const fa_operation *operation, int field)
{
    char option[FA_NAME_MAX + 2], *name = options->row[options->count].value;
    const char *flag = typed_name(&operation->field[field], option);
    cli_option_spec *spec =
        add_option(options, name, CLI_GROUP_FILTER | CLI_GROUP_SHOW, KIND_FIELD, field);
    snprintf(name, sizeof options->row[0].value, "--no-%s", flag + 2);
    snprintf(options->row[options->count - 1].help, sizeof options->row[0].help,
             "only problems without %s", flag);
    spec->value = NULL;
}

static void add_list(cli_problem_options *options, const fa_operation *operation, int field)
{
    const fa_field *f = &operation->field[field];
    const char *own = f->sweep_help[0] != 0 ? f->sweep_help : f->option_help;
    const char *help = leads_also(operation, field) ? f->also_sweep_help : own;
    size_t at = options->count;
    cli_option_spec *spec =
        add_option(options, cli_sweep_option(operation, field), CLI_GROUP_SWEEP, KIND_TEXT, field);
    spec->offset = CLI_AT(sweep.values) + (size_t)field * sizeof(char *);
    spec->value = "LIST";
    word_help(f, help, options->row[at].help, sizeof options->row[at].help);
    for (int i = 0; i < operation->product_count; i++) {
        const fa_product *product = &operation->product[i];
        if (product->field != field)
            continue;
        spec = add_option(options, product->option, CLI_GROUP_SWEEP, KIND_INTEGER, field);
        spec->offset = CLI_AT(sweep.product) + (size_t)i * sizeof(int32_t);
        spec->low = product->min;
        spec->high = INT32_MAX;
        spec->value = "N";
        spec->help = product->help;
    }
}

/* The operation's shorthands, counted from 0; false: there are no more. *ret_value NULL: it takes none. */
static bool shorthand(const fa_operation *operation, int index, const char **ret_option,
                      const char **ret_value, const char **ret_help)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(operation->document, "shorthands");
    const cJSON *item = cJSON_GetArrayItem(list, index);
    const struct {
        const char *key, **ret;
    } texts[] = {{"option", ret_option}, {"value", ret_value}, {"help", ret_help}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        *texts[i].ret = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, texts[i].key));
    return *ret_option != NULL && *ret_help != NULL && index < CLI_SHORTHANDS_MAX;
}

static void add_shorthands(cli_problem_options *options, const fa_operation *operation)
{
    const char *name, *value, *help;
    for (int i = 0; shorthand(operation, i, &name, &value, &help); i++) {
        cli_option_spec *spec =
            add_option(options, name, CLI_GROUP_PROBLEM | CLI_GROUP_FILTER | CLI_GROUP_SWEEP,
                       KIND_SHORTHAND, 0);
        spec->low = i;
        spec->value = value;
        spec->help = help;
    }
}

void cli_problem_options_make(const fa_operation *operation, cli_problem_options *ret_options)
{
    int order[FA_PROBLEM_VALUES];
    ret_options->count = 0;
    fa_operation_order(operation, FA_ORDER_OPTIONS, order);
    for (int i = 0; i < operation->field_count; i++)
        if (is_list(&operation->field[order[i]]))
            add_field(ret_options, operation, order[i]);
    for (int i = 0; i < operation->field_count; i++)
        if (is_list(&operation->field[order[i]]))
            add_list(ret_options, operation, order[i]);
    ret_options->flags = ret_options->count;
    for (int i = 0; i < operation->field_count; i++)
        if (!is_list(&operation->field[order[i]]) && operation->field[order[i]].option[0] != 0)
            add_field(ret_options, operation, order[i]);
    add_shorthands(ret_options, operation);
    for (int i = 0; i < operation->field_count; i++)
        if (operation->field[order[i]].kind == FA_FIELD_BOOLEAN)
            add_without(ret_options, operation, order[i]);
}

/* ---- what must be given ---------------------------------------------------------------------*/
static const char *field_words(const fa_field *f)
{
    return f->words[0] != 0 ? f->words : f->name;
}

/* One length of two may be given, whose option stands for both. */
static int fail_missing(const cli_options *options, const char *verb, const fa_field *f,
                        uint32_t given, fa_diag *diag)
{
    const fa_operation *operation = fa_operation_of(&options->problem);
    const char *option = f->also[0] != 0 ? f->also : f->option;
    for (int i = 0; i < operation->field_count; i++)
        if ((given >> i & 1) && f->also[0] != 0 && strcmp(operation->field[i].also, f->also) == 0)
            option = f->option;
    if (operation->example[0] == 0)
        return fa_fail(diag, FA_EINVAL, "%s N is missing: the %s", option, field_words(f));
    bool named = strcmp(verb, "tune") != 0; /* the default verb */
    return fa_fail(diag, FA_EINVAL, "%s N is missing: the %s, as in `fa-tune %s%s%s%s`", option,
                   field_words(f), named ? verb : "", options->why ? " --why" : "",
                   named ? " " : "", operation->example);
}

int cli_problem_complete(cli_options *options, const char *verb, fa_diag *diag)
{
    const fa_operation *operation = fa_operation_of(&options->problem);
    uint32_t given = options->given | options->given_also;
    for (int i = 0; i < operation->field_count; i++) {
        const fa_field *f = &operation->field[i];
        if ((f->required || f->also[0] != 0) && !(given >> i & 1))
            return fail_missing(options, verb, f, given, diag);
    }
    fa_problem_fill(&options->problem, given);
    return cli_problem_check(&options->problem, diag);
}

int cli_problem_check(const fa_problem *problem, fa_diag *diag)
{
    const fa_operation *operation = fa_operation_of(problem);
    for (int i = 0; i < operation->field_count; i++) {
        const fa_field *f = &operation->field[i];
        int32_t value = problem->value[i];
        if (f->divides >= 0 && value > 0 && problem->value[f->divides] % value != 0)
            return fa_fail(diag, FA_EINVAL, "%s: %d is not a divisor of %s %d", f->option, value,
                           operation->field[f->divides].option, problem->value[f->divides]);
        const fa_field *needed = f->needs >= 0 ? &operation->field[f->needs] : NULL;
        char name[FA_NAME_MAX + 2], other[FA_NAME_MAX + 2];
        if (needed != NULL && value != f->preset && problem->value[f->needs] == needed->preset)
            return fa_fail(diag, FA_EINVAL, "%s: needs %s", typed_name(f, name),
                           typed_name(needed, other));
        if (f->at_most >= 0 && value > problem->value[f->at_most])
            return fa_fail(diag, FA_EINVAL, "%s: %d is not at most %s, which is %d",
                           typed_name(f, name), value,
                           typed_name(&operation->field[f->at_most], other),
                           problem->value[f->at_most]);
        if (fa_field_is_barred(operation, f, problem))
            return fa_fail(diag, FA_EINVAL, "%s: does not go with --%.*s %s", typed_name(f, name),
                           (int)strcspn(f->bars, "="), f->bars, strchr(f->bars, '=') + 1);
    }
    return fa_problem_check(problem, diag);
}

/* ---- shorthands: options that set several fields, as an operation's file lists them -----------*/
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

int cli_fields_set(cli_options *options, const cJSON *set, const char *option, fa_diag *diag)
{
    return set_all(options, set, true, option, diag);
}

/* What an option of its own says of a field goes before a shorthand, whichever stands first. */
int cli_shorthand_set(int index, const char *text, cli_options *options, fa_diag *diag)
{
    const cJSON *item = shorthand_at(fa_operation_of(&options->problem), index);
    const cJSON *values = cJSON_GetObjectItemCaseSensitive(item, "values");
    const char *option = text_of(item, "option");
    options->shorthand[index] = text != NULL ? text : "";
    int rc = set_all(options, cJSON_GetObjectItemCaseSensitive(item, "set"), true, option, diag);
    for (int i = 0; rc == 0 && text != NULL && (i == 0 || text[0] != 0); i++) {
        char word[24];
        size_t length = strcspn(text, ",");
        const char *field = cJSON_GetStringValue(cJSON_GetArrayItem(values, i));
        snprintf(word, sizeof word, "%.*s", (int)(length < 23 ? length : 23), text);
        bool more = text[length] == ',';
        if (field == NULL || length == 0 || (more && text[length + 1] == 0) ||
            set_field(options, field, word, false, option, diag) != 0)
            return cli_refuse(option, options->shorthand[index], text_of(item, "value"), NULL,
                              diag);
        text += length + more;
    }
    return rc;
}

int cli_shorthand_check(const cli_options *options, fa_diag *diag)
{
    const fa_operation *operation = fa_operation_of(&options->problem);
    for (int i = 0; shorthand_at(operation, i) != NULL && i < CLI_SHORTHANDS_MAX; i++) {
        const cJSON *shorthand = shorthand_at(operation, i), *item;
        cJSON_ArrayForEach (item, cJSON_GetObjectItemCaseSensitive(shorthand, "set")) {
            int field = fa_operation_field_index(operation, item->string);
            const char *list = field >= 0 ? options->sweep.values[field] : NULL;
            if (options->shorthand[i] != NULL && list != NULL &&
                strcmp(list, item->valuestring) != 0)
                return fa_fail(diag, FA_EINVAL, "%s: does not go with %s: both set the %s",
                               text_of(shorthand, "option"), cli_sweep_option(operation, field),
                               field_words(&operation->field[field]));
        }
    }
    return 0;
}

void cli_shorthand_words(const cli_options *options, fa_buf *out)
{
    const char *option, *value, *help;
    const fa_operation *operation = fa_operation_of(&options->problem);
    for (int i = 0; shorthand(operation, i, &option, &value, &help); i++)
        if (options->shorthand[i] != NULL)
            fa_buf_printf(out, " %s%s%s", option, options->shorthand[i][0] != 0 ? " " : "",
                          options->shorthand[i]);
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

/* ---- hints: commands as they must be typed here ----------------------------------------------*/
static void put_option(fa_buf *out, const char *option, const char *value)
{
    if (value == NULL)
        return;
    fa_buf_printf(out, " %s ", option);
    cli_text_word(out, value);
}

void cli_hint(fa_buf *out, const char *verb, const cli_options *options)
{
    fa_buf_printf(out, "`fa-tune %s", verb);
    for (int i = 0; i < options->words; i++) {
        fa_buf_text(out, " ");
        cli_text_word(out, options->word[i]);
    }
    put_option(out, "--store", options->store);
    put_option(out, "--templates", options->templates);
    fa_buf_text(out, "`");
}

void cli_hint_store(fa_buf *out, const char *verb, const cli_options *options)
{
    cli_options without = *options;
    without.words = 0;
    cli_hint(out, verb, &without);
}

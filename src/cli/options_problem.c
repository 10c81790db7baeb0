/* SPDX-License-Identifier: Apache-2.0
 *
 * The options that come from an operation's table of fields: one for each field, lists of values for
 * sweeps, and what must be given.
 */
#include "options_table.h"

#include "error.h"
#include "problem.h"

#include <stdio.h>
#include <string.h>

bool cli_leads_also(const fa_operation *operation, int field)
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
    return !is_list(f) ? NULL : cli_leads_also(operation, field) ? f->also : f->option;
}

int cli_option_field(const cli_option_spec *spec)
{
    return (int)((spec->offset - CLI_AT(problem.value)) / sizeof(int32_t));
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
    if (cli_leads_also(operation, field)) {
        add_option(options, f->also, PROBLEM, KIND_ALSO, field);
        word_value(f, options->row[at].value, sizeof options->row[at].value);
        word_help(f, f->also_help, options->row[at].help, sizeof options->row[at].help);
        at++;
    }
    cli_option_spec *spec = add_option(
        options, f->option, is_list(f) ? PROBLEM : PROBLEM | CLI_GROUP_SWEEP, KIND_FIELD, field);
    if (f->kind == FA_FIELD_BOOLEAN)
        spec->value = NULL;
    else
        word_value(f, options->row[at].value, sizeof options->row[at].value);
    word_help(f, f->option_help, options->row[at].help, sizeof options->row[at].help);
}

static void add_list(cli_problem_options *options, const fa_operation *operation, int field)
{
    const fa_field *f = &operation->field[field];
    const char *own = f->sweep_help[0] != 0 ? f->sweep_help : f->option_help;
    const char *help = cli_leads_also(operation, field) ? f->also_sweep_help : own;
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

bool cli_shorthand(const fa_operation *operation, int index, const char **ret_option,
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
    for (int i = 0; cli_shorthand(operation, i, &name, &value, &help); i++) {
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
}

/* ---- what must be given ---------------------------------------------------------------------*/
/* The first field that shares its option of several fields with this one and was given; NULL: none. */
static const fa_field *given_beside(const fa_operation *operation, const fa_field *f,
                                    uint32_t given)
{
    for (int i = 0; i < operation->field_count; i++)
        if ((given >> i & 1) && strcmp(operation->field[i].also, f->also) == 0)
            return &operation->field[i];
    return NULL;
}

static int fail_missing(const cli_options *options, const char *verb, const fa_field *f,
                        uint32_t given, fa_diag *diag)
{
    const fa_operation *operation = fa_operation_of(&options->problem);
    const fa_field *beside = given_beside(operation, f, given);
    if (f->also[0] != 0 && beside != NULL)
        return fa_fail(diag, FA_EINVAL, "%s is missing: give it beside %s, or %s for both",
                       f->option, beside->option, f->also);
    const char *words = f->words[0] != 0 ? f->words : f->name;
    const char *option = f->also[0] != 0 ? f->also : f->option;
    bool named = strcmp(verb, "tune") != 0; /* the default verb */
    if (operation->example[0] == 0)
        return fa_fail(diag, FA_EINVAL, "the %s is missing: add %s N", words, option);
    return fa_fail(diag, FA_EINVAL, "the %s is missing: add %s N, as in `fa-tune %s%s%s%s`", words,
                   option, named ? verb : "", options->why ? " --why" : "", named ? " " : "",
                   operation->example);
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
            return fa_fail(diag, FA_EINVAL, "%s %d does not divide %s %d: use one of its divisors",
                           f->option, value, operation->field[f->divides].option,
                           problem->value[f->divides]);
    }
    return fa_problem_check(problem, diag);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Parsing and checking the command line.
 */
#include "options.h"

#include "error.h"
#include "problem.h"
#include "text.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct parse {
    const cli_verb *verb;
    bool typed; /* the verb */
    const cli_option_list *all;
    int count, at;
    char **arguments;
    cli_options *options;
    bool given[CLI_OPTIONS_MAX]; /* by index in `all` */
    bool files;                  /* all that stands behind "--" */
} parse;

/* A word that is no option of the verb. */
static int fail_unknown(const parse *p, const char *argument, fa_diag *diag)
{
    const char *names[CLI_OPTIONS_MAX + 1];
    char name[256], what[320];
    size_t count = 0, length = strcspn(argument, "=");
    for (size_t i = 0; i < p->all->count; i++)
        if (p->all->spec[i]->name != NULL)
            names[count++] = p->all->spec[i]->name;
    names[count] = NULL;
    snprintf(name, sizeof name, "%.*s", (int)(length < 255 ? length : 255), argument);
    if (name[0] != '-' && !p->typed)
        return cli_refuse(NULL, argument, "an option, and a verb comes first", NULL, diag);
    snprintf(what, sizeof what, "an option of `fa-tune %s` (--help lists them)", p->verb->name);
    return cli_refuse(NULL, name[0] == '-' ? name : argument, what, names, diag);
}

/* The option that an argument names, with the value that stands in the same argument, if any does:
 * --jobs=4, -j4 or -j=4. NULL: it names none. */
static const cli_option_spec *read_name(const parse *p, const char *argument,
                                        const char **ret_value)
{
    const char *equals = strchr(argument, '=');
    *ret_value = NULL;
    if (argument[0] == '-' && argument[1] != '-' && argument[1] != 0) {
        const char *name = cli_option_of_letter(argument[1]);
        if (argument[2] != 0)
            *ret_value = argument + 2 + (argument[2] == '=');
        return cli_option_find(p->all, name, strlen(name));
    }
    *ret_value = equals != NULL ? equals + 1 : NULL;
    return cli_option_find(p->all, argument,
                           equals != NULL ? (size_t)(equals - argument) : strlen(argument));
}

static void add_typed(cli_options *options, const char *word)
{
    const size_t length = strlen(options->typed);
    snprintf(options->typed + length, sizeof options->typed - length, "%s%s", length > 0 ? " " : "",
             word);
}

/* Parses one argument and steps over it and its value. */
static int parse_one(parse *p, fa_diag *diag)
{
    const char *argument = p->arguments[p->at], *value, *next;
    cli_options *options = p->options;
    const bool serves = (p->verb->groups & CLI_GROUP_SERVE) != 0;
    if (serves && (p->files || argument[0] != '-')) {
        if (options->serve.files == CLI_FILES_MAX)
            return fa_fail(diag, FA_EINVAL, "more than %d files of kernels", CLI_FILES_MAX);
        options->serve.file[options->serve.files++] = argument;
        p->at++;
        return 0;
    }
    if (serves && strcmp(argument, "--") == 0) {
        p->files = true;
        p->at++;
        return 0;
    }
    if (argument[0] != '-' && argument[0] != 0 && options->operand == NULL &&
        cli_operand(p->verb->groups) != NULL) {
        options->operand = argument;
        p->at++;
        return 0;
    }
    const cli_option_spec *spec = read_name(p, argument, &value);
    if (spec == NULL)
        return fail_unknown(p, argument, diag);
    int from = p->at++;
    for (size_t i = 0; i < p->all->count; i++)
        p->given[i] |= p->all->spec[i] == spec;
    const fa_field *field =
        spec->kind == KIND_FIELD
            ? &fa_operation_of(&options->request.problem)->field[cli_option_field(spec)]
            : NULL;
    bool flag = spec->kind == KIND_FLAG || (spec->kind == KIND_SHORTHAND && spec->value == NULL) ||
                (field != NULL && field->kind == FA_FIELD_BOOLEAN);
    if (flag && value != NULL)
        return cli_refuse(spec->name, value, "taken: it has no value", NULL, diag);
    /* A negative number is a value, so that its sentence is about the number. */
    next = p->at < p->count ? p->arguments[p->at] : "-";
    if (!flag && value == NULL && (next[0] != '-' || (next[1] >= '0' && next[1] <= '9')))
        value = p->arguments[p->at++];
    else if (value == NULL && field != NULL && fa_field_may_be_bare(field))
        value = field->choice[1];
    else if (!flag && value == NULL)
        return fa_fail(diag, FA_EINVAL, "%s: its value is missing (%s)", spec->name, spec->value);
    int rc = cli_option_set(spec, value, options, diag);
    if (spec->group & (CLI_GROUP_SWEEP | CLI_GROUP_DEVICE | CLI_GROUP_EFFORT))
        while (from < p->at)
            add_typed(options, p->arguments[from++]);
    return rc;
}

/* A file that a verb is to read, which says what else is wrong with it; NULL: none is named. */
static int check_file(const char *path, fa_diag *diag)
{
    struct stat is = {0};
    if (path == NULL ||
        (stat(path, &is) == 0 ? !S_ISDIR(is.st_mode) : errno != ENOENT && errno != ENOTDIR))
        return 0;
    return fa_fail(diag, FA_EINVAL, "%.300s: %s", path,
                   S_ISDIR(is.st_mode) ? "it is a folder: name a file in it"
                                       : "there is no such file");
}

/* Options that exclude one another, FILE.cu and FILE among them. */
static const struct {
    const char *one, *other;
} exclusive[] = {
    {"--gpu", "--device"}, {"--server", "--templates"}, {"--server", "FILE.cu"},
    {"--why", "FILE"},     {"--operation", "FILE.cu"},  {"--dropout", "--buffers"},
};

static bool is_given(const parse *p, const char *name)
{
    if (name[0] != '-')
        return strcmp(name, "FILE") == 0 ? p->options->operand != NULL
                                         : p->options->specification != NULL;
    for (size_t i = 0; i < p->all->count; i++)
        if (p->given[i] && strcmp(p->all->spec[i]->name, name) == 0)
            return true;
    return false;
}

/* What no single option can tell. */
static int complete(const parse *p, fa_diag *diag)
{
    const cli_verb *verb = p->verb;
    cli_options *options = p->options;
    const char *missing = options->operand == NULL ? cli_operand(verb->groups) : NULL;
    if ((verb->groups & CLI_GROUP_CHECK) && options->specification == NULL)
        missing = "FILE.cu";
    if (missing != NULL && missing[0] != '[')
        return fa_fail(diag, FA_EINVAL, "%s is missing: see `fa-tune %s --help`", missing,
                       verb->name);
    for (size_t i = 0; i < sizeof exclusive / sizeof *exclusive; i++)
        if (is_given(p, exclusive[i].one) && is_given(p, exclusive[i].other))
            return fa_fail(diag, FA_EINVAL, "%s: does not go with %s", exclusive[i].one,
                           exclusive[i].other);
    fa_request *request = &options->request;
    if (options->same_bits != NULL)
        snprintf(request->same_bits, sizeof request->same_bits, "%s", options->same_bits);
    request->first_contact = request->effort == FA_EFFORT_MEASURE && is_given(p, "--effort");
    if (request->again && request->effort == FA_EFFORT_CACHED)
        return fa_fail(diag, FA_EINVAL, "--again: does not go with --effort cached");
    if (!(verb->groups & CLI_GROUP_PROBLEM))
        return cli_shorthand_check(options, diag);
    if (!(verb->groups & CLI_GROUP_WHY) || options->why)
        return cli_problem_complete(options, diag);
    return is_given(p, "--device") ? fa_fail(diag, FA_EINVAL, "--device: needs --why") : 0;
}

/* The value of an option wherever it stands, before the others can be understood; NULL: not given. */
static const char *find_value(const char *name, int count, char **arguments)
{
    const char *value = NULL;
    size_t length = strlen(name);
    for (int i = 0; i < count; i++) {
        if (strncmp(arguments[i], name, length) != 0)
            continue;
        if (arguments[i][length] == '=')
            value = arguments[i] + length + 1;
        else if (arguments[i][length] == 0 && i + 1 < count)
            value = arguments[i + 1];
    }
    return value;
}

bool cli_names_specification(const char *argument)
{
    const char *dot = strrchr(argument, '.');
    return argument[0] != '-' && dot != NULL &&
           (strcmp(dot, ".cu") == 0 || strcmp(dot, ".json") == 0);
}

/* Whose problems the other options speak of; operations of a directory of templates count. */
static int choose_operation(const cli_verb *verb, int count, char **arguments,
                            const char *specification, const fa_operation **ret_operation,
                            fa_diag *diag)
{
    const char *name = find_value("--operation", count, arguments);
    const char *templates = find_value("--templates", count, arguments);
    if (templates == NULL)
        templates = getenv("FA_TUNE_TEMPLATES");
    if (!(verb->groups & CLI_GROUPS_SPECIFIED)) /* it takes no problem */
        templates = NULL;
    int rc = templates != NULL ? fa_load_operations(templates, diag) : 0;
    *ret_operation = fa_operation_of(NULL);
    if (rc != 0)
        return rc;
    if ((*ret_operation)->field_count == 0)
        return fa_fail(diag, FA_ENOMEM, "out of memory");
    FA_OR_RETURN(check_file(specification, diag));
    if (specification != NULL)
        return fa_spec_load(specification, ret_operation, diag);
    return name != NULL ? fa_operation_find(name, ret_operation, diag) : 0;
}

int cli_options_parse(const cli_verb *verb, bool typed, int count, char **arguments,
                      cli_options *ret_options, fa_diag *diag)
{
    static cli_option_list all;
    struct stat is;
    cli_options options = {
        .request = {.size = sizeof(fa_request), .effort = FA_EFFORT_MEASURE},
        .launch = {.config = 1, .count = 1},
        .format = -1,
        .serve = {.wait_s = 600, .idle_s = 60, .connections = 2048, .tunes = 2048}};
    parse parse = {verb, typed, &all, count, 0, arguments, &options, {0}, false};
    /* import: before the file of a bundle; a file alone may be one of records, whatever its name. */
    const int files_at_least = (verb->groups & CLI_GROUP_IMPORT) ? 2 : 1;
    bool specified = (verb->groups & CLI_GROUPS_SPECIFIED) != 0 && count >= files_at_least &&
                     cli_names_specification(arguments[0]) &&
                     arguments[files_at_least - 1][0] != '-';
    options.specification = specified ? arguments[0] : NULL;
    int rc = choose_operation(verb, count, arguments, options.specification,
                              &options.request.problem.operation, diag);
    if (rc != 0)
        return rc;
    fa_problem_fill(&options.request.problem, 0);
    cli_option_list_make(verb->groups, options.request.problem.operation, &all);
    /* A specification's size is an option, too. */
    for (size_t i = 0; rc == 0 && i < all.count; i++) {
        const char *name = all.spec[i]->name;
        if (name != NULL && cli_option_find(&all, name, strlen(name)) != all.spec[i])
            rc = fa_fail(
                diag, FA_EINVAL,
                "%s: the size %s has the name of an option of `fa-tune %s`: give it another name",
                options.specification, name + 2, verb->name);
    }
    if (specified)
        add_typed(&options, options.specification);
    parse.at = specified;
    while (rc == 0 && parse.at < count)
        rc = parse_one(&parse, diag);
    if (rc == 0 && !options.help && (rc = complete(&parse, diag)) == 0 &&
        (rc = check_file(options.operand, diag)) == 0 &&
        (rc = check_file(options.bundle.from_records, diag)) == 0 && options.templates != NULL &&
        strcmp(verb->name, "doctor") != 0 && /* it has a line for it */
        (stat(options.templates, &is) == 0 ? !S_ISDIR(is.st_mode)
                                           : errno == ENOENT || errno == ENOTDIR))
        rc = cli_refuse("--templates", options.templates, "a folder", NULL, diag);
    if (rc == 0)
        *ret_options = options;
    return rc;
}

fa_options cli_library_options(const cli_options *options)
{
    return (fa_options){
        .size = sizeof(fa_options),
        .store = options->store,
        .templates = options->templates,
        .compile_workers = options->jobs,
        .compile_timeout_ms = (int32_t)ceil(options->compile_timeout_s * 1000),
        .trial_timeout_ms = (int32_t)ceil(options->trial_timeout_s * 1000),
        .seed = options->seed,
        .memory = options->memory,
        /* a store that is named is meant, whatever service the environment names */
        .server = options->server != NULL  ? options->server
                  : options->store != NULL ? ""
                                           : NULL,
    };
}

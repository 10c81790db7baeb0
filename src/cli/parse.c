/* SPDX-License-Identifier: Apache-2.0
 *
 * Parsing and checking the command line.
 */
#include "options.h"

#include "error.h"
#include "fa_tune.h"
#include "wording.h"
#include "options_table.h"
#include "problem.h"
#include "text.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define AT CLI_AT

typedef struct parse {
    const cli_verb *verb;
    const cli_verbs *verbs;
    const cli_option_list *all;
    int count, at;
    char **arguments;
    cli_options *options;
    const cli_option_spec *flag; /* what stood before, where it takes no value */
} parse;

/* A word that is no option, where no verb was named: perhaps it is one. */
static int fail_late_verb(const parse *p, const char *argument, fa_diag *diag)
{
    char typed[CLI_SHORT_SIZE], first[CLI_SHORT_SIZE];
    const char *near = fa_nearest(argument, p->verbs->names);
    cli_text_short(argument, typed);
    cli_text_short(p->arguments[0], first);
    if (near != NULL)
        return fa_fail(diag, FA_EINVAL,
                       "\"%s\" follows an option: the verb comes first, as in `fa-tune %s "
                       "%s ...`",
                       typed, near, first);
    return fa_fail(diag, FA_EINVAL,
                   "\"%s\" is no option and no verb: without a verb `fa-tune` tunes, and takes "
                   "options only",
                   typed);
}

int cli_fail_gpu_word(const char *word, fa_diag *diag)
{
    char typed[CLI_SHORT_SIZE];
    fa_gpu gpu;
    if (fa_gpu_find(word, &gpu, NULL) != 0)
        return 0;
    return fa_fail(diag, FA_EINVAL, "\"%s\" is a GPU type: did you mean --gpu %s?",
                   cli_text_short(word, typed), typed);
}

static int fail_operand(const parse *p, const char *argument, fa_diag *diag)
{
    const char *verb = p->verb->name;
    char typed[CLI_SHORT_SIZE];
    fa_buf usage = {0};
    cli_text_short(argument, typed);
    if (p->flag != NULL)
        return fa_fail(diag, FA_EINVAL, "%s takes no value: leave \"%s\" out", p->flag->name,
                       typed);
    const cli_option_spec *out = cli_option_find(p->all, p->verb->groups, "--out", 5);
    if (out != NULL && cli_option_taken(p->verb->groups, out) && strchr(argument, '.') != NULL)
        return fa_fail(diag, FA_EINVAL, "\"%s\" is not understood: did you mean --out %s?", typed,
                       typed);
    if (cli_names_specification(argument) && (p->verb->groups & CLI_GROUPS_SPECIFIED))
        return fa_fail(diag, FA_EINVAL,
                       "\"%s\" follows an option: the file comes first, as in `fa-tune %s "
                       "%s ...`",
                       typed, verb, typed);
    if (cli_fail_gpu_word(argument, diag) != 0)
        return FA_EINVAL;
    if ((p->verb->groups & CLI_GROUP_CHECK) && p->options->specification == NULL)
        return fa_fail(diag, FA_EINVAL,
                       "\"%s\" ends neither in .cu nor in .json: name the file of a kernel, as in "
                       "`fa-tune %s conv2d.cu`",
                       typed, verb);
    if (!p->verbs->typed)
        return fail_late_verb(p, argument, diag);
    if (strcmp(argument, "help") == 0)
        return fa_fail(diag, FA_EINVAL, "\"help\" comes first: `fa-tune help %s`", verb);
    cli_options_operands(p->verb->groups, &usage);
    int rc;
    if (usage.failed)
        rc = fa_fail(diag, FA_ENOMEM, "out of memory for what `fa-tune %s` takes", verb);
    else if (usage.size == 0)
        rc = fa_fail(diag, FA_EINVAL,
                     "\"%s\" is not understood: `fa-tune %s` takes options only, as --help lists",
                     typed, verb);
    else
        rc = fa_fail(diag, FA_EINVAL,
                     "\"%s\" is not understood: `fa-tune %s%s` takes nothing more but options",
                     typed, verb, usage.data);
    fa_buf_free(&usage);
    return rc;
}

/* An option of other verbs, of which the first is named. */
static int fail_not_taken(const parse *p, const cli_option_spec *spec, fa_diag *diag)
{
    size_t i = 0;
    while (i < p->verbs->count && !cli_option_taken(p->verbs->verb[i].groups, spec))
        i++;
    if (i == p->verbs->count)
        return fa_fail(diag, FA_EINVAL, "`fa-tune %s` does not take %s", p->verb->name, spec->name);
    return fa_fail(diag, FA_EINVAL,
                   "`fa-tune %s` does not take %s, which `fa-tune %s` does: see `fa-tune %s --help`",
                   p->verb->name, spec->name, p->verbs->verb[i].name, p->verb->name);
}

static int fail_unknown(const parse *p, const char *argument, size_t length, fa_diag *diag)
{
    const char *names[CLI_OPTIONS_MAX + 1], *verb = p->verb->name;
    size_t count = 0;
    for (size_t i = 0; i < p->all->count; i++)
        if (cli_option_taken(p->verb->groups, p->all->spec[i]))
            names[count++] = p->all->spec[i]->name;
    names[count] = NULL;
    char name[256], typed[CLI_SHORT_SIZE];
    snprintf(name, sizeof name, "%.*s", (int)(length < 255 ? length : 255), argument);
    cli_text_short(name, typed);
    if (name[0] != '-')
        return fail_operand(p, argument, diag);
    if (strncmp(name, "--no-", 5) == 0) {
        char plain[256] = "--";
        memcpy(plain + 2, name + 5, strlen(name + 5) + 1);
        const cli_option_spec *spec = cli_option_find(p->all, p->verb->groups, plain, strlen(plain));
        if (spec != NULL && cli_option_taken(p->verb->groups, spec))
            return fa_fail(diag, FA_EINVAL, "there is no %s: leave %s out", typed, spec->name);
    }
    const char *near = fa_nearest(name, names);
    const fa_operation *operation = fa_operation_of(&p->options->problem);
    if (strncmp(name, "--no-", 5) != 0 && fa_operation_refuse(operation, name, diag) != 0)
        return FA_ENOTSUP;
    if (near != NULL)
        return fa_fail(diag, FA_EINVAL, "`fa-tune %s` has no option %s: did you mean %s?", verb,
                       typed, near);
    if (operation != fa_operation_of(NULL))
        return fa_fail(diag, FA_EINVAL,
                       "%s has no option %s: replace it by --help to list its options",
                       operation->name, typed);
    return fa_fail(diag, FA_EINVAL, "`fa-tune %s` has no option %s: see `fa-tune %s --help`", verb,
                   typed, verb);
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
        return cli_option_find(p->all, p->verb->groups, name, strlen(name));
    }
    *ret_value = equals != NULL ? equals + 1 : NULL;
    return cli_option_find(p->all, p->verb->groups, argument,
                           equals != NULL ? (size_t)(equals - argument) : strlen(argument));
}

/* The field that an option sets; NULL: it sets none, or several that take different values. */
static const fa_field *field_of(const parse *p, const cli_option_spec *spec)
{
    bool one = spec->kind == KIND_FIELD || spec->kind == KIND_ALSO;
    return one ? &fa_operation_of(&p->options->problem)->field[cli_option_field(spec)] : NULL;
}

/* A list where one value is taken: only a sweep has lists. */
static int check_single(const parse *p, const cli_option_spec *spec, const char *value,
                        fa_diag *diag)
{
    const fa_field *field = field_of(p, spec);
    char typed[CLI_SHORT_SIZE];
    bool list = strpbrk(value, ",:") != NULL ||
                (field != NULL && field->both[0] != 0 && strcmp(value, "both") == 0);
    if (field == NULL || !list || !(spec->group & CLI_GROUP_PROBLEM))
        return 0;
    const fa_operation *operation = fa_operation_of(&p->options->problem);
    int index = cli_option_field(spec);
    const char *option = cli_sweep_option(operation, index);
    bool sweeps = (p->verb->groups & CLI_GROUP_EFFORT) && option != NULL &&
                  strcmp(option, spec->name) == 0;
    cli_text_short(value, typed);
    if (!sweeps)
        return fa_fail(diag, FA_EINVAL, "%s \"%s\": it takes one value", spec->name, typed);
    fa_diag why;
    if (cli_list_read(operation, index, value, &why) != 0)
        return fa_fail(diag, FA_EINVAL, "%s takes one value here, and `fa-tune sweep` a list: %s",
                       spec->name, why.text);
    return fa_fail(diag, FA_EINVAL,
                   "%s takes one value here: `fa-tune sweep %s %s` tunes for all of them",
                   spec->name, spec->name, typed);
}

/* Whether the next argument is a value. A negative number is one, so that its sentence is about the number. */
static bool value_follows(const parse *p)
{
    const char *next = p->at < p->count ? p->arguments[p->at] : NULL;
    return next != NULL && (next[0] != '-' || (next[1] >= '0' && next[1] <= '9'));
}

static int take_value(parse *p, const cli_option_spec *spec, const char *value, fa_diag *diag)
{
    const fa_field *field = spec->kind == KIND_FIELD ? field_of(p, spec) : NULL;
    if (value == NULL && field != NULL && field->bare[0] != 0 && !value_follows(p))
        return cli_option_set(spec, field->bare, p->options, diag);
    if (value == NULL && !value_follows(p))
        return fa_fail(diag, FA_EINVAL, "%s needs a value: %s %s", spec->name, spec->name,
                       spec->value);
    if (value == NULL)
        value = p->arguments[p->at++];
    int rc = check_single(p, spec, value, diag);
    return rc != 0 ? rc : cli_option_set(spec, value, p->options, diag);
}

static void note_given(parse *p, const cli_option_spec *spec)
{
    cli_options *options = p->options;
    options->problem_given =
        options->problem_given || (spec->group & (CLI_GROUP_PROBLEM | CLI_GROUP_DEVICE)) != 0;
    options->effort_given = options->effort_given || spec->offset == AT(effort);
}

/* Parses one argument and steps over it and its value. */
static int parse_one(parse *p, fa_diag *diag)
{
    const char *argument = p->arguments[p->at], *value;
    cli_options *options = p->options;
    char typed[CLI_SHORT_SIZE];
    if (argument[0] != '-' && argument[0] != 0 &&
        cli_operand_name(p->verb->groups, options->operands) != NULL) {
        options->operand[options->operands++] = argument;
        p->at++;
        return 0;
    }
    const cli_option_spec *spec = read_name(p, argument, &value);
    bool taken = spec != NULL && cli_option_taken(p->verb->groups, spec);
    bool without =
        spec != NULL && cli_option_field(spec) >= 0 && strncmp(argument, "--no-", 5) == 0;
    if (spec == NULL || (!taken && without))
        return fail_unknown(p, argument, strcspn(argument, "="), diag);
    if (!taken)
        return fail_not_taken(p, spec, diag);
    p->at++;
    note_given(p, spec);
    const fa_field *field = spec->kind == KIND_FIELD ? field_of(p, spec) : NULL;
    bool flag = spec->kind == KIND_FLAG || (spec->kind == KIND_SHORTHAND && spec->value == NULL) ||
                (field != NULL && field->kind == FA_FIELD_BOOLEAN);
    p->flag = flag ? spec : NULL;
    if (flag && value == argument + 2) /* -qv */
        return fa_fail(diag, FA_EINVAL, "-%c takes no value: write -%c -%s", argument[1],
                       argument[1], cli_text_short(value, typed));
    if (flag && value != NULL)
        return fa_fail(diag, FA_EINVAL, "%s takes no value: leave \"%s\" out", spec->name,
                       cli_text_short(value, typed));
    if (flag)
        return cli_option_set(spec, NULL, options, diag);
    if (spec->offset == AT(gpu) && spec->group == CLI_GROUP_GPU && options->gpu != NULL)
        return fa_fail(diag, FA_EINVAL,
                       "--gpu is given twice: `fa-tune sweep --gpu L4,H100` takes "
                       "several GPU types");
    return take_value(p, spec, value, diag);
}

/* A file that a verb is to read; NULL: none is named. */
static int check_input(const char *path, fa_diag *diag)
{
    struct stat is;
    bool there = path == NULL || stat(path, &is) == 0;
    if (path != NULL && there && S_ISDIR(is.st_mode))
        return fa_fail(diag, FA_EINVAL, "%.300s: it is a folder: name a file in it", path);
    if (there || (errno != ENOENT && errno != ENOTDIR))
        return 0;
    return cli_fail_gpu_word(path, diag) != 0
               ? FA_EINVAL
               : fa_fail(diag, FA_EINVAL, "%.300s: there is no such file", path);
}

/* Of --templates; NULL: not given. doctor has a line for it among the others. */
static int check_folder(const cli_verb *verb, const char *path, fa_diag *diag)
{
    struct stat is;
    if (path == NULL || strcmp(verb->name, "doctor") == 0 ||
        (stat(path, &is) == 0 ? S_ISDIR(is.st_mode) : errno != ENOENT && errno != ENOTDIR))
        return 0;
    return fa_fail(diag, FA_EINVAL, "--templates %.300s: there is no such folder", path);
}

static int check_inputs(const cli_verb *verb, const cli_options *options, fa_diag *diag)
{
    enum { READS = CLI_GROUP_IMPORT | CLI_GROUP_SHOW };
    const bool reads = (verb->groups & READS) != 0;
    int rc;
    if ((rc = check_input(reads ? options->operand[0] : NULL, diag)) != 0 ||
        (rc = check_input(options->sweep.baseline, diag)) != 0 ||
        (rc = check_folder(verb, options->templates, diag)) != 0)
        return rc;
    return check_input(options->bundle.from_records, diag);
}

/* What no single option can tell: lengths that are missing, options that exclude one another. */
static int complete(const cli_verb *verb, cli_options *options, fa_diag *diag)
{
    const char *missing = cli_operand_name(verb->groups, options->operands);
    if (missing != NULL && missing[0] != '[')
        return fa_fail(diag, FA_EINVAL, "`fa-tune %s` needs %s: see `fa-tune %s --help`",
                       verb->name, missing, verb->name);
    if ((verb->groups & CLI_GROUP_CHECK) && options->specification == NULL)
        return fa_fail(diag, FA_EINVAL,
                       "say which file is to be checked, as in `fa-tune check conv2d.cu`");
    if ((options->gpu != NULL || options->sweep.gpu != NULL) && options->device >= 0)
        return fa_fail(diag, FA_EINVAL,
                       "--gpu and --device exclude one another: --gpu names a "
                       "type, --device a device of this machine");
    if (options->gpu != NULL && strchr(options->gpu, ',') != NULL)
        return fa_fail(diag, FA_EINVAL,
                       "--gpu takes one GPU type here: `fa-tune sweep --gpu %s` takes "
                       "several",
                       options->gpu);
    if (options->quiet && options->verbose)
        return fa_fail(diag, FA_EINVAL,
                       "--quiet and --verbose exclude one another: leave one of them out");
    if ((verb->groups & CLI_GROUP_EFFORT) && options->again &&
        options->effort == FA_EFFORT_CACHED)
        return fa_fail(diag, FA_EINVAL,
                       "--again tunes, and --effort cached only looks up: leave one of them out");
    if (options->server != NULL && options->specification != NULL)
        return fa_fail(diag, FA_EINVAL, "%s is tuned on this machine: leave --server out",
                       options->specification);
    if (options->server != NULL && options->templates != NULL)
        return fa_fail(diag, FA_EINVAL,
                       "--server and --templates exclude one another: a service has "
                       "templates of its own");
    if (!(verb->groups & CLI_GROUP_PROBLEM))
        return cli_shorthand_check(options, diag);
    if (options->why && options->operands > 0)
        return fa_fail(diag, FA_EINVAL, "--why asks the store and not a file: leave \"%s\" out",
                       options->operand[0]);
    if (options->server != NULL && (options->why || options->operands > 0))
        return fa_fail(diag, FA_EINVAL, "%s asks no service: leave --server out",
                       options->why ? "--why" : "a bundle");
    if ((verb->groups & CLI_GROUP_WHY) && !options->why)
        return options->device < 0 ? 0
                                   : fa_fail(diag, FA_EINVAL,
                                             "--device goes with --why: winners are listed by "
                                             "--gpu");
    return cli_problem_complete(options, verb->name, diag);
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

void cli_options_colour(int count, char **arguments)
{
    const char *value = find_value("--color", count, arguments);
    for (int i = 0; value != NULL && cli_colour_names[i] != NULL; i++)
        if (strcasecmp(cli_colour_names[i], value) == 0)
            cli_colour_choose(i);
}

bool cli_names_specification(const char *argument)
{
    const char *dot = strrchr(argument, '.');
    return argument[0] != '-' && dot != NULL &&
           (strcmp(dot, ".cu") == 0 || strcmp(dot, ".json") == 0);
}

/* A folder of an operation where the folder above it is meant: FA_EINVAL. One whose operation is known may stand,
 * since families alone are taken from it. */
static int check_depth(const char *templates, fa_diag *diag)
{
    const fa_operation *known;
    char path[PATH_MAX], file[PATH_MAX + 16];
    if (realpath(templates, path) == NULL)
        return 0; /* the library says why */
    char *slash = strrchr(path, '/');
    snprintf(file, sizeof file, "%s/operation.json", path);
    if (access(file, R_OK) != 0 || slash == path || fa_operation_find(slash + 1, &known, NULL) == 0)
        return 0;
    *slash = 0;
    return fa_fail(diag, FA_EINVAL,
                   "--templates %s is the folder of one operation: name the folder above it, %s, "
                   "and --operation %s",
                   templates, path, slash + 1);
}

/* Whose problems the other options speak of; operations of a directory of templates count. rm takes any name,
 * because a store may have winners of an operation whose templates are gone: the others are then attention's. */
static int choose_operation(const cli_verb *verb, int count, char **arguments,
                            const char *specification, const fa_operation **ret_operation,
                            fa_diag *diag)
{
    const char *name = find_value("--operation", count, arguments);
    const char *templates = find_value("--templates", count, arguments);
    if (templates == NULL)
        templates = getenv("FA_TUNE_TEMPLATES");
    int rc = templates != NULL ? fa_operation_load(templates, diag) : 0;
    if (rc == 0 && templates != NULL)
        rc = check_depth(templates, diag);
    *ret_operation = fa_operation_of(NULL);
    if (rc != 0)
        return rc;
    if ((*ret_operation)->field_count == 0)
        return fa_fail(diag, FA_ENOMEM, "out of memory");
    if (specification != NULL && name != NULL)
        return fa_fail(diag, FA_EINVAL, "%s is what to tune: leave --operation out", specification);
    if (specification != NULL && (rc = check_input(specification, diag)) != 0)
        return rc;
    if (specification != NULL)
        return fa_spec_load(specification, ret_operation, diag);
    if (name == NULL)
        return 0;
    rc = fa_operation_find(name, ret_operation, diag);
    return rc == FA_ENOTSUP && (verb->groups & CLI_GROUP_FORGET) ? 0 : rc;
}

/* A size is an option, and must not have the name of one that means another thing. */
static int check_sizes(const parse *p, fa_diag *diag)
{
    const fa_operation *operation = p->options->problem.operation;
    for (size_t i = 0; i < p->all->count && p->options->specification != NULL; i++) {
        const cli_option_spec *spec = p->all->spec[i];
        if (cli_option_field(spec) >= 0 || spec->kind == KIND_HEADING ||
            !cli_option_taken(p->verb->groups, spec))
            continue;
        for (int f = 0; f < operation->field_count; f++)
            if (strcmp(operation->field[f].option, spec->name) == 0)
                return fa_fail(diag, FA_EINVAL,
                               "%s: the size %s has the name of an option of `fa-tune %s`: give it "
                               "another name",
                               p->options->specification, operation->field[f].name, p->verb->name);
    }
    return 0;
}

int cli_options_parse(const cli_verb *verb, const cli_verbs *verbs, int count, char **arguments,
                      cli_options *ret_options, fa_diag *diag)
{
    static cli_option_list all;
    parse parse = {
        .verb = verb, .verbs = verbs, .all = &all, .count = count, .arguments = arguments};
    cli_options options = {.device = -1, .effort = FA_EFFORT_MEASURE};
    /* import: before the file of a bundle; a file alone may be one of records, whatever its name. */
    const int files_at_least = (verb->groups & CLI_GROUP_IMPORT) ? 2 : 1;
    bool specified = (verb->groups & CLI_GROUPS_SPECIFIED) != 0 && count >= files_at_least &&
                     cli_names_specification(arguments[0]) &&
                     arguments[files_at_least - 1][0] != '-';
    options.specification = specified ? arguments[0] : NULL;
    int rc = choose_operation(verb, count, arguments, options.specification,
                              &options.problem.operation, diag);
    if (rc != 0)
        return rc;
    fa_problem_fill(&options.problem, 0);
    cli_option_list_make(options.problem.operation, &all);
    parse.options = &options;
    rc = check_sizes(&parse, diag);
    if (rc != 0)
        return rc;
    for (parse.at = specified; parse.at < count;) {
        rc = parse_one(&parse, diag);
        if (rc != 0)
            return rc;
    }
    if (options.help) {
        *ret_options = options;
        return 0;
    }
    if ((rc = complete(verb, &options, diag)) != 0 ||
        (rc = check_inputs(verb, &options, diag)) != 0)
        return rc;
    *ret_options = options;
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Parsing and checking the command line.
 */
#include "options.h"

#include "error.h"
#include "fa_tune.h"
#include "nearest.h"
#include "options_table.h"
#include "problem.h"
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A choice's index is its value. */
static const char *const formats[] = {"", "html", "md", "csv", "json", NULL};
static const char *const efforts[] = {"cached", "predict", "measure", "patient", NULL};

enum { ANY_VERB = 1 << 30, PROBLEM = CLI_GROUP_PROBLEM | CLI_GROUP_FILTER | CLI_GROUP_SWEEP };

#define AT CLI_AT

static const cli_option_spec specs[] = {
    {"--gpu", CLI_GROUP_GPU, KIND_TEXT, AT(gpu), 0, 0, NULL, "NAME",
     "GPU type, present or not (fa-tune gpus lists them)"},
    {"--device", CLI_GROUP_DEVICE, KIND_INTEGER, AT(device), 0, 1023, NULL, "N",
     "CUDA ordinal of the device here, where --gpu names none (0)"},
    {"--gpu", CLI_GROUP_SWEEP, KIND_TEXT, AT(sweep.gpu), 0, 0, NULL, "LIST",
     "GPU types, as in L4,A100,H100 (the device here)"},
    {.kind = KIND_HERE_VALUES},
    {"--plan", CLI_GROUP_SWEEP, KIND_TEXT, AT(sweep.plan), 0, 0, NULL, "FILE",
     "problems from JSON lines instead of a grid"},
    {"--model", CLI_GROUP_SWEEP, KIND_TEXT, AT(sweep.model), 0, 0, NULL, "NAME",
     "heads, dims, windows and sinks of a model, as llama-3-70b; without lengths its prefill and decode"},
    {"--time", CLI_GROUP_SWEEP, KIND_SECONDS, AT(sweep.seconds), 0, 31536000, NULL, "TIME",
     "stop after this long in all runs together: 90s, 30m, 2h"},
    {"--trials", CLI_GROUP_SWEEP, KIND_INTEGER, AT(sweep.trials), 1, INT32_MAX, NULL, "N",
     "stop after so many configs in all runs together"},
    {"--cost", CLI_GROUP_SWEEP, KIND_DECIMAL, AT(sweep.cost), 0, 1000000000, NULL, "MONEY",
     "stop when the GPU has cost this much; needs --price"},
    {"--price", CLI_GROUP_SWEEP, KIND_DECIMAL, AT(sweep.price), 0, 1000000000, NULL, "MONEY",
     "what an hour of the GPU costs; spent money is then shown"},
    {"--baseline", CLI_GROUP_SWEEP, KIND_TEXT, AT(sweep.baseline), 0, 0, NULL, "FILE",
     "take others' measured times into the store first (JSON lines)"},
    {"--restart", CLI_GROUP_SWEEP, KIND_FLAG, AT(sweep.restart), 0, 0, NULL, NULL,
     "forget this sweep's earlier runs; winners stay"},
    {"--status", CLI_GROUP_SWEEP, KIND_FLAG, AT(sweep.status), 0, 0, NULL, NULL,
     "only tell how this sweep stands (without a grid: the one last worked on)"},
    {"--list", CLI_GROUP_SWEEP, KIND_FLAG, AT(sweep.list), 0, 0, NULL, NULL,
     "only list the sweeps in the store"},
    {"--margin", CLI_GROUP_COMPARE, KIND_DECIMAL, AT(margin), 0, 1000, NULL, "PERCENT",
     "how much slower still passes (5)"},
    {.kind = KIND_HERE_FLAGS},
    {"--operation", PROBLEM, KIND_TEXT, AT(operation), 0, 0, NULL, "NAME",
     "what is to be computed, where --templates brings other operations (attn_fwd)"},
    {"--exact", CLI_GROUP_PROBLEM | CLI_GROUP_SWEEP, KIND_FLAG, AT(exact), 0, 0, NULL, NULL,
     "these very lengths, not the bucket that stands for them"},
    {"--why", CLI_GROUP_WHY, KIND_FLAG, AT(why), 0, 0, NULL, NULL,
     "which winner a problem would get, and what was passed over"},
    {"--effort", CLI_GROUP_EFFORT, KIND_CHOICE, AT(effort), 0, 0, efforts, "HOW",
     "cached, predict, measure (tune: races what is ready, if anything is) or patient, which tries "
     "all anew with more repeats (the whole space, once)"},
    {"--again", CLI_GROUP_EFFORT, KIND_FLAG, AT(again), 0, 0, NULL, NULL,
     "tune although a winner is stored; trials on record are used"},
    {"--jobs", CLI_GROUP_TUNE, KIND_INTEGER, AT(jobs), 1, 1024, NULL, "N",
     "compile workers (one per core)"},
    {"--compile-timeout", CLI_GROUP_TUNE, KIND_INTEGER, AT(compile_timeout_s), 1, 3600, NULL, "S",
     "seconds that one compile may take (30)"},
    {"--trial-timeout", CLI_GROUP_TUNE, KIND_INTEGER, AT(trial_timeout_s), 1, 3600, NULL, "S",
     "seconds that proving and timing one config may take (20)"},
    {"--seed", CLI_GROUP_TUNE, KIND_SEED, AT(seed), 0, ((int64_t)1 << 53) - 1, NULL, "N",
     "seed of the inputs (0: a fresh one, kept with each trial)"},
    {"--strategy", CLI_GROUP_SEARCH, KIND_TEXT, AT(search.strategy), 0, 0, NULL, "NAME",
     "how a space is searched: exhaustive, random, greedy, annealing, evolution, surrogate or auto"},
    {"--evaluations", CLI_GROUP_SEARCH, KIND_INTEGER, AT(search.evaluations), 1, 20000, NULL, "N",
     "configs that may be measured, earlier ones counted (all; 500 of more than 20,000)"},
    {"--time", CLI_GROUP_SEARCH, KIND_SECONDS, AT(search.seconds), 0, 31536000, NULL, "TIME",
     "compile nothing more after this long: 90s, 30m, 2h"},
    {"--top", CLI_GROUP_TOP, KIND_INTEGER, AT(top), 1, 1000000, NULL, "N",
     "rows to print (tune: 10; explain: all; report: some)"},
    {"--format", CLI_GROUP_REPORT, KIND_CHOICE, AT(format), 0, 0, formats, "HOW",
     "html, md, csv or json (as FILE ends, else md)"},
    {"--out", CLI_GROUP_REPORT, KIND_TEXT, AT(out), 0, 0, NULL, "FILE",
     "write there instead of to standard output"},
    {"--out", CLI_GROUP_EXPORT, KIND_TEXT, AT(bundle.out), 0, 0, NULL, "FILE",
     "the bundle to write, as in l4.fab"},
    {"--key", CLI_GROUP_EXPORT, KIND_TEXT, AT(bundle.key), 0, 0, NULL, "FILE",
     "secret key to sign with (that of fa-tune keygen)"},
    {"--unsigned", CLI_GROUP_EXPORT, KIND_FLAG, AT(bundle.no_signature), 0, 0, NULL, NULL,
     "without a signature; imports will have to allow it"},
    {"--records", CLI_GROUP_EXPORT, KIND_TEXT, AT(bundle.records), 0, 0, NULL, "FILE",
     "join the store's winners to this file of records instead"},
    {"--predict", CLI_GROUP_EXPORT, KIND_FLAG, AT(bundle.predict), 0, 0, NULL, NULL,
     "with --records: predict the whole catalogue into the store first"},
    {"--from-records", CLI_GROUP_EXPORT, KIND_TEXT, AT(bundle.from_records), 0, 0, NULL, "FILE",
     "compile the winners of this file of records instead of the store's"},
    {"--t4", CLI_GROUP_EXPORT, KIND_TEXT, AT(bundle.t4), 0, 0, NULL, "FILE",
     "write the trials of one problem as T4 JSON for others' tools instead"},
    {"--allow-unsigned", CLI_GROUP_IMPORT, KIND_FLAG, AT(bundle.allow_unsigned), 0, 0, NULL, NULL,
     "also a bundle that nobody has signed"},
    {"--older-than", CLI_GROUP_FORGET, KIND_PAST, AT(forget.older_than), 0, 0, NULL, "AGE",
     "problems of which nothing is newer: an age (30d, 12h) or a date (2026-01-31)"},
    {"--stale", CLI_GROUP_FORGET, KIND_FLAG, AT(forget.stale), 0, 0, NULL, NULL,
     "winners that no template makes any more, so that they are never served"},
    {"--all", CLI_GROUP_FORGET, KIND_FLAG, AT(forget.all), 0, 0, NULL, NULL, "all winners"},
    {"--dry-run", CLI_GROUP_IMPORT | CLI_GROUP_FORGET, KIND_FLAG, AT(dry_run), 0, 0, NULL, NULL,
     "only tell what would change"},
    {"--out", CLI_GROUP_KEYGEN, KIND_TEXT, AT(bundle.out), 0, 0, NULL, "FILE",
     "where the secret key goes (fa-tune/key in the configuration directory)"},
    {"--name", CLI_GROUP_TRUST, KIND_TEXT, AT(bundle.name), 0, 0, NULL, "NAME", "whose key it is"},
    {"--store", CLI_GROUP_STORE, KIND_TEXT, AT(store), 0, 0, NULL, "FILE",
     "store file (FA_TUNE_STORE, else fa-tune/store.db in the cache directory)"},
    {"--server", CLI_GROUP_SERVER, KIND_TEXT, AT(server), 0, 0, NULL, "ADDRESS",
     "ask that service first, as unix:/PATH or http://HOST:PORT (FA_TUNE_SERVER)"},
    {"--templates", CLI_GROUP_ENGINE, KIND_TEXT, AT(templates), 0, 0, NULL, "DIR",
     "kernel templates that replace or join the built-in ones"},
    {"--json", CLI_GROUP_JSON, KIND_FLAG, AT(json), 0, 0, NULL, NULL,
     "one JSON document on stdout"},
    {"--no-progress", CLI_GROUP_QUIET, KIND_FLAG, AT(no_progress), 0, 0, NULL, NULL,
     "no progress on stderr; notes and errors stay"},
    {"--quiet", CLI_GROUP_QUIET, KIND_FLAG, AT(quiet), 0, 0, NULL, NULL,
     "nothing on stderr but errors"},
    {"--strategy", CLI_GROUP_REPLAY, KIND_TEXT, AT(replay.strategy), 0, 0, NULL, "NAME",
     "exhaustive, random, greedy, annealing, evolution, surrogate, all or auto (auto)"},
    {"--evaluations", CLI_GROUP_REPLAY, KIND_INTEGER, AT(replay.evaluations), 1, 1000000, NULL, "N",
     "configs that a search may measure (100)"},
    {"--repeats", CLI_GROUP_REPLAY, KIND_INTEGER, AT(replay.repeats), 1, 100000, NULL, "N",
     "searches, each with the next seed (100)"},
    {"--batch", CLI_GROUP_REPLAY, KIND_INTEGER, AT(replay.batch), 1, 1024, NULL, "N",
     "configs asked for at once, as for so many compile workers (1)"},
    {"--seed", CLI_GROUP_REPLAY, KIND_SEED, AT(seed), 0, ((int64_t)1 << 53) - 1, NULL, "N",
     "seed of the first search (0)"},
    {"--help", ANY_VERB, KIND_FLAG, AT(help), 0, 0, NULL, NULL, "this text"},
    {"--enqueue", CLI_GROUP_SWEEP, KIND_FLAG, AT(fleet.enqueue), 0, 0, NULL, NULL,
     "enter the sweep into the fleet's queue for its workers, and return"},
    {"--once", CLI_GROUP_WORKER, KIND_FLAG, AT(fleet.once), 0, 0, NULL, NULL,
     "end after one problem"},
    {"--idle-exit", CLI_GROUP_WORKER, KIND_SECONDS, AT(fleet.idle_exit_s), 0, 31536000, NULL,
     "TIME", "end when there was nothing to do for so long: 90s, 30m, 2h (never)"},
    {"--follow", CLI_GROUP_QUEUE, KIND_FLAG, AT(fleet.follow), 0, 0, NULL, NULL,
     "tell how it goes on until nothing is left to do"},
    {"--stop", CLI_GROUP_QUEUE, KIND_TEXT, AT(fleet.stop), 0, 0, NULL, "KEY",
     "take this sweep out of the workers' hands until it is enqueued again"},
};

/* Every option of the command line, in the order of its help. */
typedef struct all_options {
    cli_problem_options problem;
    const cli_option_spec *spec[sizeof specs / sizeof *specs + CLI_PROBLEM_OPTIONS_MAX];
    size_t count;
} all_options;

static void list_options(const fa_operation *operation, all_options *ret_all)
{
    cli_problem_options *problem = &ret_all->problem;
    cli_problem_options_make(operation, problem);
    ret_all->count = 0;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        bool values = specs[i].kind == KIND_HERE_VALUES, flags = specs[i].kind == KIND_HERE_FLAGS;
        if (!values && !flags)
            ret_all->spec[ret_all->count++] = &specs[i];
        for (size_t row = values ? 0 : problem->flags;
             (values && row < problem->flags) || (flags && row < problem->count); row++)
            ret_all->spec[ret_all->count++] = &problem->row[row].spec;
    }
}

static bool takes(unsigned groups, const cli_option_spec *spec)
{
    return spec->group == ANY_VERB || (spec->group & groups) != 0;
}

static int fail_operand(const cli_verb *verb, const char *argument, fa_diag *diag)
{
    char typed[CLI_SHORT_SIZE];
    fa_buf usage = {0};
    cli_text_short(argument, typed);
    cli_options_operands(verb->groups, &usage);
    int rc;
    if (usage.failed)
        rc = fa_fail(diag, FA_ENOMEM, "out of memory for what `fa-tune %s` takes", verb->name);
    else if (usage.size == 0)
        rc = fa_fail(diag, FA_EINVAL,
                     "\"%s\" is not understood: `fa-tune %s` takes options only, as --help lists",
                     typed, verb->name);
    else
        rc = fa_fail(diag, FA_EINVAL,
                     "\"%s\" is not understood: `fa-tune %s%s` takes nothing more but options",
                     typed, verb->name, usage.data);
    fa_buf_free(&usage);
    return rc;
}

static int fail_unknown(const cli_verb *verb, const all_options *all, const char *argument,
                        size_t length, fa_diag *diag)
{
    const char *names[sizeof all->spec / sizeof *all->spec + 1];
    size_t count = 0;
    for (size_t i = 0; i < all->count; i++)
        if (takes(verb->groups, all->spec[i]))
            names[count++] = all->spec[i]->name;
    names[count] = NULL;
    char name[256], typed[CLI_SHORT_SIZE];
    snprintf(name, sizeof name, "%.*s", (int)(length < 255 ? length : 255), argument);
    cli_text_short(name, typed);
    if (name[0] != '-')
        return fail_operand(verb, argument, diag);
    const char *near = fa_nearest(name, names);
    if (near != NULL)
        return fa_fail(diag, FA_EINVAL, "`fa-tune %s` has no option %s: did you mean %s?",
                       verb->name, typed, near);
    return fa_fail(diag, FA_EINVAL, "`fa-tune %s` has no option %s: see `fa-tune %s --help`",
                   verb->name, typed, verb->name);
}

/* The option of that name, the verb's own where several verbs have one. */
static const cli_option_spec *find_option(const cli_verb *verb, const all_options *all,
                                          const char *argument, size_t length)
{
    const cli_option_spec *other = NULL;
    for (size_t i = 0; i < all->count; i++) {
        const cli_option_spec *spec = all->spec[i];
        if (strlen(spec->name) != length || memcmp(spec->name, argument, length) != 0)
            continue;
        if (takes(verb->groups, spec))
            return spec;
        other = spec;
    }
    return other;
}

/* What a verb takes beside options, by a group that it has; in brackets what may be left out. */
static const struct {
    unsigned group;
    const char *name[CLI_OPERANDS_MAX];
    const char *usage;
} operands[] = {
    {CLI_GROUP_IMPORT, {"FILE"}, " FILE"},
    {CLI_GROUP_TRUST, {"list, add or remove", "[KEY]"}, " list|add|remove [KEY]"},
    {CLI_GROUP_SHOW, {"[FILE]"}, " [FILE]"},
    {CLI_GROUP_REPLAY, {"FILE"}, " FILE"},
    {CLI_GROUP_COMPARE, {"OLD", "NEW"}, " OLD NEW"},
};

void cli_options_operands(unsigned groups, fa_buf *out)
{
    for (size_t i = 0; i < sizeof operands / sizeof *operands; i++)
        if (groups & operands[i].group)
            fa_buf_text(out, operands[i].usage);
}

/* The name of a verb's next operand; NULL: it takes no more. */
static const char *next_operand(const cli_verb *verb, const cli_options *options)
{
    for (size_t i = 0; i < sizeof operands / sizeof *operands; i++)
        if ((verb->groups & operands[i].group) && options->operands < CLI_OPERANDS_MAX)
            return operands[i].name[options->operands];
    return NULL;
}

/* Parses one option at arguments[*at] and steps over it and its value. */
static int parse_one(const cli_verb *verb, const all_options *all, int count, char **arguments,
                     int *at, cli_options *options, fa_diag *diag)
{
    const char *argument = arguments[*at], *equals = strchr(argument, '=');
    size_t length = equals != NULL ? (size_t)(equals - argument) : strlen(argument);
    if (strcmp(argument, "-h") == 0) {
        options->help = true;
        (*at)++;
        return 0;
    }
    if (argument[0] != '-' && argument[0] != 0 && next_operand(verb, options) != NULL) {
        options->operand[options->operands++] = argument;
        (*at)++;
        return 0;
    }
    const cli_option_spec *spec = find_option(verb, all, argument, length);
    if (spec == NULL)
        return fail_unknown(verb, all, argument, length, diag);
    if (!takes(verb->groups, spec))
        return fa_fail(diag, FA_EINVAL, "`fa-tune %s` does not take %s: see `fa-tune %s --help`",
                       verb->name, spec->name, verb->name);
    (*at)++;
    options->problem_given =
        options->problem_given || (spec->group & (CLI_GROUP_PROBLEM | CLI_GROUP_DEVICE)) != 0;
    options->effort_given = options->effort_given || spec->offset == AT(effort);
    char typed[CLI_SHORT_SIZE];
    const fa_field *field = spec->kind == KIND_FIELD
                                ? &fa_operation_of(&options->problem)->field[cli_option_field(spec)]
                                : NULL;
    bool flag = spec->kind == KIND_FLAG || (spec->kind == KIND_SHORTHAND && spec->value == NULL) ||
                (field != NULL && field->kind == FA_FIELD_BOOLEAN);
    if (flag && equals != NULL)
        return fa_fail(diag, FA_EINVAL, "%s takes no value: leave \"%s\" out", spec->name,
                       cli_text_short(equals, typed));
    if (flag)
        return cli_option_set(spec, NULL, options, diag);
    if (spec->offset == AT(gpu) && spec->group == CLI_GROUP_GPU && options->gpu != NULL)
        return fa_fail(diag, FA_EINVAL,
                       "--gpu is given twice: `fa-tune sweep --gpu L4,H100` takes "
                       "several GPU types");
    if (equals != NULL)
        return cli_option_set(spec, equals + 1, options, diag);
    /* A negative number is a value, so that its sentence is about the number. */
    bool follows = *at < count && (arguments[*at][0] != '-' ||
                                   (arguments[*at][1] >= '0' && arguments[*at][1] <= '9'));
    if (field != NULL && field->bare[0] != 0 && !follows)
        return cli_option_set(spec, field->bare, options, diag);
    if (!follows)
        return fa_fail(diag, FA_EINVAL, "%s needs a value: %s %s", spec->name, spec->name,
                       spec->value);
    return cli_option_set(spec, arguments[(*at)++], options, diag);
}

/* What no single option can tell: lengths that are missing, options that exclude one another. */
static int complete(const cli_verb *verb, cli_options *options, fa_diag *diag)
{
    const char *missing = next_operand(verb, options);
    if (missing != NULL && missing[0] != '[')
        return fa_fail(diag, FA_EINVAL, "`fa-tune %s` needs %s: see `fa-tune %s --help`",
                       verb->name, missing, verb->name);
    if ((options->gpu != NULL || options->sweep.gpu != NULL) && options->device >= 0)
        return fa_fail(diag, FA_EINVAL,
                       "--gpu and --device exclude one another: --gpu names a "
                       "type, --device a device of this machine");
    if (options->gpu != NULL && strchr(options->gpu, ',') != NULL)
        return fa_fail(diag, FA_EINVAL,
                       "--gpu takes one GPU type here: `fa-tune sweep --gpu %s` takes "
                       "several",
                       options->gpu);
    if (options->server != NULL && options->specification != NULL)
        return fa_fail(diag, FA_EINVAL, "%s is tuned on this machine: leave --server out",
                       options->specification);
    if (options->server != NULL && options->templates != NULL)
        return fa_fail(diag, FA_EINVAL,
                       "--server and --templates exclude one another: a service has "
                       "templates of its own");
    if (!(verb->groups & CLI_GROUP_PROBLEM))
        return 0;
    if (options->why && options->operands > 0)
        return fa_fail(diag, FA_EINVAL, "--why asks the store and not a file: leave \"%s\" out",
                       options->operand[0]);
    if (options->server != NULL && (options->why || options->operands > 0))
        return fa_fail(diag, FA_EINVAL, "%s asks no service: leave --server out",
                       options->why ? "--why" : "a bundle");
    if ((verb->groups & CLI_GROUP_WHY) && !options->why)
        return !options->problem_given
                   ? 0
                   : fa_fail(diag, FA_EINVAL,
                             "`fa-tune %s` takes a problem only with --why: add it", verb->name);
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

bool cli_names_specification(const char *argument)
{
    const char *dot = strrchr(argument, '.');
    return argument[0] != '-' && dot != NULL &&
           (strcmp(dot, ".cu") == 0 || strcmp(dot, ".json") == 0);
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
    *ret_operation = fa_operation_of(NULL);
    if (rc == 0 && (*ret_operation)->field_count == 0)
        return fa_fail(diag, FA_ENOMEM, "out of memory");
    if (rc == 0 && specification != NULL && name != NULL)
        return fa_fail(diag, FA_EINVAL, "%s is what to tune: leave --operation out", specification);
    if (rc == 0 && specification != NULL)
        return fa_spec_load(specification, ret_operation, diag);
    if (rc != 0 || name == NULL)
        return rc;
    rc = fa_operation_find(name, ret_operation, diag);
    return rc == FA_ENOTSUP && (verb->groups & CLI_GROUP_FORGET) ? 0 : rc;
}

int cli_options_parse(const cli_verb *verb, int count, char **arguments, cli_options *ret_options,
                      fa_diag *diag)
{
    static all_options all;
    cli_options options = {.device = -1, .effort = FA_EFFORT_MEASURE, .margin = 5};
    enum { SPECIFIED = CLI_GROUP_PROBLEM | CLI_GROUP_FILTER | CLI_GROUP_SWEEP | CLI_GROUP_WORKER };
    bool specified = (verb->groups & SPECIFIED) != 0 && (verb->groups & CLI_GROUP_IMPORT) == 0 &&
                     count > 0 && cli_names_specification(arguments[0]);
    options.specification = specified ? arguments[0] : NULL;
    int rc = choose_operation(verb, count, arguments, options.specification,
                              &options.problem.operation, diag);
    if (rc != 0)
        return rc;
    fa_problem_fill(&options.problem, 0);
    list_options(options.problem.operation, &all);
    for (int at = specified; at < count;) {
        rc = parse_one(verb, &all, count, arguments, &at, &options, diag);
        if (rc != 0)
            return rc;
    }
    rc = options.help ? 0 : complete(verb, &options, diag);
    if (rc == 0)
        *ret_options = options;
    return rc;
}

void cli_options_each(unsigned groups, const fa_operation *operation, cli_option_visit *visit,
                      void *context)
{
    static all_options all;
    list_options(operation, &all);
    for (size_t i = 0; i < all.count; i++)
        if (takes(groups, all.spec[i]))
            visit(context, all.spec[i]);
}

static void help_one(void *context, const cli_option_spec *spec)
{
    char left[64];
    snprintf(left, sizeof left, "%s %s", spec->name, spec->value != NULL ? spec->value : "");
    fa_buf_printf(context, "  %-19s  %s\n", left, spec->help);
}

void cli_options_help(unsigned groups, const fa_operation *operation, fa_buf *out)
{
    cli_options_each(groups, operation, help_one, out);
}

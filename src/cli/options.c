/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of options, and what verbs take beside them; and the value of one option: from its text to its field, or a
 * sentence that says what it takes.
 */
#include "options.h"

#include "error.h"
#include "options_table.h"
#include "text.h"
#include "wording.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A choice's index is its value. */
static const char *const formats[] = {"", "html", "md", "csv", "json", NULL};
static const char *const strategies[] = {"exhaustive", "random", "surrogate", "auto", NULL};
static const char *const efforts[] = {"cached", "predict", "measure", "patient", NULL};

#define ANY_VERB (1u << 31)
enum { PROBLEM = CLI_GROUP_PROBLEM | CLI_GROUP_FILTER | CLI_GROUP_SWEEP };

#define AT CLI_AT

/* Rows of the kinds that most have. */
#define FLAG(name, groups, member, help)                            \
    {                                                               \
        name, groups, KIND_FLAG, AT(member), 0, 0, NULL, NULL, help \
    }
#define TEXT(name, groups, member, value, help)                      \
    {                                                                \
        name, groups, KIND_TEXT, AT(member), 0, 0, NULL, value, help \
    }

static const cli_option_spec specs[] = {
    {.kind = KIND_HEADING, .help = "Problem and GPU"},
    TEXT("--gpu", CLI_GROUP_GPU, gpu, "NAME", "GPU type, present or not (fa-tune gpus lists them)"),
    {"--device", CLI_GROUP_DEVICE, KIND_INTEGER, AT(device), 0, 1023, NULL, "N",
     "CUDA ordinal of the GPU in this machine, unless --gpu is given (0)"},
    TEXT("--gpu", CLI_GROUP_SWEEP, sweep.gpu, "LIST",
         "GPU types, such as L4,A100,H100 (the GPU in this machine)"),
    {.kind = KIND_HERE_VALUES},
    {.kind = KIND_HERE_FLAGS},
    TEXT("--operation", PROBLEM, operation, "NAME",
         "the operation, built in or from --templates (attn_fwd)"),
    FLAG("--exact", CLI_GROUP_PROBLEM | CLI_GROUP_SWEEP, exact,
         "tune the given lengths themselves, not their bucket"),
    TEXT("--plan", CLI_GROUP_SWEEP, sweep.plan, "FILE",
         "problems from JSON lines instead of a grid"),
    TEXT(
        "--model", CLI_GROUP_SWEEP, sweep.model, "NAME",
        "heads, dims, windows and sinks of a model, such as llama-3.1-70b, or of the config.json of one, whose "
        "path is given; without lengths: typical prefill and decode"),
    FLAG("--training", CLI_GROUP_SWEEP, sweep.training,
         "each problem with its log-sum-exp, and the problem of its gradients"),

    {.kind = KIND_HEADING, .help = "Tuning"},
    {"--effort", CLI_GROUP_EFFORT, KIND_CHOICE, AT(effort), 0, 0, efforts, "HOW",
     "cached (only look it up), predict (compile and rank), measure (time kernels that are ready, "
     "else the whole space) or patient (time the whole space again, with more repeats; for an absent GPU, compile it); without "
     "it the whole space is timed once"},
    FLAG("--again", CLI_GROUP_EFFORT, again,
         "tune again even if a winner is stored; recorded trials count"),
    {"--jobs", CLI_GROUP_TUNE, KIND_INTEGER, AT(jobs), 1, 1024, NULL, "N",
     "compile workers (one per core)"},
    {"--compile-timeout", CLI_GROUP_TUNE, KIND_SECONDS, AT(compile_timeout_s), 0, 3600, NULL,
     "TIME", "limit for one compile (30s)"},
    {"--trial-timeout", CLI_GROUP_TUNE, KIND_SECONDS, AT(trial_timeout_s), 0, 3600, NULL, "TIME",
     "limit for proving and timing one config (20s)"},
    {"--memory", CLI_GROUP_TUNE | CLI_GROUP_CHECK, KIND_BYTES, AT(memory), 0, 0, NULL, "SIZE",
     "most GPU memory that a tune's tensors and workspaces may take: 8G, 512M (half of what is free when it begins)"},
    {"--seed", CLI_GROUP_TUNE, KIND_SEED, AT(seed), 0, ((int64_t)1 << 53) - 1, NULL, "N",
     "seed of the inputs (0: a new one, kept with each trial)"},
    {"--strategy", CLI_GROUP_SEARCH | CLI_GROUP_SWEEP, KIND_TEXT, AT(search.strategy), 0, 0,
     strategies, "NAME", "how to search the space: exhaustive, random, surrogate or auto"},

    {.kind = KIND_HEADING, .help = "Budget"},
    {"--evaluations", CLI_GROUP_SEARCH | CLI_GROUP_SWEEP, KIND_INTEGER, AT(search.evaluations), 1,
     20000, NULL, "N",
     "most configs of a problem to measure, earlier runs included (all; 500 if the space has more "
     "than 20,000)"},
    {"--time", CLI_GROUP_SEARCH, KIND_SECONDS, AT(search.seconds), 0, 31536000, NULL, "TIME",
     "start no more compiles after this long: 90s, 30m, 2h"},
    {"--time", CLI_GROUP_SWEEP_RUN, KIND_SECONDS, AT(sweep.seconds), 0, 31536000, NULL, "TIME",
     "stop after this long in all runs together: 90s, 30m, 2h"},
    {"--time-each", CLI_GROUP_SWEEP, KIND_SECONDS, AT(search.seconds), 0, 31536000, NULL, "TIME",
     "start no more compiles of a problem after this long: 90s, 30m"},
    {"--trials", CLI_GROUP_SWEEP_RUN, KIND_INTEGER, AT(sweep.trials), 1, INT32_MAX, NULL, "N",
     "stop after this many configs in all runs together"},
    {"--cost", CLI_GROUP_SWEEP_RUN, KIND_DECIMAL, AT(sweep.cost), 0, 1000000000, NULL, "MONEY",
     "stop after spending this much; needs --price"},
    {"--price", CLI_GROUP_SWEEP_RUN, KIND_DECIMAL, AT(sweep.price), 0, 1000000000, NULL, "MONEY",
     "price of an hour of the GPU; shows the money spent"},

    {.kind = KIND_HEADING, .help = "Task"},
    TEXT("--baseline", CLI_GROUP_SWEEP_RUN, sweep.baseline, "FILE",
         "import measured times of other libraries first (JSON lines)"),
    FLAG("--restart", CLI_GROUP_SWEEP_RUN, sweep.restart,
         "forget this sweep's earlier runs; winners stay"),
    FLAG("--status", CLI_GROUP_SWEEP_RUN, sweep.status,
         "show this sweep's state and return (without a grid: the latest sweep)"),
    FLAG("--list", CLI_GROUP_SWEEP_RUN, sweep.list, "list the sweeps in the store and return"),
    FLAG("--enqueue", CLI_GROUP_SWEEP_RUN, fleet.enqueue,
         "add the sweep to the fleet's queue and return"),
    FLAG("--once", CLI_GROUP_WORKER, fleet.once, "exit after one problem"),
    {"--idle-exit", CLI_GROUP_WORKER, KIND_SECONDS, AT(fleet.idle_exit_s), 0, 31536000, NULL,
     "TIME", "exit after this long without work: 90s, 30m, 2h (never)"},
    FLAG("--follow", CLI_GROUP_QUEUE, fleet.follow, "print progress until the queue is empty"),
    TEXT("--stop", CLI_GROUP_QUEUE, fleet.stop, "KEY",
         "stop this sweep until it is enqueued again"),
    {"--config", CLI_GROUP_RUN, KIND_INTEGER, AT(launch.config), 1, 1000000, NULL, "N",
     "the config, by its number in fa-tune explain (1, the winner)"},
    {"--launches", CLI_GROUP_RUN, KIND_INTEGER, AT(launch.count), 1, 1000000, NULL, "N",
     "calls after the proof (1)"},
    FLAG("--why", CLI_GROUP_WHY, why,
         "explain which winner the problem gets, and why the others were passed over"),
    {"--format", CLI_GROUP_REPORT, KIND_CHOICE, AT(format), 0, 0, formats, "HOW",
     "html, md, csv or json (by the ending of FILE, else md)"},
    TEXT("--out", CLI_GROUP_REPORT, out, "FILE", "write to this file instead of standard output"),
    TEXT("--out", CLI_GROUP_EXPORT, bundle.out, "FILE", "the bundle to write, as in l4.fab"),
    TEXT("--key", CLI_GROUP_EXPORT, bundle.key, "FILE",
         "secret key that signs the bundle (the key of fa-tune keygen)"),
    FLAG("--unsigned", CLI_GROUP_EXPORT, bundle.no_signature,
         "do not sign; imports then need --allow-unsigned"),
    TEXT("--from-records", CLI_GROUP_EXPORT, bundle.from_records, "FILE",
         "compile the winners of this file of records instead of the store's"),
    FLAG("--allow-unsigned", CLI_GROUP_IMPORT, bundle.allow_unsigned, "accept an unsigned bundle"),
    FLAG("--all", CLI_GROUP_FORGET, forget_all, "all winners"),
    FLAG("--dry-run", CLI_GROUP_IMPORT | CLI_GROUP_FORGET, dry_run,
         "list what would change, and change nothing"),
    TEXT("--out", CLI_GROUP_KEYGEN, bundle.out, "FILE",
         "file of the secret key (fa-tune/minisign.key in the configuration directory)"),

    {.kind = KIND_HEADING, .help = "Stores and templates"},
    TEXT("--store", CLI_GROUP_STORE, store, "FILE",
         "store file (FA_TUNE_STORE, else fa-tune/store.db in the cache directory)"),
    TEXT("--server", CLI_GROUP_SERVER, server, "ADDRESS",
         "service to ask first: unix:/PATH or http://HOST:PORT (FA_TUNE_SERVER)"),
    TEXT("--templates", CLI_GROUP_ENGINE, templates, "DIR",
         "folder of kernel templates, beside the built-in ones or instead of them"),

    {.kind = KIND_HEADING, .help = "Output"},
    {"--top", CLI_GROUP_TOP, KIND_INTEGER, AT(top), 1, 1000000, NULL, "N",
     "rows to print (tune: 10; explain: all; report: as many as keep it small)"},
    FLAG("--json", CLI_GROUP_JSON, json, "one JSON document on stdout"),
    FLAG("--verbose", CLI_GROUP_TUNE, verbose, "print every config on stderr as it ends"),
    FLAG("--no-progress", CLI_GROUP_QUIET, no_progress,
         "no progress on stderr; notes and errors stay"),
    FLAG("--quiet", CLI_GROUP_QUIET, quiet, "nothing on stderr but errors"),
    {"--color", ANY_VERB, KIND_CHOICE, AT(colour), 0, 0, cli_colour_names, "WHEN",
     "auto, always or never (auto: on a terminal, unless NO_COLOR is set)"},
    FLAG("--help", ANY_VERB, help, "this text"),
};

static const char *const lettered[] = {"--help", "--jobs", "--out", "--quiet", "--verbose"};

_Static_assert(sizeof specs / sizeof *specs <= CLI_SPECS_MAX, "cli_option_list has room for all");

static void join(cli_option_list *list, unsigned groups, const cli_option_spec *spec)
{
    const bool after_heading = list->count > 0 && list->spec[list->count - 1]->kind == KIND_HEADING;
    if (spec->kind == KIND_HEADING)
        list->count -= after_heading; /* that has no options here */
    else if (spec->group != ANY_VERB && !(spec->group & groups))
        return;
    list->spec[list->count++] = spec;
}

void cli_option_list_make(unsigned groups, const fa_operation *operation, cli_option_list *ret_list)
{
    cli_problem_options *problem = &ret_list->problem;
    cli_problem_options_make(operation, problem);
    ret_list->count = 0;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        const cli_option_kind kind = specs[i].kind;
        const bool flags = kind == KIND_HERE_FLAGS, here = flags || kind == KIND_HERE_VALUES;
        if (!here)
            join(ret_list, groups, &specs[i]);
        for (size_t row = flags ? problem->flags : 0;
             here && row < (flags ? problem->count : problem->flags); row++)
            join(ret_list, groups, &problem->row[row].spec);
    }
}

const cli_option_spec *cli_option_find(const cli_option_list *list, const char *name, size_t length)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->spec[i]->name != NULL && strlen(list->spec[i]->name) == length &&
            memcmp(list->spec[i]->name, name, length) == 0)
            return list->spec[i];
    return NULL;
}

const char *cli_option_of_letter(char letter)
{
    for (size_t i = 0; i < sizeof lettered / sizeof *lettered; i++)
        if (lettered[i][2] == letter)
            return lettered[i];
    return "";
}

char cli_option_letter(const cli_option_spec *spec)
{
    return strcmp(cli_option_of_letter(spec->name[2]), spec->name) == 0 ? spec->name[2] : 0;
}

const char *cli_operand(unsigned groups)
{
    return groups & CLI_GROUP_IMPORT ? "FILE" : groups & CLI_GROUP_SHOW ? "[FILE]" : NULL;
}

/* ---- values ---------------------------------------------------------------------------------*/
bool cli_parse_digits(const char *text, uint64_t *ret)
{
    if (text[0] == 0 || strspn(text, "0123456789") != strlen(text))
        return false;
    errno = 0;
    unsigned long long value = strtoull(text, NULL, 10);
    if (errno != 0)
        return false;
    *ret = value;
    return true;
}

int cli_integer_set(const cli_option_spec *spec, const fa_field *field, const char *text,
                    int32_t *ret, fa_diag *diag)
{
    uint64_t value = 0;
    const int64_t low = field != NULL ? field->min : spec->low;
    const int64_t high = field != NULL ? field->max : spec->high;
    const int step = field != NULL && field->multiple > 1 ? field->multiple : 1;
    const char *hint = "";
    char kind[40] = "whole number", what[400];
    if (cli_parse_digits(text, &value) && value <= INT32_MAX && (int64_t)value >= low &&
        (int64_t)value <= high && value % (uint64_t)step == 0) {
        *ret = (int32_t)value;
        return 0;
    }
    if (step > 1)
        snprintf(kind, sizeof kind, "multiple of %d", step);
    if (field != NULL)
        hint = (int64_t)value > high && field->above[0] != 0 ? field->above : field->hint;
    snprintf(what, sizeof what, "a %s (%lld to %lld%s%s)", kind, (long long)low, (long long)high,
             hint[0] != 0 ? "; " : "", hint);
    return cli_refuse(spec->name, text, what, NULL, diag);
}

/* A seed, a decimal number, or a time. */
static int set_number(const cli_option_spec *spec, const char *text, void *ret, fa_diag *diag)
{
    uint64_t whole = 0;
    double value = 0;
    char what[64] = "a time (90s, 30m, 1h; at most an hour)";
    if (spec->kind == KIND_SEED && cli_parse_digits(text, &whole) &&
        whole <= (uint64_t)spec->high) {
        *(uint64_t *)ret = whole;
        return 0;
    }
    if ((spec->kind == KIND_SECONDS && fa_duration_parse(text, (double)spec->high, &value)) ||
        (spec->kind == KIND_DECIMAL &&
         fa_decimal_parse(text, strlen(text), (double)spec->high, &value) && value > 0)) {
        *(double *)ret = value;
        return 0;
    }
    if (spec->kind != KIND_SECONDS)
        snprintf(what, sizeof what, "a %snumber (%s to %lld)",
                 spec->kind == KIND_SEED ? "whole " : "",
                 spec->kind == KIND_SEED ? "0" : "above 0,", (long long)spec->high);
    else if (spec->high > 86400)
        snprintf(what, sizeof what, "a time (90s, 30m, 2h, 3d; at most a year)");
    return cli_refuse(spec->name, text, what, NULL, diag);
}

/* 8G, 1.5G, 512M or 65536K, in powers of 1024. */
static int set_bytes(const cli_option_spec *spec, const char *text, int64_t *ret, fa_diag *diag)
{
    static const char units[] = "kmgt";
    double value = 0;
    size_t length = strlen(text);
    const char *unit = length > 1 ? strchr(units, tolower((unsigned char)text[length - 1])) : NULL;
    if (unit != NULL && fa_decimal_parse(text, length - 1, 1 << 30, &value))
        value = ldexp(value, 10 * (int)(unit - units + 1));
    if (!(value >= 1 && value <= FA_MEMORY_MAX))
        return cli_refuse(spec->name, text, "a size (8G, 512M)", NULL, diag);
    *ret = (int64_t)value;
    return 0;
}

/* Every enum of the API is stored as 32 bits. */
static int set_choice(const cli_option_spec *spec, const char *const *choices, const char *text,
                      void *ret, fa_diag *diag)
{
    static const char *const also[][2] = {/* as other programs call them */
                                          {"float16", "fp16"},
                                          {"half", "fp16"},
                                          {"bfloat16", "bf16"}};
    const char *name = text;
    for (size_t i = 0; i < sizeof also / sizeof *also; i++)
        name = strcasecmp(also[i][0], text) == 0 ? also[i][1] : name;
    for (int32_t i = 0; choices[i] != NULL; i++)
        if (text[0] != 0 && strcasecmp(choices[i], name) == 0) {
            memcpy(ret, &i, sizeof i);
            return 0;
        }
    fa_buf list = {0};
    choices += choices[0][0] == 0; /* the value of what is not given has no name */
    fa_words_or(&list, choices);
    int rc = cli_refuse(spec->name, text, list.data != NULL ? list.data : "known", choices, diag);
    fa_buf_free(&list);
    return rc;
}

_Static_assert(sizeof(fa_effort) == sizeof(int32_t), "set_choice stores 32 bits");

static int set_field(const cli_option_spec *spec, const char *text, cli_options *options,
                     fa_diag *diag)
{
    int index = cli_option_field(spec);
    const fa_field *field = &fa_operation_of(&options->problem)->field[index];
    int32_t *value = &options->problem.value[index];
    options->given |= 1u << index;
    if (field->kind == FA_FIELD_INTEGER)
        return cli_integer_set(spec, field, text, value, diag);
    if (field->kind == FA_FIELD_CHOICE)
        return set_choice(spec, field->choice, text, value, diag);
    *value = (int32_t)spec->low;
    return 0;
}

/* Sets every field that names this option and that no option of its own has set. */
static int set_also(const cli_option_spec *spec, const char *text, cli_options *options,
                    fa_diag *diag)
{
    const fa_operation *operation = fa_operation_of(&options->problem);
    int32_t value = 0;
    int rc = cli_integer_set(spec, &operation->field[cli_option_field(spec)], text, &value, diag);
    for (int i = 0; rc == 0 && i < operation->field_count; i++) {
        if (strcmp(operation->field[i].also, spec->name) != 0)
            continue;
        options->given_also |= 1u << i;
        if (!(options->given >> i & 1))
            options->problem.value[i] = value;
    }
    return rc;
}

int cli_option_set(const cli_option_spec *spec, const char *text, cli_options *options,
                   fa_diag *diag)
{
    void *field = (char *)options + spec->offset;
    switch (spec->kind) {
    case KIND_FLAG:
        *(bool *)field = true;
        return 0;
    case KIND_INTEGER:
        return cli_integer_set(spec, NULL, text, field, diag);
    case KIND_SEED:
    case KIND_DECIMAL:
    case KIND_SECONDS:
        return set_number(spec, text, field, diag);
    case KIND_BYTES:
        return set_bytes(spec, text, field, diag);
    case KIND_TEXT:
        *(const char **)field = text;
        return text[0] != 0 ? 0 : cli_refuse(spec->name, text, spec->value, NULL, diag);
    case KIND_CHOICE:
        return set_choice(spec, spec->choices, text, field, diag);
    case KIND_FIELD:
        return set_field(spec, text, options, diag);
    case KIND_ALSO:
        return set_also(spec, text, options, diag);
    case KIND_SHORTHAND:
        return cli_shorthand_set((int)spec->low, text, options, diag);
    default:
        return FA_EINVAL;
    }
}

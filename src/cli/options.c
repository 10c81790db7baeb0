/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of options, and what verbs take beside them.
 */
#include "options.h"

#include "options_table.h"
#include "terminal.h"

#include <string.h>

/* A choice's index is its value. */
static const char *const formats[] = {"", "html", "md", "csv", "json", NULL};
static const char *const efforts[] = {"cached", "predict", "measure", "patient", NULL};

#define ANY_VERB (1u << 31)
enum { PROBLEM = CLI_GROUP_PROBLEM | CLI_GROUP_FILTER | CLI_GROUP_SWEEP };

#define AT CLI_AT

static const cli_option_spec specs[] = {
    {.kind = KIND_HEADING, .help = "Problem and GPU"},
    {"--gpu", CLI_GROUP_GPU, KIND_TEXT, AT(gpu), 0, 0, NULL, "NAME",
     "GPU type, present or not (fa-tune gpus lists them)"},
    {"--device", CLI_GROUP_DEVICE, KIND_INTEGER, AT(device), 0, 1023, NULL, "N",
     "CUDA ordinal of the GPU in this machine, unless --gpu is given (0)"},
    {"--gpu", CLI_GROUP_SWEEP, KIND_TEXT, AT(sweep.gpu), 0, 0, NULL, "LIST",
     "GPU types, such as L4,A100,H100 (the GPU in this machine)"},
    {.kind = KIND_HERE_VALUES},
    {.kind = KIND_HERE_FLAGS},
    {"--operation", PROBLEM, KIND_TEXT, AT(operation), 0, 0, NULL, "NAME",
     "the operation, built in or from --templates (attn_fwd)"},
    {"--exact", CLI_GROUP_PROBLEM | CLI_GROUP_SWEEP, KIND_FLAG, AT(exact), 0, 0, NULL, NULL,
     "tune the given lengths themselves, not their bucket"},
    {"--plan", CLI_GROUP_SWEEP, KIND_TEXT, AT(sweep.plan), 0, 0, NULL, "FILE",
     "problems from JSON lines instead of a grid"},
    {"--model", CLI_GROUP_SWEEP, KIND_TEXT, AT(sweep.model), 0, 0, NULL, "NAME",
     "heads, dims, windows and sinks of a model, such as llama-3-70b; without lengths: typical prefill and decode"},
    {"--training", CLI_GROUP_SWEEP, KIND_FLAG, AT(sweep.training), 0, 0, NULL, NULL,
     "each problem with its log-sum-exp, and the problem of its gradients"},

    {.kind = KIND_HEADING, .help = "Tuning"},
    {"--effort", CLI_GROUP_EFFORT, KIND_CHOICE, AT(effort), 0, 0, efforts, "HOW",
     "cached (only look it up), predict (compile and rank), measure (time kernels that are ready, else the whole space) or "
     "patient (time the whole space again, with more repeats); without it the whole space is timed once"},
    {"--again", CLI_GROUP_EFFORT, KIND_FLAG, AT(again), 0, 0, NULL, NULL,
     "tune again even if a winner is stored; recorded trials count"},
    {"--jobs", CLI_GROUP_TUNE, KIND_INTEGER, AT(jobs), 1, 1024, NULL, "N",
     "compile workers (one per core)"},
    {"--compile-timeout", CLI_GROUP_TUNE, KIND_SECONDS, AT(compile_timeout_s), 0, 3600, NULL,
     "TIME", "limit for one compile (30s)"},
    {"--trial-timeout", CLI_GROUP_TUNE, KIND_SECONDS, AT(trial_timeout_s), 0, 3600, NULL, "TIME",
     "limit for proving and timing one config (20s)"},
    {"--seed", CLI_GROUP_TUNE, KIND_SEED, AT(seed), 0, ((int64_t)1 << 53) - 1, NULL, "N",
     "seed of the inputs (0: a new one, kept with each trial)"},
    {"--strategy", CLI_GROUP_SEARCH | CLI_GROUP_SWEEP, KIND_TEXT, AT(search.strategy), 0, 0, NULL,
     "NAME",
     "how to search the space: exhaustive, random, greedy, annealing, evolution, surrogate or auto"},

    {.kind = KIND_HEADING, .help = "Budget"},
    {"--evaluations", CLI_GROUP_SEARCH | CLI_GROUP_SWEEP, KIND_INTEGER, AT(search.evaluations), 1,
     20000, NULL, "N",
     "most configs of a problem to measure, earlier runs included (all; 500 if the space has more than 20,000)"},
    {"--time", CLI_GROUP_SEARCH, KIND_SECONDS, AT(search.seconds), 0, 31536000, NULL, "TIME",
     "start no more compiles after this long: 90s, 30m, 2h"},
    {"--time", CLI_GROUP_SWEEP, KIND_SECONDS, AT(sweep.seconds), 0, 31536000, NULL, "TIME",
     "stop after this long in all runs together: 90s, 30m, 2h"},
    {"--time-each", CLI_GROUP_SWEEP, KIND_SECONDS, AT(search.seconds), 0, 31536000, NULL, "TIME",
     "start no more compiles of a problem after this long: 90s, 30m"},
    {"--trials", CLI_GROUP_SWEEP, KIND_INTEGER, AT(sweep.trials), 1, INT32_MAX, NULL, "N",
     "stop after this many configs in all runs together"},
    {"--cost", CLI_GROUP_SWEEP, KIND_DECIMAL, AT(sweep.cost), 0, 1000000000, NULL, "MONEY",
     "stop after spending this much; needs --price"},
    {"--price", CLI_GROUP_SWEEP, KIND_DECIMAL, AT(sweep.price), 0, 1000000000, NULL, "MONEY",
     "price of an hour of the GPU; shows the money spent"},

    {.kind = KIND_HEADING, .help = "Task"},
    {"--baseline", CLI_GROUP_SWEEP, KIND_TEXT, AT(sweep.baseline), 0, 0, NULL, "FILE",
     "import measured times of other libraries first (JSON lines)"},
    {"--restart", CLI_GROUP_SWEEP, KIND_FLAG, AT(sweep.restart), 0, 0, NULL, NULL,
     "forget this sweep's earlier runs; winners stay"},
    {"--status", CLI_GROUP_SWEEP, KIND_FLAG, AT(sweep.status), 0, 0, NULL, NULL,
     "show this sweep's state and return (without a grid: the latest sweep)"},
    {"--list", CLI_GROUP_SWEEP, KIND_FLAG, AT(sweep.list), 0, 0, NULL, NULL,
     "list the sweeps in the store and return"},
    {"--enqueue", CLI_GROUP_SWEEP, KIND_FLAG, AT(fleet.enqueue), 0, 0, NULL, NULL,
     "add the sweep to the fleet's queue and return"},
    {"--once", CLI_GROUP_WORKER, KIND_FLAG, AT(fleet.once), 0, 0, NULL, NULL,
     "exit after one problem"},
    {"--idle-exit", CLI_GROUP_WORKER, KIND_SECONDS, AT(fleet.idle_exit_s), 0, 31536000, NULL,
     "TIME", "exit after this long without work: 90s, 30m, 2h (never)"},
    {"--follow", CLI_GROUP_QUEUE, KIND_FLAG, AT(fleet.follow), 0, 0, NULL, NULL,
     "print progress until the queue is empty"},
    {"--stop", CLI_GROUP_QUEUE, KIND_TEXT, AT(fleet.stop), 0, 0, NULL, "KEY",
     "stop this sweep until it is enqueued again"},
    {"--config", CLI_GROUP_PROFILE, KIND_INTEGER, AT(profile.config), 1, 1000000, NULL, "N",
     "the config to profile, by its number in fa-tune explain (1, the winner)"},
    {"--beside", CLI_GROUP_PROFILE, KIND_INTEGER, AT(profile.beside), 1, 1000000, NULL, "N",
     "number of a second config, shown beside the first"},
    {"--profile", CLI_GROUP_REPORT, KIND_FLAG, AT(profile.winners), 0, 0, NULL, NULL,
     "profile winners that this GPU has measured and that have no profile yet, first"},
    {"--margin", CLI_GROUP_COMPARE, KIND_DECIMAL, AT(margin), 0, 1000, NULL, "PERCENT",
     "slowdown that still passes (5)"},
    {"--why", CLI_GROUP_WHY, KIND_FLAG, AT(why), 0, 0, NULL, NULL,
     "explain which winner the problem gets, and why the others were passed over"},
    {"--format", CLI_GROUP_REPORT, KIND_CHOICE, AT(format), 0, 0, formats, "HOW",
     "html, md, csv or json (by the ending of FILE, else md)"},
    {"--out", CLI_GROUP_REPORT, KIND_TEXT, AT(out), 0, 0, NULL, "FILE",
     "write to this file instead of standard output"},
    {"--out", CLI_GROUP_EXPORT, KIND_TEXT, AT(bundle.out), 0, 0, NULL, "FILE",
     "the bundle to write, as in l4.fab"},
    {"--key", CLI_GROUP_EXPORT, KIND_TEXT, AT(bundle.key), 0, 0, NULL, "FILE",
     "secret key that signs the bundle (the key of fa-tune keygen)"},
    {"--unsigned", CLI_GROUP_EXPORT, KIND_FLAG, AT(bundle.no_signature), 0, 0, NULL, NULL,
     "do not sign; imports then need --allow-unsigned"},
    {"--records", CLI_GROUP_EXPORT, KIND_TEXT, AT(bundle.records), 0, 0, NULL, "FILE",
     "add the store's winners to this file of records instead"},
    {"--predict", CLI_GROUP_EXPORT, KIND_FLAG, AT(bundle.predict), 0, 0, NULL, NULL,
     "with --records: first predict winners for every GPU type that is known"},
    {"--from-records", CLI_GROUP_EXPORT, KIND_TEXT, AT(bundle.from_records), 0, 0, NULL, "FILE",
     "compile the winners of this file of records instead of the store's"},
    {"--t4", CLI_GROUP_EXPORT, KIND_TEXT, AT(bundle.t4), 0, 0, NULL, "FILE",
     "write the trials of one problem as T4 JSON instead"},
    {"--allow-unsigned", CLI_GROUP_IMPORT, KIND_FLAG, AT(bundle.allow_unsigned), 0, 0, NULL, NULL,
     "accept an unsigned bundle"},
    {"--older-than", CLI_GROUP_FORGET, KIND_PAST, AT(forget.older_than), 0, 0, NULL, "AGE",
     "problems last tuned before an age (30d, 12h) or a date (2026-01-31)"},
    {"--stale", CLI_GROUP_FORGET, KIND_FLAG, AT(forget.stale), 0, 0, NULL, NULL,
     "winners that no present template produces"},
    {"--all", CLI_GROUP_FORGET, KIND_FLAG, AT(forget.all), 0, 0, NULL, NULL, "all winners"},
    {"--dry-run", CLI_GROUP_IMPORT | CLI_GROUP_FORGET, KIND_FLAG, AT(dry_run), 0, 0, NULL, NULL,
     "list what would change, and change nothing"},
    {"--out", CLI_GROUP_KEYGEN, KIND_TEXT, AT(bundle.out), 0, 0, NULL, "FILE",
     "file of the secret key (fa-tune/key in the configuration directory)"},
    {"--name", CLI_GROUP_TRUST, KIND_TEXT, AT(bundle.name), 0, 0, NULL, "NAME",
     "name of the key's owner"},
    {"--strategy", CLI_GROUP_REPLAY, KIND_TEXT, AT(replay.strategy), 0, 0, NULL, "NAME",
     "exhaustive, random, greedy, annealing, evolution, surrogate, all or auto (auto)"},
    {"--evaluations", CLI_GROUP_REPLAY, KIND_INTEGER, AT(replay.evaluations), 1, 1000000, NULL, "N",
     "configs that one search may measure (100)"},
    {"--repeats", CLI_GROUP_REPLAY, KIND_INTEGER, AT(replay.repeats), 1, 100000, NULL, "N",
     "searches, each with the next seed (100)"},
    {"--batch", CLI_GROUP_REPLAY, KIND_INTEGER, AT(replay.batch), 1, 1024, NULL, "N",
     "configs per step, as with this many compile workers (1)"},
    {"--seed", CLI_GROUP_REPLAY, KIND_SEED, AT(seed), 0, ((int64_t)1 << 53) - 1, NULL, "N",
     "seed of the first search (0)"},

    {.kind = KIND_HEADING, .help = "Stores and templates"},
    {"--store", CLI_GROUP_STORE, KIND_TEXT, AT(store), 0, 0, NULL, "FILE",
     "store file (FA_TUNE_STORE, else fa-tune/store.db in the cache directory)"},
    {"--server", CLI_GROUP_SERVER, KIND_TEXT, AT(server), 0, 0, NULL, "ADDRESS",
     "service to ask first: unix:/PATH or http://HOST:PORT (FA_TUNE_SERVER)"},
    {"--templates", CLI_GROUP_ENGINE, KIND_TEXT, AT(templates), 0, 0, NULL, "DIR",
     "folder of kernel templates, beside the built-in ones or instead of them"},

    {.kind = KIND_HEADING, .help = "Output"},
    {"--top", CLI_GROUP_TOP, KIND_INTEGER, AT(top), 1, 1000000, NULL, "N",
     "rows to print (tune: 10; explain: all; report: as many as keep it small)"},
    {"--json", CLI_GROUP_JSON, KIND_FLAG, AT(json), 0, 0, NULL, NULL,
     "one JSON document on stdout"},
    {"--verbose", CLI_GROUP_TUNE, KIND_FLAG, AT(verbose), 0, 0, NULL, NULL,
     "print every config on stderr as it ends"},
    {"--no-progress", CLI_GROUP_QUIET, KIND_FLAG, AT(no_progress), 0, 0, NULL, NULL,
     "no progress on stderr; notes and errors stay"},
    {"--quiet", CLI_GROUP_QUIET, KIND_FLAG, AT(quiet), 0, 0, NULL, NULL,
     "nothing on stderr but errors"},
    {"--color", ANY_VERB, KIND_CHOICE, AT(colour), 0, 0, cli_colour_names, "WHEN",
     "auto, always or never (auto: on a terminal, unless NO_COLOR is set)"},
    {"--help", ANY_VERB, KIND_FLAG, AT(help), 0, 0, NULL, NULL, "this text"},
};

static const struct {
    char letter;
    const char *name;
} letters[] = {
    {'h', "--help"}, {'j', "--jobs"}, {'o', "--out"}, {'q', "--quiet"}, {'v', "--verbose"}};

_Static_assert(sizeof specs / sizeof *specs <= CLI_SPECS_MAX, "cli_option_list has room for all");

void cli_option_list_make(const fa_operation *operation, cli_option_list *ret_list)
{
    cli_problem_options *problem = &ret_list->problem;
    cli_problem_options_make(operation, problem);
    ret_list->count = 0;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        bool values = specs[i].kind == KIND_HERE_VALUES, flags = specs[i].kind == KIND_HERE_FLAGS;
        if (!values && !flags)
            ret_list->spec[ret_list->count++] = &specs[i];
        for (size_t row = values ? 0 : problem->flags;
             (values && row < problem->flags) || (flags && row < problem->count); row++)
            ret_list->spec[ret_list->count++] = &problem->row[row].spec;
    }
}

bool cli_option_taken(unsigned groups, const cli_option_spec *spec)
{
    return spec->group == ANY_VERB || (spec->group & groups) != 0;
}

const cli_option_spec *cli_option_find(const cli_option_list *list, unsigned groups,
                                       const char *name, size_t length)
{
    const cli_option_spec *other = NULL;
    for (size_t i = 0; i < list->count; i++) {
        const cli_option_spec *spec = list->spec[i];
        if (spec->name == NULL || strlen(spec->name) != length ||
            memcmp(spec->name, name, length) != 0)
            continue;
        if (cli_option_taken(groups, spec))
            return spec;
        other = spec;
    }
    return other;
}

char cli_option_letter(const cli_option_spec *spec)
{
    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
        if (spec->name != NULL && strcmp(letters[i].name, spec->name) == 0)
            return letters[i].letter;
    return 0;
}

const char *cli_option_of_letter(char letter)
{
    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
        if (letters[i].letter == letter)
            return letters[i].name;
    return "";
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
    {CLI_GROUP_CHECK, {NULL}, " FILE.cu"}, /* read before all options */
};

void cli_options_operands(unsigned groups, fa_buf *out)
{
    for (size_t i = 0; i < sizeof operands / sizeof *operands; i++)
        if (groups & operands[i].group)
            fa_buf_text(out, operands[i].usage);
}

const char *cli_operand_name(unsigned groups, int index)
{
    for (size_t i = 0; i < sizeof operands / sizeof *operands; i++)
        if ((groups & operands[i].group) && index < CLI_OPERANDS_MAX)
            return operands[i].name[index];
    return NULL;
}

void cli_options_each(unsigned groups, const fa_operation *operation, cli_option_visit *visit,
                      void *context)
{
    static cli_option_list all;
    cli_option_list_make(operation, &all);
    const cli_option_spec *heading = NULL;
    for (size_t i = 0; i < all.count; i++) {
        if (all.spec[i]->kind == KIND_HEADING)
            heading = all.spec[i];
        if (all.spec[i]->kind == KIND_HEADING || !cli_option_taken(groups, all.spec[i]))
            continue;
        if (heading != NULL)
            visit(context, heading);
        heading = NULL;
        visit(context, all.spec[i]);
    }
}

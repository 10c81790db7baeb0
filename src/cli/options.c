/* SPDX-License-Identifier: Apache-2.0
 *
 * Parsing and checking the command line.
 */
#include "options.h"

#include "error.h"
#include "nearest.h"
#include "options_table.h"
#include "problem.h"
#include "text.h"

#include <stdio.h>
#include <string.h>

/* A choice's index is its value. */
static const char *const dtypes[] = {"fp16", "bf16", NULL};
static const char *const causals[] = {"none", "bottom-right", "top-left", NULL};
static const char *const layouts[] = {"bhsd", "bshd", NULL};
static const char *const formats[] = {"", "html", "md", "csv", "json", NULL};
static const char *const efforts[] = {"cached", "predict", "measure", "patient", NULL};

enum { ANY_VERB = 1 << 30, PROBLEM = CLI_GROUP_PROBLEM | CLI_GROUP_FILTER };

#define AT CLI_AT

static const cli_option_spec specs[] = {
    {"--gpu", CLI_GROUP_GPU, KIND_TEXT, AT(gpu), 0, 0, NULL, "NAME",
     "GPU type, present or not (fa-tune gpus lists them)"},
    {"--device", CLI_GROUP_DEVICE, KIND_INTEGER, AT(device), 0, 1023, NULL, "N",
     "CUDA ordinal of the device here, where --gpu names none (0)"},
    {"--seq", PROBLEM, KIND_INTEGER, AT(seq), 0, INT32_MAX, NULL, "N",
     "sequence length of queries and keys"},
    {"--seq-q", PROBLEM, KIND_INTEGER, AT(problem.seq_q), 0, INT32_MAX, NULL, "N",
     "sequence length of the queries alone"},
    {"--seq-k", PROBLEM, KIND_INTEGER, AT(problem.seq_k), 0, INT32_MAX, NULL, "N",
     "sequence length of keys and values alone"},
    {"--batch", PROBLEM, KIND_INTEGER, AT(problem.batch), 0, INT32_MAX, NULL, "N",
     "batch size (4)"},
    {"--heads", PROBLEM, KIND_INTEGER, AT(problem.heads_q), 1, 65535, NULL, "N",
     "query heads (8)"},
    {"--heads-kv", PROBLEM, KIND_INTEGER, AT(problem.heads_kv), 1, 65535, NULL, "N",
     "key and value heads, a divisor of --heads (as many)"},
    {"--head-dim", PROBLEM, KIND_INTEGER, AT(problem.head_dim), 8, 256, NULL, "N",
     "elements per head, a multiple of 8 up to 256 (64)"},
    {"--dtype", PROBLEM, KIND_CHOICE, AT(problem.dtype), 0, 0, dtypes, "fp16|bf16",
     "element type (fp16)"},
    {"--causal", PROBLEM, KIND_CAUSAL, AT(problem.causal), 0, 0, causals, "[WHERE]",
     "mask anchored bottom-right (also when WHERE is left out) or top-left (none)"},
    {"--gpu", CLI_GROUP_SWEEP, KIND_TEXT, AT(sweep.gpu), 0, 0, NULL, "LIST",
     "GPU types, as in L4,A100,H100 (the device here)"},
    {"--seq", CLI_GROUP_SWEEP, KIND_TEXT, AT(sweep.seq), 0, 0, NULL, "LIST",
     "sequence lengths, as in 512,1024 or 512:16384:x2 or 512:2048:+512"},
    {"--seq-k", CLI_GROUP_SWEEP, KIND_TEXT, AT(sweep.seq_k), 0, 0, NULL, "LIST",
     "lengths of keys and values (each as --seq)"},
    {"--batch", CLI_GROUP_SWEEP, KIND_TEXT, AT(sweep.batch), 0, 0, NULL, "LIST",
     "batch sizes (4)"},
    {"--tokens", CLI_GROUP_SWEEP, KIND_INTEGER, AT(sweep.tokens), 1, INT32_MAX, NULL, "N",
     "instead of --batch: each batch is N / sequence length"},
    {"--heads", CLI_GROUP_SWEEP, KIND_TEXT, AT(sweep.heads), 0, 0, NULL, "LIST",
     "query heads (8)"},
    {"--hidden", CLI_GROUP_SWEEP, KIND_INTEGER, AT(sweep.hidden), 8, INT32_MAX, NULL, "N",
     "instead of --heads: N / head dimension of them"},
    {"--heads-kv", CLI_GROUP_SWEEP, KIND_TEXT, AT(sweep.heads_kv), 0, 0, NULL, "LIST",
     "key and value heads (as many as query heads)"},
    {"--head-dim", CLI_GROUP_SWEEP, KIND_TEXT, AT(sweep.head_dim), 0, 0, NULL, "LIST",
     "elements per head (64)"},
    {"--dtype", CLI_GROUP_SWEEP, KIND_TEXT, AT(sweep.dtype), 0, 0, NULL, "LIST",
     "fp16, bf16 or fp16,bf16 (fp16)"},
    {"--causal", CLI_GROUP_SWEEP, KIND_TEXT, AT(sweep.causal), 0, 0, NULL, "LIST",
     "none, bottom-right, top-left, or both: none and bottom-right (none)"},
    {"--plan", CLI_GROUP_SWEEP, KIND_TEXT, AT(sweep.plan), 0, 0, NULL, "FILE",
     "problems from JSON lines instead of a grid"},
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
    {"--layout", PROBLEM | CLI_GROUP_SWEEP, KIND_CHOICE, AT(problem.layout), 0, 0, layouts,
     "bhsd|bshd",
     "order of dimensions while measuring (bhsd)"},
    {"--lse", PROBLEM | CLI_GROUP_SWEEP, KIND_FLAG, AT(problem.want_lse), 0, 0, NULL, NULL,
     "with the log-sum-exp written"},
    {"--unaligned", PROBLEM | CLI_GROUP_SWEEP, KIND_FLAG, AT(problem.unaligned), 0, 0, NULL, NULL,
     "for pointers or strides that are not multiples of 16 bytes"},
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
    {"--allow-unsigned", CLI_GROUP_IMPORT, KIND_FLAG, AT(bundle.allow_unsigned), 0, 0, NULL, NULL,
     "also a bundle that nobody has signed"},
    {"--dry-run", CLI_GROUP_IMPORT, KIND_FLAG, AT(bundle.dry_run), 0, 0, NULL, NULL,
     "only tell what would change"},
    {"--out", CLI_GROUP_KEYGEN, KIND_TEXT, AT(bundle.out), 0, 0, NULL, "FILE",
     "where the secret key goes (fa-tune/key in the configuration directory)"},
    {"--name", CLI_GROUP_TRUST, KIND_TEXT, AT(bundle.name), 0, 0, NULL, "NAME",
     "whose key it is"},
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
    {"--help", ANY_VERB, KIND_FLAG, AT(help), 0, 0, NULL, NULL, "this text"},
};

static const struct {
    const cli_option_spec *spec;
    const size_t *count;
} tables[] = {
    {specs, &(const size_t){sizeof specs / sizeof *specs}},
    {cli_options_fleet, &cli_options_fleet_count},
};
enum { TABLES = sizeof tables / sizeof *tables, OPTIONS_MOST = 160 };

/* Each option in turn, from *at = 0 on; NULL: there are no more. */
static const cli_option_spec *next_spec(size_t *at)
{
    size_t index = (*at)++;
    for (size_t t = 0; t < TABLES; t++) {
        if (index < *tables[t].count)
            return &tables[t].spec[index];
        index -= *tables[t].count;
    }
    return NULL;
}

static int fail_unknown(const cli_verb *verb, const char *argument, size_t length, fa_diag *diag)
{
    const char *names[OPTIONS_MOST + 1];
    const cli_option_spec *spec;
    size_t count = 0;
    for (size_t at = 0; (spec = next_spec(&at)) != NULL;)
        if (count < OPTIONS_MOST && (spec->group == ANY_VERB || (spec->group & verb->groups)))
            names[count++] = spec->name;
    names[count] = NULL;
    char name[256], typed[CLI_SHORT_SIZE];
    snprintf(name, sizeof name, "%.*s", (int)(length < 255 ? length : 255), argument);
    cli_text_short(name, typed);
    if (name[0] != '-')
        return fa_fail(diag, FA_EINVAL,
                       "\"%s\" is not understood: `fa-tune %s` takes options only, as --help lists",
                       cli_text_short(argument, typed), verb->name);
    const char *near = cli_nearest(name, names);
    if (near != NULL)
        return fa_fail(diag, FA_EINVAL, "`fa-tune %s` has no option %s: did you mean %s?",
                       verb->name, typed, near);
    return fa_fail(diag, FA_EINVAL, "`fa-tune %s` has no option %s: see `fa-tune %s --help`",
                   verb->name, typed, verb->name);
}

/* The option of that name, the verb's own where several verbs have one. */
static const cli_option_spec *find(const cli_verb *verb, const char *argument, size_t length)
{
    const cli_option_spec *other = NULL, *spec;
    for (size_t at = 0; (spec = next_spec(&at)) != NULL;) {
        if (strlen(spec->name) != length || memcmp(spec->name, argument, length) != 0)
            continue;
        if (spec->group == ANY_VERB || (spec->group & verb->groups))
            return spec;
        other = spec;
    }
    return other;
}

/* What a verb takes beside options, by a group that it has; in brackets what may be left out. */
static const struct {
    unsigned group;
    const char *name[CLI_OPERANDS_MAX];
} operands[] = {
    {CLI_GROUP_IMPORT, {"FILE"}},
    {CLI_GROUP_TRUST, {"list, add or remove", "[KEY]"}},
    {CLI_GROUP_SHOW, {"[FILE]"}},
    {CLI_GROUP_COMPARE, {"OLD", "NEW"}},
};

/* The name of a verb's next operand; NULL: it takes no more. */
static const char *next_operand(const cli_verb *verb, const cli_options *options)
{
    for (size_t i = 0; i < sizeof operands / sizeof *operands; i++)
        if ((verb->groups & operands[i].group) && options->operands < CLI_OPERANDS_MAX)
            return operands[i].name[options->operands];
    return NULL;
}

/* Parses one option at arguments[*at] and steps over it and its value. */
static int parse_one(const cli_verb *verb, int count, char **arguments, int *at,
                     cli_options *options, fa_diag *diag)
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
    const cli_option_spec *spec = find(verb, argument, length);
    if (spec == NULL)
        return fail_unknown(verb, argument, length, diag);
    if (spec->group != ANY_VERB && !(spec->group & verb->groups))
        return fa_fail(diag, FA_EINVAL, "`fa-tune %s` does not take %s: see `fa-tune %s --help`",
                       verb->name, spec->name, verb->name);
    (*at)++;
    options->problem_given = options->problem_given ||
                             (spec->group & (CLI_GROUP_PROBLEM | CLI_GROUP_DEVICE)) != 0;
    options->effort_given = options->effort_given || spec->offset == AT(effort);
    char typed[CLI_SHORT_SIZE];
    if (spec->kind == KIND_FLAG && equals != NULL)
        return fa_fail(diag, FA_EINVAL, "%s takes no value: leave \"%s\" out", spec->name,
                       cli_text_short(equals, typed));
    if (spec->kind == KIND_FLAG)
        return cli_option_set(spec, NULL, options, diag);
    if (equals != NULL)
        return cli_option_set(spec, equals + 1, options, diag);
    /* A negative number is a value, so that its sentence is about the number. */
    bool follows = *at < count && (arguments[*at][0] != '-' ||
                                   (arguments[*at][1] >= '0' && arguments[*at][1] <= '9'));
    if (spec->kind == KIND_CAUSAL && !follows)
        return cli_option_set(spec, causals[FA_CAUSAL_BOTTOM_RIGHT], options, diag);
    if (!follows)
        return fa_fail(diag, FA_EINVAL, "%s needs a value: %s %s", spec->name, spec->name,
                       spec->value);
    return cli_option_set(spec, arguments[(*at)++], options, diag);
}

/* What no single option can tell: lengths that are missing, options that exclude one another. */
static int complete(const cli_verb *verb, cli_options *options, fa_diag *diag)
{
    fa_problem *problem = &options->problem;
    const char *missing = next_operand(verb, options);
    if (missing != NULL && missing[0] != '[')
        return fa_fail(diag, FA_EINVAL, "`fa-tune %s` needs %s: see `fa-tune %s --help`",
                       verb->name, missing, verb->name);
    if ((options->gpu != NULL || options->sweep.gpu != NULL) && options->device >= 0)
        return fa_fail(diag, FA_EINVAL,
                       "--gpu and --device exclude one another: --gpu names a "
                       "type, --device a device of this machine");
    if (options->server != NULL && options->templates != NULL)
        return fa_fail(diag, FA_EINVAL, "--server and --templates exclude one another: a service has "
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
    if (problem->seq_q < 0)
        problem->seq_q = options->seq;
    if (problem->seq_k < 0)
        problem->seq_k = options->seq;
    if (problem->seq_q < 0 && problem->seq_k < 0)
        return fa_fail(diag, FA_EINVAL,
                       "the sequence length is missing: add --seq N, as in "
                       "`fa-tune --gpu L4 --seq 512`");
    if (problem->seq_q < 0 || problem->seq_k < 0)
        return fa_fail(diag, FA_EINVAL, "%s is missing: give it beside %s, or --seq for both",
                       problem->seq_q < 0 ? "--seq-q" : "--seq-k",
                       problem->seq_q < 0 ? "--seq-k" : "--seq-q");
    if (problem->heads_kv < 0)
        problem->heads_kv = problem->heads_q;
    if (problem->heads_q % problem->heads_kv != 0)
        return fa_fail(diag, FA_EINVAL,
                       "--heads-kv %d does not divide --heads %d: use one of its "
                       "divisors",
                       problem->heads_kv, problem->heads_q);
    return fa_problem_check(problem, diag);
}

int cli_options_parse(const cli_verb *verb, int count, char **arguments, cli_options *ret_options,
                      fa_diag *diag)
{
    cli_options options = {
        .device = -1,
        .seq = -1,
        .problem =
            {.head_dim = 64, .batch = 4, .heads_q = 8, .heads_kv = -1, .seq_q = -1, .seq_k = -1},
        .effort = FA_EFFORT_MEASURE,
        .margin = 5,
    };
    if (verb->groups & CLI_GROUP_FILTER)
        options.problem = (fa_problem){.dtype = (fa_dtype)CLI_UNSET,
                                       .causal = (fa_causal)CLI_UNSET,
                                       .layout = (fa_layout)CLI_UNSET,
                                       .head_dim = CLI_UNSET,
                                       .batch = CLI_UNSET,
                                       .heads_q = CLI_UNSET,
                                       .heads_kv = CLI_UNSET,
                                       .seq_q = CLI_UNSET,
                                       .seq_k = CLI_UNSET};
    for (int at = 0; at < count;) {
        int rc = parse_one(verb, count, arguments, &at, &options, diag);
        if (rc != 0)
            return rc;
    }
    int rc = options.help ? 0 : complete(verb, &options, diag);
    if (rc == 0)
        *ret_options = options;
    return rc;
}

void cli_options_help(unsigned groups, fa_buf *out)
{
    const cli_option_spec *spec;
    for (size_t at = 0; (spec = next_spec(&at)) != NULL;) {
        if (spec->group != ANY_VERB && !(spec->group & groups))
            continue;
        char left[64];
        snprintf(left, sizeof left, "%s %s", spec->name, spec->value != NULL ? spec->value : "");
        fa_buf_printf(out, "  %-19s  %s\n", left, spec->help);
    }
}

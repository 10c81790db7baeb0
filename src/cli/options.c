/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of options, and what verbs take beside them; the options that come from an operation's file: one for each field,
 * lists of values for sweeps, shorthands of several fields; and the value of one option: from its text to its field, or a
 * sentence that says what it takes.
 */
#include "options.h"

#include "error.h"
#include "json.h"
#include "problem.h"
#include "text.h"
#include "words.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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

/* ---- what must be given ---------------------------------------------------------------------*/
uint32_t cli_given(const cli_options *options)
{
    return options->given | options->given_also;
}

int cli_problem_complete(cli_options *options, fa_diag *diag)
{
    const fa_operation *operation = fa_operation_of(&options->request.problem);
    for (int i = 0; i < operation->field_count; i++) {
        const fa_field *f = &operation->field[i];
        if ((f->required || f->also[0] != 0) && !(cli_given(options) >> i & 1))
            return fa_fail(
                diag, FA_EINVAL, "%s N is missing%s%s", f->also[0] != 0 ? f->also : f->option,
                operation->example[0] != 0 ? ", as in fa-tune " : "", operation->example);
    }
    fa_problem_fill(&options->request.problem, cli_given(options));
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

/* Sets what the shorthand stands for, but for fields with an option of their own; `text` must outlive the options. */
static int set_shorthand(int index, const char *text, cli_options *options, fa_diag *diag)
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

/* A choice's index is its value. */
static const char *const strategies[] = {"exhaustive", "random", "surrogate", "auto", NULL};
static const char *const reports[] = {"html", "json", "md", "csv", NULL};
static const char *const efforts[] = {"cached", "predict", "measure", "patient", NULL};

#define ANY_VERB (1u << 31)
enum { PROBLEM = CLI_GROUP_PROBLEM | CLI_GROUP_FILTER | CLI_GROUP_SWEEP };

/* Rows of the kinds that most have. */
#define IN(group) CLI_GROUP_##group
#define NUMBER(name, groups, kind, member, low, high, value, help)              \
    {                                                                           \
        name, groups, KIND_##kind, CLI_AT(member), low, high, NULL, value, help \
    }
#define FLAG(name, groups, member, help) NUMBER(name, groups, FLAG, member, 0, 0, NULL, help)
#define TEXT(name, groups, member, value, help) \
    NUMBER(name, groups, TEXT, member, 0, 0, value, help)

enum { YEAR = 31536000, MAY_BE_EMPTY = 1 };

static const cli_option_spec specs[] = {
    {.kind = KIND_HEADING, .help = "Problem and GPU"},
    TEXT("--gpu", IN(GPU), request.gpu, "NAME",
         "GPU type, present or not (fa-tune gpus lists them)"),
    NUMBER("--device", IN(DEVICE), INTEGER, request.ordinal, 0, 1023, "N",
           "CUDA ordinal of the GPU here (0)"),
    TEXT("--gpu", IN(SWEEP), sweep.gpu, "LIST", "GPU types, as L4,A100,H100 (the one here)"),
    {.kind = KIND_HERE},
    TEXT("--operation", PROBLEM, operation, "NAME", "what is computed (attn_fwd)"),
    FLAG("--exact", IN(PROBLEM) | IN(SWEEP), request.exact,
         "tune the given lengths themselves, not their bucket"),
    TEXT("--same-bits", IN(PROBLEM) | IN(SWEEP), same_bits, "default",
         "only configs whose outputs have the bits of the default config's, on the given lengths"),
    TEXT("--plan", IN(SWEEP), sweep.plan, "FILE", "problems from JSON lines instead of a grid"),
    FLAG("--training", IN(SWEEP), sweep.training,
         "each problem with its log-sum-exp, and the problem of its gradients"),

    {.kind = KIND_HEADING, .help = "Serving"},
    NUMBER("--socket", IN(SERVE), TEXT, serve.socket, 0, MAY_BE_EMPTY, "PATH",
           "Unix socket to listen on; \"\" for none ($XDG_RUNTIME_DIR/fa-tune.sock)"),
    TEXT("--tcp", IN(SERVE), serve.tcp, "[HOST:]PORT",
         "listen on TCP too, on 127.0.0.1 unless HOST is given; needs --token-file"),
    TEXT("--token-file", IN(SERVE), serve.token_file, "FILE",
         "file with the word that TCP clients must send as \"Authorization: Bearer …\""),
    FLAG("--page", IN(SERVE), serve.page,
         "print the address of the page; without --tcp on a free port of 127.0.0.1, without "
         "--token-file with a token that is good until the service stops"),
    NUMBER("--wait", IN(SERVE), SECONDS, serve.wait_s, 0, YEAR, "TIME",
           "how long a request waits for its tune if it names no time itself (600s)"),
    NUMBER("--max-connections", IN(SERVE), INTEGER, serve.connections, 1, 65536, "N",
           "most connections at a time, over the Unix socket and over TCP (2048)"),
    NUMBER("--max-tunes", IN(SERVE), INTEGER, serve.tunes, 1, 65536, "N",
           "most requests that wait for a tune; further ones are told to come back (2048)"),
    NUMBER("--idle-timeout", IN(SERVE), SECONDS, serve.idle_s, 0, YEAR, "TIME",
           "how long a connection may be silent, unless it waits for an answer (60s)"),
    FLAG("--openapi", IN(SERVE), serve.openapi,
         "print the description of the API, as GET /openapi.json gives it"),

    {.kind = KIND_HEADING, .help = "Tuning"},
    {"--effort", IN(EFFORT), KIND_CHOICE, CLI_AT(request.effort), 0, 0, efforts, "HOW",
     "cached (only look it up), predict (compile and rank), measure (time kernels that are ready, else what may "
     "win) or patient (time the whole space); without it what may win is timed once"},
    FLAG("--again", IN(EFFORT), request.again,
         "tune although a winner is stored; recorded trials count"),
    NUMBER("--jobs", IN(TUNE) | IN(SERVE), INTEGER, jobs, 1, 1024, "N",
           "compile workers (one per core)"),
    NUMBER("--compile-timeout", IN(TUNE) | IN(SERVE), SECONDS, compile_timeout_s, 0, 3600, "TIME",
           "limit for one compile (30s; serve: 5m)"),
    NUMBER("--trial-timeout", IN(TUNE) | IN(SERVE), SECONDS, trial_timeout_s, 0, 3600, "TIME",
           "limit for proving and timing one config (20s)"),
    NUMBER("--memory", IN(TUNE) | IN(CHECK), BYTES, memory, 0, 0, "SIZE",
           "most GPU memory for a tune's tensors: 8G, 512M (half of what is free)"),
    NUMBER("--seed", IN(TUNE), SEED, seed, 0, ((int64_t)1 << 53) - 1, "N",
           "seed of the inputs (0: a new one, kept with each trial)"),
    {"--strategy", IN(SEARCH) | IN(SWEEP), KIND_TEXT, CLI_AT(request.strategy), 0, 0, strategies,
     "NAME", "exhaustive, random, surrogate or auto"},

    {.kind = KIND_HEADING, .help = "Budget"},
    NUMBER("--evaluations", IN(SEARCH) | IN(SWEEP), INTEGER, request.evaluations, 1, 20000, "N",
           "most configs of a problem to measure in all runs (all; 500 of more than 20,000)"),
    NUMBER("--time", IN(SEARCH), SECONDS, request.seconds, 0, YEAR, "TIME",
           "start no more compiles after this long: 90s, 30m, 2h"),
    NUMBER("--time", IN(SWEEP_RUN), SECONDS, sweep.seconds, 0, YEAR, "TIME",
           "stop after this long in all runs: 90s, 30m, 2h"),
    NUMBER("--time-each", IN(SWEEP), SECONDS, request.seconds, 0, YEAR, "TIME",
           "start no more compiles of a problem after this long"),
    NUMBER("--trials", IN(SWEEP_RUN), INTEGER, sweep.trials, 1, INT32_MAX, "N",
           "stop after this many configs in all runs"),

    {.kind = KIND_HEADING, .help = "Task"},
    FLAG("--restart", IN(SWEEP_RUN), sweep.restart,
         "forget this sweep's earlier runs; winners stay"),
    FLAG("--enqueue", IN(SWEEP_RUN), fleet.enqueue,
         "add the sweep to the store's queue and return"),
    FLAG("--once", IN(WORKER), fleet.once, "exit after one problem"),
    NUMBER("--idle-exit", IN(WORKER), SECONDS, fleet.idle_exit_s, 0, YEAR, "TIME",
           "exit after this long without work (never)"),
    TEXT("--stop", IN(QUEUE), fleet.stop, "KEY", "stop this sweep until it is enqueued again"),
    NUMBER("--config", IN(RUN), INTEGER, launch.config, 1, 1000000, "N",
           "the config, by its number in fa-tune explain (1)"),
    NUMBER("--launches", IN(RUN), INTEGER, launch.count, 1, 1000000, "N",
           "calls after the proof (1)"),
    FLAG("--why", IN(WHY), why, "explain which winner the problem gets, and why"),
    TEXT("--out", IN(REPORT), out, "FILE", "the file; else standard output"),
    {"--format", IN(REPORT), KIND_CHOICE, CLI_AT(format), 0, 0, reports, "FORM",
     "html, a page; json, its document; md or csv, a table of the problems (html)"},
    TEXT("--out", IN(EXPORT), bundle.out, "FILE", "the bundle to write, as in l4.fab"),
    TEXT("--key", IN(EXPORT), bundle.key, "FILE",
         "secret key that signs it (that of fa-tune keygen)"),
    FLAG("--unsigned", IN(EXPORT), bundle.no_signature, "imports then need --allow-unsigned"),
    TEXT("--from-records", IN(EXPORT), bundle.from_records, "FILE",
         "winners of this file of records, compiled here"),
    FLAG("--allow-unsigned", IN(IMPORT), bundle.allow_unsigned, "accept an unsigned bundle"),
    FLAG("--all", IN(FORGET), forget_all, "all winners"),
    FLAG("--dry-run", IN(IMPORT) | IN(FORGET), dry_run,
         "list what would change, and change nothing"),

    {.kind = KIND_HEADING, .help = "Stores and templates"},
    TEXT("--store", IN(STORE), store, "FILE", "(FA_TUNE_STORE, else ~/.cache/fa-tune/store.db)"),
    TEXT("--server", IN(SERVER), server, "ADDRESS",
         "service to ask: unix:/PATH, http://HOST:PORT (FA_TUNE_SERVER)"),
    TEXT("--templates", IN(ENGINE), templates, "DIR",
         "templates beside the built-in ones, or in their place"),

    {.kind = KIND_HEADING, .help = "Output"},
    NUMBER("--top", IN(TOP), INTEGER, top, 1, 1000000, "N",
           "rows to print (tune: 10; explain: all)"),
    FLAG("--json", IN(JSON), json, "one JSON document on stdout"),
    FLAG("--no-progress", IN(QUIET), no_progress, "no progress on stderr"),
    FLAG("--quiet", IN(QUIET), quiet, "nothing on stderr but errors"),
    FLAG("--help", ANY_VERB, help, "this text"),
};

static const char *const lettered[] = {"--help", "--jobs", "--out", "--quiet"};

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
    const cJSON *item;
    problem->count = 0;
    problem->sweeps = (groups & CLI_GROUP_SWEEP) != 0;
    for (int i = 0; i < operation->field_count; i++)
        if (is_list(&operation->field[i]))
            add_field(problem, operation, i);
    for (int i = 0; i < operation->field_count; i++)
        if (!is_list(&operation->field[i]) && operation->field[i].option[0] != 0)
            add_field(problem, operation, i);
    for (int i = 0; (item = shorthand_at(operation, i)) != NULL; i++)
        problem->row[problem->count++].spec =
            (cli_option_spec){.name = fa_json_string(item, "option"),
                              .group = OF_PROBLEM,
                              .kind = KIND_SHORTHAND,
                              .low = i,
                              .value = fa_json_string(item, "value"),
                              .help = fa_json_string(item, "help")};
    ret_list->count = 0;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        if (specs[i].kind != KIND_HERE)
            join(ret_list, groups, &specs[i]);
        for (size_t row = 0; specs[i].kind == KIND_HERE && row < problem->count; row++)
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
    return groups & CLI_GROUP_IMPORT  ? "FILE"
           : groups & CLI_GROUP_SHOW  ? "[FILE]"
           : groups & CLI_GROUP_SERVE ? "[FILE.cu …]"
                                      : NULL;
}

/* ---- values ---------------------------------------------------------------------------------*/
bool cli_parse_digits(const char *text, int64_t least, int64_t most, int64_t *ret)
{
    if (text[0] == 0 || strspn(text, "0123456789") != strlen(text))
        return false;
    errno = 0;
    const long long value = strtoll(text, NULL, 10);
    if (errno != 0 || value < least || value > most)
        return false;
    *ret = value;
    return true;
}

int cli_integer_set(const cli_option_spec *spec, const fa_field *field, const char *text,
                    int32_t *ret, fa_diag *diag)
{
    int64_t value = 0;
    const int64_t low = field != NULL ? field->min : spec->low;
    const int64_t high = field != NULL ? field->max : spec->high;
    const int step = field != NULL && field->multiple > 1 ? field->multiple : 1;
    char kind[40] = "whole number", what[400];
    if (cli_parse_digits(text, 0, INT64_MAX, &value) && value >= low && value <= high &&
        value % step == 0)
        return fa_field_keep(field != NULL ? field : &(fa_field){.name = ""}, value, ret, diag);
    if (step > 1)
        snprintf(kind, sizeof kind, "multiple of %d", step);
    if (field != NULL && value > high && field->above[0] != 0)
        return fa_fail(diag, FA_EINVAL, "%s: \"%.40s\": %s", spec->name, text, field->above);
    snprintf(what, sizeof what, "a %s (%lld to %lld%s)", kind, (long long)low, (long long)high,
             step > 1 ? "; pad the tensors" : "");
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

int cli_refuse_choice(const char *option, const char *text, const char *const *choices,
                      fa_diag *diag)
{
    FA_ENDS(fa_buf_free) fa_buf list = {0};
    fa_words_or(&list, choices);
    return cli_refuse(option, text, list.data != NULL ? list.data : "known", choices, diag);
}

/* Every enum of the API is stored as 32 bits. */
static int set_choice(const cli_option_spec *spec, const char *const *choices, const char *text,
                      void *ret, fa_diag *diag)
{
    for (int32_t i = 0; choices[i] != NULL; i++)
        if (strcasecmp(choices[i], text) == 0) {
            memcpy(ret, &i, sizeof i);
            return 0;
        }
    return cli_refuse_choice(spec->name, text, choices, diag);
}

_Static_assert(sizeof(fa_effort) == sizeof(int32_t), "set_choice stores 32 bits");

static int set_field(const cli_option_spec *spec, const char *text, cli_options *options,
                     fa_diag *diag)
{
    int index = cli_option_field(spec);
    const fa_field *field = &fa_operation_of(&options->request.problem)->field[index];
    int32_t *value = &options->request.problem.value[index];
    options->given |= 1u << index;
    if (field->kind == FA_FIELD_INTEGER)
        return cli_integer_set(spec, field, text, value, diag);
    if (field->kind == FA_FIELD_CHOICE)
        return set_choice(spec, field->choice, text, value, diag);
    if (field->kind == FA_FIELD_TEXT)
        return fa_set_field(&options->request.problem, field->name, text, diag);
    *value = 1; /* a flag */
    return 0;
}

/* Sets every field that names this option and that no option of its own has set. */
static int set_also(const cli_option_spec *spec, const char *text, cli_options *options,
                    fa_diag *diag)
{
    const fa_operation *operation = fa_operation_of(&options->request.problem);
    int32_t value = 0;
    int rc = cli_integer_set(spec, &operation->field[cli_option_field(spec)], text, &value, diag);
    for (int i = 0; rc == 0 && i < operation->field_count; i++) {
        if (strcmp(operation->field[i].also, spec->name) != 0)
            continue;
        options->given_also |= 1u << i;
        if (!(options->given >> i & 1))
            options->request.problem.value[i] = value;
    }
    return rc;
}

int cli_option_set(const cli_option_spec *spec, const char *text, cli_options *options,
                   fa_diag *diag)
{
    void *field = (char *)options + spec->offset;
    int64_t whole;
    char what[64];
    switch (spec->kind) {
    case KIND_FLAG:
        *(bool *)field = true;
        return 0;
    case KIND_INTEGER:
        return cli_integer_set(spec, NULL, text, field, diag);
    case KIND_SEED:
        snprintf(what, sizeof what, "a whole number (0 to %lld)", (long long)spec->high);
        if (!cli_parse_digits(text, 0, spec->high, &whole))
            return cli_refuse(spec->name, text, what, NULL, diag);
        *(uint64_t *)field = (uint64_t)whole;
        return 0;
    case KIND_SECONDS:
        snprintf(what, sizeof what, "a time (90s, 30m, %s)",
                 spec->high > 86400 ? "2h, 3d; at most a year" : "1h; at most an hour");
        return fa_duration_parse(text, (double)spec->high, field)
                   ? 0
                   : cli_refuse(spec->name, text, what, NULL, diag);
    case KIND_BYTES:
        return set_bytes(spec, text, field, diag);
    case KIND_TEXT:
        *(const char **)field = text;
        return text[0] != 0 || spec->high == MAY_BE_EMPTY
                   ? 0
                   : cli_refuse(spec->name, text, spec->value, NULL, diag);
    case KIND_CHOICE:
        return set_choice(spec, spec->choices, text, field, diag);
    case KIND_FIELD:
        return set_field(spec, text, options, diag);
    case KIND_ALSO:
        return set_also(spec, text, options, diag);
    case KIND_SHORTHAND:
        return set_shorthand((int)spec->low, text, options, diag);
    default:
        return FA_EINVAL;
    }
}

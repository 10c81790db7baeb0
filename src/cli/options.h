/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line as data: one table of options, and which groups of them a verb takes.
 *
 * Workload: once per process. Every value is checked here, so that a verb sees only values that
 * the library takes. `--option=value` and `--option value` are the same; a later one wins.
 * Help is made from the same table: for people, wrapped to their terminal, and as JSON, from which manual pages and
 * completions are made.
 */
#ifndef FA_CLI_OPTIONS_H
#define FA_CLI_OPTIONS_H

#include "fa_tune.h"

#include "buf.h"
#include "operation.h"

#include <cJSON.h>
#include <stdbool.h>
#include <stddef.h>

/* ---- options --------------------------------------------------------------------------------*/
enum {
    CLI_GROUP_PROBLEM = 1, /* what is to be computed */
    CLI_GROUP_GPU = 2,     /* --gpu */
    CLI_GROUP_DEVICE = 4,  /* --device */
    CLI_GROUP_TUNE = 8,    /* what tuning may take: workers, time */
    CLI_GROUP_STORE = 16,  /* --store */
    CLI_GROUP_ENGINE = 32, /* --templates */
    CLI_GROUP_QUIET = 64,  /* what stderr gets */
    CLI_GROUP_JSON = 128,
    CLI_GROUP_TOP = 256,
    CLI_GROUP_WHY = 512, /* --why: the whole problem is needed with it, and filters without */
    CLI_GROUP_RUN = 1 << 10,
    CLI_GROUP_SWEEP_RUN = 1 << 11, /* of a sweep's run, and not of what it sweeps */
    CLI_GROUP_FILTER = 1 << 14,    /* problems to keep: what is not given stays unset */
    CLI_GROUP_REPORT = 1 << 15,    /* --out */
    CLI_GROUP_EXPORT = 1 << 16,
    CLI_GROUP_IMPORT = 1 << 17,
    CLI_GROUP_SERVE = 1 << 19, /* files of kernels stand among its options */
    CLI_GROUP_SHOW = 1 << 20,
    CLI_GROUP_SWEEP = 1 << 21, /* a grid of problems and what it may spend */
    CLI_GROUP_WORKER = 1 << 23,
    CLI_GROUP_QUEUE = 1 << 24,
    CLI_GROUP_SERVER = 1 << 25, /* --server */
    CLI_GROUP_EFFORT = 1 << 26, /* how well it is to be tuned */
    CLI_GROUP_FORGET = 1 << 27,
    CLI_GROUP_SEARCH = 1 << 29, /* how a space is searched, and what that may spend */
    CLI_GROUP_CHECK = 1 << 30   /* the file of a kernel comes first */
};

/* The verbs that take the file of a kernel before anything else. */
#define CLI_GROUPS_SPECIFIED \
    (CLI_GROUP_PROBLEM | CLI_GROUP_FILTER | CLI_GROUP_SWEEP | CLI_GROUP_WORKER)

/* What `serve` takes, here and in the program that it becomes. */
#define CLI_GROUPS_SERVE (CLI_GROUP_SERVE | CLI_GROUP_STORE | CLI_GROUP_ENGINE)

enum { CLI_SHORTHANDS_MAX = 8, CLI_FILES_MAX = 64 };
typedef struct cli_options {
    bool help;
    fa_request request;    /* of the operation's problem; defaults stand for what was not given */
    const char *operation; /* NULL: the default one */
    const char *same_bits; /* NULL: not given */
    uint32_t given;        /* bit i: field i of the problem was */
    uint32_t given_also;   /* by an option of several fields; one of its own has precedence */
    const char *shorthand[CLI_SHORTHANDS_MAX]; /* as typed, "" without a value; NULL: not given */
    bool why, quiet, json, no_progress;
    int32_t jobs;                               /* 0: one per core */
    double compile_timeout_s, trial_timeout_s;  /* 0: the library's */
    int32_t top;                                /* 0: not given */
    uint64_t seed;
    const char *specification; /* a file of one kernel; NULL: not given */
    const char *store, *templates, *server;
    const char *out; /* file; NULL: stdout */
    int32_t format;  /* of a report: html, json, md or csv; -1: not given */
    struct {         /* of export and import */
        const char *out, *key, *from_records;
        bool no_signature, allow_unsigned;
    } bundle;
    bool dry_run;           /* of import and rm */
    bool forget_all;        /* of rm */
    struct { /* of a sweep: lists as they were typed, by field, NULL where not */
        const char *gpu, *values[FA_PROBLEM_VALUES];
        int32_t product[FA_PRODUCTS_MAX]; /* 0: not given */
        const char *plan;
        double seconds; /* 0: not given */
        int32_t trials;
        bool restart, training;
    } sweep;
    struct { /* of a store's queue */
        bool enqueue, once;
        const char *stop;   /* a sweep's key, or its beginning */
        double idle_exit_s; /* 0: not given */
    } fleet;
    int64_t memory; /* of the GPU, for a tune; 0: not given */
    struct {        /* of run */
        int32_t config, count;
    } launch;
    struct {                                   /* of serve */
        const char *socket, *tcp, *token_file; /* socket: "" for none */
        double wait_s, idle_s;
        int32_t connections, tunes;
        bool page, openapi;
        const char *file[CLI_FILES_MAX];
        int files;
    } serve;
    const char *operand;             /* what stands beside the options; or NULL */
    char typed[sizeof((fa_sweep *)NULL)->plan]; /* what makes a sweep's grid */
} cli_options;

enum {
    CLI_READS = 1,     /* a tuner that makes no store where none is */
    CLI_KEEPS = 2,     /* a tuner that does */
    CLI_KNOWN_GPU = 4, /* a name for --gpu that the catalogue has */
    CLI_STOPS = 8      /* Ctrl-C as a wish (run.h) */
};
/* A verb: its name, the option groups it takes and what it does (run.h). */
struct cli_run;
typedef struct cli_verb {
    const char *name;
    unsigned groups;
    const char *summary; /* one line */
    const char *details; /* paragraphs of its --help */
    int (*run)(struct cli_run *run); /* NULL: another program */
    unsigned needs;                  /* before it runs: CLI_READS … */
    const char *heading;             /* above it and those behind it in the overview; or NULL */
} cli_verb;

/* Bit i: field i of the problem was given, by whichever option. */
uint32_t cli_given(const cli_options *options);

/* Whether an argument that stands first names a kernel specification: NAME.cu or NAME.json. */
bool cli_names_specification(const char *argument);

/* The library's options for those given here. */
fa_options cli_library_options(const cli_options *options);

/* Parses the arguments after the verb; typed: it was given, else the default one is meant. FA_EINVAL with a sentence: what,
 * where, what to do. */
int cli_options_parse(const cli_verb *verb, bool typed, int count, char **arguments,
                      cli_options *ret_options, fa_diag *diag);

/* Digits only: no sign, no space, no base prefix. false when there is anything else, or the number is out of its range;
 * *ret is then left alone. */
bool cli_parse_digits(const char *text, int64_t least, int64_t most, int64_t *ret);

/* ---- what a sweep is to tune (grid.c) --------------------------------------------------------*/
/* Every combination of the lists that were typed, or the lines of a plan.
 *
 * Lists are numbers or names between commas; 512:16384:x2 multiplies and 512:2048:+512 adds, up to
 * and with the end. Everything is checked before anything runs, and the number of problems is bounded. */
typedef struct cli_grid {
    fa_sweep_item *item;
    int32_t count;
    size_t capacity;
} cli_grid;

void cli_grid_free(cli_grid *grid);

/* The problems that the options ask for; FA_EINVAL, FA_ENOTFOUND or FA_ENOTSUP with a sentence. */
int cli_grid_make(const cli_options *options, cli_grid *ret_grid, fa_diag *diag);

/* ---- the rows of the options, for the files that hold a table of them or read values ----------*/
typedef enum cli_option_kind {
    KIND_FLAG,      /* bool */
    KIND_INTEGER,   /* int32_t in [low, high] */
    KIND_SEED,      /* uint64_t up to `high` */
    KIND_SECONDS,   /* double in (0, high] from "90", "90s", "30m" or "2h" */
    KIND_BYTES,     /* int64_t, from a size as "8G" */
    KIND_TEXT,      /* const char *, not empty */
    KIND_CHOICE,    /* an enum, one of `choices` */
    KIND_FIELD,     /* a field of the problem; a flag sets it to 1 */
    KIND_ALSO,      /* every field of the problem that names it */
    KIND_SHORTHAND, /* several fields of the problem; `low` is its number */
    /* In the table of options: a heading of the help, which is `help`, and where the operation's stand. */
    KIND_HEADING,
    KIND_HERE
} cli_option_kind;

typedef struct cli_option_spec {
    const char *name;
    unsigned group;
    cli_option_kind kind;
    size_t offset; /* of the value in cli_options */
    int64_t low, high;
    const char *const *choices;
    const char *value; /* its name in the help */
    const char *help;
} cli_option_spec;

/* Index of the field whose value, or whose list of values, an option sets; -1: it sets none, or several. */
int cli_option_field(const cli_option_spec *spec);

#define CLI_AT(field) offsetof(cli_options, field)

/* A whole number as the field takes it, or the option where `field` is NULL: no field of a problem (options.c). */
int cli_integer_set(const cli_option_spec *spec, const fa_field *field, const char *text,
                    int32_t *ret, fa_diag *diag);
/* FA_EINVAL: the text is none of the choices (options.c). */
int cli_refuse_choice(const char *option, const char *text, const char *const *choices,
                      fa_diag *diag);
/* Reads a value's text into its field; text is NULL for a flag (options.c). */
int cli_option_set(const cli_option_spec *spec, const char *text, cli_options *options,
                   fa_diag *diag);

/* The options that an operation's fields make. */
enum { CLI_PROBLEM_OPTIONS_MAX = 2 * FA_PROBLEM_VALUES + FA_PRODUCTS_MAX + CLI_SHORTHANDS_MAX };
typedef struct cli_problem_options {
    struct {
        cli_option_spec spec;
        char value[128], help[320];
    } row[CLI_PROBLEM_OPTIONS_MAX];
    size_t count;
    bool sweeps;  /* values are lists */
} cli_problem_options;

/* The options that verbs of these groups take, in the order of their help, and their headings (options.c). */
enum { CLI_SPECS_MAX = 96, CLI_OPTIONS_MAX = CLI_SPECS_MAX + CLI_PROBLEM_OPTIONS_MAX };
typedef struct cli_option_list {
    cli_problem_options problem;
    const cli_option_spec *spec[CLI_OPTIONS_MAX];
    size_t count;
} cli_option_list;
void cli_option_list_make(unsigned groups, const fa_operation *operation,
                          cli_option_list *ret_list);
/* The option of that name; NULL: there is none. */
const cli_option_spec *cli_option_find(const cli_option_list *list, const char *name,
                                       size_t length);
/* The letter that stands for an option behind one dash, and the name that it stands for; 0 and "": none. */
char cli_option_letter(const cli_option_spec *spec);
const char *cli_option_of_letter(char letter);
/* What verbs of these groups take beside options, in brackets where it may be left out; NULL: nothing. */
const char *cli_operand(unsigned groups);

/* Values that were not given become their defaults; FA_EINVAL for those that must be given. */
int cli_problem_complete(cli_options *options, fa_diag *diag);

/* The option that gives a sweep the list of this field's values; NULL: it has one value. */
const char *cli_sweep_option(const fa_operation *operation, int field);

/* FA_EINVAL where a sweep's list has other values for a field than a shorthand. */
int cli_shorthand_check(const cli_options *options, fa_diag *diag);

#endif

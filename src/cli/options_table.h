/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of the command line's options, for the files that hold a table of them or read values.
 */
#ifndef FA_CLI_OPTIONS_TABLE_H
#define FA_CLI_OPTIONS_TABLE_H

#include "options.h"

typedef enum cli_option_kind {
    KIND_FLAG,      /* bool */
    KIND_INTEGER,   /* int32_t in [low, high] */
    KIND_SEED,      /* uint64_t up to `high` */
    KIND_DECIMAL,   /* double in (0, high]: digits with or without a point */
    KIND_SECONDS,   /* double in (0, high] from "90", "90s", "30m" or "2h" */
    KIND_BYTES,     /* int64_t, from a size as "8G" */
    KIND_TEXT,      /* const char *, not empty */
    KIND_CHOICE,    /* an enum, one of `choices` */
    KIND_FIELD,     /* a field of the problem; a flag sets it to `low` */
    KIND_ALSO,      /* every field of the problem that names it */
    KIND_SHORTHAND, /* several fields of the problem; `low` is its number */
    /* In the table of options: a heading of the help, which is `help`, and where the operation's stand: those of
     * values and lists, of flags. */
    KIND_HEADING,
    KIND_HERE_VALUES,
    KIND_HERE_FLAGS
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
/* Reads a value's text into its field; text is NULL for a flag (options.c). */
int cli_option_set(const cli_option_spec *spec, const char *text, cli_options *options,
                   fa_diag *diag);

/* The options that an operation's fields make (options_problem.c). */
enum { CLI_PROBLEM_OPTIONS_MAX = 3 * FA_PROBLEM_VALUES + FA_PRODUCTS_MAX + CLI_SHORTHANDS_MAX };
typedef struct cli_problem_options {
    struct {
        cli_option_spec spec;
        char value[128], help[320];
    } row[CLI_PROBLEM_OPTIONS_MAX];
    size_t count;
    size_t flags; /* rows from here on stand at KIND_HERE_FLAGS */
} cli_problem_options;
void cli_problem_options_make(const fa_operation *operation, cli_problem_options *ret_options);

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

/* Values that were not given become their defaults; FA_EINVAL for those that must be given, with an example of
 * that verb. */
int cli_problem_complete(cli_options *options, const char *verb, fa_diag *diag);
/* fa_problem_check(), with the options' names where one field must divide another. */
int cli_problem_check(const fa_problem *problem, fa_diag *diag);

/* The option that gives a sweep the list of this field's values; NULL: it has one value. */
const char *cli_sweep_option(const fa_operation *operation, int field);

/* ---- shorthands -----------------------------------------------------------------------------*/
/* Sets what the shorthand stands for; `text` must outlive the options. */
int cli_shorthand_set(int index, const char *text, cli_options *options, fa_diag *diag);
/* FA_EINVAL where a sweep's list has other values for a field than a shorthand. */
int cli_shorthand_check(const cli_options *options, fa_diag *diag);

/* Adds the names that --model takes to a JSON array. */
void cli_options_models(const fa_operation *operation, cJSON *names);

/* Sets fields from an object of texts, which must outlive the options; keep: one that was given stays. */
int cli_fields_set(cli_options *options, const cJSON *set, bool keep, const char *option,
                   fa_diag *diag);

/* The layers that --model names (models.c), each once for each kind of work that is asked of it: an array of objects of
 * fields, which is the caller's and outlives the options that are made of it. */
int cli_model_layers(const cli_options *options, cJSON **ret_layers, fa_diag *diag);

#endif

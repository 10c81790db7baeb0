/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of the command line's options, for the files that hold a table of them or read values.
 */
#ifndef FA_CLI_OPTIONS_TABLE_H
#define FA_CLI_OPTIONS_TABLE_H

#include "options.h"

typedef enum cli_option_kind {
    KIND_FLAG,    /* bool */
    KIND_INTEGER, /* int32_t in [low, high] */
    KIND_SEED,    /* uint64_t up to `high` */
    KIND_DECIMAL, /* double in [0, high]: digits with or without a point; "%" may follow a margin */
    KIND_SECONDS, /* double in (0, high] from "90s", "30m" or "2h" */
    KIND_TEXT,    /* const char *, not empty */
    KIND_CHOICE,  /* an enum, one of `choices` */
    KIND_CAUSAL   /* like CHOICE, with bottom-right when no value follows */
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

#define CLI_AT(field) offsetof(cli_options, field)

/* Reads a value's text into its field; text is NULL for a flag (option_value.c). */
int cli_option_set(const cli_option_spec *spec, const char *text, cli_options *options,
                   fa_diag *diag);

/* Of working on a fleet's queue (options_fleet.c). */
extern const cli_option_spec cli_options_fleet[];
extern const size_t cli_options_fleet_count;

#endif

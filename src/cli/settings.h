/* SPDX-License-Identifier: Apache-2.0
 *
 * Settings of files: what options of the command line are where they are not given. The nearest `fa-tune.toml` in the
 * current folder or above it is the project's, `fa-tune/config.toml` in the configuration directory is the user's.
 *
 * Both are a strict subset of TOML: lines of KEY = VALUE, where a value is a text in quotes without escapes or a number;
 * comments. Their bytes are anybody's: all is checked.
 *
 * Invariants: the project's file belongs to this user or to root, since another's could ask for a thousand compile workers
 * wherever a folder above is shared, as /tmp is. It says nothing about where kernels come from or go to: whoever can write into a folder that
 * somebody works in would choose the cubins that run on that person's GPU.
 */
#ifndef FA_CLI_SETTINGS_H
#define FA_CLI_SETTINGS_H

#include "fa_types.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

enum { CLI_SETTINGS = 9, CLI_SETTING_MAX = 1024 };

typedef enum cli_settings_file { CLI_FILE_PROJECT, CLI_FILE_USER, CLI_FILES } cli_settings_file;

typedef struct cli_setting {
    char value[CLI_SETTING_MAX]; /* "" where no file has it */
    cli_settings_file file;
    int line;
    bool exported; /* its variable says it now */
} cli_setting;

typedef struct cli_settings {
    cli_setting setting[CLI_SETTINGS];
    char path[CLI_FILES][PATH_MAX]; /* "": there is no such place, or no file in it */
    bool found[CLI_FILES];
    char foreign
        [PATH_MAX]; /* a project's file that belongs to another user, and is not read; "": there is none */
} cli_settings;

/* The keys, each the name of an option without its dashes. */
extern const struct cli_setting_key {
    const char *name;
    const char *variable; /* which goes before files, or NULL */
    bool empty_counts;    /* an empty variable says something too: there is none */
} cli_setting_keys[CLI_SETTINGS];
/* What the setting's variable says; NULL: nothing, or there is none. */
const char *cli_setting_variable(int index);

/* Reads both files, where they are there. FA_EINVAL with file and line. */
int cli_settings_load(cli_settings *ret_settings, fa_diag *diag);
/* Reads one file's text; the settings of a file that was read before stay. */
int cli_settings_read(const char *text, size_t size, cli_settings_file file, cli_settings *settings,
                      fa_diag *diag);
/* Makes the store and the service of files what their variables would say, where these are not set. */
int cli_settings_export(cli_settings *settings, fa_diag *diag);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The service's options.
 */
#ifndef FA_DAEMON_SETTINGS_H
#define FA_DAEMON_SETTINGS_H

#include "fa_tune.h"
#include "hash.h"

enum { SERVE_TOKEN_MAX = 512, SERVE_FILES_MAX = 64 };

typedef struct serve_settings {
    const char *file[SERVE_FILES_MAX]; /* specifications that are served */
    int32_t files;
    const char *socket; /* NULL: the default; "": none */
    const char *tcp;    /* "": none */
    const char *token_file;
    fa_options library; /* of every session */
    int32_t max_connections, max_tunes;
    int32_t idle_timeout_ms, wait_ms, stop_ms;
    bool page, help, version, openapi;
    char token[SERVE_TOKEN_MAX + 1]; /* "": none */
    unsigned char
        token_hash[FA_HASH_BYTES]; /* compared whole, so that comparing takes constant time */
} serve_settings;

/* FA_EINVAL with a sentence. Texts point into the arguments. */
int serve_settings_read(int count, char **arguments, serve_settings *ret_settings, fa_diag *diag);
void serve_settings_help(void);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The service's options, which the command line reads, and its token.
 */
#ifndef FA_DAEMON_SETTINGS_H
#define FA_DAEMON_SETTINGS_H

#include "hash.h"
#include "options.h"

enum { SERVE_TOKEN_MAX = 512 };

typedef struct serve_settings {
    cli_options options;
    char token[SERVE_TOKEN_MAX + 1]; /* "": none */
    unsigned char
        token_hash[FA_HASH_BYTES]; /* compared whole, so that comparing takes constant time */
} serve_settings;

/* FA_EINVAL with a sentence. Texts point into the arguments. */
int serve_settings_read(int count, char **arguments, serve_settings *ret_settings, fa_diag *diag);

#endif

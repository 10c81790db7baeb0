/* SPDX-License-Identifier: Apache-2.0 */
#include "settings.h"

#include "error.h"
#include "own_place.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

enum { TOKEN_MIN = 16, TOKEN_BYTES = 32 };

static int read_token(serve_settings *settings, fa_diag *diag)
{
    cli_options *options = &settings->options;
    unsigned char bytes[TOKEN_BYTES];
    int rc = 0;
    if (options->serve.token_file != NULL)
        rc = fa_own_token(options->serve.token_file, 077, TOKEN_MIN, sizeof settings->token,
                          settings->token, diag);
    else if (options->serve.tcp != NULL)
        rc = fa_fail(
            diag, FA_EINVAL,
            "--tcp needs --token-file: without it, anybody who reaches the port could use the GPU");
    else if (options->serve.page && getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        rc = fa_fail(diag, FA_EIO, "the kernel gives no random bytes for a token");
    else if (options->serve.page)
        for (size_t i = 0; i < sizeof bytes; i++)
            snprintf(settings->token + 2 * i, 3, "%02x", bytes[i]);
    if (rc == 0 && options->serve.page && options->serve.tcp == NULL)
        options->serve.tcp = "127.0.0.1:0";
    fa_hash_raw(settings->token, strlen(settings->token), settings->token_hash);
    return rc;
}

int serve_settings_read(int count, char **arguments, serve_settings *ret_settings, fa_diag *diag)
{
    static const cli_verb verb = {.name = "serve", .groups = CLI_GROUPS_SERVE};
    *ret_settings = (serve_settings){.token = ""};
    const int rc =
        cli_options_parse(&verb, true, count - 1, arguments + 1, &ret_settings->options, diag);
    return rc != 0 || ret_settings->options.serve.openapi || ret_settings->options.help
               ? rc
               : read_token(ret_settings, diag);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The daemon's settings: flags, and for each flag a variable FA_TUNE_SERVE_… that the flag overrides.
 */
#ifndef FA_DAEMON_SETTINGS_H
#define FA_DAEMON_SETTINGS_H

#include "fa_types.h"
#include "log.h"

enum { SERVE_TOKEN_MIN = 16, SERVE_TOKEN_MAX = 512 };

typedef struct serve_settings {
    const char *socket; /* "": none */
    const char *tcp;    /* "": none */
    const char *token_file;
    const char *store, *templates, *worker; /* NULL: the library's */
    int32_t compile_workers, compile_timeout_s, trial_timeout_s, compile_nice;
    int32_t max_connections, max_jobs, max_sweeps;
    int32_t max_body, max_sweep_body; /* bytes */
    int32_t max_bodies_mib;           /* in memory at a time */
    int32_t head_timeout_s, body_timeout_s, idle_timeout_s, send_timeout_s, link_timeout_s;
    int32_t wait_s; /* how long a request waits for a tune unless the client says */
    int32_t stop_s; /* for jobs to stop */
    int32_t cache_mib;
    int32_t untrusted_templates, log_format, log_level; /* indices of the choices */
    bool allow_user_templates;
    bool open;
    bool help, version, openapi;
    char default_socket[160];
    char identity[1024];          /* the absolute address where it serves; names its journal */
    unsigned char token_hash[32]; /* SHA-256 of the token, so that comparing takes constant time */
    bool has_token;
} serve_settings;

/* FA_EINVAL with a sentence. Texts point into arguments and environment. */
int serve_settings_read(int count, char **arguments, serve_settings *ret_settings, fa_diag *diag);
void serve_settings_help(void);

#endif

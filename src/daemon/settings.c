/* SPDX-License-Identifier: Apache-2.0 */
#include "settings.h"

#include "buf.h"
#include "error.h"
#include "own_place.h"
#include "wording.h"

#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

typedef enum setting_kind {
    KIND_TEXT,
    KIND_INTEGER,
    KIND_DURATION, /* in milliseconds; its bounds are in seconds */
    KIND_FLAG
} setting_kind;

typedef struct setting {
    const char *name;
    setting_kind kind;
    size_t offset;
    int32_t low, high, preset;
    const char *value, *help;
} setting;

enum { TOKEN_MIN = 16, TOKEN_BYTES = 32 };

#define ROW(name, kind, member, low, high, preset, value, help)                             \
    {                                                                                       \
        name, KIND_##kind, offsetof(serve_settings, member), low, high, preset, value, help \
    }
#define TEXT(name, member, value, help) ROW(name, TEXT, member, 0, 0, 0, value, help)
#define COUNT(name, member, low, high, preset, help) \
    ROW(name, INTEGER, member, low, high, preset, "N", help)
#define DURATION(name, member, high, preset, help) \
    ROW(name, DURATION, member, 1, high, preset, "TIME", help)
#define FLAG(name, member, help) ROW(name, FLAG, member, 0, 0, 0, NULL, help)
static const setting table[] = {
    TEXT("socket", socket, "PATH",
         "Unix socket to listen on; \"\" for none ($XDG_RUNTIME_DIR/fa-tune.sock)"),
    TEXT("tcp", tcp, "[HOST:]PORT",
         "listen on TCP too, on 127.0.0.1 unless HOST is given; needs --token-file"),
    TEXT("token-file", token_file, "FILE",
         "file with the word that TCP clients must send as \"Authorization: Bearer …\""),
    FLAG("page", page,
         "print the address of the page; without --tcp on a free port of 127.0.0.1, without "
         "--token-file with a token that is good until the service stops"),
    TEXT("store", library.store, "FILE", "store file (FA_TUNE_STORE)"),
    TEXT("templates", library.templates, "DIR",
         "folder of kernel templates, beside the built-in ones or instead of them "
         "(FA_TUNE_TEMPLATES)"),
    TEXT("worker", library.worker, "FILE", "the program fa-tune-worker (FA_TUNE_WORKER)"),
    COUNT("jobs", library.compile_workers, 0, 256, 0, "compile workers of one tune (one per core)"),
    COUNT("compile-nice", library.compile_nice, 0, 19, 19,
          "niceness of compile workers: at 19 they give way to all other processes"),
    DURATION("compile-timeout", library.compile_timeout_ms, 86400, 300,
             "limit for one compile, waiting for a free worker included"),
    DURATION("trial-timeout", library.trial_timeout_ms, 86400, 20,
             "limit for proving and timing one config"),
    DURATION("wait", wait_ms, 86400, 600,
             "how long a request waits for its tune if it names no time itself"),
    COUNT("max-connections", max_connections, 1, 65536, 2048,
          "most connections at a time, over the Unix socket and over TCP"),
    COUNT("max-tunes", max_tunes, 1, 65536, 2048,
          "most requests that wait for a tune; further ones are told to come back"),
    DURATION("idle-timeout", idle_timeout_ms, 86400, 60,
             "how long a connection may be silent, unless it waits for an answer"),
    DURATION("stop-timeout", stop_ms, 3600, 20,
             "how long the service waits for running work when it is stopped"),
    FLAG("help", help, "this text"),
    FLAG("openapi", openapi, "print the description of the API, as GET /openapi.json gives it"),
    FLAG("version", version, "the version"),
};
enum { SETTINGS = sizeof table / sizeof *table };

static int set_setting(serve_settings *settings, const setting *known, const char *value,
                       fa_diag *diag)
{
    void *field = (char *)settings + known->offset;
    const bool timed = known->kind == KIND_DURATION;
    double number = 0;
    if (known->kind == KIND_FLAG || known->kind == KIND_TEXT) {
        if (known->kind == KIND_FLAG)
            *(bool *)field = true;
        else
            memcpy(field, &value, sizeof value);
        return 0;
    }
    if (!(timed ? fa_duration_parse(value, known->high, &number)
                : fa_decimal_parse(value, strlen(value), known->high, &number)) ||
        number < known->low || (!timed && number != (int32_t)number))
        return fa_fail(diag, FA_EINVAL,
                       timed ? "--%s \"%.40s\": use a time from %ds to %ds, as in 90s, 30m or 2h"
                             : "--%s \"%.40s\": use a whole number from %d to %d",
                       known->name, value, known->low, known->high);
    *(int32_t *)field = (int32_t)(number * (timed ? 1000 : 1));
    return 0;
}

static int add_file(serve_settings *settings, const char *file, fa_diag *diag)
{
    if (settings->files == SERVE_FILES_MAX)
        return fa_fail(diag, FA_EINVAL, "more than %d files of kernels", SERVE_FILES_MAX);
    settings->file[settings->files++] = file;
    return 0;
}

static int read_flags(int count, char **arguments, serve_settings *settings, fa_diag *diag)
{
    enum { KNOWN = 'k', FILE_NAME = 1 };
    struct option flags[SETTINGS + 1] = {{0}};
    const char *names[SETTINGS + 1] = {NULL};
    int found, which = 0, rc = 0;
    for (size_t i = 0; i < SETTINGS; i++) {
        names[i] = table[i].name;
        flags[i] = (struct option){names[i], table[i].kind != KIND_FLAG, NULL, KNOWN};
    }
    opterr = 0;
    while (rc == 0 && (found = getopt_long(count, arguments, "-:h", flags, &which)) != -1) {
        const bool apart = optarg != NULL && optarg == arguments[optind - 1];
        const char *typed = arguments[optind - 1 - apart];
        if (found == KNOWN && strcspn(typed + 2, "=") == strlen(names[which])) { /* whole */
            rc = set_setting(settings, &table[which], optarg, diag);
        } else if (found == 'h') {
            settings->help = true;
        } else if (found == FILE_NAME) {
            rc = add_file(settings, optarg, diag);
        } else if (found == ':') {
            rc = fa_fail(diag, FA_EINVAL, "%s needs a value", typed);
        } else {
            const char *near = fa_nearest(typed + strspn(typed, "-"), names);
            rc = near != NULL
                     ? fa_fail(diag, FA_EINVAL, "there is no option %s: did you mean --%s?", typed,
                               near)
                     : fa_fail(diag, FA_EINVAL,
                               "there is no option %s: `fa-tune serve --help` lists them", typed);
        }
    }
    while (rc == 0 && optind < count) /* behind "--" */
        rc = add_file(settings, arguments[optind++], diag);
    return rc;
}

static int read_token(serve_settings *settings, fa_diag *diag)
{
    unsigned char bytes[TOKEN_BYTES];
    int rc = 0;
    if (settings->token_file != NULL && settings->token_file[0] != 0)
        rc = fa_own_token(settings->token_file, 077, TOKEN_MIN, sizeof settings->token,
                          settings->token, diag);
    else if (settings->tcp[0] != 0)
        rc = fa_fail(
            diag, FA_EINVAL,
            "--tcp needs --token-file: without it, anybody who reaches the port could use the GPU");
    else if (settings->page && getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        rc = fa_fail(diag, FA_EIO, "the kernel gives no random bytes for a token");
    else if (settings->page)
        for (size_t i = 0; i < sizeof bytes; i++)
            snprintf(settings->token + 2 * i, 3, "%02x", bytes[i]);
    if (rc == 0 && settings->page && settings->tcp[0] == 0)
        settings->tcp = "127.0.0.1:0";
    fa_hash_raw(settings->token, strlen(settings->token), settings->token_hash);
    return rc;
}

int serve_settings_read(int count, char **arguments, serve_settings *ret_settings, fa_diag *diag)
{
    *ret_settings = (serve_settings){.tcp = "", .library = {.size = sizeof(fa_options)}};
    for (size_t i = 0; i < SETTINGS; i++)
        if (table[i].kind == KIND_INTEGER || table[i].kind == KIND_DURATION)
            *(int32_t *)((char *)ret_settings + table[i].offset) =
                table[i].preset * (table[i].kind == KIND_DURATION ? 1000 : 1);
    const int rc = read_flags(count, arguments, ret_settings, diag);
    return rc != 0 || ret_settings->help || ret_settings->version || ret_settings->openapi
               ? rc
               : read_token(ret_settings, diag);
}

static void put_wrapped(fa_buf *out, const char *text, size_t indent)
{
    fa_buf_printf(out, "%*s", (int)indent, "");
    fa_wrap(out, text, strlen(text), indent, indent);
    fa_buf_text(out, "\n");
}

void serve_settings_help(void)
{
    fa_buf out = {0};
    char text[512];
    put_wrapped(&out, "fa-tune serve: one engine for every process on the host, over HTTP and JSON",
                0);
    fa_buf_text(&out, "\nusage: fa-tune serve [FILE.cu …] [OPTIONS]\n\n");
    put_wrapped(
        &out,
        "Listens on a Unix socket that only this user can use, until SIGTERM stops it. Kernels of "
        "your own are served from their files, as FILE.cu; no client's source is compiled.",
        0);
    for (size_t i = 0; i < SETTINGS; i++) {
        const setting *known = &table[i];
        fa_buf_printf(&out, "\n  --%s%s%s\n", known->name, known->value != NULL ? " " : "",
                      known->value != NULL ? known->value : "");
        snprintf(text, sizeof text, known->preset > 0 ? "%s (%d%s)" : "%s", known->help,
                 known->preset, known->kind == KIND_DURATION ? "s" : "");
        put_wrapped(&out, text, 6);
    }
    fa_buf_text(&out, "\n");
    put_wrapped(&out, "A TIME is 90s, 30m, 2h or 3d; a number alone is in seconds.", 0);
    fputs(out.data != NULL ? out.data : "", stdout);
    fa_buf_free(&out);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "service.h"

#include "buf.h"
#include "error.h"
#include "wording.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef enum setting_kind {
    KIND_TEXT,
    KIND_INTEGER,
    KIND_DURATION, /* whole seconds */
    KIND_CHOICE,
    KIND_FLAG
} setting_kind;

typedef struct setting {
    const char *name;
    setting_kind kind;
    size_t offset;
    int32_t low, high, preset;
    const char *const *choices;
    const char *value, *help;
} setting;

static const char *const answers[] = {"no", "yes", NULL};
static const char *const formats[] = {"logfmt", "json", NULL};
static const char *const levels[] = {"error", "warn", "info", "debug", NULL};

#define ROW(name, kind, member, low, high, preset, choices, value, help)                        \
    {                                                                                           \
        name, KIND_##kind, offsetof(serve_settings, member), low, high, preset, choices, value, \
            help                                                                                \
    }
#define TEXT(name, member, value, help) ROW(name, TEXT, member, 0, 0, 0, NULL, value, help)
#define COUNT(name, member, low, high, preset, value, help) \
    ROW(name, INTEGER, member, low, high, preset, NULL, value, help)
#define DURATION(name, member, high, preset, help) \
    ROW(name, DURATION, member, 1, high, preset, NULL, "TIME", help)
#define CHOICE(name, member, choices, preset, value, help) \
    ROW(name, CHOICE, member, 0, 0, preset, choices, value, help)
#define FLAG(name, member, help) ROW(name, FLAG, member, 0, 0, 0, NULL, NULL, help)
static const setting table[] = {
    TEXT("socket", socket, "PATH",
         "Unix socket to listen on; \"\" for none ($XDG_RUNTIME_DIR/fa-tune.sock)"),
    TEXT("tcp", tcp, "[HOST:]PORT",
         "listen on TCP too, on 127.0.0.1 unless HOST is given; needs --token-file"),
    TEXT("token-file", token_file, "FILE",
         "file whose first line TCP clients must send as \"Authorization: Bearer …\""),
    TEXT("store", store, "FILE", "store file (FA_TUNE_STORE)"),
    TEXT("templates", templates, "DIR",
         "folder of kernel templates, beside the built-in ones or instead of them "
         "(FA_TUNE_TEMPLATES)"),
    CHOICE("untrusted-templates", untrusted_templates, answers, 0, "no|yes",
           "compile the families of --templates alone, in the strict sandbox"),
    TEXT("worker", worker, "FILE", "the program fa-tune-worker (FA_TUNE_WORKER)"),
    COUNT("jobs", compile_workers, 0, 256, 0, "N", "compile workers of one tune (one per core)"),
    COUNT("compile-nice", compile_nice, 0, 19, 19, "N",
          "niceness of compile workers: at 19 they give way to all other processes"),
    DURATION("compile-timeout", compile_timeout_s, 86400, 300,
             "limit for one compile, waiting for a free worker included"),
    DURATION("trial-timeout", trial_timeout_s, 86400, 20,
             "limit for proving and timing one config"),
    DURATION("wait", wait_s, 86400, 600,
             "how long a request waits for its tune if it names no time itself"),
    COUNT("max-connections", max_connections, 1, 65536, 2048, "N",
          "most connections at a time; an eighth is kept for the Unix socket, and TCP clients "
          "without the token get a quarter"),
    COUNT("max-jobs", max_jobs, 1, 65536, 256, "N",
          "most tunes and sweeps, waiting or running; further requests are told to come back"),
    COUNT("max-sweeps", max_sweeps, 1, 65536, 16, "N", "most sweeps among these jobs"),
    COUNT("max-body", max_body, 1024, 16 << 20, 16384, "BYTES",
          "largest body of a request, sweeps apart"),
    COUNT("max-sweep-body", max_sweep_body, 1024, 64 << 20, 8 << 20, "BYTES",
          "largest body of a sweep"),
    COUNT("max-bodies", max_bodies_mib, 1, 65536, 64, "MIB",
          "most memory for the bodies of unanswered requests; further requests are told to come "
          "back"),
    DURATION("head-timeout", head_timeout_s, 3600, 10,
             "limit for the head of a connection's first request"),
    DURATION("body-timeout", body_timeout_s, 3600, 10, "limit for a request's body"),
    DURATION("idle-timeout", idle_timeout_s, 86400, 60,
             "how long a connection may be idle after an answer"),
    DURATION("send-timeout", send_timeout_s, 3600, 30, "limit for a client to read an answer"),
    DURATION("link-timeout", link_timeout_s, 3600, 300, "how long a link to the page can be used"),
    DURATION("stop-timeout", stop_s, 3600, 20,
             "how long the service waits for running work when it is stopped"),
    COUNT("cache", cache_mib, 1, 4096, 64, "MIB", "memory for stored answers"),
    CHOICE("log-format", log_format, formats, 0, "logfmt|json", "how log lines are written"),
    CHOICE("log-level", log_level, levels, SERVE_INFO, "error|warn|info|debug",
           "the least important lines that are logged"),
    FLAG("allow-user-templates", allow_user_templates,
         "compile kernel families that clients send, in a sandbox"),
    FLAG("open", open,
         "print a link to the service's page, good once, and open it on a desktop; a service that "
         "runs on this socket already is asked for the link"),
    FLAG("help", help, "this text"),
    FLAG("openapi", openapi, "print the description of the API, as GET /openapi.json gives it"),
    FLAG("version", version, "the version"),
};
enum { SETTINGS = sizeof table / sizeof *table, NAME_MAX_BYTES = 64 };

static void variable_of(const setting *known, char ret[NAME_MAX_BYTES])
{
    snprintf(ret, NAME_MAX_BYTES, "FA_TUNE_SERVE_%s", known->name);
    for (char *c = ret; *c != 0; c++)
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
}

static int fail_choice(const setting *known, const char *said, const char *value, fa_diag *diag)
{
    fa_buf names = {0};
    fa_words_or(&names, known->choices);
    fa_fail(diag, FA_EINVAL, "%s \"%.40s\" is not known: use %s", said, value,
            names.data != NULL ? names.data : known->value);
    fa_buf_free(&names);
    return FA_EINVAL;
}

/* `said`: where the value came from, for the error. */
static int set_setting(serve_settings *settings, const setting *known, const char *said,
                       const char *value, fa_diag *diag)
{
    char *field = (char *)settings + known->offset, *end;
    if (known->kind == KIND_TEXT) {
        memcpy(field, &value, sizeof value);
    } else if (known->kind == KIND_DURATION) {
        double seconds = 0;
        if (!fa_duration_parse(value, known->high, &seconds) || seconds < known->low)
            return fa_fail(diag, FA_EINVAL,
                           "%s \"%.40s\": use a time from 1s to %ds, as in 90s, 30m or 2h", said,
                           value, known->high);
        int32_t whole = (int32_t)seconds;
        memcpy(field, &whole, sizeof whole);
    } else if (known->kind == KIND_INTEGER) {
        long number = strtol(value, &end, 10);
        if (!isdigit((unsigned char)value[0]) || *end != 0 || number < known->low ||
            number > known->high)
            return fa_fail(diag, FA_EINVAL, "%s \"%.40s\": use a whole number from %d to %d", said,
                           value, known->low, known->high);
        int32_t small = (int32_t)number;
        memcpy(field, &small, sizeof small);
    } else {
        int32_t index = 0;
        while (known->choices[index] != NULL && strcmp(known->choices[index], value) != 0)
            index++;
        if (known->choices[index] == NULL)
            return fail_choice(known, said, value, diag);
        memcpy(field, &index, sizeof index);
    }
    return 0;
}

static const setting *find_setting(const char *name, size_t size)
{
    for (size_t i = 0; i < SETTINGS; i++)
        if (strncmp(table[i].name, name, size) == 0 && table[i].name[size] == 0)
            return &table[i];
    return NULL;
}

static int fail_unknown(const char *flag, size_t size, fa_diag *diag)
{
    const char *names[SETTINGS + 1] = {NULL};
    char typed[NAME_MAX_BYTES];
    for (size_t i = 0; i < SETTINGS; i++)
        names[i] = table[i].name;
    snprintf(typed, sizeof typed, "%.*s", (int)size, flag);
    const char *near = fa_nearest(typed + strspn(typed, "-"), names);
    if (near != NULL)
        return fa_fail(diag, FA_EINVAL, "there is no option %s: did you mean --%s?", typed, near);
    return fa_fail(diag, FA_EINVAL, "there is no option %s: `fa-tune serve --help` lists them",
                   typed);
}

static int read_flags(int count, char **arguments, serve_settings *settings, fa_diag *diag)
{
    for (int i = 1; i < count; i++) {
        const char *flag = arguments[i];
        size_t size = strcspn(flag, "=");
        if (flag[0] != '-' && flag[0] != 0) {
            if (settings->files == SERVE_FILES_MAX)
                return fa_fail(diag, FA_EINVAL, "more than %d files of kernels", SERVE_FILES_MAX);
            settings->file[settings->files++] = flag;
            continue;
        }
        const setting *known = strcmp(flag, "-h") == 0 ? find_setting("help", 4)
                               : strncmp(flag, "--", 2) == 0 && size > 2
                                   ? find_setting(flag + 2, size - 2)
                                   : NULL;
        if (known == NULL)
            return fail_unknown(flag, size, diag);
        if (known->kind == KIND_FLAG) {
            *(bool *)((char *)settings + known->offset) = true;
            continue;
        }
        const char *value = flag[size] == '=' ? flag + size + 1 : arguments[++i];
        if (value == NULL)
            return fa_fail(diag, FA_EINVAL, "--%s needs a value: %s", known->name, known->value);
        char said[NAME_MAX_BYTES];
        snprintf(said, sizeof said, "--%s", known->name);
        int rc = set_setting(settings, known, said, value, diag);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int read_environment(serve_settings *settings, fa_diag *diag)
{
    char variable[NAME_MAX_BYTES];
    int rc = 0;
    for (size_t i = 0; i < SETTINGS && rc == 0; i++) {
        variable_of(&table[i], variable);
        const char *value = table[i].kind != KIND_FLAG ? getenv(variable) : NULL;
        if (value != NULL && (*value != 0 || table[i].kind == KIND_TEXT))
            rc = set_setting(settings, &table[i], variable, value, diag);
    }
    return rc;
}

/* Whether an Authorization header can carry it. */
static bool can_be_sent(const fa_buf *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (text->data[i] <= ' ' || text->data[i] > '~')
            return false;
    return size == text->size || text->data[size] != 0;
}

static int read_token(serve_settings *settings, fa_diag *diag)
{
    fa_buf text = {0};
    struct stat st;
    if (settings->token_file == NULL || settings->token_file[0] == 0)
        return settings->tcp[0] == 0
                   ? 0
                   : fa_fail(diag, FA_EINVAL,
                             "--tcp needs --token-file: without it, anybody who reaches the port "
                             "could use the GPU");
    int rc = fa_input_read(&text, settings->token_file, 4096, diag);
    if (rc != 0)
        return fa_fail_in(diag, rc, "--token-file %.300s", settings->token_file);
    size_t size = text.data != NULL ? strcspn(text.data, "\r\n") : 0;
    if (stat(settings->token_file, &st) != 0 || (st.st_mode & 077) != 0)
        rc = fa_fail(diag, FA_EINVAL, "others can read the token's file %s: chmod 600 it",
                     settings->token_file);
    else if (size < SERVE_TOKEN_MIN || size > SERVE_TOKEN_MAX)
        rc = fa_fail(diag, FA_EINVAL,
                     "the token in %s has %zu bytes: use %d to %d, such as of "
                     "`openssl rand -hex 32`",
                     settings->token_file, size, SERVE_TOKEN_MIN, SERVE_TOKEN_MAX);
    else if (!can_be_sent(&text, size))
        rc = fa_fail(diag, FA_EINVAL,
                     "the token in %s has spaces or other bytes that a client cannot send: use one "
                     "such as of `openssl rand -hex 32`",
                     settings->token_file);
    else
        fa_hash_raw(text.data, size, settings->token_hash);
    settings->has_token = rc == 0;
    if (text.data != NULL)
        explicit_bzero(text.data, text.size);
    fa_buf_free(&text);
    return rc;
}

int serve_settings_read(int count, char **arguments, serve_settings *ret_settings, fa_diag *diag)
{
    *ret_settings = (serve_settings){.tcp = ""};
    for (size_t i = 0; i < SETTINGS; i++)
        if (table[i].kind == KIND_INTEGER || table[i].kind == KIND_DURATION ||
            table[i].kind == KIND_CHOICE)
            memcpy((char *)ret_settings + table[i].offset, &table[i].preset,
                   sizeof table[i].preset);
    int rc = read_environment(ret_settings, diag);
    if (rc == 0)
        rc = read_flags(count, arguments, ret_settings, diag);
    if (rc != 0 || ret_settings->help || ret_settings->version || ret_settings->openapi)
        return rc;
    if (ret_settings->tcp[0] != 0 && (rc = serve_tcp_check(ret_settings->tcp, diag)) != 0)
        return rc;
    return read_token(ret_settings, diag);
}

/* The default, where the words of an option do not name it. */
static void put_preset(fa_buf *out, const setting *known)
{
    if (known->kind == KIND_CHOICE)
        fa_buf_printf(out, " (%s)", known->choices[known->preset]);
    else if (known->kind == KIND_DURATION || known->preset > 0)
        fa_buf_printf(out, " (%d%s)", known->preset, known->kind == KIND_DURATION ? "s" : "");
}

static void put_paragraph(fa_buf *out, const char *text)
{
    fa_wrap(out, text, strlen(text), 0, 0, fa_help_width());
    fa_buf_text(out, "\n");
}

static void put_setting(fa_buf *out, const setting *known)
{
    enum { COLUMN = 26 };
    char left[80];
    fa_buf help = {0};
    int taken = snprintf(left, sizeof left, "  --%s%s%s", known->name,
                         known->value != NULL ? " " : "", known->value != NULL ? known->value : "");
    fa_buf_text(&help, known->help);
    put_preset(&help, known);
    fa_buf_printf(out, "%s%s%*s", left, taken + 2 > COLUMN ? "\n" : "",
                  taken + 2 > COLUMN ? COLUMN : COLUMN - taken, "");
    if (!help.failed)
        fa_wrap(out, help.data, help.size, COLUMN, COLUMN, fa_help_width());
    fa_buf_text(out, "\n");
    fa_buf_free(&help);
}

void serve_settings_help(void)
{
    char variable[NAME_MAX_BYTES], last[NAME_MAX_BYTES + 128];
    fa_buf out = {0};
    put_paragraph(&out, "fa-tune serve: one engine for every process on the host, over HTTP and JSON");
    fa_buf_text(&out, "\nusage: fa-tune serve [FILE.cu …] [OPTIONS]\n\n");
    put_paragraph(&out, "Listens on a Unix socket that only this user can use, until SIGTERM stops it. "
                        "Accepted jobs that have not ended are kept and continue at the next start. "
                        "Kernels of your own are served from their files, as FILE.cu.");
    fa_buf_text(&out, "\n");
    for (size_t i = 0; i < SETTINGS; i++)
        put_setting(&out, &table[i]);
    variable_of(&table[0], variable);
    snprintf(last, sizeof last,
             "A variable such as %s sets an option that is not given. A TIME is 90s, 30m, 2h or 3d; "
             "a number alone is in seconds.",
             variable);
    fa_buf_text(&out, "\n");
    put_paragraph(&out, last);
    fputs(out.data != NULL ? out.data : "", stdout);
    fa_buf_free(&out);
}

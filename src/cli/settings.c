/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include "buf.h"
#include "error.h"
#include "wording.h"
#include "own_place.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MAX_BYTES = 64 << 10, KEY_MAX = 32 };

const struct cli_setting_key cli_setting_keys[CLI_SETTINGS] = {
    {"gpu", NULL, false, "\"L4\""},
    {"effort", NULL, false, "\"predict\""},
    {"jobs", NULL, false, "8"},
    {"time", NULL, false, "\"30m\""},
    {"trials", NULL, false, "500"},
    {"cost", NULL, false, "2.50"},
    {"price", NULL, false, "0.50"},
    {"store", "FA_TUNE_STORE", false, "\"/home/me/store.db\""},
    {"server", "FA_TUNE_SERVER", true, "\"http://tuner:8080\""},
};

const char *cli_setting_variable(int index)
{
    const struct cli_setting_key *key = &cli_setting_keys[index];
    const char *value = key->variable != NULL ? getenv(key->variable) : NULL;
    return value == NULL || (value[0] == 0 && !key->empty_counts) ? NULL : value;
}

/* ---- one line -------------------------------------------------------------------------------*/
typedef struct line {
    const char *at, *end;
} line;

static void skip_blanks(line *l)
{
    while (l->at < l->end && (*l->at == ' ' || *l->at == '\t'))
        l->at++;
}

static bool is_over(const line *l)
{
    return l->at == l->end || *l->at == '#';
}

static bool is_key_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

/* A text in quotes of either kind. */
static int read_text(line *l, char ret[CLI_SETTING_MAX], fa_diag *diag)
{
    char quote = *l->at++;
    const char *begin = l->at, *end = memchr(begin, quote, (size_t)(l->end - begin));
    size_t size = end != NULL ? (size_t)(end - begin) : 0;
    if (end == NULL)
        return fa_fail(diag, FA_EINVAL, "the text has no closing %c", quote);
    if (size == 0)
        return fa_fail(diag, FA_EINVAL, "the text is empty: leave the line out");
    if (size >= CLI_SETTING_MAX)
        return fa_fail(diag, FA_EINVAL, "the text is longer than %d bytes", CLI_SETTING_MAX - 1);
    if (quote == '"' && memchr(begin, '\\', size) != NULL)
        return fa_fail(diag, FA_EINVAL,
                       "escapes are not taken: put the text in single quotes, where \\ is itself");
    memcpy(ret, begin, size);
    ret[size] = 0;
    l->at = end + 1;
    return 0;
}

/* Digits, and more digits behind one point. */
static int read_number(line *l, const struct cli_setting_key *key, char ret[CLI_SETTING_MAX],
                       fa_diag *diag)
{
    const char *begin = l->at, *word = l->at;
    size_t size = 0, points = 0;
    for (; size < (size_t)(l->end - begin) &&
           (begin[size] == '.' || (begin[size] >= '0' && begin[size] <= '9'));
         size++)
        points += begin[size] == '.';
    while (word < l->end && *word != ' ' && *word != '\t' && *word != '#')
        word++;
    bool whole = size > 0 && begin + size == word && points <= 1 && begin[0] != '.' &&
                 begin[size - 1] != '.' && size < 32;
    if (!whole)
        return fa_fail(
            diag, FA_EINVAL,
            "%.*s is no value: use digits with at most one point, or a text in quotes, as "
            "in %s = %s",
            (int)(word - begin < 40 ? word - begin : 40), begin, key->name, key->example);
    memcpy(ret, begin, size);
    ret[size] = 0;
    l->at = word;
    return 0;
}

static int fail_key(const char *key, fa_diag *diag)
{
    const char *names[CLI_SETTINGS + 1] = {NULL};
    for (int i = 0; i < CLI_SETTINGS; i++)
        names[i] = cli_setting_keys[i].name;
    const char *near = fa_nearest(key, names);
    if (near != NULL)
        return fa_fail(diag, FA_EINVAL, "\"%s\" is no setting: did you mean %s?", key, near);
    return fa_fail(diag, FA_EINVAL,
                   "\"%s\" is no setting: use gpu, effort, jobs, time, trials, cost, price, and in "
                   "your own file store and server",
                   key);
}

static int find_key(const char *key, cli_settings_file file, int *ret_index, fa_diag *diag)
{
    int i = 0;
    while (i < CLI_SETTINGS && strcmp(cli_setting_keys[i].name, key) != 0)
        i++;
    if (i == CLI_SETTINGS)
        return fail_key(key, diag);
    if (file == CLI_FILE_PROJECT && cli_setting_keys[i].variable != NULL)
        return fa_fail(
            diag, FA_EINVAL,
            "%s is not taken from a project's file, which anybody may have written: use --%s, "
            "%s or your own file",
            key, key, cli_setting_keys[i].variable);
    *ret_index = i;
    return 0;
}

static int read_key(line *l, char ret[KEY_MAX], fa_diag *diag)
{
    size_t size = 0;
    while (l->at + size < l->end && is_key_byte(l->at[size]))
        size++;
    if (*l->at == '[')
        return fa_fail(diag, FA_EINVAL, "tables are not taken: every line is KEY = VALUE");
    if (size == 0 || size >= KEY_MAX)
        return fa_fail(diag, FA_EINVAL, "this is no KEY = VALUE");
    memcpy(ret, l->at, size);
    ret[size] = 0;
    l->at += size;
    skip_blanks(l);
    if (l->at == l->end || *l->at != '=')
        return fa_fail(diag, FA_EINVAL, "\"=\" is missing after %s", ret);
    l->at++;
    skip_blanks(l);
    return 0;
}

static int read_line(line *l, cli_settings_file file, int number, cli_settings *settings,
                     fa_diag *diag)
{
    char key[KEY_MAX], value[CLI_SETTING_MAX];
    int index = 0;
    for (const char *c = l->at; c < l->end; c++)
        if (((unsigned char)*c < ' ' && *c != '\t') || *c == 0x7f)
            return fa_fail(diag, FA_EINVAL, "it holds a control character");
    skip_blanks(l);
    if (is_over(l))
        return 0;
    int rc;
    if ((rc = read_key(l, key, diag)) != 0 || (rc = find_key(key, file, &index, diag)) != 0)
        return rc;
    if (is_over(l))
        return fa_fail(diag, FA_EINVAL, "the value of %s is missing", key);
    rc = *l->at == '"' || *l->at == '\'' ? read_text(l, value, diag)
                                         : read_number(l, &cli_setting_keys[index], value, diag);
    if (rc != 0)
        return rc;
    skip_blanks(l);
    if (!is_over(l))
        return fa_fail(diag, FA_EINVAL, "there is text after the value of %s", key);
    if (strcmp(key, "store") == 0 && value[0] != '/' && strstr(value, "://") == NULL)
        return fa_fail(diag, FA_EINVAL,
                       "store needs the whole path, as in /home/me/store.db: ~ is not expanded, and "
                       "what a relative path means depends on the current folder");
    if (strcmp(key, "server") == 0 && value[0] != '/' && strncmp(value, "unix:/", 6) != 0 &&
        strncmp(value, "http://", 7) != 0)
        return fa_fail(diag, FA_EINVAL, "server needs unix:/PATH or http://HOST:PORT");
    cli_setting *setting = &settings->setting[index];
    if (setting->value[0] != 0 && setting->file == file)
        return fa_fail(diag, FA_EINVAL, "%s is set in line %d already", key, setting->line);
    if (setting->value[0] != 0)
        return 0; /* the file that was read before goes first */
    memcpy(setting->value, value, strlen(value) + 1);
    setting->file = file;
    setting->line = number;
    return 0;
}

/* ---- files ----------------------------------------------------------------------------------*/
int cli_settings_read(const char *text, size_t size, cli_settings_file file, cli_settings *settings,
                      fa_diag *diag)
{
    const char *at = text, *end = text + size;
    for (int number = 1; at < end; number++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        line l = {at, stop != NULL ? stop : end};
        at = stop != NULL ? stop + 1 : end;
        if (stop != NULL && l.end > l.at && l.end[-1] == '\r')
            l.end--;
        int rc = read_line(&l, file, number, settings, diag);
        if (rc != 0)
            return fa_fail_in(diag, rc, "line %d", number);
    }
    return 0;
}

static int load(cli_settings *settings, cli_settings_file file, fa_diag *diag)
{
    const char *path = settings->path[file];
    fa_buf text = {0};
    int rc = path[0] == 0 ? FA_ENOTFOUND : fa_input_read(&text, path, FILE_MAX_BYTES, diag);
    settings->found[file] = rc == 0;
    if (rc == 0)
        rc = cli_settings_read(text.data != NULL ? text.data : "", text.size, file, settings, diag);
    else if (rc == FA_ENOTFOUND)
        rc = 0;
    fa_buf_free(&text);
    return rc == 0 ? 0 : fa_fail_in(diag, rc, "settings %.300s", path);
}

static bool is_ours(const struct stat *st)
{
    return st->st_uid == geteuid() || st->st_uid == 0;
}

/* The nearest fa-tune.toml of this user's or of root's in the current folder or above it; "": there is none. A link of
 * another's is another's, wherever it leads. */
static void find_project(char ret[PATH_MAX], char ret_foreign[PATH_MAX])
{
    static const char name[] = "/fa-tune.toml";
    struct stat st, link;
    if (getcwd(ret, PATH_MAX - sizeof name) == NULL || ret[0] != '/') {
        ret[0] = 0;
        return;
    }
    for (char *end = ret + strlen(ret); end != NULL; end = strrchr(ret, '/')) {
        if (end == ret + 1)
            end = ret; /* the root's own slash */
        memcpy(end, name, sizeof name);
        bool there = lstat(ret, &link) == 0 && (!is_ours(&link) || stat(ret, &st) == 0);
        if (there && is_ours(&link) && is_ours(&st))
            return;
        if (there && ret_foreign[0] == 0)
            memcpy(ret_foreign, ret, strlen(ret) + 1);
        *end = 0;
    }
    ret[0] = 0;
}

void cli_settings_load(cli_settings *ret_settings)
{
    memset(ret_settings, 0, sizeof *ret_settings);
    find_project(ret_settings->path[CLI_FILE_PROJECT], ret_settings->foreign);
    if (fa_own_config("/config.toml", ret_settings->path[CLI_FILE_USER], PATH_MAX) != 0)
        ret_settings->path[CLI_FILE_USER][0] = 0;
    ret_settings->fault_rc = load(ret_settings, CLI_FILE_PROJECT, &ret_settings->fault);
    int rc = load(ret_settings, CLI_FILE_USER,
                  ret_settings->fault_rc != 0 ? NULL : &ret_settings->fault);
    if (ret_settings->fault_rc == 0)
        ret_settings->fault_rc = rc;
}

int cli_settings_export(cli_settings *settings, fa_diag *diag)
{
    for (int i = 0; i < CLI_SETTINGS; i++) {
        cli_setting *setting = &settings->setting[i];
        const char *variable = cli_setting_keys[i].variable;
        if (variable == NULL || setting->value[0] == 0 || cli_setting_variable(i) != NULL)
            continue;
        if (setenv(variable, setting->value, 1) != 0)
            return fa_fail(diag, FA_ENOMEM, "out of memory for the settings");
        setting->exported = true;
    }
    return 0;
}

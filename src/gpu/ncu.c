/* SPDX-License-Identifier: Apache-2.0
 *
 * Where ncu is, and its log as figures: a CSV of one row per launch, behind a row of names and a row of units, between
 * lines about its progress that begin with "==".
 *
 * Invariants: only absolute folders are looked into. The text is hostile: nothing behind its end is read; a value that
 * is no number, or is none that can be, is not counted; a figure is made of values that were counted alone.
 */
#include "ncu.h"

#include "error.h"
#include "wording.h"

#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- where ncu is ----------------------------------------------------------------------------*/
static bool is_program(const char *path)
{
    struct stat st;
    return path[0] == '/' && stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

static bool look_in(const char *folder, size_t length, char ret_path[FA_NCU_PATH_MAX])
{
    char path[FA_NCU_PATH_MAX];
    int size = snprintf(path, sizeof path, "%.*s/ncu", (int)length, folder);
    if (length >= sizeof path || size >= (int)sizeof path || !is_program(path))
        return false;
    memcpy(ret_path, path, (size_t)size + 1);
    return true;
}

static bool look_in_path(char ret_path[FA_NCU_PATH_MAX])
{
    const char *at = getenv("PATH");
    while (at != NULL && *at != 0) {
        size_t length = strcspn(at, ":");
        if (*at == '/' && look_in(at, length, ret_path))
            return true;
        at += length + (at[length] == ':');
    }
    return false;
}

/* The last by name first, which mostly is the newest. */
static bool look_by_pattern(const char *pattern, char ret_path[FA_NCU_PATH_MAX])
{
    glob_t found;
    bool is_there = false;
    if (glob(pattern, 0, NULL, &found) == 0) {
        for (size_t i = found.gl_pathc; i > 0 && !is_there; i--) {
            const char *folder = found.gl_pathv[i - 1];
            is_there = look_in(folder, strlen(folder), ret_path);
        }
        globfree(&found);
    }
    return is_there;
}

int fa_ncu_locate(char ret_path[FA_NCU_PATH_MAX], fa_diag *diag)
{
    static const char *const patterns[] = {"/usr/local/cuda/bin", "/usr/local/cuda*/bin",
                                           "/opt/nvidia/nsight-compute/*"};
    const char *named = getenv("FA_TUNE_NCU");
    if (named != NULL && named[0] != 0) {
        if (strlen(named) >= FA_NCU_PATH_MAX || !is_program(named))
            return fa_fail(diag, FA_EINVAL,
                           "FA_TUNE_NCU is \"%.200s\", which is not the absolute path of a program",
                           named);
        snprintf(ret_path, FA_NCU_PATH_MAX, "%s", named);
        return 0;
    }
    if (named == NULL && look_in_path(ret_path))
        return 0;
    for (size_t i = 0; named == NULL && i < sizeof patterns / sizeof *patterns; i++)
        if (look_by_pattern(patterns[i], ret_path))
            return 0;
    return fa_fail(
        diag, FA_ENOTFOUND,
        "ncu (Nsight Compute's command line) is not here: install the CUDA toolkit or the "
        "package nsight-compute, or name the program in FA_TUNE_NCU");
}

/* ---- metrics --------------------------------------------------------------------------------*/
#define STALLED "smsp__average_warps_issue_stalled_"
#define PER_ISSUE "_per_issue_active.ratio"
#define STALL(reason) STALLED reason PER_ISSUE

enum { TIME, ACTIVE, ELAPSED, CONFLICTS, WAVEFRONTS, SHARES };
static const char *const metrics[] = {
    [TIME] = "gpu__time_duration.sum",
    [ACTIVE] = "sm__cycles_active.avg",
    [ELAPSED] = "gpc__cycles_elapsed.max",
    [CONFLICTS] = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    [WAVEFRONTS] = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    [SHARES] = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
    "sm__inst_issued.avg.pct_of_peak_sustained_active",
    "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    STALL("long_scoreboard"),
    STALL("short_scoreboard"),
    STALL("barrier"),
    STALL("math_pipe_throttle"),
    STALL("mio_throttle"),
    STALL("lg_throttle"),
    STALL("tex_throttle"),
    STALL("wait"),
    STALL("not_selected"),
    STALL("gmma"),
    STALL("membar"),
    STALL("sleeping"),
    STALL("drain"),
    STALL("dispatch_stall"),
    STALL("no_instruction"),
    STALL("branch_resolving"),
    STALL("imc_miss"),
};
/* Of the shares, in their order. */
static const size_t share_at[] = {
    offsetof(fa_profile_launch, tensor),   offsetof(fa_profile_launch, special),
    offsetof(fa_profile_launch, issue),    offsetof(fa_profile_launch, shared),
    offsetof(fa_profile_launch, l2),       offsetof(fa_profile_launch, memory),
    offsetof(fa_profile_launch, occupancy)};

enum {
    METRICS = sizeof metrics / sizeof *metrics,
    STALLS = SHARES + sizeof share_at / sizeof *share_at, /* where they begin */
    COLUMNS_MAX = 4096, /* ncu adds some hundreds about the device and the launch */
    FIELD_MAX = 160
};
_Static_assert(METRICS <= 64, "fa_ncu_metrics has a bit for each");

void fa_ncu_names(fa_ncu_metrics unknown, fa_buf *out)
{
    const char *comma = "";
    for (int i = 0; i < METRICS; i++) {
        if (unknown >> i & 1)
            continue;
        fa_buf_printf(out, "%s%s", comma, metrics[i]);
        comma = ",";
    }
}

/* ---- lines and fields -----------------------------------------------------------------------*/
struct text {
    const char *at, *end;
};

/* The next line, without its end; false: there is none. */
static bool next_line(struct text *text, struct text *ret_line)
{
    if (text->at == text->end)
        return false;
    const char *feed = memchr(text->at, '\n', (size_t)(text->end - text->at));
    *ret_line = (struct text){text->at, feed != NULL ? feed : text->end};
    text->at = feed != NULL ? feed + 1 : text->end;
    return true;
}

/* The next field of a line of CSV; what does not fit is cut. False: there is none. */
static bool next_field(struct text *line, char ret[FIELD_MAX])
{
    size_t size = 0;
    bool quoted = false;
    if (line->at == NULL)
        return false;
    for (; line->at < line->end && (quoted || *line->at != ','); line->at++) {
        bool twice = quoted && line->at + 1 < line->end && line->at[1] == '"';
        if (*line->at == '"' && !twice) {
            quoted = !quoted;
            continue;
        }
        line->at += *line->at == '"';
        if (size < FIELD_MAX - 1 && *line->at != '\r')
            ret[size++] = *line->at;
    }
    ret[size] = 0;
    line->at = line->at < line->end ? line->at + 1 : NULL;
    return true;
}

/* ---- numbers --------------------------------------------------------------------------------*/
static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Bytes of the space that stands there, U+00A0 and U+202F among them. */
static size_t space_at(const char *at)
{
    return *at == ' ' || *at == '\''             ? 1
           : strncmp(at, "\xc2\xa0", 2) == 0     ? 2
           : strncmp(at, "\xe2\x80\xaf", 3) == 0 ? 3
                                                 : 0;
}

/* Which of '.' and ',' parts the fraction, 0: none does. The last of both kinds does where both are there; one kind that
 * stands several times parts thousands, and so does a single comma in front of three last digits. */
static char decimal_of(const char *text)
{
    const char *point = strrchr(text, '.'), *comma = strrchr(text, ',');
    if (point != NULL && comma != NULL)
        return point > comma ? '.' : ',';
    const char *last = point != NULL ? point : comma;
    if (last == NULL || strchr(text, *last) != last)
        return 0;
    return *last == ',' && strlen(last) == 4 ? 0 : *last;
}

/* A number as any locale writes it; false: it is none, or is negative or not finite. */
static bool read_number(const char *text, double *ret)
{
    char plain[64], *end;
    size_t size = 0;
    const char decimal = decimal_of(text);
    for (const char *at = text; *at != 0; at++) {
        size_t space = space_at(at);
        if (space > 0) {
            at += space - 1;
            continue;
        }
        bool exponent = size > 0 && strchr("eE+-", *at) != NULL;
        if (!is_digit(*at) && *at != '.' && *at != ',' && !exponent)
            return false;
        if ((*at == '.' || *at == ',') && *at != decimal)
            continue;
        if (size == sizeof plain - 1)
            return false;
        plain[size++] = *at == decimal ? '.' : *at;
    }
    plain[size] = 0;
    double value = size > 0 ? fa_strtod(plain, &end) : NAN;
    if (!isfinite(value) || value < 0 || value > 1e18 || *end != 0)
        return false;
    *ret = value;
    return true;
}

/* In nanoseconds; 0: no unit of time. */
static double time_unit(const char *unit)
{
    static const struct {
        const char *name;
        double ns;
    } units[] = {{"ns", 1},   {"nsecond", 1},   {"us", 1e3}, {"usecond", 1e3},
                 {"ms", 1e6}, {"msecond", 1e6}, {"s", 1e9},  {"second", 1e9}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(unit, units[i].name) == 0)
            return units[i].ns;
    return 0;
}

/* ---- the table ------------------------------------------------------------------------------*/
struct table {
    int metric_of[COLUMNS_MAX]; /* -1: another column */
    int columns;                /* 0: no header was read */
    int first;                  /* "ID" */
    double time_ns;             /* the unit of TIME; 0: not known */
};

static void read_header(struct text line, struct table *table)
{
    char field[FIELD_MAX];
    *table = (struct table){.first = -1};
    for (; table->columns < COLUMNS_MAX && next_field(&line, field); table->columns++) {
        int metric = METRICS - 1;
        while (metric >= 0 && strcmp(field, metrics[metric]) != 0)
            metric--;
        table->metric_of[table->columns] = metric;
        if (strcmp(field, "ID") == 0)
            table->first = table->columns;
    }
    if (table->first < 0)
        table->columns = 0; /* it was no header */
}

/* Whether the row is a launch's; else it has the units. */
static bool read_values(struct text line, const struct table *table, double value[METRICS],
                        char time[FIELD_MAX])
{
    char field[FIELD_MAX];
    bool is_launch = false;
    for (int i = 0; i < METRICS; i++)
        value[i] = -1;
    time[0] = 0;
    for (int i = 0; i < table->columns && next_field(&line, field); i++) {
        if (i == table->first)
            is_launch = field[0] != 0;
        if (table->metric_of[i] >= 0 && !read_number(field, &value[table->metric_of[i]]))
            value[table->metric_of[i]] = -1;
        if (table->metric_of[i] == TIME)
            memcpy(time, field, sizeof field);
    }
    return is_launch;
}

static double share_of(double part, double whole)
{
    return part >= 0 && whole > 0 && part <= whole * 1.05 ? fmin(100 * part / whole, 100) : -1;
}

static void put_stalls(const double value[METRICS], fa_profile_launch *launch)
{
    const size_t begin = strlen(STALLED), end = strlen(PER_ISSUE);
    bool taken[METRICS] = {false};
    for (int s = 0; s < FA_PROFILE_STALLS; s++) {
        int most = -1;
        for (int i = STALLS; i < METRICS; i++)
            if (!taken[i] && value[i] > 0 && (most < 0 || value[i] > value[most]))
                most = i;
        if (most < 0)
            return;
        taken[most] = true;
        snprintf(launch->stall[s].reason, sizeof launch->stall[s].reason, "%.*s",
                 (int)(strlen(metrics[most]) - begin - end), metrics[most] + begin);
        launch->stall[s].warps = value[most];
    }
}

static void put_launch(const double value[METRICS], double unit_ns, fa_profile_launch *launch)
{
    *launch = (fa_profile_launch){.time_us = -1};
    if (unit_ns > 0 && value[TIME] > 0)
        launch->time_us = value[TIME] * unit_ns / 1e3;
    launch->busy = share_of(value[ACTIVE], value[ELAPSED]);
    launch->conflicts = value[WAVEFRONTS] == 0 ? 0 : share_of(value[CONFLICTS], value[WAVEFRONTS]);
    for (size_t i = 0; i < sizeof share_at / sizeof *share_at; i++) {
        double share = share_of(value[SHARES + i], 100);
        memcpy((char *)launch + share_at[i], &share, sizeof share);
    }
    put_stalls(value, launch);
}

/* ---- what went wrong ------------------------------------------------------------------------*/
/* The metrics among those asked for that a line names. */
static fa_ncu_metrics metrics_in(struct text line)
{
    fa_ncu_metrics named = 0;
    for (int i = 0; i < METRICS; i++)
        if (memmem(line.at, (size_t)(line.end - line.at), metrics[i], strlen(metrics[i])) != NULL)
            named |= (fa_ncu_metrics)1 << i;
    return named;
}

static bool begins(struct text line, const char *word)
{
    size_t size = strlen(word);
    return (size_t)(line.end - line.at) >= size && memcmp(line.at, word, size) == 0;
}

/* Nothing was counted: says why. */
static int fail(struct text text, fa_ncu_metrics unknown, fa_ncu_metrics *ret_unknown,
                fa_diag *diag)
{
    static const char denied[] = "ERR_NVGPUCTRPERM";
    struct text line, why = {NULL, NULL};
    fa_ncu_metrics refused = 0;
    if (memmem(text.at, (size_t)(text.end - text.at), denied, sizeof denied - 1) != NULL)
        return fa_fail(
            diag, FA_ENOTSUP,
            "the driver lets only administrators read this GPU's counters (%s): run the command as "
            "root, or allow it to all users with the line \"options nvidia "
            "NVreg_RestrictProfilingToAdminUsers=0\" in /etc/modprobe.d/nvidia.conf and a restart; "
            "a container also needs --cap-add=SYS_ADMIN",
            denied);
    while (next_line(&text, &line)) {
        bool error = begins(line, "==ERROR=="), known = why.at != NULL && begins(why, "==ERROR==");
        if (error)
            refused |= metrics_in(line) & ~unknown;
        /* The first error, else the first warning that is no mere note. */
        if (!known && (error || (why.at == NULL && begins(line, "==WARNING==") &&
                                 !begins(line, "==WARNING== Note:"))))
            why = line;
    }
    if (refused != 0) {
        *ret_unknown = refused;
        return fa_fail(diag, FA_EVERSION, "ncu does not know a metric");
    }
    return why.at == NULL ? fa_fail(diag, FA_EWORKER, "ncu counted nothing and does not say why")
                          : fa_fail(diag, FA_EWORKER, "ncu counted nothing: %.*s",
                                    why.end - why.at < 400 ? (int)(why.end - why.at) : 400, why.at);
}

int fa_ncu_read(const char *text_at, size_t size, int count, fa_ncu_metrics unknown,
                fa_profile_launch *ret_launch, fa_ncu_metrics *ret_unknown, fa_diag *diag)
{
    struct text text = {text_at, text_at + size}, rest = text, line;
    struct table table = {.first = -1};
    fa_profile_launch launch[FA_PROFILE_LAUNCHES];
    int launches = 0;
    while (next_line(&rest, &line)) {
        char time[FIELD_MAX];
        double value[METRICS];
        if (!begins(line, "\""))
            continue;
        if (table.columns == 0)
            read_header(line, &table);
        else if (!read_values(line, &table, value, time))
            table.time_ns = time_unit(time);
        else if (launches++ < FA_PROFILE_LAUNCHES)
            put_launch(value, table.time_ns, &launch[launches - 1]);
    }
    if (launches == 0)
        return fail(text, unknown, ret_unknown, diag);
    if (launches != count)
        return fa_fail(diag, FA_ECORRUPT, "ncu counted %d launches of a config that has %d",
                       launches, count);
    memcpy(ret_launch, launch, (size_t)count * sizeof *launch);
    return 0;
}

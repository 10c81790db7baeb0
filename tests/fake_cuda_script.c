/* SPDX-License-Identifier: Apache-2.0
 *
 * The script of the fake CUDA driver: which devices there are, how long configs take, what goes
 * wrong. One directive a line, '#' starts a comment:
 *
 *   device name=NVIDIA_L4 sm=89 sms=58 smem_block=101376 smem_sm=102400 l2=48M bus=192 clock=2040
 *          memclock=6251 memory=22G board=0   (all optional, '_' in a name is a space; repeatable)
 *   no_device
 *   driver 13000
 *   init_once                             only the first cuInit of a process starts afresh
 *   no_zero_strides                       tensor maps with a stride of 0 are refused
 *   time SUBSTR MICROSECONDS              later lines win
 *   valley NAME BEST SHARE                every power of two that a tunable is away from BEST makes what was
 *                                         made up or scripted longer by SHARE of it
 *   drift PERIOD FACTOR                   of each period (microseconds), the second half takes
 *                                         FACTOR times as long: a clock that the power limit lowers
 *   fault SUBSTR KIND [after=N] [times=N] counts are per process
 *   log FILE
 *
 * SUBSTR is matched against the whole marker of a cubin ("family=…;BLOCK_M=128;…"); '*' is any.
 */
#include "fake_cuda.h"

#include "catalogue.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const kinds[FAKE_KINDS] = {
    [FAKE_LOAD_FAILURE] = "load_failure",
    [FAKE_LAUNCH_FAILURE] = "launch_failure",
    [FAKE_FAULT_ILLEGAL_ADDRESS] = "illegal_address",
    [FAKE_FAULT_ECC] = "ecc",
    [FAKE_HANG] = "hang",
    [FAKE_FAULT_OUT_OF_MEMORY] = "out_of_memory",
    [FAKE_CRASH] = "crash",
    [FAKE_WRONG] = "wrong",
    [FAKE_NAN] = "nan",
    [FAKE_UNWRITTEN] = "unwritten",
    [FAKE_OVERRUN] = "overrun",
    [FAKE_UNDERRUN] = "underrun",
    [FAKE_SPOIL] = "spoil",
    [FAKE_FLAKY] = "flaky",
    [FAKE_ONE_BIT] = "one_bit",
};

static void bad(const char *what, const char *text)
{
    fprintf(stderr, "fake_cuda: %s: %s\n", what, text);
    _exit(99);
}

static double number(const char *text)
{
    char *end;
    double value = strtod(text, &end);
    const char *suffix = end[0] == 0 ? NULL : strchr("KMG", end[0]);
    if (end == text || !(value >= 0) || (end[0] != 0 && (suffix == NULL || end[1] != 0)))
        bad("not a number", text);
    return suffix == NULL ? value : value * (suffix[0] == 'K' ? 1 << 10
                                             : suffix[0] == 'M' ? 1 << 20 : 1 << 30);
}

static struct fake_device default_device(int sm)
{
    struct fake_device d = {.memory = (size_t)22 << 30, .memory_clock_khz = 6251000};
    snprintf(d.gpu.name, sizeof d.gpu.name, "NVIDIA L4");
    d.gpu.sm = sm;
    d.gpu.sm_count = 58;
    d.gpu.l2_bytes = 50331648;
    d.gpu.memory_bus_bits = 192;
    d.gpu.clock_mhz = 2040;
    if (fa_catalogue_limits(sm, &d.gpu) != 0)
        bad("device", "no such sm");
    return d;
}

static void read_device(struct fake_script *script, char *words)
{
    char *save = NULL, *sm = strstr(words, " sm=");
    if (script->device_count == FAKE_DEVICES)
        bad("too many devices", words);
    struct fake_device d = default_device(sm == NULL ? 89 : atoi(sm + 4));
    enum { COUNTS = 6 };
    const struct {
        const char *word;
        int32_t *is;
    } counts[COUNTS] = {{"sms", &d.gpu.sm_count},        {"smem_block", &d.gpu.smem_per_block},
                        {"smem_sm", &d.gpu.smem_per_sm}, {"bus", &d.gpu.memory_bus_bits},
                        {"clock", &d.gpu.clock_mhz},     {"board", &d.board}};
    int at;
    for (char *w = strtok_r(words, " \t", &save); w != NULL; w = strtok_r(NULL, " \t", &save)) {
        char *value = strchr(w, '=');
        if (value == NULL)
            bad("device field without a value", w);
        *value++ = 0;
        for (at = 0; at < COUNTS && strcmp(counts[at].word, w) != 0;)
            at++;
        if (strcmp(w, "name") == 0) {
            snprintf(d.gpu.name, sizeof d.gpu.name, "%s", value);
            for (char *c = d.gpu.name; *c != 0; c++)
                *c = (char)(*c == '_' ? ' ' : *c);
        } else if (at < COUNTS)
            *counts[at].is = (int32_t)number(value);
        else if (strcmp(w, "l2") == 0)
            d.gpu.l2_bytes = (int64_t)number(value);
        else if (strcmp(w, "memclock") == 0)
            d.memory_clock_khz = (int)(number(value) * 1000);
        else if (strcmp(w, "memory") == 0)
            d.memory = (size_t)number(value);
        else if (strcmp(w, "sm") != 0)
            bad("unknown device field", w);
    }
    script->device[script->device_count++] = d;
}

static void copy_match(char to[FAKE_TEXT], const char *from)
{
    snprintf(to, FAKE_TEXT, "%s", strcmp(from, "*") == 0 ? "" : from);
}

static void read_fault(struct fake_script *script, char *words)
{
    char *save = NULL, *match = strtok_r(words, " \t", &save), *kind = strtok_r(NULL, " \t", &save);
    if (match == NULL || kind == NULL || script->fault_count == FAKE_LINES)
        bad("fault needs a match and a kind", words);
    struct fake_fault f = {.times = -1, .kind = FAKE_KINDS};
    copy_match(f.match, match);
    for (int i = 0; i < FAKE_KINDS; i++)
        if (strcmp(kinds[i], kind) == 0)
            f.kind = (enum fake_fault_kind)i;
    if (f.kind == FAKE_KINDS)
        bad("unknown fault", kind);
    for (char *w; (w = strtok_r(NULL, " \t", &save)) != NULL;) {
        if (strncmp(w, "after=", 6) == 0)
            f.after = (long)number(w + 6);
        else if (strncmp(w, "times=", 6) == 0)
            f.times = (long)number(w + 6);
        else
            bad("unknown word of a fault", w);
    }
    script->fault[script->fault_count++] = f;
}

static void read_time(struct fake_script *script, char *words)
{
    char *save = NULL, *match = strtok_r(words, " \t", &save), *us = strtok_r(NULL, " \t", &save);
    if (match == NULL || us == NULL || script->time_count == FAKE_LINES)
        bad("time needs a match and microseconds", words);
    struct fake_time *t = &script->time[script->time_count++];
    copy_match(t->match, match);
    t->us = number(us);
}

static void read_valley(struct fake_script *script, char *words)
{
    char *save = NULL, *name = strtok_r(words, " \t", &save), *best = strtok_r(NULL, " \t", &save),
         *share = strtok_r(NULL, " \t", &save);
    if (share == NULL || script->valley_count == FAKE_VALLEYS)
        bad("valley needs a tunable, its best value and a share", words);
    struct fake_valley *v = &script->valley[script->valley_count++];
    snprintf(v->name, sizeof v->name, ";%s=", name);
    v->best = number(best);
    v->share = number(share);
}

static void read_drift(struct fake_script *script, char *words)
{
    char *save = NULL, *us = strtok_r(words, " \t", &save), *by = strtok_r(NULL, " \t", &save);
    if (us == NULL || by == NULL)
        bad("drift needs a period and a factor", words);
    script->drift_us = number(us);
    script->drift_factor = number(by);
}

static void read_line(struct fake_script *script, char *line)
{
    static const struct {
        const char *verb;
        void (*read)(struct fake_script *script, char *words);
    } verbs[] = {{"device", read_device},
                 {"time", read_time},
                 {"valley", read_valley},
                 {"drift", read_drift},
                 {"fault", read_fault}};
    line[strcspn(line, "\n#")] = 0;
    if (line[strspn(line, " \t")] == 0)
        return;
    char *rest = line + strcspn(line, " \t");
    if (*rest != 0)
        *rest++ = 0;
    rest += strspn(rest, " \t");
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        if (strcmp(line, verbs[i].verb) != 0)
            continue;
        verbs[i].read(script, rest);
        return;
    }
    if (strcmp(line, "no_device") == 0)
        script->no_device = true;
    else if (strcmp(line, "init_once") == 0)
        script->init_once = true;
    else if (strcmp(line, "no_zero_strides") == 0)
        script->no_zero_strides = true;
    else if (strcmp(line, "driver") == 0)
        script->driver_version = (int)number(rest);
    else if (strcmp(line, "log") == 0)
        snprintf(script->log, sizeof script->log, "%s", rest);
    else
        bad("unknown directive", line);
}

void fake_script_read(struct fake_script *ret_script)
{
    memset(ret_script, 0, sizeof *ret_script);
    ret_script->driver_version = 13000;
    const char *path = getenv("FAKE_CUDA_SCRIPT");
    if (path != NULL && path[0] != 0) {
        FILE *file = fopen(path, "re");
        char line[2 * FAKE_TEXT];
        if (file == NULL)
            bad("cannot open the script", path);
        while (fgets(line, sizeof line, file) != NULL)
            read_line(ret_script, line);
        fclose(file);
    }
    if (ret_script->device_count == 0 && !ret_script->no_device)
        ret_script->device[ret_script->device_count++] = default_device(89);
    for (int i = 0; i < ret_script->device_count; i++)
        ret_script->device[i].gpu.ordinal = i;
}

bool fake_script_fault(struct fake_script *script, const char *marker, enum fake_fault_kind kind)
{
    for (int i = 0; i < script->fault_count; i++) {
        struct fake_fault *f = &script->fault[i];
        if (f->kind != kind || strstr(marker, f->match) == NULL)
            continue;
        long seen = f->seen++;
        if (seen >= f->after && (f->times < 0 || seen < f->after + f->times))
            return true;
    }
    return false;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdull;
    x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ull;
    return x ^ (x >> 33);
}

static uint64_t hash_text(const char *text)
{
    uint64_t hash = 14695981039346656037ull; /* FNV-1a */
    for (; *text != 0; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211ull;
    return mix(hash);
}

/* log2 of the ratio between a tile size in the marker and the size that suits best. */
static double tile_penalty(const char *marker, const char *name, double best)
{
    const char *at = strstr(marker, name);
    double value = at == NULL ? best : atof(at + strlen(name));
    return value > 0 ? fabs(log2(value / best)) : 0;
}

double fake_script_time(const struct fake_script *script, const char *marker, uint64_t launch,
                        double clock_us)
{
    double us = 50 * (1 + 0.2 * tile_penalty(marker, "BLOCK_M=", 128) +
                      0.1 * tile_penalty(marker, "BLOCK_N=", 64)) +
                (double)(hash_text(marker) % 1000) / 200;
    for (int i = 0; i < script->time_count; i++)
        if (strstr(marker, script->time[i].match) != NULL)
            us = script->time[i].us;
    for (int i = 0; i < script->valley_count; i++)
        us *= 1 + script->valley[i].share *
                      tile_penalty(marker, script->valley[i].name, script->valley[i].best);
    if (script->drift_us > 0 && fmod(clock_us, script->drift_us) >= script->drift_us / 2)
        us *= script->drift_factor;
    /* Launches in pairs, one as much slower as the other is faster, and most by little: the median is
     * the scripted time to three digits however many samples a loaded machine had time for. */
    double jitter = (double)(mix(launch / 2 * 0x9e3779b97f4a7c15ull + 1) % 2001) / 1000 - 1; /* -1..1 */
    return us * (1 + (launch % 2 == 0 ? 0.01 : -0.01) * jitter * jitter * jitter);
}

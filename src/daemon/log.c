/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 4096, TAIL = 8 /* room for what closes the line */ };

struct line {
    char text[LINE];
    size_t size;
};

static void put(struct line *line, const char *text)
{
    for (; *text != 0 && line->size < LINE - TAIL; text++)
        line->text[line->size++] = *text;
}

static bool is_plain(const char *text)
{
    for (; *text != 0; text++)
        if ((unsigned char)*text <= ' ' || strchr("=\"\\\x7f", *text) != NULL)
            return false;
    return true;
}

/* A value is quoted where it has to be; control bytes become \u00XX. */
static void put_pair(struct line *line, const char *name, const char *value)
{
    const char *quote = is_plain(value) ? "" : "\"";
    char bytes[8];
    if (*value == 0)
        return;
    put(line, line->size > 0 ? " " : "");
    put(line, name);
    put(line, "=");
    put(line, quote);
    for (; *value != 0; value++) {
        const unsigned char c = (unsigned char)*value;
        if (c == '"' || c == '\\')
            put(line, "\\");
        snprintf(bytes, sizeof bytes, c < 0x20 || c == 0x7f ? "\\u%04x" : "%c", c);
        put(line, bytes);
    }
    put(line, quote);
}

void serve_log(const char *level, const char *event, ...)
{
    struct line line = {.size = 0};
    struct timespec now;
    struct tm parts;
    char seconds[32], when[48];
    const char *name;
    va_list pairs;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(when, sizeof when, "%s.%03dZ", seconds, (int)(now.tv_nsec / 1000000));
    put_pair(&line, "time", when);
    put_pair(&line, "level", level);
    put_pair(&line, "event", event);
    va_start(pairs, event);
    while ((name = va_arg(pairs, const char *)) != NULL)
        put_pair(&line, name, va_arg(pairs, const char *));
    va_end(pairs);
    line.text[line.size++] = '\n';
    (void)!write(STDERR_FILENO, line.text, line.size);
}

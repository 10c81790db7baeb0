/* SPDX-License-Identifier: Apache-2.0 */
#include "service.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 4096 };

static serve_level threshold = SERVE_INFO;
static bool as_json;

void serve_log_setup(serve_level level, bool json)
{
    threshold = level;
    as_json = json;
}

bool serve_log_wants(serve_level level)
{
    return level <= threshold;
}

serve_number serve_integer(int64_t value)
{
    serve_number number;
    snprintf(number.text, sizeof number.text, "%lld", (long long)value);
    return number;
}

struct line {
    char text[LINE];
    size_t size;
};

static void put_char(struct line *line, char c)
{
    if (line->size < sizeof line->text - 8) /* room for what closes the line */
        line->text[line->size++] = c;
}

static void put_text(struct line *line, const char *text)
{
    for (; *text != 0; text++)
        put_char(line, *text);
}

/* Control bytes as \u00XX, which both forms understand; what is not UTF-8 stays as it is. */
static void put_quoted(struct line *line, const char *text)
{
    char escape[8];
    put_char(line, '"');
    for (; *text != 0; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') {
            put_char(line, '\\');
            put_char(line, *text);
        } else if (c < 0x20 || c == 0x7f) {
            snprintf(escape, sizeof escape, "\\u%04x", c);
            put_text(line, escape);
        } else {
            put_char(line, *text);
        }
    }
    put_char(line, '"');
}

static bool is_plain(const char *text)
{
    for (; *text != 0; text++)
        if ((unsigned char)*text <= ' ' || strchr("=\"\\\x7f", *text) != NULL)
            return false;
    return true;
}

static void put_pair(struct line *line, const char *name, const char *value)
{
    if (value == NULL || *value == 0)
        return;
    if (line->size > 1) {
        put_char(line, as_json ? ',' : ' ');
    }
    if (as_json)
        put_quoted(line, name);
    else
        put_text(line, name);
    put_char(line, as_json ? ':' : '=');
    if (!as_json && is_plain(value))
        put_text(line, value);
    else
        put_quoted(line, value);
}

void serve_log(serve_level level, const char *event, ...)
{
    static const char *const levels[] = {"error", "warn", "info", "debug"};
    struct line line = {.size = 0};
    struct timespec now;
    struct tm parts;
    char when[40];
    va_list pairs;
    if (!serve_log_wants(level))
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    size_t size = strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(when + size, sizeof when - size, ".%03dZ", (int)(now.tv_nsec / 1000000));
    if (as_json)
        put_char(&line, '{');
    put_pair(&line, "time", when);
    put_pair(&line, "level", levels[level]);
    put_pair(&line, "event", event);
    va_start(pairs, event);
    for (const char *name; (name = va_arg(pairs, const char *)) != NULL;)
        put_pair(&line, name, va_arg(pairs, const char *));
    va_end(pairs);
    if (as_json) {
        if (line.size == sizeof line.text - 8) /* cut short, perhaps within a text or an escape */
            line.size = (size_t)snprintf(line.text, sizeof line.text,
                                         "{\"level\":\"%s\",\"event\":\"a line too long to log\"",
                                         levels[level]);
        line.text[line.size++] = '}';
    }
    line.text[line.size++] = '\n';
    (void)!write(STDERR_FILENO, line.text, line.size);
}

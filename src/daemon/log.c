/* SPDX-License-Identifier: Apache-2.0 */
#include "service.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void serve_log(const char *format, ...)
{
    char line[4096];
    struct timespec now;
    struct tm parts;
    va_list values;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    size_t size = strftime(line, sizeof line, "time=%Y-%m-%dT%H:%M:%S", &parts);
    size += (size_t)snprintf(line + size, 8, ".%03dZ ", (int)(now.tv_nsec / 1000000));
    va_start(values, format);
    vsnprintf(line + size, sizeof line - size - 1, format, values);
    va_end(values);
    size = strlen(line);
    line[size++] = '\n';
    (void)!write(STDERR_FILENO, line, size);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Server-sent events, as they arrive: lines "event: NAME", "data: TEXT" (several are joined by line
 * breaks) and an empty line that ends the event. Comments, which keep a connection alive, and other
 * fields are passed over.
 */
#include "remote.h"

#include "error.h"

#include <stdio.h>
#include <string.h>

static void read_event_field(fa_events *events)
{
    const char *line = events->line.data, *colon = strchr(line, ':');
    size_t name = colon != NULL ? (size_t)(colon - line) : strlen(line);
    const char *value = colon == NULL ? "" : colon[1] == ' ' ? colon + 2 : colon + 1;
    if (name == 5 && memcmp(line, "event", 5) == 0) {
        snprintf(events->name, sizeof events->name, "%s", value);
    } else if (name == 4 && memcmp(line, "data", 4) == 0) {
        if (events->data.size > 0)
            fa_buf_text(&events->data, "\n");
        fa_buf_text(&events->data, value);
    }
}

static int end_event_line(fa_events *events)
{
    int rc = 0;
    if (events->line.size > 0) {
        read_event_field(events);
    } else if (events->data.size > 0) {
        rc = events->event(events->context, events->name, events->data.data, events->data.size);
        fa_buf_clear(&events->data);
        events->name[0] = 0;
    }
    fa_buf_clear(&events->line);
    return rc;
}

int fa_events_feed(fa_events *events, const char *bytes, size_t size)
{
    int rc = 0;
    for (size_t i = 0; i < size && rc == 0; i++) {
        bool second = events->after_return && bytes[i] == '\n';
        events->after_return = bytes[i] == '\r';
        if (second)
            continue;
        if (bytes[i] == '\n' || bytes[i] == '\r')
            rc = end_event_line(events);
        else
            fa_buf_append(&events->line, &bytes[i], 1);
        if (bytes[i] == 0 || events->line.failed || events->data.failed ||
            events->line.size > FA_EVENT_DATA_MAX || events->data.size > FA_EVENT_DATA_MAX)
            rc = FA_ECORRUPT;
    }
    return rc;
}

void fa_events_free(fa_events *events)
{
    fa_buf_free(&events->line);
    fa_buf_free(&events->data);
}
